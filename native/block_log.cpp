// Logs the requests of a block, and the granules that earlier blocks accessed.
#include "block_log.hpp"
#include "launch.hpp"

#include <algorithm>
#include <random>

namespace engine {

namespace {

struct Factors {
    u64 lanes[LANES], mask, request;
    Factors() {
        std::random_device source;
        auto draw = [&] { return (u64(source()) << 32 | source()) | 1; };
        for (u64 &factor : lanes)
            factor = draw();
        mask = draw();
        request = draw();
    }
};

const Factors &factors() {
    static const Factors drawn;
    return drawn;
}

Granules::Kind kind_of(const Access &access) {
    return access.kind == STORE ? Granules::STORED : access.kind == LOAD ? Granules::READ : Granules::UPDATED;
}

// Return whether two blocks that access a granule in these ways may race.
bool clash(Granules::Kind one, Granules::Kind other) { return one != other || one == Granules::STORED; }

// Call `visit(word, bits)` for the words of a bit set that contain the granules of a request, until it returns false.
// Return whether it returned true each time.
template <class F> bool each_word(const Access &access, i64 first, const i64 *steps, u32 mask, int shift, F visit) {
    const i64 granules = std::max<i64>(1, access.size >> shift);
    i64 word = -1;
    u64 bits = 0;
    for (u32 rest = mask; rest; rest &= rest - 1)
        for (i64 at = (first + steps[first_lane(rest)]) >> shift, end = at + granules; at < end; at++) {
            if (at >> 6 != word) {
                if (bits && !visit(size_t(word), bits))
                    return false;
                word = at >> 6;
                bits = 0;
            }
            bits |= u64(1) << (at & 63);
        }
    return !bits || visit(size_t(word), bits);
}

} // namespace

u64 hash_of(const i64 *steps, u32 mask) {
    const Factors &drawn = factors();
    u64 sum = mask * drawn.mask;
    for (int lane = 0; lane < LANES; lane++)
        sum += u64(steps[lane]) * drawn.lanes[lane];
    return sum;
}

bool Granules::conflict(const Access &access, i32 region, i64 first, const i64 *steps, u32 mask, int shift) const {
    const Bits &known = regions[size_t(region)];
    const Kind own = kind_of(access);
    for (Kind kind : {STORED, READ, UPDATED}) {
        const std::vector<u64> &bits = known[kind];
        if (bits.empty() || !clash(kind, own))
            continue;
        if (!each_word(access, first, steps, mask, shift,
                       [&](size_t word, u64 granules) { return !(bits[word] & granules); }))
            return true;
    }
    return false;
}

void Granules::add(const Access &access, i32 region, i64 first, const i64 *steps, u32 mask, int shift,
                   i64 region_size) {
    std::vector<u64> &bits = regions[size_t(region)][kind_of(access)];
    if (bits.empty())
        bits.resize(size_t((region_size >> shift) / 64) + 1);
    each_word(access, first, steps, mask, shift, [&](size_t word, u64 granules) {
        bits[word] |= granules;
        return true;
    });
}

bool Granules::merge(const Granules &other) {
    bool conflicts = false;
    for (size_t region = 0; region < regions.size(); region++) {
        Bits &own = regions[region];
        const Bits &more = other.regions[region];
        for (Kind kind : {STORED, READ, UPDATED})
            for (Kind against : {STORED, READ, UPDATED})
                if (clash(kind, against))
                    for (size_t word = 0; word < std::min(own[against].size(), more[kind].size()); word++)
                        conflicts |= (own[against][word] & more[kind][word]) != 0;
        for (Kind kind : {STORED, READ, UPDATED}) {
            own[kind].resize(std::max(own[kind].size(), more[kind].size()));
            for (size_t word = 0; word < more[kind].size(); word++)
                own[kind][word] |= more[kind][word];
        }
    }
    return conflicts;
}

BlockLog::BlockLog(const Launch &launch) : bases(launch.regions.size()), block_of(launch.regions.size()) {}

void BlockLog::start() {
    count = 0;
    data.clear();
    digest = 0;
    block++;
}

BlockLog::Entry *BlockLog::next() {
    if (count == MOST_ENTRIES)
        return nullptr;
    if (count == chunks.size() * CHUNK)
        chunks.emplace_back(new Entry[CHUNK]);
    Entry *entry = &chunks[count / CHUNK][count % CHUNK];
    count++;
    return entry;
}

void BlockLog::mix(u64 value) {
    digest = (digest ^ value) * factors().request;
    digest ^= digest >> 32;
}

bool BlockLog::add(const Launch &launch, const Op &op, const Request &request, i64 first, const u8 *values) {
    Entry *entry = next();
    if (!entry)
        return false;
    i64 base = 0;
    if (request.space == GLOBAL) {
        const size_t region = size_t(request.region);
        if (block_of[region] != block) {
            block_of[region] = block;
            bases[region] = first;
        }
        base = bases[region];
    }
    entry->op = &op;
    entry->access = &request.access;
    entry->space = request.space;
    entry->region = request.region;
    entry->warp = request.warp;
    entry->mask = request.mask;
    entry->first = first;
    entry->straight = request.straight;
    entry->stride = request.stride;
    u64 hash;
    if (request.pattern) {
        std::copy_n(request.pattern->steps, LANES, entry->steps);
        hash = request.pattern->hash;
    } else {
        for (int lane = 0; lane < LANES; lane++)
            entry->steps[lane] = (request.addresses[lane] - first) & -i64(request.mask >> lane & 1);
        hash = hash_of(entry->steps, request.mask);
    }
    entry->data = values ? i64(data.size()) : -1;
    if (values)
        data.insert(data.end(), values, values + request.access.size * LANES);
    mix(hash);
    mix(u64(first - base));
    mix(u64(&op - launch.ops.data()) << 32 | u64(request.warp));
    mix(u64(request.region) << 32 | u64(request.space));
    return true;
}

bool BlockLog::add_barrier(int warp) {
    Entry *entry = next();
    if (!entry)
        return false;
    entry->op = nullptr;
    entry->warp = warp;
    mix(u64(warp) << 32 | 3);
    return true;
}

} // namespace engine
