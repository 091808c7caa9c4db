"""Compiles CUDA C++ to PTX or a cubin, or raises an error of one sentence."""
