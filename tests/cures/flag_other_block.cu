// Wrong: a block polls a flag which is raised with no fence behind the data.
// LAUNCH: grid=2 block=32 args=data:int32[32],y:int32[32],flag:int32[1]
// SAYS: Put __threadfence() between the write and the atomic
__global__ void hand_on(int *data, int *y, int *flag) {
    int t = threadIdx.x;
    if (blockIdx.x == 0) {
        if (t == 0) {
            data[0] = 42;  // HAZARD: missing-fence
#ifdef MENDED
            __threadfence();
#endif
            atomicExch(flag, 100);
        }
    } else if (t == 0) {
        while (atomicAdd(flag, 0) != 100) ;
        __threadfence();
        y[0] = data[0];
    }
}
