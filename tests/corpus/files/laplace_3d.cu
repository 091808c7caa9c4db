// Seven points in three dimensions, marching along z.
// run: -k laplace3d -g '1,2' -b '16,8' --arg 'in=float32[10,12,14]:random' --arg 'out=float32[10,12,14]:zeros'
//      --arg nx=14 --arg ny=12 --arg nz=10
//      --expect 'out=np.pad(in[1:-1,1:-1,2:]+in[1:-1,1:-1,:-2]+in[1:-1,2:,1:-1]+in[1:-1,:-2,1:-1]+in[2:,1:-1,1:-1]+in[:-2,1:-1,1:-1]-6*in[1:-1,1:-1,1:-1],1)'
//      --atol 1e-5
// expect: ok
// slow: seconds of compiling or of checking
__global__ void laplace3d(const float *__restrict__ in, float *__restrict__ out, int nx, int ny, int nz) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < 1 || y < 1 || x >= nx - 1 || y >= ny - 1) return;
    int plane = nx * ny, i = y * nx + x;
    float below = in[i], here = in[i + plane];
    for (int z = 1; z < nz - 1; ++z) {
        i += plane;
        float above = in[i + plane];
        out[i] = in[i + 1] + in[i - 1] + in[i + nx] + in[i - nx] + above + below - 6 * here;
        below = here;
        here = above;
    }
}
