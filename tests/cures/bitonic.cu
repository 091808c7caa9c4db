// Wrong: a bitonic sort with no barrier between its exchanges.
// LAUNCH: grid=1 block=128 args=x:float32[128]
// SAYS: Put __syncthreads() at the end of the body of the loop in line 7, after line 13, outside of the condition in line
__global__ void sort(float *x) {
    int t = threadIdx.x;
    for (int k = 2; k <= 128; k *= 2)
        for (int j = k / 2; j > 0; j /= 2) {
            int p = t ^ j;
            if (p > t && (x[t] > x[p]) == !(t & k)) {  // HAZARD: race
                float v = x[t];
                x[t] = x[p];  // HAZARD: race
                x[p] = v;  // HAZARD: race
            }
#ifdef MENDED
            __syncthreads();
#endif
        }
}
