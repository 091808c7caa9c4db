// Wrong: blocks add to the same elements.
// LAUNCH: grid=4 block=64 args=a:float32[1000],c:float32[250],n:int32=250
// SAYS: if each block has its own elements, add blockIdx.x * blockDim.x to it; else update it by an atomic
__global__ void columns(const float *a, float *c, int n) {
    for (int j = threadIdx.x; j < n; j += blockDim.x)
#ifdef MENDED
        atomicAdd(&c[j], a[blockIdx.x * n + j]);
#else
        c[j] += a[blockIdx.x * n + j];  // HAZARD: race
#endif
}
