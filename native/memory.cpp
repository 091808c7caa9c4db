#include "addresses.hpp"

#include <algorithm>

namespace engine {

void Undo::start(const Launch &launch) {
    for (const Region &region : launch.regions) {
        Pages pages;
        if (region.writable) {
            pages.count = (region.size + PAGE - 1) / PAGE;
            pages.states.reset(new std::atomic<u8>[size_t(pages.count)]());
            pages.copies.reset(static_cast<u8 *>(std::calloc(size_t(pages.count + 1), PAGE)));
            if (!pages.copies)
                throw std::bad_alloc();
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
            std::memcpy(pages.copies.get() + page * PAGE, of.data + page * PAGE, size_t(bytes));
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
                std::memcpy(of.data + page * PAGE, regions[number].copies.get() + page * PAGE,
                            size_t(std::min(PAGE, of.size - page * PAGE)));
            }
}

namespace {

constexpr i32 AMOUNT = 4, SKIPS = 8, FLIPPED = 16; // of copies: a number of bytes; a predicate under which none is read

void keep_pages(const Asked &asked, i32 slot, const Region &region, const Lanes &lanes) {
    Undo &undo = asked.block.launch.undo;
    const i64 size = asked.access.size;
    i64 low = lanes.addresses[0], high = low;
    for (i64 address : lanes.addresses) {
        low = std::min(low, address);
        high = std::max(high, address);
    }
    if (high - low <= 4 * i64(LANES) * WIDEST) {
        undo.keep(asked.block.launch, slot, low - region.base, high + size - region.base);
        return;
    }
    for (i64 address : lanes.addresses)
        undo.keep(asked.block.launch, slot, address - region.base, address + size - region.base);
}

} // namespace

void count(const Asked &asked, const Request &request, bool counted) {
    Block &block = asked.block;
    if (counted && asked.access.number[request.space] >= 0) {
        const i64 size = price(asked, request);
        if (!size || !block.launch.about.footprint)
            return;
        const i64 shift = asked.access.issued[request.space] > 0 ? asked.access.shift[request.space] : 0;
        if (!shift) {
            block.worker.footprints.note(block, request, size);
            return;
        }
        i64 moved[LANES];
        Request told{request.access, request.space, request.region,   request.warp,
                     request.mask,   moved,         request.straight, request.stride};
        for (int lane = 0; lane < LANES; lane++)
            moved[lane] = request.addresses[lane] + shift;
        block.worker.footprints.note(block, told, size);
    }
}

bool in_region(const Asked &asked, i32 space, i32 slot, const Lanes &lanes, bool counted, Memory &found) {
    Block &block = asked.block;
    const Region &region = block.launch.regions[size_t(slot)];
    const bool stores = asked.access.kind != LOAD;
    if (region.heap || (stores && !region.writable)) {
        block.suspect("an access to the heap, or a store to memory that is read-only", asked.op);
        return false;
    }
    Request request{asked.access, space, slot, asked.warp, lanes.mask, lanes.addresses, lanes.straight, lanes.stride};
    count(asked, request, counted);
    if (region.watched && space == GLOBAL)
        block.worker.races.note(block, asked.op, request, asked.data);
    if (stores)
        keep_pages(asked, slot, region, lanes);
    found = {region.data - region.base, 0};
    return true;
}

namespace {

constexpr i32 IN_A_ROW = 2; // a flag: data in registers one behind the other

template <class T> inline T read(const u8 *place) {
    T value;
    std::memcpy(&value, place, sizeof value);
    return value;
}

// One element of each lane into a register of type R; T says its width and whether it has a sign.
template <class T, class R> void fetch(const Memory &memory, const Lanes &lanes, i64 shift, R *into) {
    const u8 *origin = memory.origin + shift;
    if (lanes.straight) {
        const u8 *place = origin + lanes.addresses[0];
        const i64 step = lanes.stride + memory.step;
        if (step == sizeof(R) && sizeof(T) == sizeof(R))
            std::memcpy(into, place, LANES * sizeof(R));
        else if (!step)
            std::fill_n(into, LANES, R(read<T>(place)));
        else
            for (int lane = 0; lane < LANES; lane++, place += step)
                into[lane] = R(read<T>(place));
        return;
    }
    if (lanes.mask == ALL) {
        for (int lane = 0; lane < LANES; lane++)
            into[lane] = R(read<T>(origin + lanes.addresses[lane] + lane * memory.step));
        return;
    }
    for (u32 rest = lanes.mask; rest; rest &= rest - 1) {
        const int lane = first_lane(rest);
        into[lane] = R(read<T>(origin + lanes.addresses[lane] + lane * memory.step));
    }
}

// What lanes wrote lies lane by lane, `size` bytes each.
template <class T> void put(const Memory &memory, const Lanes &lanes, const u8 *data, i32 count) {
    const i64 size = i64(sizeof(T)) * count;
    if (lanes.straight && lanes.stride + memory.step == size) {
        std::memcpy(memory.origin + lanes.addresses[0], data, size_t(LANES * size));
        return;
    }
    for (u32 rest = lanes.mask; rest; rest &= rest - 1) {
        const int lane = first_lane(rest);
        u8 *place = memory.origin + lanes.addresses[lane] + lane * memory.step;
        for (int element = 0; element < count; element++)
            std::memcpy(place + element * int(sizeof(T)), data + lane * size + element * int(sizeof(T)), sizeof(T));
    }
}

// The register of an element.
i32 element_of(const i32 *registers, const Op &op, int element) {
    return op.flags & IN_A_ROW ? registers[0] + element : registers[element];
}

// from[0] holds the address; into[] gets the elements.
template <class T, class R> void load(Block &block, const Op &op) {
    const Access &access = block.launch.accesses[size_t(op.access)];
    i32 variable = -1;
    for (int warp = 0; warp < block.warps; warp++) {
        if (!block.mask[warp])
            continue;
        Lanes lanes;
        fill(block, op, warp, lanes);
        auto move = [&](const Memory &memory, const Lanes &some) {
            for (int element = 0; element < access.count; element++)
                fetch<T, R>(memory, some, element * i64(sizeof(T)),
                            block.at<R>(element_of(op.into, op, element)) + warp * LANES);
        };
        if (!by_space(Asked{block, op, access, nullptr, warp, variable}, lanes, move))
            return;
    }
}

// from[0] holds the address, from[1...] the elements, of which R is the register.
template <class T, class R> void store(Block &block, const Op &op) {
    const Access &access = block.launch.accesses[size_t(op.access)];
    i32 variable = -1;
    T gathered[WIDEST / sizeof(T) * LANES];
    for (int warp = 0; warp < block.warps; warp++) {
        if (!block.mask[warp])
            continue;
        Lanes lanes;
        fill(block, op, warp, lanes);
        const u8 *data = reinterpret_cast<const u8 *>(gathered);
        for (int element = 0; element < access.count; element++) {
            const R *from = block.at<R>(element_of(op.from + 1, op, element)) + warp * LANES;
            if (access.count == 1 && sizeof(T) == sizeof(R))
                data = reinterpret_cast<const u8 *>(from);
            else
                for (int lane = 0; lane < LANES; lane++)
                    gathered[lane * access.count + element] = T(from[lane]);
        }
        auto move = [&](const Memory &memory, const Lanes &some) { put<T>(memory, some, data, access.count); };
        if (!by_space(Asked{block, op, access, data, warp, variable}, lanes, move))
            return;
    }
}

// Of an asynchronous copy, what lanes read: from[0] holds the address, from[1] how many bytes are read, or whether any
// are; into[] gets words, zeros for nothing.
void copy_fetch(Block &block, const Op &op) {
    const Access &access = block.launch.accesses[size_t(op.access)];
    auto &sources = block.worker.flying.sources;
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
                    block.suspect("an asynchronous copy of some bytes", op);
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
        auto move = [&](const Memory &memory, const Lanes &some) {
            for (int word = 0; word < access.count; word++)
                fetch<u32, u32>(memory, some, 4 * word, block.at<u32>(op.into[word]) + warp * LANES);
        };
        if (!by_space(Asked{block, op, access, nullptr, warp, variable}, lanes, move))
            return;
        Flying::Source &source = sources[size_t(warp)];
        source.mask = chosen;
        source.row = access.number[GLOBAL] * block.launch.places + (lanes.addresses[0] >> SLOT_BITS);
        std::copy_n(lanes.addresses, LANES, source.addresses);
    }
}

// Sectors that a copy of 16 bytes a lane asks for beyond those that it reads: see counters.wide_copy.
i64 asked_twice(const Flying::Source &source, const i64 *into) {
    i64 asked[LANES], sectors_[LANES], count = 0;
    for (u32 rest = source.mask; rest; rest &= rest - 1, count++) {
        const int lane = first_lane(rest);
        asked[count] = (source.addresses[lane] >> 7) << 20 | into[lane] >> 5;
        sectors_[count] = source.addresses[lane] >> 5;
    }
    auto distinct = [&](i64 *values) {
        std::sort(values, values + count);
        return std::unique(values, values + count) - values;
    };
    return distinct(asked) - distinct(sectors_);
}

// Of an asynchronous copy, what lanes write to shared memory: from[0] holds the address, from[1...] the words.
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
        block.worker.races.note(block, op, request, bytes);
        block.worker.flying.add(op, request);
        put<u32>(Memory{block.shared, 0}, lanes, bytes, access.count);
        const Flying::Source &source = block.worker.flying.sources[size_t(warp)];
        if (access.size == 16 && source.mask)
            block.worker.counters.rows[size_t(source.row)].pieces += asked_twice(source, lanes.addresses);
    }
}

