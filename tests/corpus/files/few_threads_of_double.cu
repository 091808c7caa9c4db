// Long sums in double precision by few threads of a launch that is far too large.
// run: -g 512 -b 256 --arg 'x=float64[n]:random' --arg 'y=float64[rows]:zeros' --arg n=400 --arg rows=40
//      --expect 'y=np.sum(x)*(np.arange(40)+0.5)**2' --rtol 1e-9
// expect: ok
__global__ void weighted_sums(const double *x, double *y, int n, int rows) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    double weight = row + 0.5, sum = 0;
    for (int i = 0; i < n; i++) sum += x[i] * weight * weight;
    y[row] = sum;
}
