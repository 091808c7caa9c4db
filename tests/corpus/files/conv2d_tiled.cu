// A convolution whose mask is in constant memory, filled by the host: without it, it is zeros.
// run: -g '2,2' -b '12,12' --arg 'N=float32[16,16]:random' --arg 'P=float32[16,16]:empty' --arg width=16 --expect 'P=0*N'
// expect: ok
#define MASK_WIDTH 5
#define O_TILE 8
__constant__ float M[MASK_WIDTH][MASK_WIDTH];

__global__ void convolution(const float *__restrict__ N, float *P, int width) {
    __shared__ float Ns[O_TILE + MASK_WIDTH - 1][O_TILE + MASK_WIDTH - 1];
    int tx = threadIdx.x, ty = threadIdx.y, ro = blockIdx.y * O_TILE + ty, co = blockIdx.x * O_TILE + tx;
    int ri = ro - MASK_WIDTH / 2, ci = co - MASK_WIDTH / 2;
    Ns[ty][tx] = ri >= 0 && ri < width && ci >= 0 && ci < width ? N[ri * width + ci] : 0.0f;
    __syncthreads();
    if (ty < O_TILE && tx < O_TILE && ro < width && co < width) {
        float out = 0.0f;
        for (int i = 0; i < MASK_WIDTH; i++)
            for (int j = 0; j < MASK_WIDTH; j++) out += M[i][j] * Ns[i + ty][j + tx];
        P[ro * width + co] = out;
    }
}

void fill() {
    float h[MASK_WIDTH * MASK_WIDTH];
    cudaMemcpyToSymbol(M, h, sizeof(h));
}
