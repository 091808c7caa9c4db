// Trial division; bool results.
// run: -g 2 -b 32 --arg 'prime=bool[64]:empty' --arg n=64
//      --expect 'prime=np.isin(np.arange(64),np.array([2,3,5,7,11,13,17,19,23,29,31,37,41,43,47,53,59,61]))'
// expect: ok
__device__ bool is_prime(int n) {
    if (n < 2) return false;
    for (int d = 2; d * d <= n; ++d)
        if (n % d == 0) return false;
    return true;
}
__global__ void sieve(bool *prime, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) prime[i] = is_prime(i);
}
