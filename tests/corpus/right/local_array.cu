// Each thread sorts eight values in an array of its own, indexed at run time: local memory.
__global__ void sort8(const int *in, int *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int v[8];
    for (int k = 0; k < 8; k++) v[k] = in[8 * i + k];
#pragma unroll 1
    for (int k = 1; k < 8; k++) {
        int x = v[k], j = k;
        while (j > 0 && v[j - 1] > x) {
            v[j] = v[j - 1];
            j--;
        }
        v[j] = x;
    }
    for (int k = 0; k < 8; k++) out[8 * i + k] = v[k];
}
