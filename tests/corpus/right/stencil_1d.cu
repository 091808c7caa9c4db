// Mean over 2R + 1 neighbours inside the array, staged with its halo.
#define R 3
__global__ void stencil(const float *in, float *out, int n) {
    extern __shared__ float s[];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t, g = t + R;
    s[g] = i < n ? in[i] : 0;
    if (t < R) {
        s[g - R] = i >= R && i - R < n ? in[i - R] : 0;
        int right = i + blockDim.x;
        s[g + blockDim.x] = right < n ? in[right] : 0;
    }
    __syncthreads();
    if (i < n) {
        float sum = 0;
        for (int k = -R; k <= R; k++) sum += s[g + k];
        out[i] = sum / (2 * R + 1);
    }
}
