// Barriers of a block that not all of its threads meet.

// 100 of 128 threads wait; the rest of the last warp runs on to the end.
__global__ void tail_skips(const int *x, int *y)
{
    __shared__ int s[128];
    int t = threadIdx.x;
    s[t] = x[t];
    if (t < 100)
        __syncthreads();
    y[t] = s[127 - t];
}

__global__ void half_warp_waits(const int *x, int *y)
{
    __shared__ int s[32];
    int t = threadIdx.x;
    s[t] = x[t] * 3;
    if (t < 16)
        __syncthreads();
    y[t] = s[(t + 5) % 32];
}

__global__ void odd_lanes_wait(const int *x, int *y)
{
    __shared__ int s[64];
    int t = threadIdx.x;
    s[t] = x[t] + 1;
    if (t & 1)
        __syncthreads();
    y[t] = s[63 - t];
}

// The first barrier of 16 lanes is met by the second one of all others.
__global__ void sixteen_then_all(const int *x, int *y)
{
    __shared__ int s[64];
    int t = threadIdx.x;
    s[t] = x[t];
    if (t < 16) {
        s[t] += 1;
        __syncthreads();
    }
    s[t] *= 2;
    __syncthreads();
    y[t] = s[63 - t];
}

__global__ void data_decides(const int *x, int *y)
{
    __shared__ int s[64];
    int t = threadIdx.x;
    s[t] = x[t];
    if (x[t] > 50) {
        __syncthreads();
        s[t] = s[t ^ 33];
    }
    y[t] = s[t];
}

__global__ void halving_inside(const int *x, int *y)
{
    __shared__ int s[128];
    int t = threadIdx.x;
    s[t] = x[blockIdx.x * 128 + t];
    __syncthreads();
    for (int k = 64; k > 0; k /= 2)
        if (t < k) {
            s[t] += s[t + k];
            __syncthreads();
        }
    if (t == 0)
        y[blockIdx.x] = s[0];
}

__global__ void halving_outside(const int *x, int *y)
{
    __shared__ int s[128];
    int t = threadIdx.x;
    s[t] = x[blockIdx.x * 128 + t];
    __syncthreads();
    for (int k = 64; k > 0; k /= 2) {
        if (t < k)
            s[t] += s[t + k];
        __syncthreads();
    }
    if (t == 0)
        y[blockIdx.x] = s[0];
}

// Warps 2 and 3 never wait, and nobody needs what they wrote.
__global__ void two_warps_skip(const int *x, int *y)
{
    __shared__ int s[64];
    int t = threadIdx.x;
    if (t < 64) {
        s[t] = x[t];
        __syncthreads();
        y[t] = s[63 - t];
    } else {
        y[t] = x[t];
    }
}

__global__ void even_warps_wait(const int *x, int *y)
{
    __shared__ int s[128];
    int t = threadIdx.x;
    s[t] = x[t];
    if (t / 32 % 2 == 0)
        __syncthreads();
    y[t] = s[(t + 32) % 128];
}

// Two warps skip a barrier, so their second one meets the first one of the others.
__global__ void warps_skip_one(const int *x, int *y)
{
    __shared__ int s[128];
    int t = threadIdx.x;
    s[t] = x[t];
    if (t < 64) {
        __syncthreads();
        s[t] = s[t] + s[t + 64];
    }
    __syncthreads();
    y[t] = s[t % 64];
}

__global__ void lanes_in_both_branches(const int *x, int *y)
{
    __shared__ int s[96];
    int t = threadIdx.x;
    if (t % 3 == 0) {
        s[t] = x[t];
        __syncthreads();
        y[t] = s[95 - t];
    } else {
        s[t] = -x[t];
        __syncthreads();
        y[t] = 1 + s[95 - t];
    }
}

__global__ void warps_in_both_branches(const int *x, int *y)
{
    __shared__ int s[128];
    int t = threadIdx.x;
    if (t < 64) {
        s[t] = x[t];
        __syncthreads();
        y[t] = s[t + 64];
    } else {
        s[t] = 2 * x[t];
        __syncthreads();
        y[t] = s[t - 64];
    }
}

__global__ void turns_by_lane(const int *x, int *y)
{
    __shared__ int s[64];
    int t = threadIdx.x, sum = 0;
    for (int i = 0; i <= t % 4; ++i) {
        s[t] = x[t] + i;
        __syncthreads();
        sum += s[t ^ 1];
    }
    y[t] = sum;
}

__global__ void turns_by_warp(const int *x, int *y)
{
    __shared__ int s[128];
    int t = threadIdx.x, sum = 0;
    for (int i = 0; i <= t / 32; ++i) {
        s[t] = x[t] + i;
        __syncthreads();
        sum += s[t ^ 1];
        __syncthreads();
    }
    y[t] = sum;
}

