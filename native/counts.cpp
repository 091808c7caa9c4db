// Counts of memory requests: their sectors and wavefronts, and samples of their address patterns.
#include "launch.hpp"

#include <algorithm>
#include <iterator>

namespace engine {

namespace {

constexpr int SECTOR_SHIFT = 5;
constexpr i64 LINE = 128;
constexpr int BANKS = 32;
// the most address patterns that are kept for one block and one row of the counts; all further requests share one entry
constexpr i32 MOST_PATTERNS = 256;

// The distinct sectors of one request and, in each sector, the distinct bytes at which the data of a lane starts.
class Sectors {
  public:
    // Add the first byte of a lane. Count the sector if it is new, and the byte if it is new.
    void add(i64 address, i64 &new_sectors, i64 &new_bytes) {
        const u64 sector = u64(address) >> SECTOR_SHIFT;
        const u32 bit = 1u << (address & 31);
        u32 place = u32(sector * 0x9E3779B97F4A7C15ull >> 58);
        while (used >> place & 1 && keys[place] != sector)
            place = (place + 1) % PLACES;
        const u32 before = used >> place & 1 ? bytes[place] : 0;
        keys[place] = sector;
        new_sectors += !before;
        new_bytes += !(before & bit);
        bytes[place] = before | bit;
        used |= u64(1) << place;
    }

