// Two sorted halves are merged: each thread finds its place by bisection.
// run: -g 1 -b 64 --arg 'a=int32[32]:arange' --arg 'b=int32[32]:arange' --arg 'c=int32[64]:empty'
//      --expect 'c=np.repeat(np.arange(32),2)'
// expect: ok
__device__ int lower(const int *x, int n, int key) {
    int lo = 0, hi = n;
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        if (x[mid] < key) lo = mid + 1;
        else hi = mid;
    }
    return lo;
}
__device__ int upper(const int *x, int n, int key) { return lower(x, n, key + 1); }

__global__ void merge(const int *a, const int *b, int *c) {
    int t = threadIdx.x;
    if (t < 32) c[t + lower(b, 32, a[t])] = a[t];
    else c[t - 32 + upper(a, 32, b[t - 32])] = b[t - 32];
}
