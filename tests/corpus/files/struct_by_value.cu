// Settings in a struct by value: what the message proposes must be a line that works.
// run: -g 1 -b 16 --arg p=2.5 --arg 'x=float32[16]:random' --expect 'x=2*x0+1'
// expect: refused: p=.scale: 2.5, offset: 1
// then: -g 1 -b 16 --arg 'p={scale: 2.0, offset: 1}' --arg 'x=float32[16]:random' --expect 'x=2*x0+1'
struct Params {
    float scale;
    int offset;
};
__global__ void affine(Params p, float *x) { x[threadIdx.x] = p.scale * x[threadIdx.x] + p.offset; }
