"""Compiles CUDA C++: a source in, PTX, cubin or an error of one sentence out."""