  private:
    static constexpr u32 PLACES = 64; // entries of the hash table, enough for 32 lanes
    u64 keys[PLACES], used = 0;       // used: a mask of the entries that are used
    u32 bytes[PLACES];
};

// Return the number of wavefronts and of distinct words. In each wavefront, a bank delivers one word.
Cost banks(const i32 *words, int count) {
    i32 low = INT32_MAX, high = INT32_MIN;
    for (int place = 0; place < count; place++) {
        low = std::min(low, words[place]);
        high = std::max(high, words[place]);
    }
    if (!count)
        return {0, 0};
    low &= -BANKS;
    i64 most = 0, distinct = 0;
    if (high - low < 64 * BANKS) {
        u64 rows[BANKS]; // only used entries are initialised, because it takes longer to set all to zero
        u32 used = 0;
        for (int place = 0; place < count; place++) {
            const int bank = words[place] & (BANKS - 1);
            const u64 before = used >> bank & 1 ? rows[bank] : 0;
            rows[bank] = before | u64(1) << ((words[place] - low) / BANKS);
            used |= 1u << bank;
        }
        for (; used; used &= used - 1) {
            const u64 row = rows[first_lane(used)];
            const i64 in_bank = row & (row - 1) ? __builtin_popcountll(row) : 1;
            most = std::max(most, in_bank);
            distinct += in_bank;
        }
        return {most, distinct};
    }
    i32 bank_words[BANKS][4 * LANES];
    int sizes[BANKS] = {};
    for (int place = 0; place < count; place++) {
        const int bank = words[place] & (BANKS - 1);
        i32 *end = bank_words[bank] + sizes[bank];
        if (std::find(bank_words[bank], end, words[place]) == end) {
            *end = words[place];
            sizes[bank]++;
        }
    }
    for (int size : sizes) {
        most = std::max<i64>(most, size);
        distinct += size;
    }
    return {most, distinct};
}

// A wide load is served in groups of lanes. Return whether these groups have twice their usual size: see banks.merged.
bool merged(const i64 *addresses, u32 mask, int step) {
    for (int lane = 0; lane < LANES; lane++)
        if (mask >> lane & mask >> (lane ^ step) & 1 && addresses[lane] != addresses[lane ^ step])
            return false;
    return true;
}

// Return the sectors of a request to local memory. There, word k of lane 0 is followed by word k of lane 1, and so on.
Cost local_sectors(const i64 *addresses, u32 mask, i64 size) {
    i64 interleaved[LANES];
    const int first = first_lane(mask);
    for (int lane = 0; lane < LANES; lane++) {
        const int own = mask >> lane & 1 ? lane : first;
        interleaved[lane] = (addresses[own] >> 2) * LINE + own * 4;
    }
    return {sectors(interleaved, ALL, 4).pieces * std::max<i64>(1, size / 4), size};
}

// Return the sectors of a request whose lanes are all active, where the address grows by `stride` from each lane to the
// next.
Cost straight_sectors(i64 first, i64 stride, i64 size) {
    if (!stride)
        return {std::max<i64>(1, size >> SECTOR_SHIFT), (size + 31) / 32};
    if (size >= 32)
        return {LANES * (size >> SECTOR_SHIFT), size};
    if (std::abs(stride) >= 32)
        return {LANES, size};
    const i64 last = first + (LANES - 1) * stride;
    return {std::abs((last >> SECTOR_SHIFT) - (first >> SECTOR_SHIFT)) + 1, size};
}

i64 distinct_addresses(const i64 *addresses, u32 mask) {
    i64 places[LANES];
    int count = 0;
    for (u32 rest = mask; rest; rest &= rest - 1)
        places[count++] = addresses[first_lane(rest)];
    std::sort(places, places + count);
    return std::unique(places, places + count) - places;
}

} // namespace

Cost sectors(const i64 *addresses, u32 mask, i64 size) {
    i64 pieces = 1, distinct = 1, before = addresses[first_lane(mask)];
    bool rising = true;
    auto follow = [&](i64 address) {
        rising &= address >= before;
        pieces += address >> SECTOR_SHIFT != before >> SECTOR_SHIFT;
        distinct += address != before;
        before = address;
    };
    if (mask == ALL)
        for (int lane = 1; lane < LANES; lane++)
            follow(addresses[lane]);
    else
        for (u32 rest = mask & (mask - 1); rest; rest &= rest - 1)
            follow(addresses[first_lane(rest)]);
    if (!rising) {
        pieces = distinct = 0;
        Sectors set;
        for (u32 rest = mask; rest; rest &= rest - 1)
            set.add(addresses[first_lane(rest)], pieces, distinct);
    }
    return {size >= 32 ? distinct * (size / 32) : pieces, (distinct * size + 31) / 32};
}

Cost wavefronts(const i64 *addresses, u32 mask, i64 size, bool load) {
    const int steps = int(std::max<i64>(1, size / 4));
    const int together = size == 8 ? 16 : 8;
    i32 words[4 * LANES];
    if (size <= 4) {
        int count = 0;
        for (u32 rest = mask; rest; rest &= rest - 1)
            words[count++] = i32(addresses[first_lane(rest)] >> 2);
        const Cost all = banks(words, count);
        return {all.pieces, (all.ideal + BANKS - 1) / BANKS};
    }
    int ends[LANES + 1] = {}; // ends[k]: how many words the lanes before lane k access together
    for (int lane = 0, count = 0; lane < LANES; lane++) {
        if (mask >> lane & 1)
            for (int step = 0; step < steps; step++)
                words[count++] = i32(addresses[lane] >> 2) + step;
        ends[lane + 1] = count;
    }
    const Cost all = banks(words, ends[LANES]);
    const i64 ideal = (all.ideal + BANKS - 1) / BANKS;
    const bool wide = load && (merged(addresses, mask, 1) || merged(addresses, mask, 2));
    const int group = wide ? 2 * together : together;
    i64 pieces = 0;
    for (int lane = 0; lane < LANES; lane += group)
        pieces += group == LANES ? all.pieces : banks(words + ends[lane], ends[lane + group] - ends[lane]).pieces;
    return {pieces, ideal};
}

Counters::Counters(const Launch &launch_)
    : rows(launch_.about.checked ? size_t(launch_.about.numbers_count * launch_.places) : 0, Counts{}), launch(launch_),
      last_requests(launch_.about.checked ? size_t(launch_.about.numbers_count) : 0) {}

void Counters::start(const Block &block) {
    finish();
    sampled = any_sampled() && launch.sampled[size_t(block.place)];
    for (LastRequest &last : last_requests)
        last.pattern = -1;
    if (sampled)
        samples.push_back({block.place, false, {}, {}});
}

bool Counters::any_sampled() const { return !launch.sampled.empty(); }

Cost Counters::cost_of(const Request &request, i64 size, i64 shift) {
    LastRequest &last = last_requests[size_t(request.access.number[request.space])];
    const i64 *addresses = request.addresses;
    const i64 first = addresses[0] + shift;
    if (request.space == GLOBAL && request.straight)
        return straight_sectors(first, request.stride, size);
    if (request.straight && size <= 4 && request.stride % 4 == 0 && request.space == SHARED) {
        const i64 step = request.stride / 4;
        return {step ? i64(1) << std::min(5, __builtin_ctzll(u64(step))) : 1, 1};
    }
    i32 phase = i32(first & (LINE - 1));
    bool same = last.mask == request.mask && last.size == i32(size) && last.phase == phase;
    if (same && request.straight)
        same = last.straight && last.stride == request.stride;
    else if (same) {
        i64 differences = 0;
        for (int lane = 0; lane < LANES; lane++)
            differences |= last.steps[lane] ^ (addresses[lane] - addresses[0]);
        same = differences == 0;
    }
    if (same)
        return last.cost;
    i64 shifted[LANES];
    if (shift) {
        for (int lane = 0; lane < LANES; lane++)
            shifted[lane] = addresses[lane] + shift;
        addresses = shifted;
    }
    last.mask = request.mask;
    last.size = i32(size);
    last.phase = phase;
    last.straight = request.straight;
    last.stride = request.stride;
    last.pattern = -1;
    for (int lane = 0; lane < LANES; lane++)
        last.steps[lane] = addresses[lane] - addresses[0];
    switch (request.space) {
    case SHARED: last.cost = wavefronts(addresses, request.mask, size, request.access.kind == LOAD); break;
    case LOCAL: last.cost = local_sectors(addresses, request.mask, size); break;
    case CONSTANT: last.cost = {distinct_addresses(addresses, request.mask), 1}; break;
    default: last.cost = sectors(addresses, request.mask, size);
    }
    return last.cost;
}

i64 Counters::count(const Block &block, const Request &request) {
    const i32 number = request.access.number[request.space];
    i64 size = request.access.size, shift = 0;
    if (request.access.issued[request.space] >= 0 && request.space != CONSTANT) {
        size = request.access.issued[request.space];
        shift = request.access.shift[request.space];
        if (!size) {
            rows[size_t(number * launch.places + request.region)].merged++;
            return 0;
        }
    }
    add(block, request, cost_of(request, size, shift), 0, shift);
    return size;
}

void Counters::add(const Block &block, const Request &request, Cost cost, i64 reloads, i64 shift) {
    const i64 row = request.access.number[request.space] * launch.places + request.region;
    Counts &counts = rows[size_t(row)];
    if (sampled) {
        sample(request, row, shift, cost);
        if (!block.place)
            record_addresses(request, row, shift);
    } else if (!counts.requests && any_sampled()) {
        samples.push_back({block.place, true, {}, {}});
        const i32 pattern = pattern_of(request, row, shift);
        samples.back().by_row[u64(row)].counts.push_back({pattern, 0, 1, cost.pieces, cost.ideal});
    }
    counts.requests++;
    counts.pieces += cost.pieces;
    counts.ideal += cost.ideal;
    counts.reloads += reloads;
}

// Return the index of a request's address pattern in the latest sample. Add the pattern if it is new.
i32 Counters::pattern_of(const Request &request, i64 row, i64 shift) {
    const i32 number = request.access.number[request.space];
    LastRequest &last = last_requests[size_t(number)];
    Sample &latest = samples.back();
    const i64 *addresses = request.addresses;
    auto fits = [&](i32 index) {
        const PatternExample &pattern = latest.examples[size_t(index)];
        if (pattern.kind != WARP || pattern.mask != request.mask || pattern.number != number ||
            pattern.region != request.region)
            return false;
        i64 differences = 0, distance = addresses[0] + shift - pattern.addresses[0];
        for (int lane = 0; lane < LANES; lane++)
            differences |= (addresses[lane] + shift - distance) ^ pattern.addresses[lane];
        return differences == 0;
    };
    if (last.pattern >= 0 && size_t(last.pattern) < latest.examples.size() && fits(last.pattern))
        return last.pattern;
    std::vector<i32> &known = latest.by_row[u64(row)].examples;
    for (i32 index : known)
        if (fits(index))
            return last.pattern = index;
    if (i32(known.size()) > MOST_PATTERNS)
        return known.back();
    const i32 index = i32(latest.examples.size());
    known.push_back(index);
    const i32 kind = i32(known.size()) > MOST_PATTERNS ? REST : WARP;
    latest.examples.push_back({number, request.region, request.mask, kind, 0, 0, {}});
    for (int lane = 0; lane < LANES; lane++)
        latest.examples.back().addresses[lane] = addresses[lane] + shift;
    return last.pattern = index;
}

// Return the index of the pattern for an execution in which all warps access the same single address.
i32 Counters::single_address(const PatternExample &example, i64 row, u32 lanes) {
    Sample &latest = samples.back();
    std::vector<i32> &known = latest.by_row[u64(row)].examples;
    for (i32 index : known)
        if (latest.examples[size_t(index)].kind == ONE_PLACE && latest.examples[size_t(index)].mask == lanes)
            return index;
    PatternExample pattern = example;
    pattern.kind = ONE_PLACE;
    pattern.mask = lanes;
    pattern.varies = 0;
    const i32 index = i32(latest.examples.size());
    // insert at the front, because the last pattern may be the one that all further requests share
    known.insert(known.begin(), index);
    latest.examples.push_back(pattern);
    return index;
}

void Counters::sample(const Request &request, i64 row, i64 shift, Cost cost) {
    const i32 number = request.access.number[request.space];
    if (number != pending_number || request.warp <= pending_warp)
        finish();
    pending_number = number;
    pending_warp = request.warp;
    const i64 first = request.addresses[0];
    bool same_address = true;
    for (int lane = 0; same_address && lane < LANES; lane++)
        same_address = request.addresses[lane] == first;
    pending.push_back({row, first + shift, cost, request.mask, pattern_of(request, row, shift), same_address});
}

void Counters::finish() {
    while (!pending.empty()) {
        const i64 row = pending.front().row;
        auto rest = std::stable_partition(pending.begin(), pending.end(), [&](auto &item) { return item.row == row; });
        add_execution(&*pending.begin(), &*pending.begin() + (rest - pending.begin()));
        pending.erase(pending.begin(), rest);
    }
    pending_number = pending_warp = -1;
}

// All warps have executed an instruction once: add their requests to the counts of this execution, separately for each
// pattern. If all warps access the same address, they share a pattern.
void Counters::add_execution(const Pending *first, const Pending *end) {
    Sample &latest = samples.back();
    i64 lanes = 0, all_lanes = 0;
    bool together = true, varies = false;
    // the request of the first warp whose lane 0 is active; the NumPy engine chooses the same
    const Pending *leader = nullptr;
    for (const Pending *request = first; request < end; request++) {
        together &= request->single_address && request->first == first->first;
        lanes += lanes_of(request->mask);
        if (!(request->mask & 1))
            continue;
        leader = leader ? leader : request;
        varies |= ((request->first - leader->first) & 31) != 0;
    }
    for (const Pending *request = first; varies && request < end; request++)
        latest.examples[size_t(request->pattern)].varies = 1;
    i32 shared_pattern = -1;
    if (together) {
        for (u32 mask : launch.root)
            all_lanes += lanes_of(mask);
        const i64 warps = end - first;
        const i64 mean = lanes == all_lanes ? LANES : std::max<i64>(1, (2 * lanes + warps) / (2 * warps));
        shared_pattern = single_address(latest.examples[size_t(first->pattern)], first->row, u32(mean));
    }
    Row &row = latest.by_row[u64(first->row)];
    const i32 execution = std::min(row.count++, MOST_EXECUTIONS);
    for (const Pending *request = first; request < end; request++) {
        const i32 pattern = together ? shared_pattern : request->pattern;
        PatternCounts *sum = nullptr;
        for (size_t place = row.counts.size(); place-- > 0 && row.counts[place].execution == execution && !sum;)
            if (row.counts[place].pattern == pattern)
                sum = &row.counts[place];
        if (!sum) {
            row.counts.push_back({pattern, execution, 0, 0, 0});
            sum = &row.counts.back();
        }
        sum->requests++;
        sum->pieces += request->cost.pieces;
        sum->ideal += request->cost.ideal;
    }
}

// Record the addresses of the first block: for all of its warps in their first execution, and for its first warp in
// further executions.
void Counters::record_addresses(const Request &request, i64 row, i64 shift) {
    std::vector<i32> &warp_executions = executions[u64(row)];
    warp_executions.resize(size_t(launch.warps));
    const i32 execution = warp_executions[size_t(request.warp)]++;
    if (execution >= MOST_EXECUTIONS || (execution && request.warp))
        return;
    warp_addresses.push_back(
        {request.access.number[request.space], request.region, request.warp, execution, request.mask, 0, {}});
    for (int lane = 0; lane < LANES; lane++)
        warp_addresses.back().addresses[lane] = request.addresses[lane] + shift;
}

} // namespace engine

