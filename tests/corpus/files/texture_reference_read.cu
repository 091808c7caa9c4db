// A kernel reads a texture reference by a function, which CUDA 12 dropped; the message says what takes its place.
// run: -k smooth -g 1 -b 32 --arg 'out=float32[32]:zeros'
// expect: refused: texture reference 'profile'.*add a parameter 'cudaTextureObject_t profile', also to a function that reads it.*tex1Dfetch<float>
// then: -k doubled -g 1 -b 32 --arg 'out=float32[32]:random' --expect 'out=2*out0'
texture<float, 1, cudaReadModeElementType> profile;

__device__ float at(int i) { return tex1Dfetch(profile, i); }

__global__ void smooth(float *out) { out[threadIdx.x] = 0.5f * (at(threadIdx.x) + at(threadIdx.x + 1)); }

// A variable of its own has the name of the reference.
__global__ void doubled(float *out)
{
    float profile = out[threadIdx.x];
    out[threadIdx.x] = profile + profile;
}
