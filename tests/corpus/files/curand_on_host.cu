// Monte Carlo: the numbers come from cuRAND on the host, the kernel counts.
// run: -k count_inside -g 4 -b 128 --arg 'x=float32[n]:random' --arg 'y=float32[n]:random' --arg 'hits=uint32[1]:zeros'
//      --arg n=512 --expect 'hits=np.sum(x*x+y*y<=1)'
// expect: ok
#include <curand.h>
#include <cstdio>

#define CURAND_CALL(x) do { if ((x) != CURAND_STATUS_SUCCESS) { printf("Error at %s:%d\n", __FILE__, __LINE__); } } while (0)

__global__ void count_inside(const float *x, const float *y, unsigned int *hits, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    bool inside = i < n && x[i] * x[i] + y[i] * y[i] <= 1.0f;
    int found = __syncthreads_count(inside);
    if (threadIdx.x == 0) atomicAdd(hits, found);
}

int main() {
    curandGenerator_t generator;
    CURAND_CALL(curandCreateGenerator(&generator, CURAND_RNG_PSEUDO_DEFAULT));
    CURAND_CALL(curandSetPseudoRandomGeneratorSeed(generator, 1234ULL));
}
