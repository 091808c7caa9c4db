// One kernel reads a texture reference, which CUDA 12 dropped; the other is asked for.
// run: -k plain -g 1 -b 32 --arg 'x=float32[32]:random' --expect 'x=x0+1'
// expect: ok
texture<float, 1, cudaReadModeElementType> table;

__global__ void looked_up(float *x) { x[threadIdx.x] = tex1Dfetch(table, threadIdx.x); }

__global__ void plain(float *x) { x[threadIdx.x] += 1.0f; }