using namespace engine;

namespace {

u64 hash_of(const PatternExample &pattern) {
    u64 hash = u64(u32(pattern.number)) << 32 ^ u64(u32(pattern.region)) << 8 ^ u64(pattern.kind);
    for (int lane = 0; pattern.kind == WARP && lane < LANES; lane++)
        hash = (hash ^ u64(pattern.addresses[lane] - pattern.addresses[0])) * 0x9E3779B97F4A7C15ull;
    return hash;
}

bool alike(const PatternExample &first, const PatternExample &second) {
    i64 differences = 0;
    for (int lane = 0; first.kind == WARP && lane < LANES; lane++)
        differences |= (first.addresses[lane] - first.addresses[0]) ^ (second.addresses[lane] - second.addresses[0]);
    return first.number == second.number && first.region == second.region && first.kind == second.kind &&
           !differences && (first.kind == REST || first.mask == second.mask);
}

// Merge the samples of all workers in the order of the blocks. Afterwards each pattern of a row occurs only once, with
// its counts in each execution.
void merge_samples(Launch &launch) {
    std::vector<const Counters::Sample *> samples;
    for (const auto &worker : launch.workers) {
        worker->counters.finish();
        for (const auto &sample : worker->counters.samples)
            samples.push_back(&sample);
    }
    // Samples that hold only a worker's first requests come last, because they are used only for rows that no other
    // sample has.
    std::stable_sort(samples.begin(), samples.end(), [](auto *first, auto *second) {
        return std::make_pair(first->first_only, first->place) < std::make_pair(second->first_only, second->place);
    });
    std::unordered_multimap<u64, i32> known;
    std::vector<bool> seen(size_t(launch.about.numbers_count * launch.places)); // indexed by row
    std::vector<std::vector<PatternCounts>> counted;                            // indexed by pattern, then by execution
    for (const auto *sample : samples) {
        std::vector<i32> numbers;
        for (const PatternExample &pattern : sample->examples) {
            const size_t row = size_t(pattern.number * launch.places + pattern.region);
            if (sample->first_only && seen[row]) {
                numbers.push_back(-1);
                continue;
            }
            seen[row] = true;
            const u64 hash = hash_of(pattern);
            auto [place, end] = known.equal_range(hash);
            while (place != end && !alike(launch.examples[size_t(place->second)], pattern))
                ++place;
            if (place == end) {
                known.emplace(hash, numbers.emplace_back(i32(launch.examples.size())));
                launch.examples.push_back(pattern);
                continue;
            }
            numbers.push_back(place->second);
            PatternExample &first = launch.examples[size_t(place->second)];
            const i64 step = pattern.addresses[0] - first.addresses[0];
            first.varies |=
                pattern.varies | (pattern.kind == ONE_PLACE ? step != 0 : pattern.mask & 1 && (step & 31) != 0);
        }
        counted.resize(launch.examples.size());
        for (const auto &row : sample->by_row)
            for (const PatternCounts &counts : row.second.counts) {
                const i32 pattern = numbers[size_t(counts.pattern)];
                if (pattern < 0)
                    continue;
                std::vector<PatternCounts> &by_execution = counted[size_t(pattern)];
                while (by_execution.size() <= size_t(counts.execution))
                    by_execution.push_back({pattern, i32(by_execution.size()), 0, 0, 0});
                PatternCounts &sum = by_execution[size_t(counts.execution)];
                sum.requests += counts.requests;
                sum.pieces += counts.pieces;
                sum.ideal += counts.ideal;
            }
    }
    for (const auto &by_execution : counted)
        std::copy_if(by_execution.begin(), by_execution.end(), std::back_inserter(launch.pattern_counts),
                     [](auto &counts) { return counts.requests; });
}

} // namespace

// Copy the pattern examples and their counts to the caller. If `examples` is null, only set the two counts.
PUBLIC void cudabench_patterns(Launch *launch, PatternExample *examples, i64 *examples_count, PatternCounts *counts,
                               i64 *counts_count) {
    if (launch->examples.empty())
        merge_samples(*launch);
    if (examples) {
        std::copy(launch->examples.begin(), launch->examples.end(), examples);
        std::copy(launch->pattern_counts.begin(), launch->pattern_counts.end(), counts);
    }
    *examples_count = i64(launch->examples.size());
    *counts_count = i64(launch->pattern_counts.size());
}

// Copy the addresses of the first block's warps to the caller. Return the number of records.
PUBLIC i64 cudabench_warp_addresses(Launch *launch, WarpAddresses *warp_addresses, i64 room) {
    i64 count = 0;
    for (const auto &worker : launch->workers)
        for (const WarpAddresses &record : worker->counters.warp_addresses) {
            if (count < room)
                warp_addresses[count] = record;
            count++;
        }
    return count;
}
