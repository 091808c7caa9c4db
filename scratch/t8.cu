#include "simt3.cuh"
#define ONE(...) template __global__ void simt3_kernel<Simt3<__VA_ARGS__>>(const __grid_constant__ CUtensorMap, const __grid_constant__ CUtensorMap, const float *, const float *, float *, int, int, int);
ONE(16, 8, 2, 4, 3, 0, 1, 1)
ONE(16, 8, 2, 4, 3, 1, 1, 1)
ONE(16, 8, 2, 4, 3, 0, 7, 1)
ONE(8, 8, 4, 2, 3, 0, 1, 2)
ONE(8, 16, 4, 2, 3, 0, 1, 1)
