// Each thread copies into its slot, and its neighbour reads it: __syncwarp after the wait, and again before the slot is
// filled anew. Warps run different numbers of turns.
__global__ void swap_sums(const float *in, float *out, int turns) {
    __shared__ float s[64];
    int t = threadIdx.x;
    unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(&s[t]));
    float sum = 0;
    for (int k = 0; k < turns + t / 32; k++) {
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(in + k * 64 + t) : "memory");
        asm volatile("cp.async.wait_all;" ::: "memory");
        __syncwarp();
        sum += s[t ^ 1];
        __syncwarp();
    }
    out[t] = sum;
}
