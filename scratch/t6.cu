#include "turn.cuh"
template __global__ void turn_kernel<Turn<256, 4, 2, 8>>(const __grid_constant__ CUtensorMap, const __grid_constant__ CUtensorMap, const __grid_constant__ CUtensorMap, __nv_bfloat16 *, int, int, int);
