// A texture object as a parameter: no number, and the message says so.
// run: -g 1 -b 16 --arg tex=5 --arg 'out=float32[16]:empty' --expect 'out=np.zeros(16)'
// expect: refused: cudaTextureObject_t|texture
__global__ void sample(cudaTextureObject_t tex, float *out) { out[threadIdx.x] = tex2D<float>(tex, threadIdx.x + 0.5f, 0.5f); }
