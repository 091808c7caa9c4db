// The nearest of a few centres, distances in registers.
// run: -k 'assign<2, 3>' -g 'cdiv(n,64)' -b 64 --arg 'points=float32[n,2]:random' --arg 'centres=float32[3,2]:zeros'
//      --arg 'label=int32[n]:empty' --arg n=100 --expect 'label=np.zeros(100,dtype=np.int32)'
// expect: ok
template <int DIM, int K> __global__ void assign(const float *points, const float *centres, int *label, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float best = __int_as_float(0x7f800000);
    int which = -1;
#pragma unroll
    for (int k = 0; k < K; ++k) {
        float d = 0;
#pragma unroll
        for (int j = 0; j < DIM; ++j) {
            float t = points[i * DIM + j] - centres[k * DIM + j];
            d += t * t;
        }
        if (d < best) best = d, which = k;
    }
    label[i] = which;
}
