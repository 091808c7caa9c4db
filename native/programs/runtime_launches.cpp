// The runtime's front end: launches, attributes of kernels, occupancy.
#include "runtime.hpp"

#include <algorithm>

namespace programs {

struct Configuration {
    Dim3 grid, block;
    size_t shared;
    Stream *stream;
};

static thread_local auto &pushed = *new std::vector<Configuration>; // never destroyed, like `current`

API unsigned __cudaPushCallConfiguration(Dim3 grid, Dim3 block, size_t shared, Stream *stream) {
    pushed.push_back({grid, block, shared, stream});
    return 0;
}
API Status __cudaPopCallConfiguration(Dim3 *grid, Dim3 *block, size_t *shared, Stream **stream) {
    if (pushed.empty())
        return leave(__func__, MISSING_CONFIGURATION);
    *grid = pushed.back().grid, *block = pushed.back().block;
    *shared = pushed.back().shared, *stream = pushed.back().stream;
    pushed.pop_back();
    return SUCCESS;
}

Status start_kernel(const void *function, Dim3 grid, Dim3 block, void **parameters, size_t shared, Stream *stream,
                    const unsigned *cluster, bool cooperative, void **extra) {
    Kernel *kernel;
    refusal.clear();
    launched = "The launch of " + (registered(function) ? "kernel " + registered(function)->name : "an unknown kernel");
    if (Status status = kernel_of(&kernel, function))
        return status;
    if (shared > UINT32_MAX)
        return INVALID_VALUE;
    unsigned sides[6] = {grid.x, grid.y, grid.z, block.x, block.y, block.z};
    Status status = launch(kernel, {sides, cluster, unsigned(shared), cooperative}, stream, parameters, extra);
    // CUDA 13 does not tell which size is invalid
    bool hidden = !is_runtime_12() && (status == INVALID_CONFIGURATION || status == OUT_OF_RESOURCES);
    return hidden ? INVALID_VALUE : status;
}

CALL_PTSZ(cudaLaunchKernel,
          (const void *function, Dim3 grid, Dim3 block, void **parameters, size_t shared, Stream *stream),
          start_kernel(function, grid, block, parameters, shared, stream, nullptr, false))
CALL_PTSZ(__cudaLaunchKernel, (void *kernel, Dim3 grid, Dim3 block, void **parameters, size_t shared, Stream *stream),
          start_kernel(kernel, grid, block, parameters, shared, stream, nullptr, false))
CALL_PTSZ(cudaLaunchCooperativeKernel,
          (const void *function, Dim3 grid, Dim3 block, void **parameters, size_t shared, Stream *stream),
          start_kernel(function, grid, block, parameters, shared, stream, nullptr, true))

struct Attribute {
    int id, pad;
    unsigned value[16];
};
struct LaunchConfiguration {
    Dim3 grid, block;
    size_t shared;
    Stream *stream;
    const Attribute *attributes;
    unsigned count;
};

static Status start_configured(const LaunchConfiguration &how, const void *function, void **parameters) {
    const unsigned *cluster = nullptr;
    bool cooperative = false;
    for (unsigned i = 0; i < how.count; i++) {
        if (how.attributes[i].id == 4)
            cluster = how.attributes[i].value;
        if (how.attributes[i].id == 2)
            cooperative = how.attributes[i].value[0];
    }
    return start_kernel(function, how.grid, how.block, parameters, how.shared, how.stream, cluster, cooperative);
}
CALL_PTSZ(cudaLaunchKernelExC, (const LaunchConfiguration *how, const void *function, void **parameters),
          how ? start_configured(*how, function, parameters) : INVALID_VALUE)

static Status handle_of(void **handle, const void *function) {
    *handle = registered(function);
    return *handle ? SUCCESS : INVALID_FUNCTION;
}
// This call does not check whether there is a device. The first call whose status the program gets reports it.
API Status __cudaGetKernel(void **handle, const void *function) {
    CallLock until_the_end;
    return handle_of(handle, function);
}
CALL(cudaGetKernel, (void **handle, const void *function), handle_of(handle, function))
CALL(cudaGetFuncBySymbol, (void **handle, const void *function), handle_of(handle, function))

static Status name_of(const char **name, const void *function) {
    Registered *kernel = registered(function);
    *name = kernel ? kernel->name.c_str() : nullptr;
    return kernel ? SUCCESS : INVALID_FUNCTION;
}
CALL(cudaFuncGetName, (const char **name, const void *function), name_of(name, function))

// Define a call for a kernel.
#define OF_KERNEL(name, parameters, result)                                                                            \
    API Status name parameters {                                                                                       \
        return call(#name, [&]() -> Status {                                                                           \
            Kernel *kernel;                                                                                            \
            Status status = kernel_of(&kernel, function);                                                              \
            return status ? status : (result);                                                                         \
        });                                                                                                            \
    }

