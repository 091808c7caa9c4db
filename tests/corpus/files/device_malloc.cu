// Memory from the device's heap.
// run: -g 1 -b 8 --arg 'x=int32[8]:arange' --expect 'x=x0+1'
// expect: ok
__global__ void heap(int *x) {
    int *p = (int *)malloc(sizeof(int));
    *p = x[threadIdx.x] + 1;
    x[threadIdx.x] = *p;
    free(p);
}
