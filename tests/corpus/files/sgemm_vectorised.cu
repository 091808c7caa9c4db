// Loads of sixteen bytes through reinterpret_cast.
// run: -k sgemm_vec -g '2,1' -b '8,16' --arg 'A=float32[32,16]:random' --arg 'B=float32[16,32]:random'
//      --arg 'C=float32[32,32]:empty' --expect 'C=A@B'
// expect: ok
#define FLOAT4(p) (reinterpret_cast<float4 *>(&(p))[0])
#define CFLOAT4(p) (reinterpret_cast<const float4 *>(&(p))[0])

__global__ void sgemm_vec(const float *A, const float *B, float *C) {
    const int N = 32, K = 16;
    int row = blockIdx.x * blockDim.y + threadIdx.y, col = threadIdx.x * 4;
    float4 sum = make_float4(0, 0, 0, 0);
    for (int k = 0; k < K; k += 4) {
        float4 a = CFLOAT4(A[row * K + k]);
        float as[4] = {a.x, a.y, a.z, a.w};
        for (int i = 0; i < 4; i++) {
            float4 b = CFLOAT4(B[(k + i) * N + col]);
            sum.x += as[i] * b.x, sum.y += as[i] * b.y, sum.z += as[i] * b.z, sum.w += as[i] * b.w;
        }
    }
    FLOAT4(C[row * N + col]) = sum;
}
