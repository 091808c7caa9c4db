// A macro writes one kernel an operation.
// run: -k array_mul -g 'cdiv(n,64)' -b 64 --arg 'a=float32[n]:random' --arg 'b=float32[n]:random'
//      --arg 'c=float32[n]:empty' --arg n=150 --expect 'c=a*b'
// expect: ok
#define ELEMENTWISE(NAME, OP)                                                        \
    __global__ void array_##NAME(const float *a, const float *b, float *c, int n) {  \
        int i = blockIdx.x * blockDim.x + threadIdx.x;                               \
        if (i < n) c[i] = a[i] OP b[i];                                              \
    }

ELEMENTWISE(add, +)
ELEMENTWISE(sub, -)
ELEMENTWISE(mul, *)

#define LAUNCH(NAME) array_##NAME<<<1, 64>>>(a, b, c, n)
void all(float *a, float *b, float *c, int n) {
    LAUNCH(add);
    LAUNCH(sub);
    LAUNCH(mul);
}
