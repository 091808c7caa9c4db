// Tree reduction with barriers down to one warp, then __syncwarp between reading and writing.
__global__ void reduce(const int *in, int *out, int n) {
    __shared__ int s[256];
    int t = threadIdx.x, i = blockIdx.x * 256 + t;
    s[t] = i < n ? in[i] : 0;
    __syncthreads();
    for (int stride = 128; stride >= 32; stride /= 2) {
        if (t < stride) s[t] += s[t + stride];
        __syncthreads();
    }
    if (t < 32) {
        int v = s[t];
        for (int stride = 16; stride > 0; stride /= 2) {
            if (t < stride) v += s[t + stride];
            __syncwarp();
            if (t < stride) s[t] = v;
            __syncwarp();
        }
        if (t == 0) out[blockIdx.x] = v;
    }
}
