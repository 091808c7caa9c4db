// Wrong: <= lets the thread after the last element in.
// LAUNCH: grid=2 block=64 args=in:float32[100],out:float32[100],n:int32=100
__global__ void copy(const float *in, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= n) out[i] = in[i];                  // HAZARD: out-of-bounds
}
