// Wrong: both threads of a pair compare and swap.
// LAUNCH: grid=1 block=128 args=x:float32[128]
// SAYS: both threads may swap the same two elements: let one of the two do it
__global__ void sort(float *x) {
    __shared__ float s[128];
    int i = threadIdx.x;
    s[i] = x[127 - i];
    __syncthreads();
    for (int k = 2; k <= 128; k *= 2)
        for (int j = k / 2; j > 0; j /= 2) {
            int ixj = i ^ j;
#ifdef MENDED
            if (ixj > i)
#endif
            if ((i & k) == 0 ? s[i] > s[ixj] : s[i] < s[ixj]) {
                float v = s[i];
                s[i] = s[ixj];  // HAZARD: race
                s[ixj] = v;  // HAZARD: race
            }
            __syncthreads();
        }
    x[i] = s[i];
}
