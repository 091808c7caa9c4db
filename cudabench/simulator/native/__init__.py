"""The native engine, a C++ library (`native/` at the top of the repository) that runs kernels and counts their
instructions and memory requests.

The library gets a kernel's code as arrays of numbers, and its counts are converted to a `Report`. Launches that the
native engine cannot run, and launches in which it suspects a hazard, run on the NumPy engine.
"""
