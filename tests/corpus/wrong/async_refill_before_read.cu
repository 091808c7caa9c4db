// Wrong: the slot is filled anew while the neighbour may still read it: __syncwarp is missing.
// LAUNCH: grid=1 block=64 args=in:float32[256],out:float32[64]
__global__ void copy(const float *in, float *out) {
    __shared__ float s[64];
    int t = threadIdx.x;
    unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(&s[t]));
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(in + t) : "memory");
    asm volatile("cp.async.commit_group;" ::: "memory");
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncwarp();
    float first = s[t ^ 1];
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(in + 64 + t) : "memory");  // HAZARD: race
    asm volatile("cp.async.commit_group;" ::: "memory");
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    out[t] = first + s[t];
}
