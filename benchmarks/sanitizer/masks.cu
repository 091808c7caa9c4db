// Masks of warp functions that do not name the lanes that come.

__global__ void ballot_left_out(const int *x, unsigned *y)
{
    y[threadIdx.x] = __ballot_sync(0x00ff00ffu, x[threadIdx.x] > 50);
}

__global__ void shuffle_left_out(const int *x, int *y)
{
    y[threadIdx.x] = __shfl_sync(0xfffffffeu, x[threadIdx.x], 5);
}

__global__ void any_left_out(const int *x, int *y)
{
    y[threadIdx.x] = __any_sync(0x0000ffffu, x[threadIdx.x] > 90);
}

__global__ void match_left_out(const int *x, unsigned *y)
{
    y[threadIdx.x] = __match_any_sync(0x55555555u, x[threadIdx.x] % 4);
}

__global__ void reduce_left_out(const int *x, int *y)
{
    y[threadIdx.x] = __reduce_add_sync(0x7fffffffu, x[threadIdx.x]);
}

__global__ void syncwarp_left_out(const int *x, int *y)
{
    __shared__ int s[32];
    int t = threadIdx.x;
    s[t] = x[t];
    __syncwarp(0xffff0000u);
    y[t] = s[31 - t];
}

// Lanes 20 to 31 have returned, and the mask names them.
__global__ void names_returned(const int *x, int *y)
{
    int t = threadIdx.x;
    if (t >= 20)
        return;
    int v = x[t];
    v += __shfl_down_sync(0xffffffffu, v, 4);
    y[t] = v;
}

// The lanes that the mask names wait at the block's barrier for those that wait for them.
__global__ void names_waiting(const int *x, int *y)
{
    __shared__ int s[64];
    int t = threadIdx.x, v = x[t];
    if (t % 32 < 8)
        v += __shfl_xor_sync(0xffffffffu, v, 2);
    s[t] = v;
    __syncthreads();
    y[t] = s[63 - t];
}

__global__ void names_those_ahead(const int *x, int *y)
{
    int t = threadIdx.x, v = x[t], voted = 0;
    if (v > 50)
        voted = __popc(__ballot_sync(0xffffffffu, v > 70));
    y[t] = voted + v;
}

__global__ void two_shuffles(const int *x, int *y)
{
    int t = threadIdx.x, v = x[t];
    if (t < 16)
        v += __shfl_down_sync(0xffffffffu, v, 1);
    else
        v -= __shfl_up_sync(0xffffffffu, v, 1);
    y[t] = v;
}

__global__ void source_left_out(const int *x, int *y)
{
    int t = threadIdx.x, v = x[t];
    unsigned odd = 0xaaaaaaaau;
    if (t & 1)
        v = __shfl_sync(odd, v, 0);
    y[t] = v;
}

__global__ void part_meets_full_syncwarp(const int *x, int *y)
{
    __shared__ int s[32];
    int t = threadIdx.x;
    s[t] = x[t];
    if (t < 16) {
        __syncwarp();
        s[t] += s[t + 16];
    }
    y[t] = s[t];
}

__global__ void voted_mask(const int *x, int *y)
{
    int t = threadIdx.x, v = x[t];
    unsigned mask = __ballot_sync(0xffffffffu, v > 50);
    if (v > 50)
        v = __shfl_sync(mask, v, __ffs(mask) - 1);
    y[t] = v;
}

__global__ void active_mask(const int *x, int *count)
{
    int t = threadIdx.x;
    if (x[t] > 50) {
        unsigned mask = __activemask();
        if (t == __ffs(mask) - 1)
            atomicAdd(count, __popc(mask));
    }
}

__global__ void mask_of_each_half(const int *x, int *y)
{
    int t = threadIdx.x, v = x[t];
    if (t < 16)
        v += __shfl_xor_sync(0x0000ffffu, v, 1);
    else
        v -= __shfl_xor_sync(0xffff0000u, v, 1);
    y[t] = v;
}

// The last lanes have returned, and the others meet at a warp barrier of the full mask.
__global__ void syncwarp_names_returned(const int *x, int *y)
{
    __shared__ int s[32];
    int t = threadIdx.x;
    if (t >= 20)
        return;
    s[t] = x[t];
    __syncwarp();
    y[t] = s[19 - t];
}

__global__ void any_names_returned(const int *x, int *y)
{
    int t = threadIdx.x;
    if (t >= 20)
        return;
    y[t] = __any_sync(0xffffffffu, x[t] > 90);
}
