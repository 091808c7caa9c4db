// A texture reference whose type has a name of its own: refused as any other.
// run: -g 4 -b 64 --arg 'out=float32[256]:empty' --arg n=256
// expect: refused: reads the texture reference 'profile', which CUDA 12 removed from the language.*tex1Dfetch<float>\(profile, i\)
typedef texture<float, 1, cudaReadModeElementType> line_t;

static line_t profile;

__global__ void sample(float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = 2 * tex1Dfetch(profile, i);
}