__global__ void turns_by_block(const int *x, int *y)
{
    __shared__ int s[64];
    int t = threadIdx.x, sum = 0;
    for (int i = 0; i <= blockIdx.x; ++i) {
        s[t] = x[t] + i;
        __syncthreads();
        sum += s[63 - t];
        __syncthreads();
    }
    y[blockIdx.x * 64 + t] = sum;
}

__global__ void part_returned_unneeded(const int *x, int *y, int n)
{
    __shared__ int s[128];
    int t = threadIdx.x, i = blockIdx.x * 128 + t;
    if (i >= n)
        return;
    s[t] = x[i];
    __syncthreads();
    y[i] = s[t > 0 ? t - 1 : 0];
}

__global__ void part_returned_needed(const int *x, int *y, int n)
{
    __shared__ int s[128];
    int t = threadIdx.x, i = blockIdx.x * 128 + t;
    if (i >= n)
        return;
    s[t] = x[i];
    __syncthreads();
    y[i] = s[127 - t];
}

__global__ void returns_behind_barrier(const int *x, int *y, int n)
{
    __shared__ int s[128];
    int t = threadIdx.x, i = blockIdx.x * 128 + t;
    s[t] = i < n ? x[i] : 0;
    __syncthreads();
    if (i >= n)
        return;
    y[i] = s[127 - t];
}

__global__ void most_leave_first(const int *x, int *y)
{
    __shared__ int s[128];
    int t = threadIdx.x;
    s[t] = x[t];
    if (t < 100) {
        y[t] = x[t];
        return;
    }
    __syncthreads();
    y[t] = s[t - 100];
}

__global__ void count_in_branch(const int *x, int *y)
{
    int t = threadIdx.x;
    if (t < 48)
        y[t] = __syncthreads_count(x[t] > 50);
    else
        y[t] = -1;
}

// 64 threads come to a barrier that waits for 96.
__global__ void named_for_more(const int *x, int *y)
{
    __shared__ int s[64];
    int t = threadIdx.x;
    if (t < 64) {
        s[t] = x[t];
        asm volatile("bar.sync 1, 96;" ::: "memory");
        y[t] = s[63 - t];
    }
}

__global__ void named_for_two_warps(const int *x, int *y)
{
    __shared__ int s[64];
    int t = threadIdx.x;
    if (t < 64) {
        s[t] = x[t];
        asm volatile("bar.sync 1, 64;" ::: "memory");
        y[t] = s[63 - t];
    }
}

__global__ void arrive_and_wait(const int *x, int *y)
{
    __shared__ int s[64];
    int t = threadIdx.x;
    if (t < 64) {
        s[t] = x[t];
        asm volatile("bar.arrive 2, 128;" ::: "memory");
    } else {
        asm volatile("bar.sync 2, 128;" ::: "memory");
        y[t - 64] = s[127 - t];
    }
}

// Lanes leave a loop with barriers, and one store by thread 0 is all that comes after.
__global__ void leaves_the_loop(const int *x, int *y, int n)
{
    __shared__ int s[128];
    int t = threadIdx.x, sum = 0;
    for (int i = t; i < n; i += 128) {
        s[t] = x[i];
        __syncthreads();
        sum += s[t ^ 1];
        __syncthreads();
    }
    if (t == 0)
        y[0] = sum;
}

__global__ void leaves_the_loop_for_more(const int *x, int *y, int n)
{
    __shared__ int s[128];
    int t = threadIdx.x, sum = 0;
    for (int i = t; i < n; i += 128) {
        s[t] = x[i];
        __syncthreads();
        sum += s[t ^ 1];
        __syncthreads();
    }
    y[t] = sum;
}

__global__ void leaves_the_loop_for_its_end(const int *x, int *y, int n)
{
    __shared__ int s[128];
    int t = threadIdx.x;
    for (int i = t; i < n; i += 128) {
        s[t] = x[i];
        __syncthreads();
        y[i] = s[t ^ 1];
        __syncthreads();
    }
}

// The others take no part, and one thread goes on.
__global__ void waits_then_one(const int *x, int *y)
{
    __shared__ int s[128];
    int t = threadIdx.x;
    s[t] = x[t];
    if (t < 100)
        __syncthreads();
    if (t == 0)
        y[0] = s[5];
}

__global__ void works_and_returns(const int *x, int *y, int n)
{
    __shared__ int s[128];
    int t = threadIdx.x;
    s[t] = x[t];
    if (t >= n) {
        for (int i = 0; i < x[3] % 8; i++)
            y[t] += x[i];
        return;
    }
    __syncthreads();
    y[t] = s[t ^ 1];
}

__global__ void trip_of_another_warp(const int *x, int *y)
{
    __shared__ int s[64];
    int t = threadIdx.x, w = t / 32, v = 0;
    s[t] = x[t];
#pragma unroll 1
    for (int k = 0; k < 2; k++) {
        if (k == w)
            __syncthreads();
        v += s[63 - t];
    }
    y[t] = v;
}
