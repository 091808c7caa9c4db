#include "half.cuh"
template __global__ void half_kernel<Half<256, 4, 2, 8, 1>>(const __grid_constant__ CUtensorMap, const __grid_constant__ CUtensorMap, const __grid_constant__ CUtensorMap, __nv_bfloat16 *, int, int, int);
