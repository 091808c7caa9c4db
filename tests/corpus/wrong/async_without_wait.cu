// Wrong: the asynchronous copy is never waited for; a barrier alone does not complete it.
// LAUNCH: grid=1 block=64 args=in:float32[64],out:float32[64]
__global__ void copy(const float *in, float *out) {
    __shared__ float s[64];
    int t = threadIdx.x;
    unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(&s[t]));
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(in + t) : "memory");     // HAZARD: race
    asm volatile("cp.async.commit_group;" ::: "memory");
    __syncthreads();
    out[t] = s[63 - t];                          // HAZARD: race
}
