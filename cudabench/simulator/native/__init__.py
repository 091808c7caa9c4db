"""The native engine, a C++ library (`native/` at the top of the repository) that runs kernels and counts what they do.

It gets a kernel's code as arrays of numbers, and its counts become a `Report`. Launches that it cannot run, and those
in which it suspects a hazard, run on the NumPy engine.
"""
