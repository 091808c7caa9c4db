#include "launch.hpp"

#include <algorithm>

namespace engine {

void Undo::start(const Launch &launch) {
    for (const Region &region : launch.regions) {
        Pages pages;
        if (region.writable) {
            pages.count = (region.size + PAGE - 1) / PAGE;
            pages.states.reset(new std::atomic<u8>[size_t(pages.count)]());
            pages.copies.resize(size_t(pages.count));
        }
        regions.push_back(std::move(pages));
    }
}

void Undo::keep(const Launch &launch, i32 region, i64 low, i64 high) {
    Pages &pages = regions[size_t(region)];
    for (i64 page = low / PAGE; page <= (high - 1) / PAGE; page++) {
        std::atomic<u8> &state = pages.states[size_t(page)];
        if (state.load(std::memory_order_acquire) == 2)
            continue;
        u8 untouched = 0;
        if (state.compare_exchange_strong(untouched, 1)) {
            const Region &of = launch.regions[size_t(region)];
            i64 bytes = std::min(PAGE, of.size - page * PAGE);
            pages.copies[size_t(page)].reset(new u8[size_t(bytes)]);
            std::memcpy(pages.copies[size_t(page)].get(), of.data + page * PAGE, size_t(bytes));
            state.store(2, std::memory_order_release);
        } else
            while (state.load(std::memory_order_acquire) != 2) {
            }
    }
}

void Undo::restore(const Launch &launch) {
    for (size_t number = 0; number < regions.size(); number++)
        for (i64 page = 0; page < regions[number].count; page++)
            if (regions[number].states[size_t(page)] == 2) {
                const Region &of = launch.regions[number];
                std::memcpy(of.data + page * PAGE, regions[number].copies[size_t(page)].get(),
                            size_t(std::min(PAGE, of.size - page * PAGE)));
            }
}

namespace {

// A slot of the address space has 2^40 bytes, see cudabench/simulator/memory.py.
constexpr int SLOT_BITS = 40;

// ld.param at a fixed place: from[] none; immediate: the offset; into[0]: a register of the width.
template <class T> void load_parameter(Block &block, const Op &op) {
    T value;
    std::memcpy(&value, block.launch.parameters.data() + op.immediate, sizeof value);
    T *into = block.at<T>(op.into[0]);
    for (int warp = 0; warp < block.warps; warp++)
        for (u32 rest = block.mask[warp]; rest; rest &= rest - 1)
            into[warp * LANES + first_lane(rest)] = value;
}

// Global memory: from[0] holds the address; a load writes into[], a store reads from[1...].
template <class T, bool STORES> void access_global(Block &block, const Op &op) {
    const Launch &launch = block.launch;
    const Access &access = launch.accesses[size_t(op.access)];
    const i64 *base = block.at<i64>(op.from[0]);
    for (int warp = 0; warp < block.warps; warp++) {
        u32 mask = block.mask[warp];
        if (!mask)
            continue;
        i64 addresses[LANES], low = INT64_MAX, high = INT64_MIN, bits = 0;
        for (u32 rest = mask; rest; rest &= rest - 1) {
            int lane = first_lane(rest);
            i64 address = addresses[lane] = base[warp * LANES + lane] + op.immediate;
            low = std::min(low, address);
            high = std::max(high, address);
            bits |= address;
        }
        i64 slot = low >> SLOT_BITS;
        if (slot <= 0 || slot >= i64(launch.regions.size()) || (bits & (access.size - 1)) ||
            high + access.size > launch.regions[size_t(slot)].base + launch.regions[size_t(slot)].size) {
            block.suspect("an address is out of bounds or misaligned", op);
            return;
        }
        const Region &region = launch.regions[size_t(slot)];
        Request request{access, GLOBAL, i32(slot), warp, mask, addresses};
        block.worker.counters.count(block, request);
        block.worker.footprints.note(block, request, access.size);
        if (STORES) {
            if (!region.writable) {
                block.suspect("a store to memory that is read-only", op);
                return;
            }
            block.launch.undo.keep(launch, i32(slot), low - region.base, high + access.size - region.base);
        }
        if (region.watched)
            block.worker.races.note(block, op, request, nullptr);
        for (u32 rest = mask; rest; rest &= rest - 1) {
            int lane = first_lane(rest);
            u8 *place = region.data + (addresses[lane] - region.base);
            for (int element = 0; element < access.count; element++) {
                T *value = block.at<T>(STORES ? op.from[1 + element] : op.into[element]) + warp * LANES + lane;
                if (STORES)
                    std::memcpy(place + element * int(sizeof(T)), value, sizeof(T));
                else
                    std::memcpy(value, place + element * int(sizeof(T)), sizeof(T));
            }
        }
    }
}

} // namespace

const std::vector<Operation> &memory_operations() {
    static const std::vector<Operation> all = {
        {"other", [](Block &block, const Op &op) { block.suspect("the native engine lacks an instruction", op); }},
        {"ld.param.8", load_parameter<u8>},          {"ld.param.16", load_parameter<u16>},
        {"ld.param.32", load_parameter<u32>},        {"ld.param.64", load_parameter<u64>},
        {"ld.global.32", access_global<u32, false>}, {"ld.global.64", access_global<u64, false>},
        {"st.global.32", access_global<u32, true>},  {"st.global.64", access_global<u64, true>},
    };
    return all;
}

} // namespace engine
