// The kernel stands in a header beside the program, as samples have it.
// run: -k 'transpose_tile<float>' -g '3,2' -b '16,16' --arg 'in=float32[20,40]:random' --arg 'out=float32[40,20]:empty'
//      --arg rows=20 --arg cols=40 --expect 'out=np.transpose(in)'
// expect: ok
#include <stdio.h>
#include "transpose_kernel.cuh"

int main() {
    dim3 grid(3, 2), block(TILE_DIM, TILE_DIM);
    transpose_tile<float><<<grid, block>>>(nullptr, nullptr, 20, 40);
    return cudaDeviceSynchronize();
}
