// Detects races and reads of unwritten shared memory: compares each access with the cells of its granules.
#include "launch.hpp"

#include <algorithm>

namespace engine {

namespace base {
const RowLoops &row_loops();
}
#ifdef HAVE_AVX2
namespace avx2 {
const RowLoops &row_loops();
}
#endif

using namespace cell;

namespace {

const RowLoops &row_loops() {
#ifdef HAVE_AVX2
    if (__builtin_cpu_supports("avx2"))
        return avx2::row_loops();
#endif
    return base::row_loops();
}

constexpr const char *UNSET = "shared memory is read that no thread has written";
constexpr const char *RACE = "threads of a block may race";
constexpr const char *BLOCKS = "blocks may race";
constexpr const char *TOGETHER = "lanes of one store write different values to one place";

int low_of(u64 cell) { return int(cell & THREAD); }
int high_of(u64 cell) { return int(cell >> 10 & THREAD); }
u64 party(int low, int high) { return u64(high) << 10 | u64(low); }

} // namespace

void Shadows::start(const Launch &launch) {
    const LaunchDescription &about = launch.about;
    // A launch with more lanes is not checked for races between blocks. The NumPy engine's GridRaces has the same limit
    // and tells the user about it.
    constexpr i64 MOST_LANES = 1 << 20;
    i64 blocks = about.grid[0] * about.grid[1] * about.grid[2];
    between_blocks =
        about.checked && blocks > 1 && blocks * about.block[0] * about.block[1] * about.block[2] <= MOST_LANES;
}

bool Shadows::conflict(const Launch &launch) const {
    constexpr u64 READERS = OWN_READ | OTHERS_READ, UPDATERS = OWN_UPDATED | OTHERS_UPDATED;
    if (!between_blocks || launch.workers.size() < 2)
        return false;
    for (size_t region = 0; region < launch.regions.size(); region++)
        for (size_t number = 0;; number++) {
            std::vector<const Races::Page *> pages;
            bool inside = false;
            for (const auto &worker : launch.workers) {
                const std::vector<Races::Page *> &worker_pages = worker->races.regions[region].by_number;
                inside |= number < worker_pages.size();
                if (number < worker_pages.size() && worker_pages[number])
                    pages.push_back(worker_pages[number]);
            }
            if (!inside)
                break;
            for (int place = 0; pages.size() > 1 && place < Races::PAGE; place++) {
                u64 stored = 0, used = 0, flags = 0;
                int storing = 0, touching = 0;
                u32 value = 0;
                bool varied = false;
                for (const Races::Page *page : pages) {
                    stored = page->stored[place], used = page->used[place];
                    varied |= stored && storing && page->value[place] != value;
                    varied |= (stored & VARIED) != 0;
                    if (stored)
                        value = page->value[place];
                    storing += stored != 0;
                    touching += (stored | used) != 0;
                    flags |= used;
                }
                if (touching > 1 && ((storing && ((flags & (READERS | UPDATERS)) || varied)) ||
                                     ((flags & READERS) && (flags & UPDATERS))))
                    return true;
            }
        }
    return false;
}

void Shadows::compare(Launch &launch) const {
    if (!launch.about.deferred) {
        if (conflict(launch))
            launch.suspect(BLOCKS, 0);
        return;
    }
    if (!between_blocks)
        return;
    for (size_t number = 1; number < launch.workers.size(); number++)
        if (launch.workers[0]->races.earlier.merge(launch.workers[number]->races.earlier)) {
            launch.run_again();
            return;
        }
}

Races::Races(const Launch &launch_, int)
    : deferred(launch_.about.deferred && launch_.about.checked), launch(launch_), loops(row_loops()), now(0),
      block_start(0), last_barrier(0), between_blocks(launch_.shadows.between_blocks && !deferred), log(launch_) {
    size_t warps = size_t(launch_.warps), cells = 0;
    if (launch_.about.shared_size && launch_.about.checked)
        cells = size_t((launch_.about.shared_size + launch_.about.granule_shared - 1) / launch_.about.granule_shared);
    warp_synchronized.assign(warps, 0);
    part_synchronized.assign(warps, 0);
    part_lanes.assign(warps, 0);
    last_request.assign(warps, 0);
    shared_stored.assign(cells, 0);
    shared_used.assign(cells, 0);
    shared_value.assign(cells, 0);
    regions.resize(launch_.regions.size());
    earlier.start(regions.size());
}

void Races::start(const Block &block) {
    exited = block.exited;
    latest = nullptr;
    block_start = now += TICK;
    last_barrier = now += TICK;
    if (now > LAST_START)
        block.launch.suspect("the launch has too many accesses", 0);
    log.start();
    by_value = false;
    if (between_blocks)
        return;
    for (const auto &[region, number] : touched)
        regions[size_t(region)].by_number[size_t(number)] = nullptr;
    touched.clear();
    pages.reuse();
}

void Races::barrier(const Block &block) {
    if (!deferred)
        pass_barrier();
    else if (!log.add_barrier(-1))
        block.launch.run_again();
}

void Races::pass_barrier() {
    last_barrier = now += TICK;
    latest = nullptr;
}

void Races::synchronize(const Block &block, int warp, u32 lanes) {
    size_t index = size_t(warp);
    if (lanes == block.root[warp]) {
        if (!deferred)
            synchronize_warp(warp);
        else if (!log.add_barrier(warp))
            block.launch.run_again();
        return;
    }
    if (deferred) { // the result depends on which lanes have ended now
        block.launch.run_again();
        return;
    }
    latest = nullptr;
    if (part_synchronized[index] > last_request[index] && part_lanes[index] == lanes)
        return;
    if (pairs.empty())
        pairs.assign(size_t(launch.threads) * LANES, 0);
    part_synchronized[index] = now += TICK;
    part_lanes[index] = lanes;
    for (u32 rest = lanes; rest; rest &= rest - 1) {
        u64 *row = &pairs[size_t(warp * LANES + first_lane(rest)) * LANES];
        for (int lane = 0; lane < LANES; lane++)
            row[lane] = lanes >> lane & 1 ? now : row[lane];
    }
}

void Races::synchronize_warp(int warp) {
    latest = nullptr;
    if (warp_synchronized[size_t(warp)] <= last_request[size_t(warp)])
        warp_synchronized[size_t(warp)] = now += TICK;
}

// Return whether a thread has synchronized, since the access that a cell records, with the threads of this cell.
bool Races::ordered(int thread, u64 cell) const {
    int warp = thread / LANES, low = low_of(cell), high = high_of(cell);
    if (low / LANES != warp || high / LANES != warp)
        return false;
    if (cell < warp_synchronized[size_t(warp)])
        return true;
    if (cell > part_synchronized[size_t(warp)])
        return false;
    const u64 *row = &pairs[size_t(thread) * LANES];
    for (int other = low; other <= high; other++) {
        // an ended thread between the lowest and the highest may not belong to the cell
        bool ended = exited[warp] >> (other % LANES) & 1;
        if (row[other % LANES] < cell && (!ended || other == low || other == high))
            return false;
    }
    return true;
}

// Return true if a cell has an access since the last barrier that may be at the same time as the accesses of the
// threads `low` to `high` (no synchronization is between them).
bool Races::unordered(u64 cell, int low, int high) const {
    if (cell < last_barrier)
        return false;
    for (int thread = low; thread <= high; thread++)
        if ((low_of(cell) != thread || high_of(cell) != thread) && !ordered(thread, cell))
            return true;
    return false;
}

// Return a page of an array. stores: whether the access is a store, which leaves the cells of reads as they are.
Races::Page *Races::page(i32 region, i64 number, bool stores) {
    static u64 NEVER_USED[PAGE] = {};
    std::vector<Page *> &by_number = regions[size_t(region)].by_number;
    if (by_number.empty())
        by_number.resize(size_t(launch.regions[size_t(region)].size / launch.about.granule_global / PAGE + 1), nullptr);
    Page *&slot = by_number[size_t(number)];
    if (!slot) {
        // A new page records no access. A reused page holds only times before the start of the current block.
        slot = pages.next();
        if (!slot->used)
            slot->used = NEVER_USED;
        if (!between_blocks)
            touched.emplace_back(region, number);
    }
    if (!stores && slot->used == NEVER_USED)
        slot->used = used_cells.next()->cells;
    return slot;
}

// Record that threads read one granule or, with `updates`, update it atomically. Return a suspicion (its text) or null.
template <bool GLOBAL> const char *Races::read(const Cells &cells, i64 at, int low, int high, bool updates) {
    u64 stored = cells.stored[at], used = cells.used[at], flags = 0;
    const bool between = GLOBAL && between_blocks;
    if (stored < block_start) {
        if (!GLOBAL)
            return UNSET;
        if (between && stored)
            return BLOCKS;
    } else if ((between && (stored & OTHERS)) || unordered(stored, low, high))
        return between && (stored & OTHERS) ? BLOCKS : RACE;
    if (used >= block_start)
        flags = used & (OWN_READ | OWN_UPDATED | OTHERS_READ | OTHERS_UPDATED);
    else if (between)
        flags = (used & (OTHERS_READ | OTHERS_UPDATED)) | (used & (OWN_READ | OWN_UPDATED)) << 2;
    if (flags & (updates ? OTHERS_READ : OTHERS_UPDATED))
        return BLOCKS;
    const u64 same = updates ? UPDATED : READ, other = updates ? READ : UPDATED;
    if (used >= last_barrier) {
        if ((used & other) && unordered(used, low, high))
            return RACE;
        bool stale = !(used & other);
        for (int thread = low; stale && thread <= high; thread++)
            stale = ordered(thread, used);
        if (!stale) {
            low = std::min(low, low_of(used));
            high = std::max(high, high_of(used));
            flags |= used & (READ | UPDATED);
        }
    }
    cells.used[at] = now | flags | same | (updates ? OWN_UPDATED : OWN_READ) | party(low, high);
    return nullptr;
}

// Record that threads store the same value to one granule. Return a suspicion (its text) or null.
template <bool GLOBAL>
const char *Races::write(const Cells &cells, i64 at, int low, int high, bool uniform, u32 value) {
    u64 stored = cells.stored[at], used = cells.used[at], flags = uniform ? UNIFORM : 0;
    const bool between = GLOBAL && between_blocks, differs = cells.value[at] != value;
    if (stored >= block_start) {
        flags |= (stored & (OTHERS | VARIED)) | (differs ? VARIED : 0);
        // whether another lane stored to it in the same execution of this instruction
        const bool together = stored >= now;
        if (stored >= last_barrier)
            flags |= (stored & HIDES) | (!together && (differs || !(stored & UNIFORM)) ? HIDES : 0);
        const bool alike = !differs && !(flags & HIDES) && (together || (uniform && (stored & UNIFORM)));
        if (unordered(stored, low, high)) {
            if (!alike)
                return together ? TOGETHER : RACE;
            by_value = true;
        }
        if (together) {
            low = std::min(low, low_of(stored));
            high = std::max(high, high_of(stored));
        }
    } else if (between && stored)
        flags |= OTHERS | (stored & VARIED) | (differs ? VARIED : 0);
    if (between && (flags & OTHERS) && (flags & VARIED))
        return BLOCKS;
    if (used >= block_start) {
        if (between && (used & (OTHERS_READ | OTHERS_UPDATED)))
            return BLOCKS;
        if (unordered(used, low, high))
            return RACE;
    } else if (between && used)
        return BLOCKS;
    cells.stored[at] = now | flags | party(low, high);
    cells.value[at] = value;
    return nullptr;
}

// Record consecutive granules, or granules that several lanes access together. `loops` records many granules at a time.
// Where it stops, the next granules are recorded one by one.
template <bool GLOBAL>
const char *Races::record(const Access &access, const Cells &cells, const Row &row, const Run &run, const u8 *data) {
    const Times times{now, block_start, last_barrier};
    const bool whole = !run.one_place || run.low == run.high;
    i64 place = 0;
    while (place < row.count) {
        i64 done = 0;
        const Cells left{cells.stored + place, cells.used + place, cells.value + place};
        if (whole && access.kind != ATOMIC && !(place & ((i64(1) << row.each) - 1))) {
            Row part = row;
            part.count -= place;
            part.low += i64(place >> row.each);
            done = access.kind == LOAD ? loops.load(left, part, times)
                                       : loops.store(left, part, times, data + place * row.granule);
        }
        const i64 end = std::min(row.count, place + done + 4);
        for (place += done; place < end; place++) {
            const int low = run.one_place ? run.low : int(row.low) + int(place >> row.each);
            const int high = run.one_place ? run.high : low;
            const u8 *value = data ? data + place * row.granule : nullptr;
            const char *why = access.kind == STORE
                                  ? write<GLOBAL>(cells, place, low, high, row.uniform, value_of(value, row.granule))
                                  : read<GLOBAL>(cells, place, low, high, access.kind == ATOMIC);
            if (why)
                return why;
        }
    }
    return nullptr;
}

template <bool GLOBAL> const char *Races::record(const Request &request, const u8 *data, const Run &run) {
    const Access &access = request.access;
    const int granule = GLOBAL ? launch.about.granule_global : launch.about.granule_shared;
    const int each = std::max(0, __builtin_ctz(unsigned(access.size)) - __builtin_ctz(unsigned(granule)));
    const i64 granules = i64(run.one_place ? 1 : run.high - run.low + 1) << each;
    for (i64 done = 0; done < granules;) {
        i64 at = run.granule + done, count = granules - done;
        Cells cells;
        if (GLOBAL) {
            Page *cell_page = page(request.region, at >> PAGE_BITS, access.kind == STORE);
            i64 inside = at & (PAGE - 1);
            count = std::min(count, PAGE - inside);
            cells = {cell_page->stored + inside, cell_page->used + inside, cell_page->value + inside};
        } else
            cells = {&shared_stored[size_t(at)], &shared_used[size_t(at)], &shared_value[size_t(at)]};
        const size_t warp = size_t(request.warp);
        const Row row{count,
                      run.low + (run.one_place ? 0 : int(done >> each)),
                      each,
                      granule,
                      GLOBAL,
                      between_blocks,
                      access.uniform != 0,
                      std::max(warp_synchronized[warp], part_synchronized[warp]) >= last_barrier};
        const char *why = record<GLOBAL>(access, cells, row, run, data + done * granule);
        if (why)
            return why;
        done += count;
    }
    return nullptr;
}

// Record lanes with scattered addresses one by one. Common cases are handled directly in this function, for speed.
template <bool GLOBAL>
const char *Races::record_scattered(const Request &request, i64 base, int shift, const u8 *data) {
    const Access &access = request.access;
    const bool loads = access.kind == LOAD, between = GLOBAL && between_blocks, uniform = access.uniform != 0;
    const size_t warp = size_t(request.warp);
    const bool synchronized = std::max(warp_synchronized[warp], part_synchronized[warp]) >= last_barrier;
    const u64 least = GLOBAL && !between_blocks ? 0 : block_start, others = OTHERS_READ | OTHERS_UPDATED;
    const i64 granules = std::max<i64>(1, access.size >> shift);
    Page *cell_page = nullptr;
    i64 number = -1; // the number of the page
    for (u32 rest = request.mask; rest; rest &= rest - 1) {
        const int lane = first_lane(rest), thread = request.warp * LANES + lane;
        const u64 self = party(thread, thread);
        const i64 from = (request.addresses[lane] - base) >> shift;
        for (i64 place = from; place < from + granules; place++) {
            Cells cells{shared_stored.data(), shared_used.data(), shared_value.data()};
            i64 at = place;
            if (GLOBAL) {
                if (place >> PAGE_BITS != number) {
                    number = place >> PAGE_BITS;
                    cell_page = page(request.region, number, !loads);
                }
                cells = {cell_page->stored, cell_page->used, cell_page->value};
                at = place & (PAGE - 1);
            }
            const u64 stored = cells.stored[at], used = cells.used[at];
            const bool inside = used >= last_barrier, own = (used & WHO) == self;
            if (loads) {
                const bool fine = (stored >= least && stored < last_barrier) || (GLOBAL && !stored) ||
                                  (stored >= block_start && (stored & (WHO | OTHERS)) == self);
                bool odd = inside && ((used & UPDATED) || (synchronized && !own));
                if (between)
                    odd |= (stored & OTHERS) || (used & others) || (used && used < block_start);
                if (fine && !odd) {
                    const int low = inside ? std::min(thread, low_of(used)) : thread;
                    const int high = inside ? std::max(thread, high_of(used)) : thread;
                    const u64 kept = used >= block_start ? used & OWN_UPDATED : 0;
                    cells.used[at] = now | READ | OWN_READ | kept | party(low, high);
                    continue;
                }
                if (const char *why = read<GLOBAL>(cells, at, thread, thread, false))
                    return why;
                continue;
            }
            const u32 value = value_of(data + (lane * granules + place - from) * (i64(1) << shift), 1 << shift);
            bool odd = uniform && stored >= last_barrier;
            if (between)
                odd |= stored || (used && (used < block_start || !own || (used & others)));
            else
                odd |= (stored >= last_barrier && (stored & WHO) != self) || (inside && !own);
            if (odd) {
                if (const char *why = write<GLOBAL>(cells, at, thread, thread, uniform, value))
                    return why;
                continue;
            }
            cells.stored[at] = now | (uniform ? UNIFORM : 0) | (stored >= last_barrier ? HIDES : 0) | self;
            cells.value[at] = value;
        }
    }
    return nullptr;
}

void Races::note(const Block &block, const Op &op, const Request &request, i64 first, const u8 *data) {
    if (request.access.guess)
        return;
    if (const i32 chosen = request.access.chosen) {
        const u32 lanes = block.predicate(std::abs(chosen) - 1)[request.warp];
        const u32 mask = request.mask & (chosen > 0 ? lanes : ~lanes);
        if (!mask)
            return;
        if (mask != request.mask) {
            i64 addresses[LANES];
            for (int lane = 0; lane < LANES; lane++) {
                const int from = mask >> lane & 1 ? lane : first_lane(mask);
                addresses[lane] = request.pattern ? first + request.pattern->steps[from] : request.addresses[from];
            }
            note_chosen(block, op, {request.access, request.space, request.region, request.warp, mask, addresses},
                        addresses[first_lane(mask)], data);
            return;
        }
    }
    note_chosen(block, op, request, first, data);
}

// Record a request whose lanes all use what they access.
void Races::note_chosen(const Block &block, const Op &op, const Request &request, i64 first, const u8 *data) {
    if (request.space != GLOBAL && block.worker.pending_copies.touches(request)) {
        block.suspect("an asynchronous copy is under way there", op);
        return;
    }
    if (!deferred)
        examine(block, op, request, data);
    else if (!log.add(launch, op, request, first, data))
        block.launch.run_again();
}

void Races::finish(const Block &block) {
    if (!deferred)
        return;
    if (launch.shadows.between_blocks)
        compare_with_earlier(block);
    if (log.known())
        return;
    examine_log(block);
    if (!by_value)
        log.set_known();
}

// Search the block's log for races between its threads.
void Races::examine_log(const Block &block) {
    for (size_t number = 0; number < log.size() && !block.launch.suspected; number++) {
        const BlockLog::Entry &entry = log[number];
        if (!entry.op) {
            if (entry.warp < 0)
                pass_barrier();
            else
                synchronize_warp(entry.warp);
            continue;
        }
        i64 addresses[LANES];
        for (int lane = 0; lane < LANES; lane++)
            addresses[lane] = entry.first + entry.steps[lane];
        examine(
            block, *entry.op,
            {*entry.access, entry.space, entry.region, entry.warp, entry.mask, addresses, entry.straight, entry.stride},
            entry.data < 0 ? nullptr : log.data.data() + entry.data);
    }
}

// Compare the granules of arrays that the block accessed with those of earlier blocks, and add them to these.
void Races::compare_with_earlier(const Block &block) {
    const int shift = __builtin_ctz(unsigned(launch.about.granule_global));
    for (bool adds : {false, true})
        for (size_t number = 0; number < log.size(); number++) {
            const BlockLog::Entry &entry = log[number];
            if (!entry.op || entry.space != GLOBAL)
                continue;
            const Region &region = launch.regions[size_t(entry.region)];
            const i64 first = entry.first - region.base;
            if (adds)
                earlier.add(*entry.access, entry.region, first, entry.steps, entry.mask, shift, region.size);
            else if (earlier.conflict(*entry.access, entry.region, first, entry.steps, entry.mask, shift)) {
                block.launch.run_again();
                return;
            }
        }
}

void Races::examine(const Block &block, const Op &op, const Request &request, const u8 *data) {
    const Access &access = request.access;
    const bool global = request.space == GLOBAL;
    const int granule = global ? launch.about.granule_global : launch.about.granule_shared;
    const int shift = __builtin_ctz(unsigned(granule));
    if (&op != latest || request.warp <= latest_warp)
        now += TICK;
    latest = &op;
    latest_warp = request.warp;
    last_request[size_t(request.warp)] = now;
    const i64 base = global ? launch.regions[size_t(request.region)].base : 0, size = access.size;
    const int first = request.warp * LANES;
    const i64 *addresses = request.addresses;
    // The lanes whose next lane accesses the next element (`contiguous`), or the same element (`same_element`).
    const Pattern *pattern = request.pattern;
    const u32 pairs = request.mask & request.mask >> 1;
    const u32 contiguous = pattern ? pattern->contiguous : loops.steps(addresses, size) & pairs;
    const u32 same_element = pattern ? pattern->same_element : loops.steps(addresses, 0) & pairs;
    if (!same_element && access.kind != ATOMIC && 2 * lanes_of(contiguous) < lanes_of(request.mask)) {
        if (const char *why = global ? record_scattered<true>(request, base, shift, data)
                                     : record_scattered<false>(request, 0, shift, data))
            block.suspect(why, op);
        return;
    }
    for (u32 rest = request.mask; rest;) {
        const int lane = first_lane(rest);
        const bool one_place = same_element >> lane & 1;
        // the shift fills in zeros, which become ones and end the run
        const u32 breaks = ~((one_place ? same_element : contiguous) >> lane);
        const int end = std::min(LANES, lane + (breaks ? first_lane(breaks) : LANES) + 1);
        if (one_place && access.kind == STORE)
            for (int other = lane + 1; other < end; other++)
                if (std::memcmp(data + other * size, data + lane * size, size_t(size))) {
                    block.suspect(TOGETHER, op);
                    return;
                }
        by_value |= one_place && access.kind == STORE && end > lane + 1;
        const Run run{(addresses[lane] - base) >> shift, first + lane, first + end - 1, one_place};
        const u8 *values = data ? data + lane * size : nullptr;
        const char *why = global ? record<true>(request, values, run) : record<false>(request, values, run);
        if (why) {
            block.suspect(why, op);
            return;
        }
        rest = end == LANES ? 0 : rest >> end << end;
    }
}

} // namespace engine
