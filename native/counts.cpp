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
constexpr i32 MOST_LOOKS = 256;

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
      memories(launch_.about.checked ? size_t(launch_.about.numbers_count) : 0) {}

void Counters::start(const Block &block) {
    finish();
    sampled = looked_at() && launch.sampled[size_t(block.place)];
    for (Memory &memory : memories)
        memory.look = -1;
    if (sampled)
        samples.push_back({block.place, false, {}, {}});
}

bool Counters::looked_at() const { return !launch.sampled.empty(); }

Cost Counters::price(const Request &request, i64 size, i64 shift) {
    Memory &memory = memories[size_t(request.access.number[request.space])];
    const i64 *addresses = request.addresses;
    const i64 first = addresses[0] + shift;
    if (request.space == GLOBAL && request.straight)
        return straight_sectors(first, request.stride, size);
    if (request.straight && size <= 4 && request.stride % 4 == 0 && request.space == SHARED) {
        const i64 step = request.stride / 4;
        return {step ? i64(1) << std::min(5, __builtin_ctzll(u64(step))) : 1, 1};
    }
    i32 phase = i32(first & (LINE - 1));
    bool same = memory.mask == request.mask && memory.size == i32(size) && memory.phase == phase;
    if (same && request.straight)
        same = memory.straight && memory.stride == request.stride;
    else if (same) {
        i64 differences = 0;
        for (int lane = 0; lane < LANES; lane++)
            differences |= memory.steps[lane] ^ (addresses[lane] - addresses[0]);
        same = differences == 0;
    }
    if (same)
        return memory.cost;
    i64 shifted[LANES];
    if (shift) {
        for (int lane = 0; lane < LANES; lane++)
            shifted[lane] = addresses[lane] + shift;
        addresses = shifted;
    }
    memory.mask = request.mask;
    memory.size = i32(size);
    memory.phase = phase;
    memory.straight = request.straight;
    memory.stride = request.stride;
    memory.look = -1;
    for (int lane = 0; lane < LANES; lane++)
        memory.steps[lane] = addresses[lane] - addresses[0];
    switch (request.space) {
    case SHARED: memory.cost = wavefronts(addresses, request.mask, size, request.access.kind == LOAD); break;
    case LOCAL: memory.cost = local_sectors(addresses, request.mask, size); break;
    case CONSTANT: memory.cost = {distinct_addresses(addresses, request.mask), 1}; break;
    default: memory.cost = sectors(addresses, request.mask, size);
    }
    return memory.cost;
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
    add(block, request, price(request, size, shift), 0, shift);
    return size;
}

void Counters::add(const Block &block, const Request &request, Cost cost, i64 reloads, i64 shift) {
    const i64 row = request.access.number[request.space] * launch.places + request.region;
    Counts &counts = rows[size_t(row)];
    if (sampled) {
        sample(request, row, shift, cost);
        if (!block.place)
            visit(request, row, shift);
    } else if (!counts.requests && looked_at()) {
        samples.push_back({block.place, true, {}, {}});
        const i32 look = look_of(request, row, shift);
        samples.back().by_row[u64(row)].turns.push_back({look, 0, 1, cost.pieces, cost.ideal});
    }
    counts.requests++;
    counts.pieces += cost.pieces;
    counts.ideal += cost.ideal;
    counts.reloads += reloads;
}

// Return the index of a request's look (its address pattern) in the latest sample. Add the look if it is new.
i32 Counters::look_of(const Request &request, i64 row, i64 shift) {
    const i32 number = request.access.number[request.space];
    Memory &memory = memories[size_t(number)];
    Sample &latest = samples.back();
    const i64 *addresses = request.addresses;
    auto fits = [&](i32 index) {
        const Look &look = latest.looks[size_t(index)];
        if (look.kind != WARP || look.mask != request.mask || look.number != number || look.region != request.region)
            return false;
        i64 differences = 0, distance = addresses[0] + shift - look.addresses[0];
        for (int lane = 0; lane < LANES; lane++)
            differences |= (addresses[lane] + shift - distance) ^ look.addresses[lane];
        return differences == 0;
    };
    if (memory.look >= 0 && size_t(memory.look) < latest.looks.size() && fits(memory.look))
        return memory.look;
    std::vector<i32> &known = latest.by_row[u64(row)].looks;
    for (i32 index : known)
        if (fits(index))
            return memory.look = index;
    if (i32(known.size()) > MOST_LOOKS)
        return known.back();
    const i32 index = i32(latest.looks.size());
    known.push_back(index);
    const i32 kind = i32(known.size()) > MOST_LOOKS ? REST : WARP;
    latest.looks.push_back({number, request.region, request.mask, kind, 0, 0, {}});
    for (int lane = 0; lane < LANES; lane++)
        latest.looks.back().addresses[lane] = addresses[lane] + shift;
    return memory.look = index;
}

