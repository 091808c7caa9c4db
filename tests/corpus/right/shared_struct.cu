// Records of a char, a double and two shorts in shared memory, their fields written by different threads.
struct Record {
    char tag;
    double value;
    short pair[2];
};
__global__ void records(const double *in, double *out) {
    __shared__ Record s[16];
    int t = threadIdx.x, r = t / 4;
    switch (t % 4) {
        case 0: s[r].tag = r; break;
        case 1: s[r].value = in[blockIdx.x * 16 + r]; break;
        case 2: s[r].pair[0] = 2 * r; break;
        case 3: s[r].pair[1] = 3 * r; break;
    }
    __syncthreads();
    if (t < 16) out[blockIdx.x * 16 + t] = s[t].tag + s[t].value + s[t].pair[0] * s[t].pair[1];
}
