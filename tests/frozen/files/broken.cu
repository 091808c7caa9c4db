__global__ void broken(int n, float *y)
{
    y[n] = missing;
}
