"""The native engine: a kernel's code as arrays of numbers, run by a C++ library (`native/` at the top), whose counts
become a `Report`. What it cannot run, and each launch in which it suspects a fault, runs on the NumPy engine."""
