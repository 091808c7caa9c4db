// The parameters hang on a macro: with STRIDE there is one more.
// run: -k copy -D STRIDE -g 1 -b 16 --arg 'in=float32[64]:random' --arg 'out=float32[16]:empty' --arg stride=4
//      --expect 'out=in[::4]'
// expect: ok
__global__ void copy(const float *in, float *out
#ifdef STRIDE
                     , int stride
#endif
) {
#ifndef STRIDE
    const int stride = 1;
#endif
    out[threadIdx.x] = in[threadIdx.x * stride];
}
