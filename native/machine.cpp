// Runs the blocks of a launch: basic blocks of code, branches, barriers, and threads that end.
#include "launch.hpp"

#include <algorithm>
#include <system_error>
#include <thread>
#include <unordered_map>

namespace engine {

#define SCALARS(LEVEL)                                                                                                 \
    namespace LEVEL {                                                                                                  \
    Table integers();                                                                                                  \
    Table floats();                                                                                                    \
    Table conversions();                                                                                               \
    Table halves();                                                                                                    \
    Table memory();                                                                                                    \
    }
SCALARS(base)
#ifdef HAVE_AVX2
SCALARS(avx2)
#endif
#ifdef HAVE_AVX512
SCALARS(avx512)
#endif

namespace {

constexpr i64 CHECKED = 256; // how many steps a worker runs between two checks of the clock
constexpr const char *NO_MEMORY = "there is not enough memory";
constexpr auto SHORT_LAUNCH = std::chrono::microseconds(400);

#define TABLES(LEVEL) {LEVEL::integers(), LEVEL::floats(), LEVEL::conversions(), LEVEL::halves(), LEVEL::memory()}

std::vector<Table> scalar_operations() {
#ifdef HAVE_AVX512
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl"))
        return TABLES(avx512);
#endif
#ifdef HAVE_AVX2
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return TABLES(avx2);
#endif
    return TABLES(base);
}

const std::vector<Operation> &operations() {
    static const std::vector<Operation> all = [] {
        std::vector<Operation> merged;
        for (const Table &part : scalar_operations())
            merged.insert(merged.end(), part.first, part.first + part.count);
        for (const auto *part : {&memory_operations(), &atomic_operations(), &warp_operations()})
            merged.insert(merged.end(), part->begin(), part->end());
        return merged;
    }();
    return all;
}

bool any(const u32 *mask, int warps) {
    u32 lanes = 0;
    for (int warp = 0; warp < warps; warp++)
        lanes |= mask[warp];
    return lanes != 0;
}

i32 lowest(const std::vector<u64> &bits) {
    for (size_t word = 0; word < bits.size(); word++)
        if (bits[word])
            return i32(64 * word) + __builtin_ctzll(bits[word]);
    return -1;
}

template <class T> std::vector<T> copied(const T *from, i64 count) {
    return count ? std::vector<T>(from, from + count) : std::vector<T>();
}

size_t bytes_of(const Register &about, int threads) {
    size_t size = about.bits == 1 ? size_t(threads) / 8 : size_t(threads) * (about.bits / 8);
    return (size + 63) / 64 * 64;
}

} // namespace

void Block::suspect(const char *why, const Op &op) const { launch.suspect(why, op.line); }

Launch::Launch(const LaunchDescription &d)
    : about(d), ops(copied(d.ops, d.ops_count)), blocks(copied(d.blocks, d.blocks_count)),
      tables(copied(d.tables, d.tables_count)), accesses(copied(d.accesses, d.accesses_count)),
      registers(copied(d.registers, d.registers_count)), regions(copied(d.regions, d.regions_count)),
      parameters(copied(d.parameters, d.parameters_size)), order(copied(d.order, d.order_count)),
      chunks(copied(d.chunks, d.chunks_count)), shared_starts(copied(d.shared_starts, d.shared_starts_count)),
      followed(copied(d.followed, d.order_count)), sampled(copied(d.sampled, d.sampled ? d.order_count : 0)) {
    if (d.footprint)
        per_block.assign(order.size(), 0);
    i64 real = d.block[0] * d.block[1] * d.block[2];
    warps = int((real + LANES - 1) / LANES);
    threads = warps * LANES;
    root.assign(size_t(warps), ALL);
    if (real % LANES)
        root.back() = (1u << (real % LANES)) - 1;
    places = std::max<i64>({1, d.regions_count, d.shared_starts_count});
    for (const Op &op : ops)
        runs.push_back(operations()[size_t(op.code)].run);
    by_rank.resize(blocks.size());
    for (size_t number = 0; number < blocks.size(); number++)
        by_rank[size_t(blocks[number].rank)] = i32(number);
    undo.start(*this);
    shadows.start(*this);
    first_accesses.start(*this);
    workers.push_back(std::make_unique<Worker>(*this, 0));
}

Launch::~Launch() = default;

void Launch::suspect(const char *reason, i32 line) {
    bool first = false;
    if (suspected.compare_exchange_strong(first, true)) {
        suspect_line = line;
        why = reason;
    }
}

void Launch::run_again() {
    again = true;
    suspect("races cannot be searched for at the end of the blocks", 0);
}

Status Launch::advance(double seconds, i64 threads) {
    auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    // At first one worker runs alone for SHORT_LAUNCH, so that a short launch starts no further threads.
    if (workers.size() == 1 && !(workers[0]->run(std::min(end, Clock::now() + SHORT_LAUNCH)))) {
        return ended();
    }
    const i64 most = about.ordered ? 1 : std::min(threads, about.order_count);
    try {
        while (i64(workers.size()) < most) {
            workers.push_back(std::make_unique<Worker>(*this, int(workers.size())));
            for (const auto &worker : workers)
                worker->footprints.single_worker = false;
        }
    } catch (const std::bad_alloc &) { // memory is short: the workers that already exist run all blocks
    }
    std::atomic<bool> left{false};
    std::vector<std::thread> helpers;
    for (size_t number = 1; number < workers.size(); number++)
        try {
            helpers.emplace_back([&, number] {
                if (workers[number]->run(end))
                    left = true;
            });
        } catch (const std::system_error &) { // no more threads are allowed: those that exist run all blocks
            break;
        }
    for (size_t number = 0; number < workers.size(); number += number ? 1 : helpers.size() + 1)
        if (workers[number]->run(end))
            left = true;
    for (std::thread &helper : helpers)
        helper.join();
    if (!suspected && !left)
        shadows.compare(*this);
    return left && !suspected ? GOES_ON : ended();
}

// Return the status of a launch that has ended. If it was stopped, first restore memory.
Status Launch::ended() {
    if (!suspected)
        return FINISHED;
    undo.restore(*this);
    return again ? AGAIN : SUSPECT;
}

Worker::Worker(Launch &launch_, int number_)
    : launch(launch_), number(number_),
      block{launch_,   *this,   nullptr, nullptr, launch_.root.data(), nullptr, launch_.warps, false, 0,
            {0, 0, 0}, nullptr, nullptr, 0},
      counters(launch_), races(launch_, number_), footprints(launch_), atomics(launch_),
      patterns(static_cast<Pattern *>(zeros((launch_.accesses.size() + 1) * PATTERNS * sizeof(Pattern))), std::free) {
    size_t warps = size_t(launch.warps), codes = launch.blocks.size(), words = (codes + 63) / 64;
    size_t total = 64;
    for (const Register &about : launch.registers)
        total += bytes_of(about, launch.threads);
    frame.assign(total, 0);
    u8 *place = frame.data() + (64 - reinterpret_cast<uintptr_t>(frame.data()) % 64) % 64;
    for (const Register &about : launch.registers) {
        registers.push_back(place);
        place += bytes_of(about, launch.threads);
    }
    exited.assign(warps, 0);
    active.assign(warps, 0);
    guarded.assign(warps, 0);
    parked.assign(warps, 0);
    ready.assign(codes * warps, 0);
    waiting.assign(codes * warps, 0);
    ready_ranks.assign(words, 0);
    waiting_ranks.assign(words, 0);
    executed.assign(codes, Executed{});
    if (launch.about.shares)
        shares.assign(codes * launch.order.size(), 0);
    // The sizes are rounded up to a multiple of 16 bytes, as in the NumPy engine.
    shared.assign(size_t(launch.about.shared_size + 15) / 16 * 16, 0);
    block.local_stride = (launch.about.local_bytes + 15) / 16 * 16;
    local.assign(size_t(block.local_stride) * size_t(launch.threads), 0);
    block.registers = registers.data();
    block.exited = exited.data();
    block.shared = shared.data();
    block.local = local.data();
    for (size_t index = 0; index < launch.registers.size(); index++)
        fill_special(launch.registers[index], i32(index), true);
}

// Set the initial value of a register. With `first`, set it once; without, set it again for a new block, if it differs
// between blocks.
void Worker::fill_special(const Register &about, i32 index, bool first) {
    const i64 *of_block = launch.about.block, *of_grid = launch.about.grid;
    auto fill_all = [&](i64 value) {
        switch (about.bits) {
        case 1: std::fill_n(block.predicate(index), launch.warps, value ? ALL : 0u); break;
        case 8: std::fill_n(block.at<u8>(index), launch.threads, u8(value)); break;
        case 16: std::fill_n(block.at<u16>(index), launch.threads, u16(value)); break;
        case 32: std::fill_n(block.at<u32>(index), launch.threads, u32(value)); break;
        default: std::fill_n(block.at<u64>(index), launch.threads, u64(value));
        }
    };
    auto fill_each = [&](auto value) {
        for (int thread = 0; thread < launch.threads; thread++)
            block.at<u32>(index)[thread] = u32(value(thread));
    };
    i64 real = of_block[0] * of_block[1] * of_block[2];
    auto thread_or_zero = [&](int thread) { return thread < real ? i64(thread) : i64(0); };
    auto bit = [](int thread) { return 1u << (thread % LANES); };
    if (about.special >= 4 && about.special <= 6) { // ctaid
        fill_all(block.index[about.special - 4]);
        return;
    }
    if (about.special == 100) { // a register that the kernel writes, but may read before
        fill_all(about.value);
        return;
    }
    if (!first)
        return;
    switch (about.special) {
    case 0:
        if (about.value) // registers are zero when they are allocated
            fill_all(about.value);
        break;
    case 1: fill_each([&](int thread) { return thread_or_zero(thread) % of_block[0]; }); break; // tid
    case 2: fill_each([&](int thread) { return thread_or_zero(thread) / of_block[0] % of_block[1]; }); break;
    case 3: fill_each([&](int thread) { return thread_or_zero(thread) / (of_block[0] * of_block[1]); }); break;
    case 7:
    case 8:
    case 9: fill_all(of_block[about.special - 7]); break; // ntid
    case 10:
    case 11:
    case 12: fill_all(of_grid[about.special - 10]); break;                                     // nctaid
    case 13: fill_each([&](int thread) { return thread % LANES; }); break;                     // laneid
    case 14: fill_each([&](int thread) { return thread / LANES; }); break;                     // warpid
    case 15: fill_all(launch.warps); break;                                                    // nwarpid
    case 16: fill_each([&](int thread) { return bit(thread); }); break;                        // lanemask_eq
    case 17: fill_each([&](int thread) { return bit(thread) - 1; }); break;                    // lanemask_lt
    case 18: fill_each([&](int thread) { return bit(thread) | (bit(thread) - 1); }); break;    // lanemask_le
    case 19: fill_each([&](int thread) { return ~(bit(thread) | (bit(thread) - 1)); }); break; // lanemask_gt
    case 20: fill_each([&](int thread) { return ~(bit(thread) - 1); }); break;                 // lanemask_ge
    case 21: fill_all(launch.about.dynamic_shared); break;
    case 22: fill_all(launch.about.shared_size); break;
    }
}

bool Worker::run(Clock::time_point end) {
    try {
        return run_blocks(end);
    } catch (const std::bad_alloc &) {
        launch.suspect(NO_MEMORY, 0);
        return false;
    }
}

bool Worker::run_blocks(Clock::time_point end) {
    while (!launch.suspected) {
        if (!running) {
            i64 place = launch.next++;
            if (place >= i64(launch.order.size())) {
                launch.next = i64(launch.order.size());
                return false;
            }
            block.place = place;
            start();
        }
        for (i64 count = 0; running && count < CHECKED; count++)
            running = step() && !launch.suspected;
        if (!running && !launch.suspected)
            races.finish(block);
        if (!running && !launch.suspected) {
            launch.done++;
            if (!launch.per_block.empty())
                launch.per_block[size_t(block.place)] += instructions;
        }
        if (Clock::now() >= end)
            return running || launch.next < i64(launch.order.size());
    }
    return false;
}

void Worker::start() {
    i64 number_ = launch.order[size_t(block.place)];
    block.index[0] = number_ % launch.about.grid[0];
    block.index[1] = number_ / launch.about.grid[0] % launch.about.grid[1];
    block.index[2] = number_ / launch.about.grid[0] / launch.about.grid[1];
    for (size_t index = 0; index < launch.registers.size(); index++)
        if (launch.registers[index].special)
            fill_special(launch.registers[index], i32(index), false);
    std::fill(exited.begin(), exited.end(), 0);
    std::fill(local.begin(), local.end(), 0);
    // This is not needed if races are checked, because a read of unwritten shared memory is reported then.
    if (!launch.about.checked)
        std::fill(shared.begin(), shared.end(), 0);
    steps = 0;
    running = true;
    if (!launch.per_block.empty())
        launch.per_block[size_t(block.place)] = -instructions;
    counters.start(block);
    races.start(block);
    pending_copies.start();
    footprints.start(block);
    atomics.start();
    arrive(0, launch.root.data());
}

void Worker::arrive(i32 code, const u32 *mask) {
    i32 rank = launch.blocks[size_t(code)].rank;
    u32 *lanes = &ready[size_t(rank) * size_t(launch.warps)];
    for (int warp = 0; warp < launch.warps; warp++)
        lanes[warp] |= mask[warp];
    ready_ranks[size_t(rank) / 64] |= u64(1) << (rank % 64);
}

bool Worker::step() {
    i32 rank = lowest(ready_ranks);
    const bool only_waiting = rank < 0; // no lane can run: all wait for other lanes, but these may have ended since
    if (only_waiting)
        rank = lowest(waiting_ranks);
    if (rank < 0)
        return parked_at >= 0 && release();
    const size_t warps = size_t(launch.warps), first = size_t(rank) * warps;
    const i32 number_ = launch.by_rank[size_t(rank)];
    const CodeBlock &code = launch.blocks[size_t(number_)];
    const u64 bit = u64(1) << (rank % 64);
    std::copy_n(&ready[first], warps, active.begin());
    std::fill_n(&ready[first], warps, 0);
    ready_ranks[size_t(rank) / 64] &= ~bit;
    if (waiting_ranks[size_t(rank) / 64] & bit) {
        for (size_t warp = 0; warp < warps; warp++)
            active[warp] |= waiting[first + warp];
        std::fill_n(&waiting[first], warps, 0);
        waiting_ranks[size_t(rank) / 64] &= ~bit;
    }
    if (code.members != -1 && members_missing(code, active.data())) {
        if (only_waiting) {
            launch.suspect("lanes wait for others that never come", 0);
            return false;
        }
        std::copy_n(active.begin(), warps, &waiting[first]);
        waiting_ranks[size_t(rank) / 64] |= bit;
        return true;
    }
    execute(code, number_, active.data());
    return true;
}

// Return true if a mask of a warp-wide instruction names lanes that have neither arrived nor ended.
bool Worker::members_missing(const CodeBlock &code, const u32 *mask) {
    for (int warp = 0; warp < launch.warps; warp++) {
        if (!mask[warp])
            continue;
        u32 named = ALL;
        if (code.members >= 0) {
            named = 0;
            for (u32 rest = mask[warp]; rest; rest &= rest - 1)
                named |= block.at<u32>(code.members)[warp * LANES + first_lane(rest)];
        }
        if (named & ~mask[warp] & ~exited[size_t(warp)] & launch.root[size_t(warp)])
            return true;
    }
    return false;
}

void Worker::execute(const CodeBlock &code, i32 number_, const u32 *mask) {
    const int warps = launch.warps;
    steps += code.weight;
    if (steps > launch.about.budget) {
        launch.suspect("the budget of instructions is spent", 0);
        return;
    }
    i64 active_warps = 0, lanes = 0;
    bool whole = true;
    for (int warp = 0; warp < warps; warp++) {
        active_warps += mask[warp] != 0;
        lanes += lanes_of(mask[warp]);
        whole &= mask[warp] == ALL;
    }
    instructions += code.weight * active_warps;
    Executed &counts = executed[size_t(number_)];
    counts.warps += active_warps;
    counts.lanes += lanes;
    if (!shares.empty())
        shares[size_t(number_) * launch.order.size() + size_t(block.place)] += code.weight * active_warps;
    for (i32 place = code.first; place < code.first + code.count; place++) {
        const Op &op = launch.ops[size_t(place)];
        block.mask = mask;
        block.full = whole;
        if (op.guard >= 0) {
            const u32 *guard = block.predicate(op.guard);
            u32 any_active = 0, all_active = ALL;
            for (int warp = 0; warp < warps; warp++) {
                guarded[size_t(warp)] = mask[warp] & (op.inverted ? ~guard[warp] : guard[warp]);
                any_active |= guarded[size_t(warp)];
                all_active &= guarded[size_t(warp)];
            }
            if (!any_active)
                continue;
            block.mask = guarded.data();
            block.full = all_active == ALL;
        }
        launch.runs[size_t(place)](block, op);
        if (launch.suspected.load(std::memory_order_relaxed))
            return;
    }
    // Set `guarded` to the lanes that execute the last instruction of the basic block, and `rest` to the other lanes.
    if (code.end == FALLS) {
        arrive(number_ + 1, mask);
        return;
    }
    u32 rest[LANES]; // LANES (32) is enough, because a block has at most 32 warps
    for (int warp = 0; warp < warps; warp++) {
        u32 guard = ALL;
        if (code.guard >= 0) {
            guard = block.predicate(code.guard)[warp];
            guard = code.inverted ? ~guard : guard;
        }
        guarded[size_t(warp)] = mask[warp] & guard;
        rest[warp] = mask[warp] & ~guard;
    }
    const u32 *taken = guarded.data();
    const bool any_taken = any(taken, warps);
    if (any(rest, warps))
        arrive(number_ + 1, rest);
    if (!any_taken)
        return;
    switch (code.end) {
    case BRANCH:
        for (int warp = 0; warp < warps; warp++) {
            counts.taken += lanes_of(taken[warp]);
            counts.diverged += taken[warp] && rest[warp];
        }
        arrive(code.target, taken);
        break;
    case EXIT:
        for (int warp = 0; warp < warps; warp++)
            exited[size_t(warp)] |= taken[warp];
        break;
    case TABLE: {
        const u32 *selected = block.at<u32>(code.selector);
        int ways[LANES] = {};
        for (i32 entry = 0; entry < code.targets; entry++) {
            u32 arriving[LANES] = {};
            for (int warp = 0; warp < warps; warp++) {
                for (u32 left = taken[warp]; left; left &= left - 1)
                    if (selected[warp * LANES + first_lane(left)] == u32(entry))
                        arriving[warp] |= left & -left;
                ways[warp] += arriving[warp] != 0;
            }
            if (any(arriving, warps))
                arrive(launch.tables[size_t(code.target + entry)], arriving);
        }
        for (int warp = 0; warp < warps; warp++) {
            counts.taken += lanes_of(taken[warp]);
            counts.diverged += ways[warp] > 1;
            for (u32 left = taken[warp]; left; left &= left - 1)
                if (selected[warp * LANES + first_lane(left)] >= u32(code.targets)) {
                    launch.suspect("a branch table has no such entry", 0);
                    return;
                }
        }
        break;
    }
    case BARRIER:
        if (parked_at >= 0 && parked_at != number_) {
            launch.suspect("lanes wait at two barriers", 0);
            return;
        }
        if (parked_at >= 0) {
            // Some lanes of the block arrive at the barrier earlier than others. This may be an error; the NumPy engine
            // checks whether these lanes are in different iterations of a loop.
            launch.suspect("the lanes of a block arrive at a barrier separately", 0);
            return;
        }
        parked_at = number_;
        std::copy_n(taken, warps, parked.begin());
        if (std::equal(taken, taken + warps, launch.root.begin()))
            release();
        break;
    }
}

// Release all threads of the block from their barrier. Return false if some threads have not arrived.
bool Worker::release() {
    const CodeBlock &code = launch.blocks[size_t(parked_at)];
    if (!std::equal(parked.begin(), parked.end(), launch.root.begin())) {
        launch.suspect("threads are missing at a barrier", 0);
        return false;
    }
    const i64 threads = launch.about.block[0] * launch.about.block[1] * launch.about.block[2];
    if (code.expected >= 0 && block.at<u32>(code.expected)[0] != threads) {
        launch.suspect("a barrier does not wait for all threads of the block", 0);
        return false;
    }
    if (code.reduction) {
        const u32 *values = block.predicate(code.predicate);
        i64 count = 0;
        for (int warp = 0; warp < launch.warps; warp++)
            count += lanes_of((code.flip ? ~values[warp] : values[warp]) & launch.root[size_t(warp)]);
        if (code.reduction == 1)
            std::fill_n(block.at<u32>(code.into), launch.threads, u32(count));
        else
            std::fill_n(block.predicate(code.into), launch.warps,
                        (code.reduction == 2 ? count == threads : count > 0) ? ALL : 0u);
    }
    races.barrier(block);
    i32 following = parked_at + 1;
    parked_at = -1;
    arrive(following, parked.data());
    return true;
}

} // namespace engine

