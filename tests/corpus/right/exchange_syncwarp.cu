// Neighbours of a warp exchange values through shared memory, in order by __syncwarp.
__global__ void exchange(float *x, int n) {
    __shared__ float s[64];
    int t = threadIdx.x, i = blockIdx.x * 64 + t;
    s[t] = i < n ? x[i] : 0;
    __syncwarp();
    float other = s[t ^ 1];
    __syncwarp();
    if (i < n && (i ^ 1) < n) x[i] = other;
}
