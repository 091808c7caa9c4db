// Restores memory after a launch that may have a hazard, and implements asynchronous copies.
#include "addresses.hpp"

#include <algorithm>
#ifdef __linux__
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace engine {

void *zeros(size_t bytes) {
    void *fresh = std::calloc(bytes, 1);
    if (!fresh)
        throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
    constexpr size_t LARGE = 4 << 20;
    if (bytes >= LARGE) { // with large pages, the first use of memory is several times faster
        const uintptr_t page = uintptr_t(sysconf(_SC_PAGESIZE)), start = uintptr_t(fresh);
        const uintptr_t first = (start + page - 1) / page * page, end = (start + bytes) / page * page;
        madvise(reinterpret_cast<void *>(first), end - first, MADV_HUGEPAGE); // a wish, so its failure does not matter
    }
#endif
    return fresh;
}

Undo::~Undo() {
    for (size_t number = 0; number < count; number++)
        std::free(regions[number].load());
    for (auto &chunk : chunks)
        std::free(chunk.load());
}

void Undo::start(const Launch &launch) {
    count = launch.regions.size();
    i64 largest = 0;
    for (const Region &region : launch.regions)
        largest = std::max(largest, region.writable ? region.size : 0);
    while (page_bits < MOST_PAGE_BITS && largest >> page_bits > MOST_PAGES)
        page_bits++;
    regions.reset(new std::atomic<State *>[count]());
}

// Return the array that `place` points to. If `place` is null, allocate an array of zeros first; other workers may do
// this at the same time.
template <class T> T *Undo::allocated(std::atomic<T *> &place, size_t elements) {
    T *existing = place.load(std::memory_order_acquire);
    if (existing)
        return existing;
    T *fresh = static_cast<T *>(zeros(elements * sizeof(T)));
    if (place.compare_exchange_strong(existing, fresh))
        return fresh;
    std::free(fresh);
    return existing;
}

u8 *Undo::copy(u32 number) {
    constexpr u32 FIRST = 16; // pages in the first chunk; each further chunk has twice as many as the chunk before it
    const int chunk = 31 - __builtin_clz(number / FIRST + 1);
    const size_t elements = size_t(FIRST) << chunk;
    return allocated(chunks[chunk], elements << page_bits) + (size_t(number - (elements - FIRST)) << page_bits);
}

// Return whether all bytes of a page are equal. This is common: an output that no kernel has written yet is filled with
// one byte.
bool Undo::is_filled(const u8 *page) const {
    const u64 word = page[0] * 0x0101010101010101u;
    u64 differences = 0;
    for (i64 offset = 0; offset < i64(1) << page_bits; offset += i64(sizeof word)) {
        u64 bytes;
        std::memcpy(&bytes, page + offset, sizeof bytes);
        differences |= bytes ^ word;
    }
    return !differences;
}

// Save a page, unless another worker has begun to; in this case, wait until it has saved it.
void Undo::save(const Region &array, i64 page, State &state) {
    u32 untouched = 0;
    if (!state.compare_exchange_strong(untouched, 1)) {
        while (state.load(std::memory_order_acquire) < FILLED) {
        }
        return;
    }
    const i64 start = page << page_bits, bytes = std::min(i64(1) << page_bits, array.size - start);
    if (bytes == i64(1) << page_bits && is_filled(array.data + start)) {
        state.store(FILLED + array.data[start], std::memory_order_release);
        return;
    }
    const u32 number = kept++;
    std::memcpy(copy(number), array.data + start, size_t(bytes));
    state.store(KEPT + number, std::memory_order_release);
}

void Undo::keep(const Launch &launch, i32 region, i64 first, const i64 *places, i64 low, i64 high, i64 size) {
    const Region &array = launch.regions[size_t(region)];
    State *states = allocated(regions[size_t(region)], size_t(array.size >> page_bits) + 1);
    auto keep_range = [&](i64 from, i64 to) {
        for (i64 page = from >> page_bits; page <= (to - 1) >> page_bits; page++)
            if (states[page].load(std::memory_order_acquire) < FILLED)
                save(array, page, states[page]);
    };
    if (high - low <= 4 * i64(LANES) * WIDEST)
        keep_range(first + low, first + high + size);
    else
        for (int lane = 0; lane < LANES; lane++)
            keep_range(first + places[lane], first + places[lane] + size);
}

void Undo::restore(const Launch &launch) {
    for (size_t number = 0; number < count; number++)
        if (const State *states = regions[number]) {
            const Region &array = launch.regions[number];
            for (i64 page = 0, start; (start = page << page_bits) < array.size; page++) {
                const size_t bytes = size_t(std::min(i64(1) << page_bits, array.size - start));
                if (states[page] >= KEPT)
                    std::memcpy(array.data + start, copy(states[page] - KEPT), bytes);
                else if (states[page] >= FILLED)
                    std::memset(array.data + start, int(states[page] - FILLED), bytes);
            }
        }
}

namespace {

// Flags of copies. AMOUNT: from[1] is the number of bytes to read. SKIPS: from[1] is a predicate; where it holds,
// nothing is read. FLIPPED: this predicate is inverted.
constexpr i32 AMOUNT = 4, SKIPS = 8, FLIPPED = 16;

// The read of an asynchronous copy. from[0] is the address; from[1] is the number of bytes to read, or the predicate to
// skip the read. into[] gets the words that were read; they are zeros if nothing is read.
void copy_fetch(Block &block, const Op &op) {
    const Access &access = block.launch.accesses[size_t(op.access)];
    auto &sources = block.worker.pending_copies.sources;
    sources.resize(size_t(block.warps));
    i32 variable = -1;
    for (int warp = 0; warp < block.warps; warp++) {
        sources[size_t(warp)].mask = 0;
        u32 chosen = block.mask[warp];
        if (op.flags & SKIPS)
            chosen &= op.flags & FLIPPED ? block.predicate(op.from[1])[warp] : ~block.predicate(op.from[1])[warp];
        else if (op.flags & AMOUNT)
            for (u32 rest = block.mask[warp]; rest; rest &= rest - 1) {
                const u32 amount = block.at<u32>(op.from[1])[warp * LANES + first_lane(rest)];
                if (!amount)
                    chosen &= ~(rest & -rest);
                else if (amount < u32(access.size)) {
                    block.suspect("an asynchronous copy of a part of its bytes", op);
                    return;
                }
            }
        for (int word = 0; chosen != block.mask[warp] && word < access.count; word++)
            for (int lane = 0; lane < LANES; lane++)
                block.at<u32>(op.into[word])[warp * LANES + lane] = 0;
        if (!chosen)
            continue;
        Lanes lanes;
        lanes.fill(block.at<i64>(op.from[0]) + warp * LANES, op.immediate, chosen);
        auto move = [&](const Memory &memory, const Lanes &part) {
            for (int word = 0; word < access.count; word++)
                fetch<u32, u32>(memory.origin + 4 * word, part.form(), memory.step,
                                block.at<u32>(op.into[word]) + warp * LANES);
        };
        if (!by_space(WarpAccess{block, op, access, nullptr, warp, variable}, lanes, move))
            return;
        PendingCopies::Source &source = sources[size_t(warp)];
        source.mask = chosen;
        source.row = access.number[GLOBAL] * block.launch.places + (lanes.addresses[0] >> SLOT_BITS);
        std::copy_n(lanes.addresses, LANES, source.addresses);
    }
}

// Return how many additional sectors a copy of 16 bytes per lane requests: see counters.wide_copy.
i64 extra_sectors(const PendingCopies::Source &source, const i64 *into) {
    i64 requested[LANES], sectors_[LANES], count = 0;
    for (u32 rest = source.mask; rest; rest &= rest - 1, count++) {
        const int lane = first_lane(rest);
        requested[count] = (source.addresses[lane] >> 7) << 20 | into[lane] >> 5;
        sectors_[count] = source.addresses[lane] >> 5;
    }
    auto distinct = [&](i64 *values) {
        std::sort(values, values + count);
        return std::unique(values, values + count) - values;
    };
    return distinct(requested) - distinct(sectors_);
}

// The write of an asynchronous copy to shared memory. from[0] is the address; from[1] and the following are the words.
void copy_keep(Block &block, const Op &op) {
    const Access &access = block.launch.accesses[size_t(op.access)];
    const bool known = access.shared_low <= access.shared_high;
    for (int warp = 0; warp < block.warps; warp++) {
        if (!block.mask[warp])
            continue;
        Lanes lanes;
        fill(block, op, warp, lanes);
        if (!lanes.within(known ? access.shared_low : 0, known ? access.shared_high : block.launch.about.shared_size,
                          access.size)) {
            block.suspect("a copy is out of the bounds of shared memory or misaligned", op);
            return;
        }
        u32 data[4 * LANES];
        for (int word = 0; word < access.count; word++)
            for (int lane = 0; lane < LANES; lane++)
                data[lane * access.count + word] = block.at<u32>(op.from[1 + word])[warp * LANES + lane];
        const u8 *bytes = reinterpret_cast<const u8 *>(data);
        Request request{access, SHARED, 0, warp, lanes.mask, lanes.addresses, lanes.straight, lanes.stride};
        if (block.launch.about.checked) {
            block.worker.races.note(block, op, request, lanes.addresses[first_lane(lanes.mask)], bytes);
            block.worker.pending_copies.add(op, request);
        }
        put<u32>(block.shared, lanes.form(), 0, bytes, access.count);
        const PendingCopies::Source &source = block.worker.pending_copies.sources[size_t(warp)];
        if (access.size == 16 && source.mask && block.launch.about.checked)
            block.worker.counters.rows[size_t(source.row)].pieces += extra_sectors(source, lanes.addresses);
    }
}

} // namespace

const std::vector<Operation> &memory_operations() {
    static const std::vector<Operation> all = {
        {"other", [](Block &block, const Op &op) { block.suspect("the native engine lacks an instruction", op); }},
        {"copy.fetch", copy_fetch},
        {"copy.keep", copy_keep},
        {"copy.commit", [](Block &block, const Op &op) { block.worker.pending_copies.commit(block, op); }},
        {"copy.wait", [](Block &block, const Op &op) { block.worker.pending_copies.wait(block, op, op.immediate); }},
    };
    return all;
}

i64 constant_regions(const Block &block, const Region *&first) {
    first = block.launch.regions.data();
    return i64(block.launch.regions.size());
}

} // namespace engine

using namespace engine;

// For tests: compute the cost of a single request. what: 0: sectors of global memory; 1: wavefronts of a load from
// shared memory; 2: wavefronts of a store to shared memory.
PUBLIC void cudabench_cost(const i64 *addresses, u32 mask, i64 size, i32 what, i64 *cost) {
    Lanes lanes;
    lanes.fill(addresses, 0, mask);
    const Cost total = what ? wavefronts(lanes.addresses, mask, size, what == 1) : sectors(lanes.addresses, mask, size);
    cost[0] = total.pieces;
    cost[1] = total.ideal;
}
