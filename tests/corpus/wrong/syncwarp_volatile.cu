// Wrong: volatile keeps the compiler from caching, it does not order the threads of a warp.
// LAUNCH: grid=1 block=64 args=in:float32[64],out:float32[1]
__global__ void reduce(const float *in, float *out) {
    __shared__ float s[64];
    int t = threadIdx.x;
    s[t] = in[t];
    __syncthreads();
    if (t < 32) {
        volatile float *v = s;
#pragma unroll 1
        for (int stride = 32; stride > 0; stride /= 2)
            v[t] = v[t] + v[t + stride];         // HAZARD: race
        if (t == 0) out[0] = v[0];
    }
}
