// Wrong: a tile is transposed in place.
// LAUNCH: grid=1 block=16,16 args=a:float32[256]
// SAYS: Keep what is read in a variable, and put __syncthreads() between the reads and the writes
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