// Return the index of the look for an execution in which all warps access the same single address.
i32 Counters::one_place(const Look &example, i64 row, u32 lanes) {
    Sample &latest = samples.back();
    std::vector<i32> &known = latest.by_row[u64(row)].looks;
    for (i32 index : known)
        if (latest.looks[size_t(index)].kind == ONE_PLACE && latest.looks[size_t(index)].mask == lanes)
            return index;
    Look look = example;
    look.kind = ONE_PLACE;
    look.mask = lanes;
    look.varies = 0;
    const i32 index = i32(latest.looks.size());
    // insert at the front, because the last look may be the one that all further requests share
    known.insert(known.begin(), index);
    latest.looks.push_back(look);
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
    pending.push_back({row, first + shift, cost, request.mask, look_of(request, row, shift), same_address});
}

void Counters::finish() {
    while (!pending.empty()) {
        const i64 row = pending.front().row;
        auto rest = std::stable_partition(pending.begin(), pending.end(), [&](auto &item) { return item.row == row; });
        close(&*pending.begin(), &*pending.begin() + (rest - pending.begin()));
        pending.erase(pending.begin(), rest);
    }
    pending_number = pending_warp = -1;
}

// All warps have executed an instruction once: add their requests to the counts of this turn, separately for each look.
// If all warps access the same address, they share a look.
void Counters::close(const Pending *first, const Pending *end) {
    Sample &latest = samples.back();
    i64 lanes = 0, all_lanes = 0;
    bool together = true, varies = false;
    // the request of the first warp whose lane 0 is active; the NumPy engine chooses the same
    const Pending *leader = nullptr;
    for (const Pending *request = first; request < end; request++) {
        together &= request->one_place && request->first == first->first;
        lanes += lanes_of(request->mask);
        if (!(request->mask & 1))
            continue;
        leader = leader ? leader : request;
        varies |= ((request->first - leader->first) & 31) != 0;
    }
    for (const Pending *request = first; varies && request < end; request++)
        latest.looks[size_t(request->look)].varies = 1;
    i32 shared_look = -1;
    if (together) {
        for (u32 mask : launch.root)
            all_lanes += lanes_of(mask);
        const i64 warps = end - first;
        const i64 mean = lanes == all_lanes ? LANES : std::max<i64>(1, (2 * lanes + warps) / (2 * warps));
        shared_look = one_place(latest.looks[size_t(first->look)], first->row, u32(mean));
    }
    Row &row = latest.by_row[u64(first->row)];
    const i32 turn = std::min(row.count++, MOST_TURNS);
    for (const Pending *request = first; request < end; request++) {
        const i32 look = together ? shared_look : request->look;
        Turn *sum = nullptr;
        for (size_t place = row.turns.size(); place-- > 0 && row.turns[place].turn == turn && !sum;)
            if (row.turns[place].look == look)
                sum = &row.turns[place];
        if (!sum) {
            row.turns.push_back({look, turn, 0, 0, 0});
            sum = &row.turns.back();
        }
        sum->requests++;
        sum->pieces += request->cost.pieces;
        sum->ideal += request->cost.ideal;
    }
}

