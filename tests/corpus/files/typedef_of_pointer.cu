// Pointers by typedef, one of them to const.
// run: -g 1 -b 40 --arg 'in=float32[40]:random' --arg 'out=float32[40]:empty' --expect 'out=in+in'
// expect: ok
typedef float *Vector;
typedef const float *ConstVector;

__global__ void doubled(ConstVector in, Vector out) { out[threadIdx.x] = in[threadIdx.x] + in[threadIdx.x]; }
