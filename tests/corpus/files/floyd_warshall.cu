// One step of all shortest paths.
// run: -g '2,2' -b '16,16' --arg 'd=int32[20,20]:random' --arg n=20 --arg k=19
//      --expect 'd=np.minimum(d0,d0[:,19:20]+d0[19:20,:])'
// expect: ok
#define INF 1000000
__global__ void relax(int *__restrict__ d, int n, int k) {
    int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y;
    if (i >= n || j >= n || i == k || j == k) return;
    int through = d[i * n + k] + d[k * n + j];
    if (through < d[i * n + j]) d[i * n + j] = through;
}
