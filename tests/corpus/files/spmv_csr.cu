// Sparse matrix in rows, one thread a row; the header of the sparse library is there for the host.
// run: -k spmv_csr -g 'cdiv(rows,32)' -b 32 --arg rows=50 --arg 'ptr=int32[51]:arange' --arg 'col=int32[50]:arange'
//      --arg 'val=float32[50]:random' --arg 'x=float32[50]:random' --arg 'y=float32[50]:empty' --expect 'y=val*x'
// expect: ok
#include <cusparse.h>
static cusparseHandle_t cusparse;

template <typename I, typename V> struct Csr {
    I *ptr, *col;
    V *val;
};
__global__ void spmv_csr(int rows, const int *ptr, const int *col, const float *val, const float *x, float *y) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float dot = 0;
    for (int k = ptr[row]; k < ptr[row + 1]; k++) dot += val[k] * x[col[k]];
    y[row] = dot;
}
