// y = a x + y, one element a thread. Its launch:
//
//   cudabench run examples/saxpy.cu --grid 'cdiv(n,256)' --block 256 --arg n=1048576 --arg a=2.5 \
//       --arg 'x=float32[n]:random' --arg 'y=float32[n]:random' --expect 'y=a*x+y0' --bytes '3*4*n'

__global__ void saxpy(int n, float a, const float *x, float *y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        y[i] = a * x[i] + y[i];
}
