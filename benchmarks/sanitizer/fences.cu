// What one block writes and another one reads.

__global__ void neighbour_by_fence(const int *x, int *a, int *y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x;
    a[i] = x[i];
    __threadfence();
    y[i] = a[(i + blockDim.x) % n];
}

__global__ void neighbour_by_luck(const int *x, int *a, int *y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x;
    a[i] = x[i];
    y[i] = a[(i + blockDim.x) % n];
}

// Each block but the first waits for the flag of the one before it.
__global__ void flag_by_atomics(const int *x, int *a, int *flag, int *y)
{
    int b = blockIdx.x;
    if (threadIdx.x == 0) {
        a[b] = x[b];
        __threadfence();
        atomicExch(&flag[b], 1);
        if (b > 0) {
            while (atomicAdd(&flag[b - 1], 0) == 0)
                ;
            __threadfence();
            y[b] = a[b - 1];
        }
    }
}

__global__ void flag_by_volatile(const int *x, int *a, volatile int *flag, int *y)
{
    int b = blockIdx.x;
    if (threadIdx.x == 0) {
        a[b] = x[b];
        __threadfence();
        flag[b] = 1;
        if (b > 0) {
            while (flag[b - 1] == 0)
                ;
            __threadfence();
            y[b] = a[b - 1];
        }
    }
}

__global__ void flag_without_writers_fence(const int *x, int *a, int *flag, int *y)
{
    int b = blockIdx.x;
    if (threadIdx.x == 0) {
        a[b] = x[b];
        atomicExch(&flag[b], 1);
        if (b > 0) {
            while (atomicAdd(&flag[b - 1], 0) == 0)
                ;
            __threadfence();
            y[b] = a[b - 1];
        }
    }
}

__global__ void last_block_fenced(const int *x, int *part, int *done, int *sum)
{
    if (threadIdx.x == 0) {
        part[blockIdx.x] = x[blockIdx.x];
        __threadfence();
        if (atomicAdd(done, 1) == gridDim.x - 1) {
            __threadfence();
            int total = 0;
            for (int b = 0; b < gridDim.x; ++b)
                total += part[b];
            *sum = total;
        }
    }
}

__global__ void last_block_unfenced(const int *x, int *part, int *done, int *sum)
{
    if (threadIdx.x == 0) {
        part[blockIdx.x] = x[blockIdx.x];
        if (atomicAdd(done, 1) == gridDim.x - 1) {
            int total = 0;
            for (int b = 0; b < gridDim.x; ++b)
                total += part[b];
            *sum = total;
        }
    }
}

__global__ void lock_fenced(const int *x, int *lock, int *sum)
{
    if (threadIdx.x == 0) {
        while (atomicCAS(lock, 0, 1) != 0)
            ;
        __threadfence();
        *sum = *sum + x[blockIdx.x];
        __threadfence();
        atomicExch(lock, 0);
    }
}

__global__ void lock_unfenced(const int *x, int *lock, int *sum)
{
    if (threadIdx.x == 0) {
        while (atomicCAS(lock, 0, 1) != 0)
            ;
        *sum = *sum + x[blockIdx.x];
        atomicExch(lock, 0);
    }
}

// A lock that the lanes of one warp take in turn.
__global__ void lock_in_a_warp(const int *x, int *lock, int *sum)
{
    bool done = false;
    while (!done)
        if (atomicCAS(lock, 0, 1) == 0) {
            __threadfence();
            *sum = *sum + x[threadIdx.x];
            __threadfence();
            atomicExch(lock, 0);
            done = true;
        }
}

__global__ void lock_in_a_warp_unfenced(const int *x, int *lock, int *sum)
{
    while (atomicCAS(lock, 0, 1) != 0)
        ;
    *sum = *sum + x[threadIdx.x];
    atomicExch(lock, 0);
}

__global__ void own_grid_barrier(const int *x, int *a, int *count, int *y)
{
    a[blockIdx.x * 32 + threadIdx.x] = x[blockIdx.x * 32 + threadIdx.x];
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        atomicAdd(count, 1);
        while (atomicAdd(count, 0) < gridDim.x)
            ;
        __threadfence();
    }
    __syncthreads();
    y[blockIdx.x * 32 + threadIdx.x] = a[(blockIdx.x + 1) % gridDim.x * 32 + threadIdx.x];
}

// The counter is back at 0 for the next turn before all have seen the end of this one.
__global__ void own_barrier_reset(int *a, int *count, int turns)
{
    for (int turn = 0; turn < turns; ++turn) {
        a[blockIdx.x * 32 + threadIdx.x] += 1;
        __syncthreads();
        if (threadIdx.x == 0) {
            __threadfence();
            if (atomicAdd(count, 1) == gridDim.x - 1)
                atomicExch(count, 0);
            while (atomicAdd(count, 0) != 0)
                ;
            __threadfence();
        }
        __syncthreads();
    }
}

__global__ void all_add_all(const int *x, int *part, int *y)
{
    if (threadIdx.x == 0)
        part[blockIdx.x] = x[blockIdx.x] + 1;
    __syncthreads();
    if (threadIdx.x == 0) {
        int total = 0;
        for (int b = 0; b < gridDim.x; ++b)
            total += part[b];
        y[blockIdx.x] = total;
    }
}

// Written in this launch and read through the read-only cache.
__global__ void read_only_path(const int *x, int *a, int *y)
{
    int t = threadIdx.x;
    a[t] = x[t] + __ldg(&a[t]);
    __syncthreads();
    y[t] = __ldg(&a[63 - t]);
}

__global__ void read_only_path_by_ptx(const int *x, int *a, int *y)
{
    int t = threadIdx.x, v;
    a[t] = x[t];
    __syncthreads();
    asm volatile("ld.global.nc.s32 %0, [%1];" : "=r"(v) : "l"(a + 63 - t));
    y[t] = v;
}

__global__ void plain_path(const int *x, int *a, int *y)
{
    int t = threadIdx.x;
    a[t] = x[t];
    __syncthreads();
    y[t] = a[63 - t];
}
