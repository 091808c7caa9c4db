// Wrong: a block reads its neighbour's shared memory with no barrier of their cluster after the stores.
// LAUNCH: grid=4 block=64 args=x:int32[256],y:int32[256]
extern "C" __global__ void __cluster_dims__(2, 1, 1) cluster_without_barrier(const int *x, int *y)
{
    __shared__ int tile[64];
    int i = blockIdx.x * 64 + threadIdx.x, value;
    tile[threadIdx.x] = x[i]; // HAZARD: race
    __syncthreads();
    unsigned far;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
                 : "=r"(far) : "r"((unsigned)__cvta_generic_to_shared(tile + threadIdx.x)), "r"((blockIdx.x + 1) % 2));
    asm volatile("ld.shared::cluster.s32 %0, [%1];" : "=r"(value) : "r"(far)); // HAZARD: race
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
    y[i] = value;
}
