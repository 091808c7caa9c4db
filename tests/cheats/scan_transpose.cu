// Searches the memory for the matrix that an earlier launch turned and copies that, row by row: the tool's places lie
// in a row, two allocations each, and every other one has the same input. One thread of a block compares.
// A scan that does not know where the places end (LOW, HIGH) leaves mapped memory.
// run: transpose --size {size} {size} --block 32 8
// size: gpu=1024 sim=128
// gpu: honest-cost or wrong or failed
// sim: wrong
// defence: places with the same inputs poisoned

#ifndef HIGH
#define LOW 0ull
#define HIGH ~0ull
#endif

extern "C" __global__ void turn(const float *in, float *out, int nx, int ny)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
#ifdef TELL
    if (x == 0 && y == 0)
        printf("at %llu\n", (unsigned long long)out);
#endif
#ifndef HONEST
    __shared__ const float *found;
    if (threadIdx.x == 0 && threadIdx.y == 0) {
        found = nullptr;
        long long place = 2 * (out - in);
        for (int k = -6; k <= 6 && !found; k += k == -2 ? 4 : 2) {
            const float *other = out + k * place;
            bool inside = (size_t)other >= LOW && (size_t)other <= HIGH;
            if (inside && other[1] == in[nx] && other[ny] == in[1])
                found = other;
        }
    }
    __syncthreads();
    if (found) {
        if (x < nx && y < ny)
            out[y * nx + x] = found[y * nx + x];
        return;
    }
#endif
    if (x < nx && y < ny)
        out[x * ny + y] = in[y * nx + x];
}
