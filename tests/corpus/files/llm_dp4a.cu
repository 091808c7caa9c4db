// Dot products of four bytes by dp4a.
// run: -g 1 -b 32 --arg 'a=int32[32]:random' --arg 'b=int32[32]:random' --arg 'c=int32[32]:empty' --expect 'c=a*b+1'
// expect: ok
__global__ void dot4(const int *a, const int *b, int *c) {
    int i = threadIdx.x; // values below 128: three of the four bytes are zero
    c[i] = __dp4a(a[i], b[i], 1);
}
