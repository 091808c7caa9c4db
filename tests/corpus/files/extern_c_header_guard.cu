// A C program: extern "C" around kernel and launcher, old-style casts, void parameters.
// run: -k fill_index -g 2 -b 50 --arg 'x=int32[100]:empty' --expect 'x=np.arange(100)'
// expect: ok
#include <malloc.h>
#include <sys/time.h>
#ifdef __cplusplus
extern "C" {
#endif

double seconds(void) {
    struct timeval now;
    gettimeofday(&now, NULL);
    return now.tv_sec + 1e-6 * now.tv_usec;
}

__global__ void fill_index(int *x) { x[blockIdx.x * blockDim.x + threadIdx.x] = blockIdx.x * blockDim.x + threadIdx.x; }

void launch(int *x) { fill_index<<<2, 50>>>(x); }

#ifdef __cplusplus
}
#endif
