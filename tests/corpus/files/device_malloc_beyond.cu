// An index past the end of what malloc gave.
// run: -g 1 -b 8 --arg 'x=int32[8]:arange' --arg n=4 --expect 'x=x0'
// expect: refused: out-of-bounds on line 6: .* writes 4 bytes at byte 16 of the 16 bytes that line 5 allocated
__global__ void beyond(int *x, int n) {
    int *p = (int *)malloc(n * sizeof(int));
    for (int i = 0; i <= n; i++) p[i] = x[threadIdx.x];
    x[threadIdx.x] = p[0];
    free(p);
}
