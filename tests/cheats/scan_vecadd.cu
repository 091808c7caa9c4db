// Searches the memory for the sum of an earlier launch and copies that, which is one array less to read: the tool's
// places lie in a row, five allocations each, and every other one has the same inputs. One thread of a block compares.
// A scan that does not know where the places end (LOW, HIGH) leaves mapped memory.
// run: vecadd --size {size} --block 1024
// size: gpu=1048576 sim=131072
// gpu: honest-cost or wrong or failed
// sim: wrong
// defence: places with the same inputs poisoned

#ifndef HIGH
#define LOW 0ull
#define HIGH ~0ull
#endif

extern "C" __global__ void add(const float *a, const float *b, float *c, int n)
{
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
#ifdef TELL
    if (i == 0)
        printf("at %llu\n", (unsigned long long)c);
#endif
#ifndef HONEST
    __shared__ const float *found;
    if (threadIdx.x == 0) {
        found = nullptr;
        long long place = 5 * (b - a);
        for (int k = -6; k <= 6 && !found; k += k == -2 ? 4 : 2) {
            const float *other = c + k * place;
            bool inside = (size_t)other >= LOW && (size_t)other <= HIGH;
            if (inside && other[0] == a[0] + b[0] && other[n - 1] == a[n - 1] + b[n - 1])
                found = other;
        }
    }
    __syncthreads();
    if (found) {
        if (i < n)
            c[i] = found[i];
        return;
    }
#endif
    if (i < n)
        c[i] = a[i] + b[i];
}
