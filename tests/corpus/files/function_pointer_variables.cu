// Device functions behind pointers in __device__ variables, one of which is chosen at run time.
// run: -g 1 -b 32 --arg 'x=float32[n]:random' --arg n=32 --arg which=1 --expect 'x=x0*x0'
// expect: ok
typedef float (*func_t)(float);
__device__ float halved(float x) { return x / 2; }
__device__ float squared(float x) { return x * x; }
__device__ func_t p_halved = halved;
__device__ func_t p_squared = squared;
__global__ void apply(float *x, int n, int which) {
    func_t f = which ? p_squared : p_halved;
    if (threadIdx.x < n) x[threadIdx.x] = (*f)(x[threadIdx.x]);
}
int main() {
    func_t host;
    cudaMemcpyFromSymbol(&host, p_squared, sizeof(func_t));
}
