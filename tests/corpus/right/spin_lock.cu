// A lock by compare-and-swap: what stands between the fences is one thread's at a time, volatile or not.
__global__ void locked(const int *in, int *lock, volatile int *count, int *sum, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    bool done = false;
    while (!done) {
        if (atomicCAS(lock, 0, 1) == 0) {
            __threadfence();
            *count = *count + 1;
            *sum += in[i];
            __threadfence();
            atomicExch(lock, 0);
            done = true;
        }
    }
}
