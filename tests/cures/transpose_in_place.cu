// Wrong: a tile is transposed in place.
// LAUNCH: grid=1 block=16,16 args=a:float32[256]
// SAYS: ?
__global__ void transpose(float *a) {
    int x = threadIdx.x, y = threadIdx.y;
#ifdef MENDED
    float v = a[x * 16 + y];
    __syncthreads();
    a[y * 16 + x] = v;
#else
    a[y * 16 + x] = a[x * 16 + y];  // HAZARD: race
#endif
}
