#include "split.cuh"
template __global__ void split_kernel<Sp<2, 4, 2, 16, 1>>(const __grid_constant__ CUtensorMap, const __grid_constant__ CUtensorMap, float *, int, int, int);
