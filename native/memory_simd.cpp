// Loads and stores of all memory spaces.
#include "addresses.hpp"

namespace engine::LEVEL {
Table memory();
namespace {

constexpr i32 IN_A_ROW = 2; // a flag of Op: the elements of a lane are in consecutive registers

// Return the index of the register that holds an element of each lane.
inline i32 element_of(const i32 *registers, const Op &op, int element) {
    return op.flags & IN_A_ROW ? registers[0] + element : registers[element];
}

// Return whether the addresses of the lanes have this pattern. lead: the address of the first active lane.
template <class A> inline bool matches(const Pattern &pattern, const A *base, i64 lead) {
    u64 differences = 0;
    if (pattern.mask == ALL)
        for (int lane = 0; lane < LANES; lane++)
            differences |= (u64(i64(base[lane])) - u64(lead)) ^ u64(pattern.steps[lane]);
    else
        for (int lane = 0; lane < LANES; lane++)
            differences |= ((u64(i64(base[lane])) - u64(lead)) ^ u64(pattern.steps[lane])) & u64(pattern.on[lane]);
    return differences == 0;
}

// Return the mask of the lanes for which `holds` returns true.
template <class F> inline u32 lanes_that(F holds) {
    u32 bits = 0;
    for (int lane = 0; lane < LANES; lane++)
        bits |= u32(holds(lane)) << lane;
    return bits;
}

template <class A>
void set_pattern(Pattern &pattern, const A *base, u32 mask, i64 lead, i64 size, const LaunchDescription &about) {
    i64 low = 0, high = 0, bits = 0, steps[LANES + 1];
    for (int lane = 0; lane < LANES; lane++) {
        const i64 active = -i64(mask >> lane & 1), step = i64(u64(i64(base[lane])) - u64(lead)) & active;
        pattern.on[lane] = active;
        pattern.steps[lane] = steps[lane] = step;
        low = std::min(low, step);
        high = std::max(high, step);
        bits |= step;
    }
    const u64 stride = u64(steps[1]);
    pattern.rows = 0;
    for (int row = 0; (mask & 3) == 3 && row < LANES / ROW; row++) {
        u64 differences = (mask >> row * ROW & IN_ROW) ^ IN_ROW;
        for (int lane = 0; lane < ROW; lane++)
            differences |= u64(steps[row * ROW + lane]) - u64(steps[row * ROW]) - stride * u64(lane);
        pattern.rows |= u32(!differences) << row;
    }
    bool straight = pattern.rows == ROWS;
    for (int row = 1; row < LANES / ROW; row++)
        straight &= u64(steps[row * ROW]) == stride * u64(row * ROW);
    if (about.deferred)
        pattern.hash = hash_of(steps, mask);
    if (about.checked) {
        u32 banks = 0;
        for (int lane = 0; lane < LANES; lane++)
            banks |= 1u << (u32(steps[lane]) >> 2 & 31);
        pattern.distinct_banks = lanes_of(banks) == lanes_of(mask);
        const u32 pairs = mask & mask >> 1;
        steps[LANES] = 0;
        pattern.contiguous = lanes_that([&](int lane) { return u64(steps[lane + 1]) - u64(steps[lane]) == u64(size); });
        pattern.same_element = lanes_that([&](int lane) { return steps[lane + 1] == steps[lane]; });
        pattern.contiguous &= pairs;
        pattern.same_element &= pairs;
    }
    pattern.mask = mask;
    pattern.known_costs = 0;
    pattern.stride = i64(stride);
    pattern.straight = straight;
    pattern.low = low;
    pattern.high = high;
    pattern.bits = bits;
}

// Set `pattern` to the pattern of a warp's addresses. Return the address of the first active lane. The pattern of the
// warp before is tried first, then the one that was last learned for this warp or for one that shares its place.
template <class A> i64 update(const Block &block, const Op &op, int warp, Pattern *&pattern) {
    const A *base = block.at<A>(op.from[0]) + warp * LANES;
    const u32 mask = block.mask[warp];
    const i64 lead = base[first_lane(mask)];
    auto fits = [&] { return pattern->mask == mask && matches(*pattern, base, lead); };
    if (!fits()) {
        const u32 spread = ~mask * 0x9E3779B1u >> 27; // 0 if all lanes are active
        pattern = &block.worker.patterns[size_t(op.access * PATTERNS) + (u32(warp) + spread) % PATTERNS];
        if (!fits())
            set_pattern(*pattern, base, mask, lead, block.launch.accesses[size_t(op.access)].size, block.launch.about);
    }
    return i64(u64(lead) + u64(op.immediate)); // unsigned, because the sum may wrap
}

// Do the same for the addresses in register from[0]; a flag says whether they have 32 or 64 bits.
i64 update(const Block &block, const Op &op, int warp, Pattern *&pattern) {
    return op.flags & SHORT_ADDRESS ? update<i32>(block, op, warp, pattern) : update<i64>(block, op, warp, pattern);
}

void expand(Lanes &lanes, const Pattern &pattern, i64 first) {
    for (int lane = 0; lane < LANES; lane++)
        lanes.addresses[lane] = i64(u64(first) + u64(pattern.steps[lane]));
    lanes.mask = pattern.mask;
    lanes.straight = pattern.straight;
    lanes.stride = pattern.stride;
    lanes.bits = first | pattern.bits;
    if (__builtin_add_overflow(first, pattern.low, &lanes.low) ||
        __builtin_add_overflow(first, pattern.high, &lanes.high))
        lanes.low = INT64_MIN; // the address overflows, so make it lie outside of all bounds
}

// Where the memory of a request is: in shared or local memory, or in one array of global or constant memory. The byte
// with address a is at data + a for the first active lane, and at data + a + k * step for the k-th lane after it.
struct Place {
    i32 space, region;
    i64 low, end; // the first address, and the address after the last byte
    u8 *data;     // where the byte with address 0 would be
    i64 step;
    bool watched;
};

// Set `place` for a request whose first lane has the address `first`. Return false if it is not a simple case, so
// `by_space` must resolve the lanes.
bool find(const WarpAccess &warp_access, i64 first, Place &place) {
    const Access &access = warp_access.access;
    const Block &block = warp_access.block;
    const Launch &launch = block.launch;
    if (access.space == SHARED) {
        const bool known = access.shared_low <= access.shared_high;
        place = {SHARED,
                 variable_of(warp_access, first),
                 known ? access.shared_low : 0,
                 known ? access.shared_high : launch.about.shared_size,
                 block.shared,
                 0,
                 true};
        return access.size <= 16;
    }
    if (access.space == LOCAL) {
        const bool known = access.local_low <= access.local_high;
        place = {LOCAL,
                 0,
                 known ? access.local_low : 0,
                 known ? access.local_high : launch.about.local_bytes,
                 block.local + warp_access.warp * LANES * block.local_stride,
                 block.local_stride,
                 false};
        return !access.skewed;
    }
    const i32 space = access.space == CONSTANT ? CONSTANT : GLOBAL;
    const i64 slot = first >> SLOT_BITS;
    if (slot <= 0 || slot >= i64(launch.regions.size()) || access.number[space] < 0)
        return false;
    const Region &region = launch.regions[size_t(slot)];
    if (!region.data) // the array was freed
        return false;
    place = {space,
             i32(slot),
             region.base,
             region.base + region.size,
             region.data - region.base,
             0,
             region.watched && space == GLOBAL};
    return !region.heap && (access.kind != STORE || region.writable);
}

// Check, count and record a request whose lanes are all in one `Place`. Return a pointer to the bytes of the first
// active lane, and set `step`: how much further the bytes of each next lane are. Return null if `by_space` must resolve
// the lanes.
u8 *fast_path(const WarpAccess &warp_access, Pattern &pattern, i64 first, i64 &step) {
    const Access &access = warp_access.access;
    Block &block = warp_access.block;
    Worker &worker = block.worker;
    Launch &launch = block.launch;
    Place place;
    if (worker.counters.sampling() || !find(warp_access, first, place))
        return nullptr;
    if (first < place.low || first > place.end || first + pattern.low < place.low ||
        pattern.high > place.end - access.size - first || ((first | pattern.bits) & (access.size - 1)))
        return nullptr;
    if (launch.about.checked) {
        const i32 space = place.space;
        const bool issued = access.issued[space] >= 0 && space != CONSTANT;
        const i64 size = issued ? access.issued[space] : access.size, shift = issued ? access.shift[space] : 0;
        const bool touches = launch.about.footprint && size && space != SHARED && space != LOCAL;
        Counts &counts = worker.counters.rows[size_t(access.number[space] * launch.places + place.region)];
        if (size && ((!counts.requests && worker.counters.any_sampled()) || (touches && shift)))
            return nullptr;
        // The cost of a request depends on the position of its first byte within a sector (in shared and local memory:
        // within a word).
        const u32 phase = u32(first + shift) & (space == SHARED || space == LOCAL ? 3 : 31);
        const bool known = !size || pattern.known_costs >> phase & 1;
        Lanes lanes;
        if (touches || !known || (place.watched && !worker.races.deferred))
            expand(lanes, pattern, first);
        const Request request{access,           space,          place.region,
                              warp_access.warp, pattern.mask,   lanes.addresses,
                              pattern.straight, pattern.stride, &pattern};
        if (!known) {
            const bool distinct_banks = space == SHARED && size == 4 && pattern.distinct_banks;
            const Cost cost = distinct_banks ? Cost{1, 1} : worker.counters.cost_of(request, size, shift);
            pattern.costs[phase] = {u32(cost.pieces), u32(cost.ideal)};
            pattern.known_costs |= 1u << phase;
        }
        if (size) {
            counts.requests++;
            counts.pieces += pattern.costs[phase].pieces;
            counts.ideal += pattern.costs[phase].ideal;
        } else
            counts.merged++;
        if (touches)
            worker.footprints.note(block, request, size);
        if (place.watched)
            worker.races.note(block, warp_access.op, request, first, warp_access.data);
    }
    if (access.kind == STORE && place.space == GLOBAL)
        launch.undo.keep(launch, place.region, first - place.low, pattern.steps, pattern.low, pattern.high,
                         access.size);
    step = place.step;
    return place.data + first;
}

// Load: register from[0] holds the address; into[] gets the elements.
template <class T, class R> void load(Block &block, const Op &op) {
    const Access &access = block.launch.accesses[size_t(op.access)];
    Pattern *pattern = &block.worker.patterns[size_t(op.access * PATTERNS)];
    i32 variable = -1;
    for (int warp = 0; warp < block.warps; warp++) {
        if (!block.mask[warp])
            continue;
        auto take = [&](const u8 *origin, const Form &form, i64 more) {
            for (int element = 0; element < access.count; element++)
                fetch<T, R>(origin + element * i64(sizeof(T)), form, more,
                            block.at<R>(element_of(op.into, op, element)) + warp * LANES);
        };
        const WarpAccess warp_access{block, op, access, nullptr, warp, variable};
        const i64 first = update(block, op, warp, pattern);
        i64 step;
        if (const u8 *origin = fast_path(warp_access, *pattern, first, step)) {
            take(origin, {pattern->steps, pattern->mask, pattern->rows, pattern->stride}, step);
            continue;
        }
        Lanes lanes;
        expand(lanes, *pattern, first);
        auto move = [&](const Memory &memory, const Lanes &part) { take(memory.origin, part.form(), memory.step); };
        if (!by_space(warp_access, lanes, move))
            return;
    }
}

// Store: register from[0] holds the address; from[1] and the following hold the elements, in registers of type R.
template <class T, class R> void store(Block &block, const Op &op) {
    const Access &access = block.launch.accesses[size_t(op.access)];
    Pattern *pattern = &block.worker.patterns[size_t(op.access * PATTERNS)];
    i32 variable = -1;
    T gathered[WIDEST / sizeof(T) * LANES];
    for (int warp = 0; warp < block.warps; warp++) {
        if (!block.mask[warp])
            continue;
        const u8 *data = reinterpret_cast<const u8 *>(gathered);
        for (int element = 0; element < access.count; element++) {
            const R *from = block.at<R>(element_of(op.from + 1, op, element)) + warp * LANES;
            if (access.count == 1 && sizeof(T) == sizeof(R))
                data = reinterpret_cast<const u8 *>(from);
            else
                for (int lane = 0; lane < LANES; lane++)
                    gathered[lane * access.count + element] = T(from[lane]);
        }
        const WarpAccess warp_access{block, op, access, data, warp, variable};
        const i64 first = update(block, op, warp, pattern);
        i64 step;
        if (u8 *origin = fast_path(warp_access, *pattern, first, step)) {
            put<T>(origin, {pattern->steps, pattern->mask, pattern->rows, pattern->stride}, step, data, access.count);
            continue;
        }
        Lanes lanes;
        expand(lanes, *pattern, first);
        auto move = [&](const Memory &memory, const Lanes &part) {
            put<T>(memory.origin, part.form(), memory.step, data, access.count);
        };
        if (!by_space(warp_access, lanes, move))
            return;
    }
}

// ld.param with a constant offset (the immediate): all lanes load the same value.
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

#define LOAD_OPERATIONS(NAME, T, R)                                                                                    \
    {"ld." NAME, load<T, R>}, { "ld.param." NAME, load_parameter<T, R> }
#define STORE_OPERATION(NAME, T, R) {"st." NAME, store<T, R>}

// A name has three parts: the operation, the type of an element (u or s, and its bits), and the width of the register.
const Operation OPERATIONS[] = {
    LOAD_OPERATIONS("u8.8", u8, u8),     LOAD_OPERATIONS("u8.16", u8, u16),   LOAD_OPERATIONS("s8.16", i8, u16),
    LOAD_OPERATIONS("u8.32", u8, u32),   LOAD_OPERATIONS("s8.32", i8, u32),   LOAD_OPERATIONS("u8.64", u8, u64),
    LOAD_OPERATIONS("s8.64", i8, u64),   LOAD_OPERATIONS("u16.16", u16, u16), LOAD_OPERATIONS("u16.32", u16, u32),
    LOAD_OPERATIONS("s16.32", i16, u32), LOAD_OPERATIONS("u16.64", u16, u64), LOAD_OPERATIONS("s16.64", i16, u64),
    LOAD_OPERATIONS("u32.32", u32, u32), LOAD_OPERATIONS("u32.64", u32, u64), LOAD_OPERATIONS("s32.64", i32, u64),
    LOAD_OPERATIONS("u64.64", u64, u64), STORE_OPERATION("8.8", u8, u8),      STORE_OPERATION("8.16", u8, u16),
    STORE_OPERATION("8.32", u8, u32),    STORE_OPERATION("8.64", u8, u64),    STORE_OPERATION("16.16", u16, u16),
    STORE_OPERATION("16.32", u16, u32),  STORE_OPERATION("16.64", u16, u64),  STORE_OPERATION("32.32", u32, u32),
    STORE_OPERATION("32.64", u32, u64),  STORE_OPERATION("64.64", u64, u64),
};

} // namespace

Table memory() { return {OPERATIONS, sizeof OPERATIONS / sizeof *OPERATIONS}; }

} // namespace engine::LEVEL
