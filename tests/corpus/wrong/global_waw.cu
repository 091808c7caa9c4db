// Wrong: every thread of the block writes its own value to one element.
// LAUNCH: grid=1 block=64 args=in:float32[64],out:float32[1]
__global__ void last(const float *in, float *out) {
    out[0] = in[threadIdx.x] + threadIdx.x;      // HAZARD: race
}
