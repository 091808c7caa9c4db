#include "simt.cuh"
#define ONE(...) template __global__ void simt_kernel<Simt<__VA_ARGS__>>(const float *, const float *, float *, int, int, int);
ONE(16, 8, 2, 4, 16, 3, 16, 0, 16)
ONE(16, 8, 2, 4, 8, 4, 8, 0, 16)
ONE(16, 8, 2, 4, 16, 3, 4, 0, 16)
ONE(16, 8, 2, 4, 16, 3, 4, 1, 16)
ONE(16, 8, 2, 4, 8, 4, 8, 1, 16)
ONE(8, 8, 2, 2, 16, 3, 16, 1, 16, 2)