// Record the addresses of the first block: for all of its warps in their first turn, and for its first warp in further
// turns.
void Counters::visit(const Request &request, i64 row, i64 shift) {
    std::vector<i32> &warp_turns = turns[u64(row)];
    warp_turns.resize(size_t(launch.warps));
    const i32 turn = warp_turns[size_t(request.warp)]++;
    if (turn >= MOST_TURNS || (turn && request.warp))
        return;
    visits.push_back({request.access.number[request.space], request.region, request.warp, turn, request.mask, 0, {}});
    for (int lane = 0; lane < LANES; lane++)
        visits.back().addresses[lane] = request.addresses[lane] + shift;
}

} // namespace engine

using namespace engine;

namespace {

u64 hash_of(const Look &look) {
    u64 hash = u64(u32(look.number)) << 32 ^ u64(u32(look.region)) << 8 ^ u64(look.kind);
    for (int lane = 0; look.kind == WARP && lane < LANES; lane++)
        hash = (hash ^ u64(look.addresses[lane] - look.addresses[0])) * 0x9E3779B97F4A7C15ull;
    return hash;
}

bool alike(const Look &first, const Look &second) {
    i64 differences = 0;
    for (int lane = 0; first.kind == WARP && lane < LANES; lane++)
        differences |= (first.addresses[lane] - first.addresses[0]) ^ (second.addresses[lane] - second.addresses[0]);
    return first.number == second.number && first.region == second.region && first.kind == second.kind &&
           !differences && (first.kind == REST || first.mask == second.mask);
}

// Merge the samples of all workers in the order of the blocks. Afterwards each pattern of a row occurs only once, with
// its counts in each turn.
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
    std::vector<std::vector<Turn>> counted;                                     // indexed by look, then by turn
    for (const auto *sample : samples) {
        std::vector<i32> numbers;
        for (const Look &look : sample->looks) {
            const size_t row = size_t(look.number * launch.places + look.region);
            if (sample->first_only && seen[row]) {
                numbers.push_back(-1);
                continue;
            }
            seen[row] = true;
            const u64 hash = hash_of(look);
            auto [place, end] = known.equal_range(hash);
            while (place != end && !alike(launch.looks[size_t(place->second)], look))
                ++place;
            if (place == end) {
                known.emplace(hash, numbers.emplace_back(i32(launch.looks.size())));
                launch.looks.push_back(look);
                continue;
            }
            numbers.push_back(place->second);
            Look &first = launch.looks[size_t(place->second)];
            const i64 step = look.addresses[0] - first.addresses[0];
            first.varies |= look.varies | (look.kind == ONE_PLACE ? step != 0 : look.mask & 1 && (step & 31) != 0);
        }
        counted.resize(launch.looks.size());
        for (const auto &row : sample->by_row)
            for (const Turn &turn : row.second.turns) {
                const i32 look = numbers[size_t(turn.look)];
                if (look < 0)
                    continue;
                std::vector<Turn> &by_turn = counted[size_t(look)];
                while (by_turn.size() <= size_t(turn.turn))
                    by_turn.push_back({look, i32(by_turn.size()), 0, 0, 0});
                Turn &sum = by_turn[size_t(turn.turn)];
                sum.requests += turn.requests;
                sum.pieces += turn.pieces;
                sum.ideal += turn.ideal;
            }
    }
    for (const auto &by_turn : counted)
        std::copy_if(by_turn.begin(), by_turn.end(), std::back_inserter(launch.turns),
                     [](auto &turn) { return turn.requests; });
}

} // namespace

// Copy the looks and turns of all samples to the caller. If `looks` is null, only set the two counts.
PUBLIC void cudabench_looks(Launch *launch, Look *looks, i64 *looks_count, Turn *turns, i64 *turns_count) {
    if (launch->looks.empty())
        merge_samples(*launch);
    if (looks) {
        std::copy(launch->looks.begin(), launch->looks.end(), looks);
        std::copy(launch->turns.begin(), launch->turns.end(), turns);
    }
    *looks_count = i64(launch->looks.size());
    *turns_count = i64(launch->turns.size());
}

// Copy the visits of the first block's warps to the caller. Return the number of visits.
PUBLIC i64 cudabench_visits(Launch *launch, Visit *visits, i64 room) {
    i64 count = 0;
    for (const auto &worker : launch->workers)
        for (const Visit &visit : worker->counters.visits) {
            if (count < room)
                visits[count] = visit;
            count++;
        }
    return count;
}
