// The wave equation with three time levels.
// run: -g 'cdiv(n,64)' -b 64 --arg 'now=float32[n]:random' --arg 'old=float32[n]:random' --arg 'next=float32[n]:zeros' --arg n=150
//      --arg r=0.25 --expect 'next=np.pad(2*now[1:-1]-old[1:-1]+0.25*(now[2:]-2*now[1:-1]+now[:-2]),1)' --atol 1e-5
// expect: ok
typedef float real_t;
__global__ void wave(const real_t *now, const real_t *old, real_t *next, const int n, const real_t r) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i > 0 && i < n - 1) next[i] = 2 * now[i] - old[i] + r * (now[i + 1] - 2 * now[i] + now[i - 1]);
}
