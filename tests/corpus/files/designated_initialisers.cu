// C++20: designated initialisers, said on the command line.
// run: --std c++20 -g 1 -b 32 --arg 'x=float32[32]:random' --expect 'x=x0*3+1'
// expect: ok
struct Affine {
    float scale, offset;
};

__device__ float apply(Affine f, float x) { return f.scale * x + f.offset; }

__global__ void affine(float *x) {
    x[threadIdx.x] = apply({.scale = 3.0f, .offset = 1.0f}, x[threadIdx.x]);
}
