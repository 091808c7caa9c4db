// A sparse matrix as a struct with pointers and a method, several lanes a row.
// run: -k 'csr_vector<float, 8>' -g cdiv(rows*8,64) -b 64 --arg
//      'A={rows: rows, nnz: 5*rows, ptr: int32[rows+1]:5*i0, idx: int32[5*rows]:(7*i0)%rows, val: float32[5*rows]:random}'
//      --arg 'x=float32[rows]:random' --arg 'y=float32[rows]:empty' --arg rows=40 --expect
//      'y=np.sum(np.reshape(A_val*x[A_idx],(rows,5)),1)'
// expect: ok
#include <cusparse.h>
#include <cstdio>
#include <cstdlib>
#define CHECK_CUSPARSE(f) { cusparseStatus_t s = (f); if (s != CUSPARSE_STATUS_SUCCESS) { printf("CUSPARSE API failed at line %d\n", __LINE__); exit(1); } }
template <typename T> struct csr_matrix {
    int rows, nnz;
    const int *__restrict__ ptr;
    const int *idx;
    const T *val;
    csr_matrix() = default;
    __device__ __forceinline__ T dot(int row, const T *x, int lane, int width) const {
        T s = 0;
        for (int j = ptr[row] + lane; j < ptr[row + 1]; j += width) s = fma(val[j], x[idx[j]], s);
        return s;
    }
};
template <typename T, int WIDTH>
__global__ void csr_vector(const csr_matrix<T> A, const T *x, T *y, int rows) {
    const int t = blockIdx.x * blockDim.x + threadIdx.x, row = t / WIDTH, lane = t % WIDTH;
    T s = row < rows ? A.dot(row, x, lane, WIDTH) : T(0);
#pragma unroll
    for (int o = WIDTH / 2; o; o /= 2) s += __shfl_down_sync(0xffffffffu, s, o, WIDTH);
    if (lane == 0 && row < rows) y[row] = s;
}
int main() { cusparseHandle_t h; CHECK_CUSPARSE(cusparseCreate(&h)); csr_matrix<float> m; csr_vector<float, 8><<<1, 64>>>(m, nullptr, nullptr, 0); return EXIT_SUCCESS; }
