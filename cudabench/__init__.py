"""Run, verify, time and explain CUDA kernels from `.cu` files."""

__version__ = "0.1.0"
