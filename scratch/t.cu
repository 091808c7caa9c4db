#include "tf32.cuh"
#include "split.cuh"
#include "half.cuh"
template __global__ void tf32_kernel<Tf<256, 4, 2, 8>>(const __grid_constant__ CUtensorMap, const __grid_constant__ CUtensorMap, float *, int, int, int);
template __global__ void split_kernel<Sp<2, 4, 2, 16, 1>>(const __grid_constant__ CUtensorMap, const __grid_constant__ CUtensorMap, float *, int, int, int);
template __global__ void half_kernel<Half<256, 4, 2, 8, 1>>(const __grid_constant__ CUtensorMap, const __grid_constant__ CUtensorMap, const __grid_constant__ CUtensorMap, __nv_bfloat16 *, int, int, int);
