// Wrong: pairs of threads write different values to one byte; the bytes of neighbouring pairs share words, rightly.
// LAUNCH: grid=1 block=64 args=in:uint8[64],out:uint8[32]
__global__ void halve(const unsigned char *in, unsigned char *out) {
    __shared__ unsigned char s[32];
    int t = threadIdx.x;
    s[t / 2] = in[t] + t;                        // HAZARD: race
    __syncthreads();
    if (t < 32) out[t] = s[31 - t];
}
