// Counts its blocks so that the last one adds their sums, and never sets the counter back: right once.
// The honest twin sets it back and is right in every launch, though its module has a variable that it writes.
// run: run --grid 64 --block 256 --arg n={size} --arg x=int32[n]:random --arg sums=int32[64]:empty
// run: --arg y=int32[1]:empty --expect 'y=np.array([np.sum(x)])' --bytes 4*n
// size: gpu=16777216 sim=10007
// gpu: wrong or honest-cost, warning:state, state:arrived
// sim: wrong, state:arrived
// honest-may: warning:state state:arrived
// defence: module variables set back; two launches in the simulator

__device__ unsigned arrived;

extern "C" __global__ void sum(int n, const int *x, int *sums, int *y)
{
    __shared__ int total;
    __shared__ bool last;
    if (threadIdx.x == 0)
        total = 0;
    __syncthreads();
    int mine = 0;
    for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256)
        mine += x[i];
    atomicAdd(&total, mine);
    __syncthreads();
    if (threadIdx.x == 0) {
        sums[blockIdx.x] = total;
        __threadfence();
        last = atomicAdd(&arrived, 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last || threadIdx.x > 0)
        return;
    __threadfence();
    int all = 0;
    for (int block = 0; block < gridDim.x; block++)
        all += ((volatile int *)sums)[block];
    y[0] = all;
#ifdef HONEST
    arrived = 0;
#endif
}
