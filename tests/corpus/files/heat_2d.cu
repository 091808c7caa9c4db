// Heat equation, five points, index macros.
// run: -k heat -g '2,2' -b '16,16' --arg 'u=float64[ny,nx]:random' --arg 'v=float64[ny,nx]:zeros' --arg nx=30 --arg ny=20
//      --arg a=0.1 --expect 'v=np.pad(u[1:-1,1:-1]+0.1*(u[1:-1,2:]+u[1:-1,:-2]+u[2:,1:-1]+u[:-2,1:-1]-4*u[1:-1,1:-1]),1)'
// expect: ok
#define IDX(i, j) ((i) * nx + (j))
#define SQR(x) ((x) * (x))

__global__ void heat(const double *u, double *v, int nx, int ny, double a) {
    int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y;
    if (i > 0 && i < ny - 1 && j > 0 && j < nx - 1)
        v[IDX(i, j)] = u[IDX(i, j)] + a * (u[IDX(i, j + 1)] + u[IDX(i, j - 1)] + u[IDX(i + 1, j)] + u[IDX(i - 1, j)] - 4 * u[IDX(i, j)]);
}
