#include "simt.cuh"
#define ONE(...) template __global__ void simt_kernel<Simt<__VA_ARGS__>>(const float *, const float *, float *, int, int, int);
ONE(16, 8, 2, 4, 16, 3, 16, 3, 16)
