"""Compiles CUDA C++ to PTX or to a cubin; if that fails, raises an error with a message of one sentence."""
