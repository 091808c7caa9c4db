// Matrices as arrays of pointers to their rows: written so, as a parameter that is an array, and of structs.
// run: -k add_rows -g 3,2 -b 16,16 --arg 'a=float32[rows,cols]:random' --arg 'b=float32[rows,cols]:random'
//      --arg 'sum=float32[rows,cols]:empty' --arg rows=20 --arg cols=45 --expect 'sum=a+b'
// expect: ok
#include <cstdio>

__global__ void add_rows(const float *const *a, float **b, float *sum[], int rows, int cols)
{
    int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < rows && col < cols) sum[row][col] = a[row][col] + b[row][col];
}

int main()
{
    const int rows = 20, cols = 45;
    float **a, **b, **sum;
    cudaMallocManaged(&a, rows * sizeof(float *));
    cudaMallocManaged(&b, rows * sizeof(float *));
    cudaMallocManaged(&sum, rows * sizeof(float *));
    for (int row = 0; row < rows; row++) {
        cudaMallocManaged(&a[row], cols * sizeof(float));
        cudaMallocManaged(&b[row], cols * sizeof(float));
        cudaMallocManaged(&sum[row], cols * sizeof(float));
    }
    add_rows<<<dim3(3, 2), dim3(16, 16)>>>(a, b, sum, rows, cols);
    cudaDeviceSynchronize();
    printf("%f\n", sum[0][0]);
}
