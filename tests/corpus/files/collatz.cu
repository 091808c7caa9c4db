// Lengths of Collatz chains, each thread its own number of rounds.
// run: -g 1 -b 8 --arg 'x=int64[8]:ones' --arg 'steps=int32[8]:empty' --expect 'steps=np.zeros(8,dtype=np.int32)'
// expect: ok
__global__ void collatz(const long long *x, int *steps) {
    long long n = x[threadIdx.x];
    int count = 0;
    while (n > 1) {
        n = n & 1 ? 3 * n + 1 : n / 2;
        ++count;
    }
    steps[threadIdx.x] = count;
}
