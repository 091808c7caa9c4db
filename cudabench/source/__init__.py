"""What CUDA sources declare: kernels, types, constants, read by a C++ parser."""
