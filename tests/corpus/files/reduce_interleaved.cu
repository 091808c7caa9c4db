// First rung of a reduction: interleaved addressing, the modulo diverges.
// run: -k reduce0 -g 4 -b 128 --shared '128*4' --arg 'in=int32[512]:random' --arg 'out=int32[4]:empty' --arg n=512
//      --expect 'out=np.sum(np.reshape(in,(4,128)),axis=1)'
// expect: ok
__global__ void reduce0(const int *in, int *out, unsigned int n) {
    extern __shared__ int sdata[];
    unsigned int tid = threadIdx.x, i = blockIdx.x * blockDim.x + threadIdx.x;
    sdata[tid] = i < n ? in[i] : 0;
    __syncthreads();
    for (unsigned int s = 1; s < blockDim.x; s *= 2) {
        if (tid % (2 * s) == 0) sdata[tid] += sdata[tid + s];
        __syncthreads();
    }
    if (tid == 0) out[blockIdx.x] = sdata[0];
}
