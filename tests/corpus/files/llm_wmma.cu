// A 16 x 16 product on tensor cores by nvcuda::wmma.
// run: -g 1 -b 32 --arg 'a=float16[16,16]:random' --arg 'b=float16[16,16]:random' --arg 'c=float32[16,16]:empty'
//      --expect 'c=a@b' --rtol 1e-3
// expect: ok
#include <mma.h>
using namespace nvcuda;

__global__ void tensor(const half *a, const half *b, float *c) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> fb;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> fc;
    wmma::fill_fragment(fc, 0.0f);
    wmma::load_matrix_sync(fa, a, 16);
    wmma::load_matrix_sync(fb, b, 16);
    wmma::mma_sync(fc, fa, fb, fc);
    wmma::store_matrix_sync(c, fc, 16, wmma::mem_row_major);
}
