// One dimension, radius in a macro, halo in shared memory.
// run: -k stencil_1d -D RADIUS=2 -g 4 -b 32 --arg 'in=int32[132]:random' --arg 'out=int32[128]:empty'
//      --expect 'out=in[0:128]+in[1:129]+in[2:130]+in[3:131]+in[4:132]'
// expect: ok
#ifndef RADIUS
#define RADIUS 3
#endif
#define BLOCK_SIZE 32

__global__ void stencil_1d(const int *in, int *out) {
    __shared__ int temp[BLOCK_SIZE + 2 * RADIUS];
    int gindex = threadIdx.x + blockIdx.x * blockDim.x + RADIUS;
    int lindex = threadIdx.x + RADIUS;
    temp[lindex] = in[gindex];
    if (threadIdx.x < RADIUS) {
        temp[lindex - RADIUS] = in[gindex - RADIUS];
        temp[lindex + BLOCK_SIZE] = in[gindex + BLOCK_SIZE];
    }
    __syncthreads();
    int result = 0;
    for (int offset = -RADIUS; offset <= RADIUS; offset++) result += temp[lindex + offset];
    out[gindex - RADIUS] = result;
}
