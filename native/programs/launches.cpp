// Launches: the checks that CUDA makes before it queues them, and the number of blocks that fit on a multiprocessor.
#include "core.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace programs {

uint64_t random_number() {
    static uint64_t chance = 88172645463325252ull + schedule;
    chance ^= chance << 13, chance ^= chance >> 7, chance ^= chance << 17;
    return chance >> 11; // 53 bits
}

std::string refusal;

// Return whether a size is invalid: 0, or over its limit. If so, say it in `refusal`: `before`, the size, `after`.
static bool invalid(unsigned long long size, unsigned long long limit, const std::string &before,
                    const char *after = "") {
    if (size && size <= limit)
        return false;
    refusal = before + " " + std::to_string(size) + after +
              (size ? ", and the limit is " + std::to_string(limit) : ", and must be at least 1");
    return true;
}

static Status check_geometry(const Kernel &kernel, const Geometry &how) {
    const int *limits = cards[context()->device].attributes, *needs = kernel.function.attributes;
    unsigned long long threads = 1, blocks = 1;
    unsigned cluster_blocks = 1;
    for (int axis = 0; axis < 3; axis++) { // both products stop at 2^32, so that they cannot overflow
        threads = std::min(threads * how.sides[3 + axis], 1ull << 32);
        blocks = std::min(blocks * how.sides[axis], 1ull << 32);
    }
    if (threads && invalid(threads, unsigned(limits[1]), "a block has", " threads"))
        return INVALID_CONFIGURATION;
    // device attributes 2 to 4 limit the block's sides, attributes 5 to 7 those of the grid
    for (int axis = 0; axis < 3; axis++) {
        std::string side = std::string("side ") + "xyz"[axis];
        if (invalid(how.sides[axis], unsigned(limits[5 + axis]), side + " of the grid is") ||
            invalid(how.sides[3 + axis], unsigned(limits[2 + axis]), side + " of the block is"))
            return INVALID_CONFIGURATION;
        // function attributes 11 to 13 are the sides of the kernel's own clusters, or 0
        unsigned within = how.cluster ? how.cluster[axis] : unsigned(std::max(1, needs[11 + axis]));
        if (!within || how.sides[axis] % within) {
            refusal = side + " of the grid is " + std::to_string(how.sides[axis]) + ", and must be a multiple of the " +
                      "cluster's, " + std::to_string(within);
            return INVALID_CLUSTER;
        }
        cluster_blocks *= within;
    }
    if (invalid(cluster_blocks, kernel.large_clusters ? 16 : 8, "a cluster has", " blocks"))
        return INVALID_CLUSTER;
    if (invalid(threads, unsigned(needs[0]), "a block has", " threads")) {
        refusal += " for this kernel, by its registers or __launch_bounds__";
        return OUT_OF_RESOURCES;
    }
    auto resident = (unsigned long long)most_blocks(&kernel, unsigned(threads), how.shared) * limits[16];
    if (how.cooperative && invalid(blocks, resident, "a cooperative grid has", " blocks"))
        return TOO_LARGE;
    int most_shared = std::max(0, kernel.dynamic_shared), highest = limits[97] - needs[1];
    if (how.shared && invalid(how.shared, unsigned(most_shared), "the dynamic shared memory has", " bytes")) {
        if (int(how.shared) > 0 && int(how.shared) <= highest)
            refusal += "; cudaFuncSetAttribute can raise it to " + std::to_string(highest);
        return INVALID_VALUE;
    }
    return SUCCESS;
}

// Collect the bytes of a kernel's parameters. They come from a list of pointers or, if `extra` is set, from one buffer
// that contains them all.
static Status gather(std::vector<char> &bytes, const Kernel &kernel, void **parameters, void **extra) {
    int last = kernel.function.parameters - 1;
    bytes.resize(last < 0 ? 0 : kernel.function.offsets[last] + kernel.function.sizes[last]);
    if (extra) { // a list of keys and values: key 1 is the buffer, key 2 its size
        const char *buffer = nullptr;
        size_t size = 0;
        for (int i = 0; extra[i]; i += 2) {
            if ((size_t)extra[i] == 1)
                buffer = (const char *)extra[i + 1];
            if ((size_t)extra[i] == 2)
                size = *(size_t *)extra[i + 1];
        }
        if (size < bytes.size() || (size && !buffer)) {
            fprintf(stderr, "the simulated driver: kernel %s takes %zu bytes of arguments, but was given %zu\n",
                    kernel.name.c_str(), bytes.size(), size);
            return INVALID_VALUE;
        }
        bytes.assign(buffer, buffer + bytes.size());
    } else if (!bytes.empty()) {
        if (!parameters)
            return INVALID_VALUE;
        for (int i = 0; i <= last; i++)
            memcpy(bytes.data() + kernel.function.offsets[i], parameters[i], kernel.function.sizes[i]);
    }
    return SUCCESS;
}

Status launch(Kernel *handle, const Geometry &how, Stream *on, void **parameters, void **extra) {
    auto kernel = find_handle(handle);
    auto stream = stream_of(on);
    refusal.clear();
    if (!kernel || !stream || stream->context != context() || kernel->module->context != context())
        return INVALID_HANDLE;
    if (Status status = check_geometry(*kernel, how))
        return status;
    std::vector<char> bytes;
    if (Status status = gather(bytes, *kernel, parameters, extra))
        return status;
    Launch description{kernel->module->number, nullptr,        {},     {}, how.shared, nullptr, 0,
                       how.cooperative,        stream->number, nullptr};
    std::copy(how.sides, how.sides + 6, description.sides);
    if (how.cluster)
        std::copy(how.cluster, how.cluster + 3, description.cluster);
    return queue(stream, KERNEL, [=, place = call_stack()](double *time) -> Status {
        if (!find_handle(kernel.get()))
            return INVALID_HANDLE; // a graph may launch a kernel that was unloaded after the graph was made
        Launch launched = description;
        launched.name = kernel->name.c_str();
        launched.parameters = bytes.data();
        launched.parameter_bytes = bytes.size();
        launched.place = &place;
        Status status = callbacks.launch(&launched, time);
        interrupted = status == INTERRUPTED;
        // random noise of up to 1%, because on a GPU no two launches take exactly the same time
        *time *= 1 + 0.01 * (double(random_number()) / (1ull << 53));
        return interrupted ? LAUNCH_FAILED : status;
    });
}

// Return how many blocks of a kernel fit on a multiprocessor. Limits are its threads, its blocks, its registers (a
// warp's registers are allocated in multiples of 256) and its shared memory.
int most_blocks(const Kernel *kernel, unsigned threads, size_t shared) {
    const int *has = cards[kernel->module->context->device].attributes, *needs = kernel->function.attributes;
    if (!threads || threads > unsigned(needs[0]) || threads > unsigned(has[1]))
        return 0;
    auto attribute_or = [&](int attribute, int fallback) { return has[attribute] > 0 ? has[attribute] : fallback; };
    unsigned warps = (threads + 31) / 32;
    int most = std::min(int(unsigned(has[39]) / (warps * 32)), attribute_or(106, 32));
    // registers of one warp; each of the four schedulers has its own quarter of all registers
    if (int registers = (needs[4] * 32 + 255) / 256 * 256)
        most = std::min(most, attribute_or(82, 65536) / registers / 4 * 4 / int(warps));
    size_t reserved_bytes = size_t(attribute_or(111, 1024)), bytes = (needs[1] + shared + 127) / 128 * 128;
    if (bytes)
        most = std::min(most, int(size_t(has[81]) / (bytes + reserved_bytes)));
    return most;
}

} // namespace programs
