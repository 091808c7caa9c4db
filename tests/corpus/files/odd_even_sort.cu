// Odd-even transposition, for a block.
// run: -g 1 -b 32 --arg 'a=float32[n]:random' --arg n=64 --expect 'a=np.sort(a0)'
// expect: ok
__global__ void oddeven(float *a, int n) {
    for (int phase = 0; phase < n; phase++) {
        int i = 2 * threadIdx.x + (phase & 1);
        if (i + 1 < n && a[i] > a[i + 1]) {
            float t = a[i];
            a[i] = a[i + 1];
            a[i + 1] = t;
        }
        __syncthreads();
    }
}
