// Reads by an index array, with a default where the index lies outside.
__global__ void gather(const double *in, const int *index, double *out, int n, int size) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = index[i] >= 0 && index[i] < size ? in[index[i]] : -1.0;
}
