// Records the kernels of a program that runs on a GPU: CUPTI reports the start and the end of each launch.
//
// CUDA_INJECTION64_PATH names this library, so the CUDA driver loads it and calls InitializeInjection when the program
// first uses CUDA. CUDABENCH_CUPTI is the path of CUPTI; CUDABENCH_TRACE is a folder, in which each process N writes:
//   N.kernels   a line for each kernel and geometry: grid, block, static and dynamic shared memory, registers, local
//               memory, name
//   N.launches  an array of `Launch`
//   N.problem   the reason why CUPTI does not record launches

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cxxabi.h>
#include <dlfcn.h>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <unistd.h>

namespace {

// The first fields of CUPTI's record of a kernel, which are the same from CUDA 9 to 13 (CUpti_ActivityKernel4 to 13).
struct KernelRecord {
    uint32_t kind;
    uint8_t cache_config, shared_config;
    uint16_t registers;
    uint32_t cache_requested, cache_executed;
    uint64_t start, end, completed; // in ns; 0 if unknown
    uint32_t device, context, stream;
    int32_t grid[3], block[3];
    int32_t static_shared, dynamic_shared;
    uint32_t local_per_thread, local_total, correlation;
    int64_t grid_id;
    const char *name; // mangled
};
static_assert(sizeof(KernelRecord) == 112, "CUPTI's record has no padding before the name");

struct Launch {
    uint32_t kernel, device; // the number of the line in N.kernels, from 0
    uint64_t start, end;     // in ns; the end is 0 if the launch has not ended
};

constexpr int KERNEL = 10;          // CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL
constexpr int RUNTIME_CALLS = 3;    // CUPTI_CB_DOMAIN_RUNTIME_API
constexpr int DEVICE_RESET = 164;   // the number of cudaDeviceReset among the runtime's calls
constexpr int FLUSH_UNFINISHED = 1; // CUPTI_ACTIVITY_FLAG_FLUSH_FORCED
constexpr size_t BUFFER_BYTES = 1 << 20;
constexpr uint32_t FLUSH_MS = 100; // a program that is killed loses only the launches of this time

using Key = std::tuple<std::string, int, int, int, int, int, int, int, int, int, uint32_t>;

struct Trace {
    std::mutex mutex;
    std::map<Key, uint32_t> kernels;
    FILE *kernel_file = nullptr, *launch_file = nullptr;
    pid_t process = 0;
    int (*next)(uint8_t *, size_t, void **) = nullptr;
    int (*flush)(uint32_t) = nullptr;
};

Trace &trace() {
    static Trace *kept = new Trace; // never deleted: CUPTI may call while the program ends
    return *kept;
}

std::string path(const char *suffix) {
    const char *folder = std::getenv("CUDABENCH_TRACE");
    return std::string(folder ? folder : ".") + "/" + std::to_string(getpid()) + suffix;
}

void report(const std::string &problem) {
    if (FILE *file = std::fopen(path(".problem").c_str(), "w")) {
        std::fprintf(file, "%s\n", problem.c_str());
        std::fclose(file);
    }
}

std::string readable(const char *name) {
    int status = 0;
    char *text = name ? abi::__cxa_demangle(name, nullptr, nullptr, &status) : nullptr;
    std::string result = text ? text : name ? name : "?";
    std::free(text);
    return result;
}

void record(const KernelRecord &kernel) {
    Trace &to = trace();
    const int *grid = kernel.grid, *block = kernel.block;
    Key key{kernel.name ? kernel.name : "",
            grid[0],
            grid[1],
            grid[2],
            block[0],
            block[1],
            block[2],
            kernel.static_shared,
            kernel.dynamic_shared,
            kernel.registers,
            kernel.local_per_thread};
    const auto [place, added] = to.kernels.try_emplace(key, uint32_t(to.kernels.size()));
    if (added) {
        std::fprintf(to.kernel_file, "%d %d %d %d %d %d %d %d %d %u %s\n", grid[0], grid[1], grid[2], block[0],
                     block[1], block[2], kernel.static_shared, kernel.dynamic_shared, int(kernel.registers),
                     kernel.local_per_thread, readable(kernel.name).c_str());
    }
    const Launch launch{place->second, kernel.device, kernel.start, kernel.end};
    std::fwrite(&launch, sizeof launch, 1, to.launch_file);
}

void give_buffer(uint8_t **buffer, size_t *bytes, size_t *records) {
    *buffer = static_cast<uint8_t *>(std::aligned_alloc(8, BUFFER_BYTES));
    *bytes = *buffer ? BUFFER_BYTES : 0;
    *records = 0; // as many as fit
}

void take_buffer(void *, uint32_t, uint8_t *buffer, size_t, size_t valid) {
    Trace &to = trace();
    {
        const std::lock_guard<std::mutex> lock(to.mutex);
        void *row = nullptr;
        while (valid && to.next(buffer, valid, &row) == 0) {
            if (*static_cast<uint32_t *>(row) == KERNEL)
                record(*static_cast<KernelRecord *>(row));
        }
        std::fflush(to.kernel_file);
        std::fflush(to.launch_file);
    }
    std::free(buffer);
}

// A reset of the device ends its contexts, whose records must be fetched before.
void before_reset(void *, int, uint32_t call, const void *) {
    if (call == DEVICE_RESET)
        trace().flush(0);
}

void at_exit() {
    if (getpid() == trace().process)
        trace().flush(FLUSH_UNFINISHED); // a forked process has no CUDA
}

template <class Function> Function *symbol(void *library, const char *name) {
    return reinterpret_cast<Function *>(dlsym(library, name));
}

bool failed(void *library, const char *call, int status) {
    if (!status)
        return false;
    const char *text = nullptr;
    auto *explain = symbol<int(int, const char **)>(library, "cuptiGetResultString");
    if (explain)
        explain(status, &text);
    report(std::string(call) + " returned " + (text ? text : std::to_string(status)));
    return true;
}

} // namespace