// ld.param at a fixed place: the same for all lanes; immediate: the offset.
template <class T, class R> void load_parameter(Block &block, const Op &op) {
    const R value = R(read<T>(block.launch.parameters.data() + op.immediate));
    R *into = block.at<R>(op.into[0]);
    if (block.full) {
        std::fill_n(into, block.warps * LANES, value);
        return;
    }
    for (int warp = 0; warp < block.warps; warp++)
        for (u32 rest = block.mask[warp]; rest; rest &= rest - 1)
            into[warp * LANES + first_lane(rest)] = value;
}

} // namespace

#define LOAD_OPERATIONS(NAME, T, R)                                                                                    \
    {"ld." NAME, load<T, R>}, { "ld.param." NAME, load_parameter<T, R> }
#define STORE_OPERATION(NAME, T, R) {"st." NAME, store<T, R>}

// By width of the element, u or s, and width of the register.
const std::vector<Operation> &memory_operations() {
    static const std::vector<Operation> all = {
        {"other", [](Block &block, const Op &op) { block.suspect("the native engine lacks an instruction", op); }},
        {"copy.fetch", copy_fetch},
        {"copy.keep", copy_keep},
        {"copy.commit", [](Block &block, const Op &op) { block.worker.flying.commit(block, op); }},
        {"copy.wait", [](Block &block, const Op &op) { block.worker.flying.wait(block, op, op.immediate); }},
        LOAD_OPERATIONS("u8.8", u8, u8),
        LOAD_OPERATIONS("u8.16", u8, u16),
        LOAD_OPERATIONS("s8.16", i8, u16),
        LOAD_OPERATIONS("u8.32", u8, u32),
        LOAD_OPERATIONS("s8.32", i8, u32),
        LOAD_OPERATIONS("u8.64", u8, u64),
        LOAD_OPERATIONS("s8.64", i8, u64),
        LOAD_OPERATIONS("u16.16", u16, u16),
        LOAD_OPERATIONS("u16.32", u16, u32),
        LOAD_OPERATIONS("s16.32", i16, u32),
        LOAD_OPERATIONS("u16.64", u16, u64),
        LOAD_OPERATIONS("s16.64", i16, u64),
        LOAD_OPERATIONS("u32.32", u32, u32),
        LOAD_OPERATIONS("u32.64", u32, u64),
        LOAD_OPERATIONS("s32.64", i32, u64),
        LOAD_OPERATIONS("u64.64", u64, u64),
        STORE_OPERATION("8.8", u8, u8),
        STORE_OPERATION("8.16", u8, u16),
        STORE_OPERATION("8.32", u8, u32),
        STORE_OPERATION("8.64", u8, u64),
        STORE_OPERATION("16.16", u16, u16),
        STORE_OPERATION("16.32", u16, u32),
        STORE_OPERATION("16.64", u16, u64),
        STORE_OPERATION("32.32", u32, u32),
        STORE_OPERATION("32.64", u32, u64),
        STORE_OPERATION("64.64", u64, u64),
    };
    return all;
}

} // namespace engine

using namespace engine;

// For tests: what single requests cost. space: 0 sectors, 1 loads of shared memory, 2 stores.
PUBLIC void cudabench_cost(const i64 *addresses, u32 mask, i64 size, i32 what, i64 *cost) {
    Lanes lanes;
    lanes.fill(addresses, 0, mask);
    const Cost found = what ? wavefronts(lanes.addresses, mask, size, what == 1) : sectors(lanes.addresses, size);
    cost[0] = found.pieces;
    cost[1] = found.ideal;
}
