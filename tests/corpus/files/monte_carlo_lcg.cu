// A generator of the file's own, one state a thread.
// run: -k draw -g 2 -b 32 --arg 'state=uint32[64]:arange' --arg 'out=float32[64]:empty' --arg rounds=1
//      --expect 'state=np.uint32(state0*1664525+1013904223)'
// expect: ok
__device__ __forceinline__ float uniform(unsigned &s) {
    s = s * 1664525u + 1013904223u;
    return (s >> 8) * (1.0f / 16777216.0f);
}

__global__ void draw(unsigned *state, float *out, int rounds) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned s = state[i];
    float sum = 0;
    for (int r = 0; r < rounds; r++) sum += uniform(s);
    state[i] = s;
    out[i] = sum / rounds;
}
