// Calls that are not inlined, one of them through a second, with a struct by value and a result by pointer.
struct Complex { float re, im; };
__device__ __noinline__ Complex multiply(Complex a, Complex b) {
    return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
__device__ __noinline__ void power(Complex base, int exponent, Complex *result) {
    Complex p = {1, 0};
    for (int k = 0; k < exponent; k++) p = multiply(p, base);
    *result = p;
}
__global__ void powers(const Complex *in, Complex *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    Complex p;
    power(in[i], i % 4, &p);
    out[i] = p;
}
