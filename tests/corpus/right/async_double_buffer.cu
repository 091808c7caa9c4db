// Sums tiles that the asynchronous copy brings in one step ahead: wait for a group, barrier, use, barrier.
__device__ void fetch(float *to, const float *from) {
    unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(address), "l"(from) : "memory");
    asm volatile("cp.async.commit_group;" ::: "memory");
}
__global__ void sums(const float *in, float *out, int tiles) {
    __shared__ float s[2][64];
    int t = threadIdx.x;
    float sum = 0;
    fetch(&s[0][t], in + t);
    for (int k = 0; k < tiles; k++) {
        if (k + 1 < tiles) {
            fetch(&s[(k + 1) % 2][t], in + (k + 1) * 64 + t);
            asm volatile("cp.async.wait_group 1;" ::: "memory");
        } else {
            asm volatile("cp.async.wait_group 0;" ::: "memory");
        }
        __syncthreads();
        sum += s[k % 2][63 - t];
        __syncthreads();
    }
    out[t] = sum;
}
