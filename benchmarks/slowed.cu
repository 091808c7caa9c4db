// Kernels that are slower by a known part: each does PERCENT more of the one thing that its time is made of, and the
// result stays right. `zero` is 0 at run time, which the compiler cannot know.

#ifndef PERCENT
#define PERCENT 0
#endif
#define MORE(amount) ((amount) + (int)((amount) / 100 * PERCENT)) // PERCENT may be 0.5

// Bytes of device memory: the first PERCENT of the elements are copied once more, long after the L2 forgot them.
__global__ void stream(const float4 *in, float4 *out, int n, float zero)
{
    int total = MORE(n / 4);
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += gridDim.x * blockDim.x) {
        int at = i < n / 4 ? i : i - n / 4;
        out[at] = in[at];
    }
}

// Arithmetic: a chain of multiplications and additions for each element.
__global__ void arithmetic(const float *in, float *out, int n, float zero)
{
    float one = 1.0f + zero;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        float value = in[i];
#pragma unroll 20
        for (int step = 0; step < MORE(1000); step++)
            value = fmaf(value, one, zero);
        out[i] = value;
    }
}

// Latency: loads of which each needs the one before for its address.
__global__ void chase(const float *in, float *out, int n, float zero)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float value = 0.0f;
        for (int hop = 0; hop < MORE(400); hop++)
            value = __ldcg(in + i + (int)(value * zero));
        out[i] = value;
    }
}
