#include "tf32.cuh"
template __global__ void tf32_kernel<Tf<256, 4, 2, 8>>(const __grid_constant__ CUtensorMap, const __grid_constant__ CUtensorMap, float *, int, int, int);
