// Wrong: the tree reduction has a barrier in front of its loop and none in it.
// LAUNCH: grid=2 block=128 args=in:float32[256],out:float32[2]
__global__ void reduce(const float *in, float *out) {
    __shared__ float s[128];
    int t = threadIdx.x;
    s[t] = in[blockIdx.x * blockDim.x + t];
    __syncthreads();
    for (int stride = blockDim.x / 2; stride > 0; stride /= 2) {
        if (t < stride) s[t] += s[t + stride];   // HAZARD: race
    }
    if (t == 0) out[blockIdx.x] = s[0];
}
