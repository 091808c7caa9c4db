// The mean of three neighbours, from a tile in shared memory; -D TILE sets the block. Its launch:
//
//   cudabench run examples/stencil.cu --grid 'cdiv(n,256)' --block 256 --arg n=100000 \
//       --arg 'in=float32[n+2]:random' --arg 'out=float32[n]:empty' \
//       --expect 'out=(in[:-2]+in[1:-1]+in[2:])/3' --bytes '8*n'

#ifndef TILE
#define TILE 256
#endif

__global__ void stencil(int n, const float *in, float *out)
{
    __shared__ float tile[TILE + 2];
    int first = blockIdx.x * TILE, i = first + threadIdx.x;
    for (int at = threadIdx.x; at < TILE + 2 && first + at < n + 2; at += TILE)
        tile[at] = in[first + at];
    __syncthreads();
    if (i < n)
        out[i] = (tile[threadIdx.x] + tile[threadIdx.x + 1] + tile[threadIdx.x + 2]) / 3;
}
