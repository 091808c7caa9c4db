// Wrong: the threads behind the end have left before the barrier.
// LAUNCH: grid=2 block=64 args=in:float32[100],out:float32[100],n:int32=100
__global__ void swap(const float *in, float *out, int n) {
    __shared__ float s[64];
    int t = threadIdx.x, i = blockIdx.x * 64 + t;
    if (i >= n) return;
    s[t] = in[i];
    __syncthreads();                             // HAZARD: divergent-barrier
    out[i] = s[t ^ 1];
}
