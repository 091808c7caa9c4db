#include "simt2.cuh"
#define ONE(...) template __global__ void simt2_kernel<Simt2<__VA_ARGS__>>(const __grid_constant__ CUtensorMap, const __grid_constant__ CUtensorMap, const float *, const float *, float *, int, int, int);
ONE(8, 8, 4, 2, 3, 0, 0, 2)
ONE(8, 8, 4, 2, 3, 1, 0, 2)
ONE(16, 8, 2, 4, 3, 1, 0, 1)
ONE(8, 16, 4, 2, 3, 1, 0, 1)
