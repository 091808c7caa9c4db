// Every element counts those before it.
// run: -g 'cdiv(n,32)' -b 32 --arg 'in=float64[n]:random' --arg 'out=float64[n]:empty' --arg n=100 --expect 'out=np.sort(in)'
// expect: ok
__global__ void rank_sort(const double *in, double *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int rank = 0;
    for (int j = 0; j < n; j++) rank += in[j] < in[i] || (in[j] == in[i] && j < i);
    out[rank] = in[i];
}
