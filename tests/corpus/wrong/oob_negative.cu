// Wrong: the first thread has no left neighbour.
// LAUNCH: grid=2 block=64 args=in:float32[128],out:float32[128],n:int32=128
__global__ void difference(const float *in, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = in[i] - in[i - 1];       // HAZARD: out-of-bounds
}