extern "C" __attribute__((visibility("default"))) int InitializeInjection() {
    Trace &to = trace();
    if (to.process)
        return 1;
    to.process = getpid();
    const char *name = std::getenv("CUDABENCH_CUPTI");
    void *library = dlopen(name ? name : "libcupti.so", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        report(dlerror());
        return 1;
    }
    auto *enable = symbol<int(int)>(library, "cuptiActivityEnable");
    auto *buffers =
        symbol<int(decltype(give_buffer) *, decltype(take_buffer) *)>(library, "cuptiActivityRegisterCallbacks");
    auto *period = symbol<int(uint32_t)>(library, "cuptiActivityFlushPeriod");
    auto *subscribe = symbol<int(void **, decltype(before_reset) *, void *)>(library, "cuptiSubscribe");
    auto *call_back = symbol<int(uint32_t, void *, int, uint32_t)>(library, "cuptiEnableCallback");
    to.next = symbol<int(uint8_t *, size_t, void **)>(library, "cuptiActivityGetNextRecord");
    to.flush = symbol<int(uint32_t)>(library, "cuptiActivityFlushAll");
    if (!enable || !buffers || !to.next || !to.flush) {
        report("it lacks functions of the activity API");
        return 1;
    }
    to.kernel_file = std::fopen(path(".kernels").c_str(), "w");
    to.launch_file = std::fopen(path(".launches").c_str(), "wb");
    if (!to.kernel_file || !to.launch_file) {
        report("the folder of the trace cannot be written");
        return 1;
    }
    if (failed(library, "cuptiActivityRegisterCallbacks", buffers(give_buffer, take_buffer)))
        return 1;
    if (failed(library, "cuptiActivityEnable", enable(KERNEL)))
        return 1;
    void *subscriber = nullptr;
    if (subscribe && call_back && subscribe(&subscriber, before_reset, nullptr) == 0)
        call_back(1, subscriber, RUNTIME_CALLS, DEVICE_RESET);
    if (period)
        period(FLUSH_MS);
    std::atexit(at_exit);
    return 1;
}
