// A list behind a lock; its memory is a struct of pointers.
// run: -k work -g 4 -b 32 --arg
//      'list={head: int32[1]:full(-1), next: int32[n]:empty, value: int32[n]:empty, lock: int32[1]:zeros}' --arg
//      'sum=int32[1]:zeros' --arg n=128 --expect 'np.sum(list_value)=n*(n-1)//2' --expect 'sum=n'
// expect: ok
#include <cstdio>
class Lock { int *m; public: __device__ explicit Lock(int *p) : m(p) {} __device__ void lock() { while (atomicCAS(m, 0, 1) != 0) __nanosleep(20); __threadfence(); } __device__ void unlock() { __threadfence(); atomicExch(m, 0); } };
struct List { int *head; int *next; int *value; int *lock; __host__ __device__ bool empty() const { return *head < 0; } };
__global__ void work(List list, int *sum, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    for (int lane = 0; lane < 32; lane++)
        if ((threadIdx.x & 31) == lane) {
            Lock guard(list.lock); guard.lock();
            list.next[i] = *(volatile int *)list.head; list.value[i] = i; *(volatile int *)list.head = i;
            *(volatile int *)sum += 1;
            guard.unlock();
        }
}
int main() { List l; work<<<1, 32>>>(l, nullptr, 0); printf("%d\n", l.empty()); }
