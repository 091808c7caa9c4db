"""Reads CUDA sources with a C++ parser, and returns the kernels, types and constants that they declare."""