using namespace engine;

PUBLIC i64 cudabench_operations() { return i64(operations().size()); }
PUBLIC const char *cudabench_operation(i64 index) { return operations()[size_t(index)].name; }
PUBLIC i64 cudabench_size_of(i32 what) {
    const i64 sizes[] = {sizeof(Op),           sizeof(CodeBlock),         sizeof(Access),         sizeof(Region),
                         sizeof(Register),     sizeof(LaunchDescription), sizeof(Counts),         sizeof(Executed),
                         sizeof(Sums),         sizeof(ConstantRequest),   sizeof(PatternExample), sizeof(PatternCounts),
                         sizeof(WarpAddresses)};
    return sizes[what];
}

PUBLIC Launch *cudabench_launch(const LaunchDescription *about) {
    try {
        return new Launch(*about);
    } catch (const std::bad_alloc &) {
        return nullptr;
    }
}
PUBLIC void cudabench_end(Launch *launch) { delete launch; }
PUBLIC i32 cudabench_advance(Launch *launch, double seconds, i64 threads) { return launch->advance(seconds, threads); }
PUBLIC i64 cudabench_done(Launch *launch) { return launch->done; }
PUBLIC const char *cudabench_why(Launch *launch, i32 *line) {
    *line = launch->suspect_line;
    return launch->why;
}
// Return the index of the basic block that an unfinished launch would run next.
PUBLIC i32 cudabench_at(Launch *launch) {
    for (const auto &worker : launch->workers) {
        const i32 ready = lowest(worker->ready_ranks), waiting = lowest(worker->waiting_ranks);
        if (worker->running && (ready >= 0 || waiting >= 0))
            return launch->by_rank[size_t(ready >= 0 ? ready : waiting)];
    }
    return 0;
}
PUBLIC void cudabench_undo(Launch *launch) { launch->undo.restore(*launch); }

// Add how often each basic block ran to the caller's counts. If counted separately, also add the executions of each
// basic block in each block of the grid. Return the number of warp instructions.
PUBLIC i64 cudabench_executed(Launch *launch, Executed *executed, i64 *shares) {
    i64 instructions = 0;
    for (const auto &worker : launch->workers) {
        instructions += worker->instructions;
        for (size_t number = 0; number < worker->executed.size(); number++) {
            const Executed &more = worker->executed[number];
            executed[number].warps += more.warps;
            executed[number].lanes += more.lanes;
            executed[number].taken += more.taken;
            executed[number].diverged += more.diverged;
        }
        for (size_t place = 0; place < worker->shares.size(); place++)
            shares[place] += worker->shares[place];
    }
    return instructions;
}

PUBLIC void cudabench_counts(Launch *launch, Counts *counts) {
    for (const auto &worker : launch->workers)
        for (size_t row = 0; row < worker->counters.rows.size(); row++) {
            const Counts &more = worker->counters.rows[row];
            counts[row].requests += more.requests;
            counts[row].pieces += more.pieces;
            counts[row].ideal += more.ideal;
            counts[row].merged += more.merged;
            counts[row].reloads += more.reloads;
            counts[row].beside += more.beside;
        }
}
