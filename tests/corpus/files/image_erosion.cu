// Separable erosion; the direction is a template's flag.
// run: -k 'erode<true>' -g 4 -b 16 --arg 'in=int32[4,16]:random' --arg 'out=int32[4,16]:empty'
//      --expect 'out=np.minimum(np.minimum(in,np.pad(in,((0,0),(1,0)),"edge")[:,:16]),np.pad(in,((0,0),(0,1)),"edge")[:,1:])'
// expect: refused: \"
// then: -k 'erode<true>' -g 4 -b 16 --arg 'in=int32[4,16]:random' --arg 'out=int32[4,16]:empty'
//      --expect 'out=np.minimum(np.minimum(in,in[:,np.maximum(np.arange(16)-1,0)]),in[:,np.minimum(np.arange(16)+1,15)])'
template <bool Horizontal> __global__ void erode(const int *in, int *out) {
    int x = threadIdx.x, y = blockIdx.x, w = blockDim.x, h = gridDim.x, best = in[y * w + x];
    for (int d = -1; d <= 1; d += 2) {
        int u = Horizontal ? min(max(x + d, 0), w - 1) : x, v = Horizontal ? y : min(max(y + d, 0), h - 1);
        best = min(best, in[v * w + u]);
    }
    out[y * w + x] = best;
}
