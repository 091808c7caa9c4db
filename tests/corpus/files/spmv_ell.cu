// ELLPACK, entries column by column so that accesses join.
// run: -g 'cdiv(rows,32)' -b 32 --arg rows=40 --arg width=3 --arg 'col=int32[3,40]:zeros' --arg 'val=float32[3,40]:random'
//      --arg 'x=float32[40]:ones' --arg 'y=float32[40]:empty' --expect 'y=np.sum(val,axis=0)'
// expect: ok
__global__ void spmv_ell(unsigned rows, unsigned width, const int *col, const float *val, const float *x, float *y) {
    for (unsigned r = blockIdx.x * blockDim.x + threadIdx.x; r < rows; r += gridDim.x * blockDim.x) {
        float sum = 0.f;
        for (unsigned k = 0; k < width; ++k) {
            const float v = val[k * rows + r];
            if (v != 0) sum += v * x[col[k * rows + r]];
        }
        y[r] = sum;
    }
}
