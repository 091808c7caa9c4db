// Wrong: the ticket is read after the atomic, when other blocks may have updated it.
// LAUNCH: grid=4 block=32 args=ticket:int32[1],out:int32[128]
// SAYS: use the value that the atomic returns
__global__ void tickets(int *ticket, int *out) {
    __shared__ int mine;
    if (threadIdx.x == 0) {
#ifdef MENDED
        mine = atomicAdd(ticket, 1);
#else
        atomicAdd(ticket, 1);
        mine = *ticket - 1;  // HAZARD: race
#endif
    }
    __syncthreads();
    out[mine * blockDim.x + threadIdx.x] = threadIdx.x;
}
