"""CUDA C++ to PTX and machine code: reading sources, compilers, names, diagnostics."""
