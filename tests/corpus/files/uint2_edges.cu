// Edges of a graph as pairs.
// run: -k degree -g 'cdiv(m,32)' -b 32 --arg 'edges=uint32[m,2]:random' --arg 'out=uint32[100]:zeros' --arg m=70
//      --expect 'out=np.bincount(np.ravel(edges),minlength=100)'
// expect: ok
__global__ void degree(const uint2 *edges, unsigned int *out, int m) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= m) return;
    atomicAdd(&out[edges[i].x], 1u);
    atomicAdd(&out[edges[i].y], 1u);
}
