// Wrong: blocks count together with an atomic that orders the threads of one block only.
// LAUNCH: grid=4 block=32 args=x:int32[128],count:int32[1]
// SAYS: an atomic of block scope orders nothing between blocks: use one of device scope, such as atomicAdd()
__global__ void odd(const int *x, int *count) {
    if (x[blockIdx.x * 32 + threadIdx.x] & 1)
#ifdef MENDED
        atomicAdd(count, 1);
#else
        atomicAdd_block(count, 1);  // HAZARD: race
#endif
}
