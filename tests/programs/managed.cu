// Managed variables. The values that are checked are those on an H100 with CUDA 13.0.
#include "checks.cuh"

__managed__ int table[4] = {1, 2, 3, 4};
static __managed__ double total = 0.5;

__global__ void add() {
    table[threadIdx.x] += 1;
    if (threadIdx.x == 0)
        total += 1;
}

static struct Before {
    Before() { table[1] = 9; }
} before_main;

int main() {
    int *place = nullptr, numbers[4] = {5, 6, 7, 8}, back[4] = {};
    double *sum = nullptr;
    size_t bytes = 0;
    T(table[0] == 1 && table[1] == 9 && total == 0.5);
    // the program passes the variable's own address as its symbol
    C(cudaGetSymbolAddress((void **)&place, table));
    T(place == table);
    C(cudaGetSymbolAddress((void **)&sum, total));
    T(sum == &total);
    C(cudaGetSymbolSize(&bytes, table));
    T(bytes == sizeof table);
    C(cudaMemcpyToSymbol(table, numbers, sizeof numbers));
    T(table[2] == 7);
    C(cudaMemcpyFromSymbol(back, table, sizeof back));
    T(back[3] == 8);
    cudaPointerAttributes about;
    C(cudaPointerGetAttributes(&about, table));
    T(about.type == cudaMemoryTypeManaged && about.hostPointer == table && about.devicePointer == table);
    WANT(cudaFree(table), cudaErrorInvalidValue);
    add<<<1, 4>>>();
    C(cudaDeviceSynchronize());
    T(table[3] == 9 && total == 1.5);
    // values outlast a reset
    C(cudaDeviceReset());
    add<<<1, 4>>>();
    C(cudaDeviceSynchronize());
    T(table[3] == 10 && total == 2.5);
    printf(failed ? "FAILED %d\n" : "PASSED\n", failed);
    return failed != 0;
}
