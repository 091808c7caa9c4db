// Wrong: the reader gives all places of the ring back at once, before it has read them.
// LAUNCH: grid=2 block=32 args=x:int32[64],out:int32[64]
__device__ int ring[4];
__device__ volatile int head, tail;
__global__ void pipe(const int *x, int *out) {
    if (threadIdx.x) return;
    for (int i = 0; i < 64; i++)
        if (blockIdx.x == 0) {
            while (i - tail >= 4) ;
            __threadfence();
            ring[i % 4] = x[i] + i;              // HAZARD: race
            __threadfence();
            head = i + 1;
        } else {
            while (head <= i) ;
            __threadfence();
            if (i == 0) tail = 64;
            out[i] = ring[i % 4];                // HAZARD: race
        }
}
