// Pooling of two by two, channels in the grid's z.
// run: -g '1,1,3' -b '8,8' --arg 'in=float32[3,16,16]:random' --arg 'out=float32[3,8,8]:empty' --arg H=16 --arg W=16
//      --expect 'out=np.max(np.max(np.reshape(in,(3,8,2,8,2)),axis=4),axis=2)'
// expect: ok
__global__ void maxpool2(const float *in, float *out, int H, int W) {
    int x = threadIdx.x + blockIdx.x * blockDim.x, y = threadIdx.y + blockIdx.y * blockDim.y, c = blockIdx.z;
    const float *p = in + (c * H + 2 * y) * W + 2 * x;
    out[(c * (H / 2) + y) * (W / 2) + x] = fmaxf(fmaxf(p[0], p[1]), fmaxf(p[W], p[W + 1]));
}
