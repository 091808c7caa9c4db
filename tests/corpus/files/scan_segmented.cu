// A segmented scan with flags, pairs combined by a functor.
// run: -g 1 -b 64 --arg 'v=int32[64]:ones' --arg 'flag=int32[64]:zeros' --expect 'v=np.arange(1,65)'
// expect: ok
struct Pair {
    int value, flag;
};
struct Combine {
    __device__ Pair operator()(Pair a, Pair b) const { return {b.flag ? b.value : a.value + b.value, a.flag | b.flag}; }
};

template <class Op> __device__ void scan(Pair *s, Op op) {
    for (int d = 1; d < blockDim.x; d *= 2) {
        Pair mine = s[threadIdx.x];
        if (threadIdx.x >= d) mine = op(s[threadIdx.x - d], mine);
        __syncthreads();
        s[threadIdx.x] = mine;
        __syncthreads();
    }
}

__global__ void segmented(int *v, const int *flag) {
    __shared__ Pair s[64];
    s[threadIdx.x] = {v[threadIdx.x], flag[threadIdx.x]};
    __syncthreads();
    scan(s, Combine());
    v[threadIdx.x] = s[threadIdx.x].value;
}
