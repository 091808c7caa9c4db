// Records the memory that a launch touches: the distinct sectors of the whole launch, and sums over the requests of
// some chosen blocks (the "followed" blocks).
#include "launch.hpp"

#include <algorithm>
#include <cstdlib>

namespace engine {

namespace {

constexpr int SECTOR_SHIFT = 5, LINE_SHIFT = 7, BANKS = 32;
constexpr i64 SECTOR = 1 << SECTOR_SHIFT;
constexpr int CONSTANT_SHIFT = 6, CONSTANT_BANK = 1024; // see `ConstantLines`
constexpr i32 MOST_LOGGED = 64;

int bits_for(i64 count, int most) {
    int bits = 1;
    while (bits < most && i64(1) << bits < count)
        bits++;
    return bits;
}

// Set `first` to the earlier of two moments. Unless `single_worker`, other workers may do the same at the same time.
inline void earlier(Moment &first, Moment now, bool single_worker) {
    if (single_worker) {
        if (first < now)
            first = now;
        return;
    }
    Moment known = __atomic_load_n(&first, __ATOMIC_RELAXED);
    while (known < now && !__atomic_compare_exchange_n(&first, &known, now, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
}

// Set a bit. Return true if it was not set before.
inline bool set(std::vector<u64> &bits, i64 place) {
    u64 &word = bits[std::min(size_t(place) / 64, bits.size() - 1)];
    const u64 bit = u64(1) << (u64(place) % 64);
    const bool fresh = !(word & bit);
    word |= bit;
    return fresh;
}

// Find the bank that contains the most distinct words of the request, and return the number of these words. The
// addresses are sorted.
i64 words_of_a_bank(const i64 *places, int count, i64 size) {
    u8 counts[BANKS] = {}; // u8 is enough, because 32 lanes access 64 bytes each at most
    int most = 0;
    i64 before = -1;
    for (int place = 0; place < count; place++)
        for (i64 word = places[place] >> 2, end = word + std::max<i64>(1, size / 4); word < end; word++)
            if (word != before) {
                most = std::max<int>(most, ++counts[word % BANKS]);
                before = word;
            }
    return most;
}

} // namespace

void FirstAccesses::start(const Launch &launch) {
    if (!launch.about.footprint)
        return;
    regions_count = i64(launch.regions.size());
    regions.reset(new Region[size_t(regions_count)]);
    for (i64 region = 0; region < regions_count; region++)
        regions[size_t(region)].sectors = (launch.regions[size_t(region)].size >> SECTOR_SHIFT) + 2;
    order.assign(launch.accesses.size(), 0);
    i32 count = 0;
    for (i32 number : launch.by_rank) {
        const CodeBlock &code = launch.blocks[size_t(number)];
        for (i32 op = code.first; op < code.first + code.count; op++)
            if (launch.ops[size_t(op)].access >= 0)
                order[size_t(launch.ops[size_t(op)].access)] = count++;
    }
    instruction_bits = bits_for(count, 11);
    chunk_bits = bits_for(i64(launch.chunks.size()), 7);
    iteration_bits = 31 - instruction_bits - chunk_bits;
}

FirstAccesses::~FirstAccesses() {
    for (i64 region = 0; region < regions_count; region++)
        for (auto &first : regions[size_t(region)].first)
            std::free(first.load());
}

FirstAccesses::Sectors FirstAccesses::sectors(i64 region, bool written) {
    Region &array = regions[size_t(region)];
    Moment *moments = array.first[written].load(std::memory_order_acquire);
    if (moments)
        return {moments, array.sectors};
    Moment *fresh = static_cast<Moment *>(zeros(size_t(array.sectors) * sizeof(Moment)));
    if (array.first[written].compare_exchange_strong(moments, fresh))
        return {fresh, array.sectors};
    std::free(fresh);
    return {moments, array.sectors};
}

i64 FirstAccesses::count(i32 region, bool written) const {
    const Region &array = regions[size_t(region)];
    const Moment *first = array.first[written].load(), *writes = array.first[1].load();
    if (!first)
        return -1;
    i64 total = 0;
    for (i64 sector = 0; sector < array.sectors; sector++)
        total += first[sector] && (!writes || first[sector] >= writes[sector]);
    return total;
}

Moment FirstAccesses::moment(i64 chunk, i64 iteration, i64 instruction) const {
    auto clamped = [](i64 value, int bits) { return u32(std::min(value, (i64(1) << bits) - 1)); };
    u32 late = clamped(chunk, chunk_bits) << iteration_bits | clamped(iteration, iteration_bits);
    return ~(late << instruction_bits | clamped(instruction, instruction_bits));
}

Footprints::Footprints(Launch &launch_)
    : launch(launch_), first_accesses(launch_.first_accesses), enabled(launch_.about.footprint != 0) {
    if (!enabled)
        return;
    sums.assign(size_t(launch_.about.numbers_count * launch_.places), Sums{});
    touched.resize(2 * launch_.regions.size());
}

void Footprints::start(const Block &block) {
    if (!enabled)
        return;
    close();
    const std::vector<i64> &starts = launch.chunks;
    chunk = std::upper_bound(starts.begin(), starts.end(), block.place) - starts.begin() - 1;
    first_place = starts[size_t(chunk)];
    const i64 end = size_t(chunk) + 1 < starts.size() ? starts[size_t(chunk) + 1] : i64(launch.order.size());
    stride = std::max<i64>(1, (end - first_place) * launch.warps / MOST_LOGGED);
    last = nullptr;
    iteration = 0;
    step = 0;
    followed = launch.followed[size_t(block.place)];
    if (followed)
        for (auto &bits : touched)
            std::fill(bits.begin(), bits.end(), 0);
}

void Footprints::global(const Request &request, i64 size) {
    const Access &access = request.access;
    if (&access != last) {
        const i32 *order = first_accesses.order.data();
        const i64 place = order[&access - launch.accesses.data()];
        iteration += last && place < order[last - launch.accesses.data()];
        now = first_accesses.moment(chunk, iteration, place);
        last = &access;
    }
    if (access.kind != STORE)
        mark(request, false, size);
    if (access.kind != LOAD)
        mark(request, true, size);
    if (followed)
        follow(request, size);
}

void Footprints::mark(const Request &request, bool written, i64 size) {
    const i64 *addresses = request.addresses;
    i64 slot = addresses[first_lane(request.mask)] >> SLOT_BITS;
    FirstAccesses::Sectors moments = first_accesses.sectors(slot, written);
    if (request.straight && request.stride >= 0 && request.stride <= SECTOR && size <= SECTOR) {
        const i64 base = slot << SLOT_BITS, end = (addresses[LANES - 1] - base) >> SECTOR_SHIFT;
        for (i64 sector = (addresses[0] - base) >> SECTOR_SHIFT; sector <= end; sector++)
            earlier(moments[sector], now, single_worker);
        return;
    }
    auto touch = [&](i64 address) {
        if (address >> SLOT_BITS != slot) {
            slot = address >> SLOT_BITS;
            moments = first_accesses.sectors(slot, written);
        }
        const i64 sector = (address - (slot << SLOT_BITS)) >> SECTOR_SHIFT;
        earlier(moments[sector], now, single_worker);
        if (size > SECTOR)
            earlier(moments[sector + 1], now, single_worker);
    };
    const i64 base = slot << SLOT_BITS;
    for (int lane = 0; lane < LANES; lane++) // the sectors are far apart, so fetch them at the same time
        if (addresses[lane] >> SLOT_BITS == slot)
            __builtin_prefetch(&moments[(addresses[lane] - base) >> SECTOR_SHIFT]);
    // Inactive lanes have the first active lane's address, so they add no sector. Often eight lanes access the same
    // sector; then one call of `touch` is enough for them.
    for (int first = 0; first < LANES; first += 8) {
        i64 differ = 0;
        for (int lane = first; lane < first + 8; lane++)
            differ |= addresses[lane] ^ addresses[first];
        touch(addresses[first]);
        for (int lane = first + 1; lane < first + 8 && differ >> SECTOR_SHIFT; lane++)
            if ((addresses[lane] ^ addresses[lane - 1]) >> SECTOR_SHIFT)
                touch(addresses[lane]);
    }
}

// Add a request of a followed block to the block's sums.
void Footprints::follow(const Request &request, i64 size) {
    const bool store = request.access.kind == STORE;
    Sums &sum = sums[size_t(request.access.number[GLOBAL] * launch.places + request.region)];
    const i64 wide = std::max<i64>(1, size / SECTOR);
    i64 lines = 0, words = 0, line = -1, slot = -1;
    bool missing = false;
    // Add the next sector. place: an address in it; lanes: how many distinct addresses are in it.
    auto add_sector = [&](i64 place, i64 lanes) {
        lines += place >> LINE_SHIFT != line;
        line = place >> LINE_SHIFT;
        sum.sectors += wide;
        sum.partial += store && lanes * size < SECTOR;
        if (place >> SLOT_BITS != slot) {
            slot = place >> SLOT_BITS;
            missing = false;
        }
        const i64 inside = (place - (slot << SLOT_BITS)) >> SECTOR_SHIFT;
        const bool fresh = set(bits(slot, store), inside);
        if (store)
            set(bits(slot, false), inside);
        sum.fresh += fresh * wide;
        sum.missing += fresh && !missing;
        missing |= fresh;
    };
    i64 places[LANES];
    if (request.straight && request.stride == size && size <= SECTOR) { // the data of the lanes is contiguous
        const i64 end = request.addresses[0] + LANES * size;
        for (i64 place = request.addresses[0], next; place < end; place = next) {
            const i64 room = SECTOR - (place & (SECTOR - 1));
            next = std::min(end, place + (room + size - 1) / size * size);
            add_sector(place, (next - place) / size);
        }
        words = std::max<i64>(1, size / 4);
    } else {
        int lanes = 0;
        for (u32 rest = request.straight && !request.stride ? 1 : request.mask; rest; rest &= rest - 1)
            places[lanes++] = request.addresses[first_lane(rest)];
        if (!std::is_sorted(places, places + lanes))
            std::sort(places, places + lanes);
        lanes = int(std::unique(places, places + lanes) - places);
        for (int from = 0, to = 0; from < lanes; from = to) {
            while (to < lanes && places[to] >> SECTOR_SHIFT == places[from] >> SECTOR_SHIFT)
                to++;
            add_sector(places[from], to - from);
        }
        words = words_of_a_bank(places, lanes, size);
    }
    sum.requests++;
    sum.lines += lines;
    sum.quarter_cycles += std::max(4 * words, lines);
}

// Return one bit for each sector of an array. It is set if the block has touched the sector or, with `written`, has
// written to it.
std::vector<u64> &Footprints::bits(i64 region, bool written) {
    std::vector<u64> &sector_bits = touched[size_t(2 * region + written)];
    if (sector_bits.empty())
        sector_bits.assign(size_t((launch.regions[size_t(region)].size >> SECTOR_SHIFT) + 2 + 63) / 64, 0);
    return sector_bits;
}

void Footprints::constant(const Block &block, const Request &request) {
    const i64 first = request.addresses[first_lane(request.mask)];
    if (&request.access != reads || request.warp <= warp) {
        close();
        reads = &request.access;
        address = first;
    }
    warp = request.warp;
    pending++;
    for (u32 rest = request.mask; rest; rest &= rest - 1)
        differs |= request.addresses[first_lane(rest)] != address;
    const i64 place = (block.place - first_place) * launch.warps + warp;
    if (step >= MOST_LOGGED || chunk > first_accesses.last_logged || (place % stride && block.place != first_place))
        return;
    ConstantRequest row{block.place, step, warp, request.mask, {}, 0};
    for (u32 rest = request.mask; rest; rest &= rest - 1)
        row.lines[first_lane(rest)] = u16((request.addresses[first_lane(rest)] >> CONSTANT_SHIFT) % CONSTANT_BANK);
    constants.push_back(row);
}

void Footprints::close() {
    if (differs) {
        constant_requests += pending;
        kept = constants.size();
        if (++step == MOST_LOGGED) {
            i64 known = first_accesses.last_logged;
            while (chunk < known && !first_accesses.last_logged.compare_exchange_weak(known, chunk)) {
            }
        }
    } else
        // drop these requests: if all lanes read the same address, the request does not take extra time
        constants.resize(kept);
    reads = nullptr;
    differs = false;
    pending = 0;
}

} // namespace engine

using namespace engine;

// Copy the footprint of a launch to the caller. sectors: for each region, how many distinct sectors are read and how
// many are written, -1 for none; sums: the sums of the followed blocks, by memory instruction and region; instructions:
// for each position in the order of blocks, the warp instructions of this block. Return the number of logged requests
// for constants.
PUBLIC i64 cudabench_footprint(Launch *launch, i64 *sectors, Sums *sums, i64 *instructions, i64 *constant_requests) {
    for (size_t region = 0; region < launch->regions.size(); region++)
        for (size_t kind = 0; kind < 2; kind++)
            sectors[2 * region + kind] = launch->first_accesses.count(i32(region), kind != 0);
    std::copy(launch->per_block.begin(), launch->per_block.end(), instructions);
    i64 logged = 0;
    *constant_requests = 0;
    for (const auto &worker : launch->workers) {
        Footprints &footprints = worker->footprints;
        footprints.close();
        for (size_t row = 0; row < footprints.sums.size(); row++) {
            const Sums &more = footprints.sums[row];
            sums[row].requests += more.requests;
            sums[row].sectors += more.sectors;
            sums[row].lines += more.lines;
            sums[row].quarter_cycles += more.quarter_cycles;
            sums[row].partial += more.partial;
            sums[row].fresh += more.fresh;
            sums[row].missing += more.missing;
        }
        logged += i64(footprints.constants.size());
        *constant_requests += footprints.constant_requests;
    }
    return logged;
}

PUBLIC void cudabench_constant_requests(Launch *launch, ConstantRequest *requests) {
    for (const auto &worker : launch->workers)
        requests = std::copy(worker->footprints.constants.begin(), worker->footprints.constants.end(), requests);
}