struct FunctionAttributes { // cudaFuncAttributes
    size_t shared, constant, local;
    int threads, registers, ptx, binary, cache_mode, dynamic_shared, carveout, cluster[5], large_clusters, rest[16];
};

static Status attributes_of(FunctionAttributes *to, const Kernel *kernel) {
    const int *values = kernel->function.attributes;
    *to = {};
    to->shared = size_t(values[1]), to->constant = size_t(values[2]), to->local = size_t(values[3]);
    to->threads = values[0], to->registers = values[4], to->ptx = values[5], to->binary = values[6];
    to->dynamic_shared = kernel->dynamic_shared, to->carveout = -1, to->large_clusters = kernel->large_clusters;
    return SUCCESS;
}
OF_KERNEL(cudaFuncGetAttributes, (FunctionAttributes * to, const void *function), attributes_of(to, kernel))
OF_KERNEL(cudaFuncSetAttribute, (const void *function, int attribute, int value),
          set_kernel_attribute(kernel, attribute, value))
OF_KERNEL(cudaKernelSetAttributeForDevice, (const void *function, int attribute, int value, int),
          set_kernel_attribute(kernel, attribute, value))
OF_KERNEL(cudaFuncSetCacheConfig, (const void *function, int), SUCCESS)
OF_KERNEL(cudaFuncSetSharedMemConfig, (const void *function, int), SUCCESS)

static Status parameter_of(const Kernel *kernel, size_t number, size_t *offset, size_t *bytes) {
    if (number >= size_t(kernel->function.parameters))
        return INVALID_VALUE;
    *offset = kernel->function.offsets[number];
    if (bytes)
        *bytes = kernel->function.sizes[number];
    return SUCCESS;
}
OF_KERNEL(cudaFuncGetParamInfo, (const void *function, size_t number, size_t *offset, size_t *bytes),
          parameter_of(kernel, number, offset, bytes))

OF_KERNEL(cudaOccupancyMaxActiveBlocksPerMultiprocessor,
          (int *blocks, const void *function, int threads, size_t shared),
          threads <= 0 ? INVALID_VALUE : (*blocks = most_blocks(kernel, unsigned(threads), shared), SUCCESS))
OF_KERNEL(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
          (int *blocks, const void *function, int threads, size_t shared, unsigned),
          threads <= 0 ? INVALID_VALUE : (*blocks = most_blocks(kernel, unsigned(threads), shared), SUCCESS))

static Status available_shared(size_t *bytes, const Kernel *kernel, int blocks, int threads) {
    if (blocks <= 0 || threads <= 0)
        return INVALID_VALUE;
    size_t most = size_t(std::max(0, kernel->dynamic_shared));
    while (most && most_blocks(kernel, unsigned(threads), most) < blocks)
        most = most > 128 ? most - 128 : 0;
    *bytes = most;
    return SUCCESS;
}
OF_KERNEL(cudaOccupancyAvailableDynamicSMemPerBlock, (size_t *bytes, const void *function, int blocks, int threads),
          available_shared(bytes, kernel, blocks, threads))

static Status active_clusters(int *clusters, const Kernel *kernel, const LaunchConfiguration &how) {
    unsigned size = 1;
    for (unsigned i = 0; i < how.count; i++)
        if (how.attributes[i].id == 4)
            size = how.attributes[i].value[0] * how.attributes[i].value[1] * how.attributes[i].value[2];
    int blocks = most_blocks(kernel, how.block.x * how.block.y * how.block.z, how.shared);
    *clusters = size ? blocks * cards[context()->device].attributes[16] / int(size) : 0;
    return size ? SUCCESS : INVALID_VALUE;
}
OF_KERNEL(cudaOccupancyMaxActiveClusters, (int *clusters, const void *function, const LaunchConfiguration *how),
          active_clusters(clusters, kernel, *how))
OF_KERNEL(cudaOccupancyMaxPotentialClusterSize, (int *size, const void *function, const LaunchConfiguration *),
          (*size = kernel->large_clusters ? 16 : 8, SUCCESS))

} // namespace programs
