// Runs machine code: the blocks of a launch, their warps, and the lanes of a warp in the order in which the hardware
// runs them.
//
// The order was measured on an H100 (tests/machine_code). If lanes diverge at a branch, the side with fewer lanes runs
// first. If both sides are equal, the side that does not jump runs first. The other side is remembered. At the next
// divergence it is moved to the list of waiting paths, and the new other side is remembered. When the running lanes
// wait or end, the remembered side runs. If there is none, the newest path of the list runs, together with all other
// lanes at the same instruction, even lanes that wait there. At a jump to an address in a register, the side that runs
// second issues the jump again.
//
// BSSY adds lanes to a convergence barrier. They wait for each other at a BSYNC. When the last lanes arrive there, all
// lanes continue after the BSYNC, and it is not issued again. But if lanes are released because others execute BREAK or
// end, the released lanes issue BSYNC once more. A lane that ends leaves each barrier that still has living lanes. In
// the other barriers it stays a member until BREAK; then BSYNC is issued once more, unless lanes that waited there
// join. The effect of YIELD is not known.
#include "sass.hpp"

#include <algorithm>
#include <memory>
#include <thread>

namespace engine {

#define MACHINE_CODE(LEVEL)                                                                                            \
    namespace LEVEL {                                                                                                  \
    sass::Table machine_code();                                                                                        \
    sass::MemoryTable machine_memory();                                                                                \
    }
MACHINE_CODE(base)
#ifdef HAVE_AVX2
MACHINE_CODE(avx2)
#endif
#ifdef HAVE_AVX512
MACHINE_CODE(avx512)
#endif

namespace sass {

namespace {

struct Tables {
    Table registers_only;
    MemoryTable memory;
};
Tables operations() {
#ifdef HAVE_AVX512
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl"))
        return {avx512::machine_code(), avx512::machine_memory()};
#endif
#ifdef HAVE_AVX2
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return {avx2::machine_code(), avx2::machine_memory()};
#endif
    return {base::machine_code(), base::machine_memory()};
}

// Codes are numbered in this order: operations on registers, memory operations, and then these control instructions.
enum Control : i32 {
    NOP,
    YIELD,
    SPECIAL,
    BRA,
    BRA_DIV,
    BSSY,
    BREAK,
    BSYNC,
    WARPSYNC,
    BAR,
    B2R,
    BMOV_FROM,
    BMOV_TO,
    EXIT,
    CALL,
    JUMP,
    TRAP
};
const char *const CONTROLS[] = {"nop", "yield", "special",   "bra",     "bra.div", "bssy", "break", "bsync", "warpsync",
                                "bar", "b2r",   "bmov.from", "bmov.to", "exit",    "call", "jump",  "trap"};
constexpr size_t CONTROL_COUNT = sizeof CONTROLS / sizeof *CONTROLS;

template <class T> u32 take_at(std::vector<T> &from, i32 at) {
    u32 lanes = 0;
    auto end = std::remove_if(from.begin(), from.end(), [&](const T &entry) {
        if (entry.at == at)
            lanes |= entry.mask;
        return entry.at == at;
    });
    from.erase(end, from.end());
    return lanes;
}
void join(std::vector<Path> &to, Path path) {
    for (Path &entry : to)
        if (entry.at == path.at) {
            entry.mask |= path.mask;
            return;
        }
    to.push_back(path);
}

// Add the clocks of blocks to those of others.
void add(BlockClocks &to, const BlockClocks &more) {
    to.sum.fixed += more.sum.fixed;
    for (int kind = 0; kind < LOAD_KINDS; kind++)
        to.sum.loads[kind] += more.sum.loads[kind];
    if (more.longest.usual() > to.longest.usual())
        to.longest = more.longest;
}

} // namespace

Machine::Machine(const MachineLaunch &launch_) : launch(launch_), left(launch_.budget) {
    const Tables all = operations();
    const Table table = all.registers_only;
    simple_count = table.count;
    memory = all.memory;
    for (i64 k = 0; k < launch.code_count; k++) {
        const size_t code = size_t(launch.code[k].code);
        simple.push_back(code < table.count ? table.first + code : nullptr);
    }
    constants.resize(size_t(launch.constants_count) * LANES);
    for (size_t k = 0; k < constants.size(); k++)
        constants[k] = launch.constants[k / LANES];
    shared.resize(size_t(launch.shared_size));
    counts.resize(size_t(launch.code_count));
    cached_costs.resize(size_t(launch.code_count));
    touched.resize(size_t(launch.regions_count));
}
Machine::~Machine() {
    for (Warp *warp : warps)
        delete warp;
}

bool Machine::fails(const char *reason) {
    why = reason;
    return false;
}

void Machine::issue(i32 at, u32 mask) {
    counts[size_t(at)].warps++;
    counts[size_t(at)].lanes += lanes_of(mask);
}

// Let a warp wait until the results that an instruction needs are there.
void Machine::wait(Warp &warp, const Schedule &schedule) const {
    for (u32 rest = u32(schedule.waits); rest; rest &= rest - 1) {
        const int counter = first_lane(rest);
        if (warp.until[counter] > warp.now)
            warp.now = warp.until[counter], warp.clocks = warp.ready[counter];
        warp.until[counter] = 0;
    }
}
// Let the clocks of an instruction pass. active: whether it runs in some lane.
void Machine::pass(Warp &warp, const Schedule &schedule, bool active) const {
    if (schedule.sets >= 0 && active) {
        const i64 then = warp.now + (schedule.delayed ? schedule.delayed : USUAL[fetched]);
        if (then > warp.until[schedule.sets]) {
            Clocks &ready = warp.ready[schedule.sets] = warp.clocks;
            if (schedule.delayed)
                ready.fixed += schedule.delayed;
            else
                ready.loads[fetched]++;
            warp.until[schedule.sets] = then;
        }
    }
    warp.now += schedule.stall, warp.clocks.fixed += schedule.stall;
}
// Add the clocks of a block.
void Machine::end_block(size_t count) {
    const Warp *longest = warps[0];
    for (size_t k = 1; k < count; k++)
        if (warps[k]->now > longest->now)
            longest = warps[k];
    Clocks whole = longest->clocks;
    for (int kind = FAR; kind > NEAR; kind--) {
        const i64 less = std::min(early, whole.loads[kind]);
        whole.loads[kind] -= less, whole.loads[NEAR] += less, early -= less;
    }
    add(clocks, {whole, whole});
    for (const auto &[region, sector] : to_clear)
        touched[size_t(region)][size_t(sector)] = 0;
    to_clear.clear();
    early = 0;
}

// Warps of a block run one after the other here, but together on a card. If a warp accesses a sector much earlier than
// the one that was charged for it, the block is charged for one load less (`end_block`). In very large regions, all
// loads are taken to be near, to save memory.
bool Machine::keep(i64 region, const i64 *addresses, u32 mask, i64 size) const {
    const Region &array = launch.regions[region];
    for (u32 rest = mask; rest; rest &= rest - 1) {
        const i64 first = addresses[first_lane(rest)] - array.base;
        for (i64 word = first / 8; word <= (first + size - 1) / 8; word++) {
            if (*launch.changes_count == launch.changes_size)
                return false;
            Change &change = launch.changes[(*launch.changes_count)++];
            change = {region, word, 0};
            std::memcpy(&change.old, array.data + 8 * word, size_t(std::min<i64>(8, array.size - 8 * word)));
        }
    }
    return true;
}

i32 Machine::touch(const Warp &warp, i64 region, const i64 *addresses, u32 mask, i64 size) {
    constexpr i64 SECTOR = 32, TOGETHER = 8; // TOGETHER: sectors that may come from memory together
    constexpr i64 MUCH = 100, LARGE = i64(1) << 28;
    std::vector<u32> &times = touched[size_t(region)];
    const Region &about = launch.regions[region];
    if (about.size > LARGE)
        return NEAR;
    if (times.empty())
        times.resize(size_t(about.size / SECTOR / TOGETHER + 1) * TOGETHER);
    const u32 now = u32(std::min(warp.now, i64(ALL) - MUCH)) + 1;
    i64 before = -1;
    bool fresh = false, far = false; // far: none of the sectors that come together was accessed before
    for (u32 rest = mask; rest; rest &= rest - 1) {
        const i64 from = addresses[first_lane(rest)] - about.base;
        for (i64 sector = from / SECTOR; sector <= (from + size - 1) / SECTOR; sector++) {
            if (sector == before)
                continue;
            before = sector;
            u32 &first = times[size_t(sector)];
            if (first) {
                early += first > now + MUCH;
                first = std::min(first, now);
                continue;
            }
            const u32 *near = &times[size_t(sector / TOGETHER * TOGETHER)];
            fresh = true;
            far |= std::all_of(near, near + TOGETHER, [](u32 time) { return !time; });
            first = now;
            to_clear.push_back({region, sector});
        }
    }
    return !fresh ? i32(NEAR) : far ? launch.kinds[region] : std::min(launch.kinds[region], i32(SHARED_BY_BLOCKS));
}

// Run blocks until no blocks are left, or until a block cannot be run.
void Machine::run(Progress &progress) {
    const i64 x = launch.grid[0], y = launch.grid[1];
    for (i64 place; (place = progress.next++) < launch.blocks_count && place < progress.failed;) {
        const i64 number = launch.blocks[place];
        index[0] = number % x, index[1] = number / x % y, index[2] = number / x / y;
        const i64 before = left;
        bool ended = false;
        try {
            ended = run_block();
        } catch (const std::bad_alloc &) {
            why = "there is not enough memory";
        }
        if ((progress.instructions += before - left) > launch.budget)
            why = "there are too many instructions";
        else if (ended)
            continue;
        failed = place;
        for (i64 first = progress.failed; place < first && !progress.failed.compare_exchange_weak(first, place);) {
        }
        return;
    }
}
void Machine::add_counts() const {
    for (size_t k = 0; k < counts.size(); k++) {
        Counted &sum = launch.counts[k];
        sum.warps += counts[k].warps, sum.lanes += counts[k].lanes;
        sum.requests += counts[k].requests, sum.pieces += counts[k].pieces;
    }
    launch.unsettled[0] += tables, launch.unsettled[1] += groups;
    add(*launch.clocks, clocks);
}

void Machine::start(Warp &warp, i64 threads) {
    warp.constants = reinterpret_cast<const u32(*)[LANES]>(constants.data());
    warp.living = threads >= LANES ? ALL : (1u << threads) - 1;
    warp.freed = {{0, warp.living}};
    warp.others.clear();
    warp.waits.clear();
    warp.remembered.mask = 0;
    memset(warp.predicates, 0, sizeof warp.predicates);
    warp.predicates[7] = warp.predicates[15] = ALL;
    memset(warp.barriers, 0, sizeof warp.barriers);
    warp.clocks = {}, warp.now = 0;
    memset(warp.until, 0, sizeof warp.until);
    warp.local.assign(size_t(launch.local_size) * LANES, 0);
}

bool Machine::run_block() {
    const i64 threads = launch.block[0] * launch.block[1] * launch.block[2];
    const size_t count = size_t((threads + LANES - 1) / LANES);
    std::fill(shared.begin(), shared.end(), u8(0));
    for (size_t k = 0; k < count; k++) {
        if (warps.size() == k) {
            warps.push_back(new Warp());
            warps[k]->number = i32(k);
            for (u32 lane = 0; lane < LANES; lane++) {
                const u32 thread = u32(k) * LANES + lane, x = u32(launch.block[0]), y = u32(launch.block[1]);
                warps[k]->thread[0][lane] = thread % x;
                warps[k]->thread[1][lane] = thread / x % y;
                warps[k]->thread[2][lane] = thread / x / y;
            }
        }
        start(*warps[k], threads - i64(k) * LANES);
    }
    set = reducing = 0;
    opened = false;
    memset(arrived, 0, sizeof arrived);
    for (;;) {
        bool living = false;
        for (size_t k = 0; k < count; k++) {
            if (!run_warp(*warps[k]))
                return false;
            living |= warps[k]->living != 0;
        }
        if (!living) {
            end_block(count);
            return true;
        }
        if (!opened && !all_wait(count))
            return fails("lanes wait for each other");
        opened = false;
    }
}

// Open the barrier at which all living lanes of the block wait, if there is one.
bool Machine::all_wait(size_t count) {
    i32 barrier = -1;
    for (size_t k = 0; k < count; k++) {
        u32 waiting = 0;
        for (const Wait &wait : warps[k]->waits) {
            if (wait.kind != BLOCK || wait.members || (barrier >= 0 && wait.barrier != barrier))
                return false;
            waiting |= wait.mask;
            barrier = wait.barrier;
        }
        if (waiting != warps[k]->living)
            return false;
    }
    open(barrier);
    reduced[0] = set, reduced[1] = set == reducing ? -1 : 0, reduced[2] = set ? -1 : 0;
    set = reducing = 0;
    return true;
}

// Release all lanes that wait at a barrier of the block.
void Machine::open(i32 barrier) {
    auto here = [&](const Wait &wait) { return wait.kind == BLOCK && wait.barrier == barrier; };
    std::vector<Warp *> waiting;
    for (Warp *warp : warps)
        if (std::any_of(warp->waits.begin(), warp->waits.end(), here))
            waiting.push_back(warp);
    auto earlier = [](const Warp *first, const Warp *second) { return first->now < second->now; };
    const Warp *last = *std::max_element(waiting.begin(), waiting.end(), earlier);
    const Clocks clocks_there = last->clocks;
    const i64 now = last->now;
    for (Warp *warp : waiting) {
        warp->clocks = clocks_there, warp->now = now;
        for (const Wait &wait : warp->waits)
            if (here(wait))
                join(warp->others, {wait.at + 1, wait.mask});
        warp->waits.erase(std::remove_if(warp->waits.begin(), warp->waits.end(), here), warp->waits.end());
    }
}

// Let lanes arrive at a barrier of the block. mode[0]: its number, -1: the number is in a register; mode[1]: whether
// the barrier also reduces a predicate (BAR.RED); mode[2]: how many threads it waits for, 0: all living threads;
// mode[3]: whether the lanes only arrive and do not wait (BAR.ARV). Return false if all lanes of the path wait.
bool Machine::arrive(Warp &warp, const Instruction &instruction, Path &path, u32 mask) {
    const i32 given = instruction.mode[0], threads = instruction.mode[2];
    const i32 barrier = given >= 0 ? given : i32(warp.at(instruction.sources[0].place)[first_lane(mask)] & 15);
    if (instruction.mode[1]) {
        set += lanes_of(mask & warp.holds(instruction.conditions[0]));
        reducing += lanes_of(mask);
    }
    if (instruction.mode[3])
        path.at++;
    else {
        warp.waits.push_back({BLOCK, barrier, u32(threads), mask, path.at++});
        path.mask &= ~mask;
    }
    if (threads) { // a warp whose last lanes do not exist counts as a whole warp
        arrived[barrier] += mask == warp.living ? LANES : u32(lanes_of(mask));
        if (arrived[barrier] >= u32(threads)) {
            arrived[barrier] = 0;
            open(barrier);
            opened = true;
        }
    }
    return path.mask != 0;
}

// Run a warp until all of its lanes wait or have ended.
bool Machine::run_warp(Warp &warp) {
    Path path;
    while (next(warp, path)) {
        path.mask &= warp.living;
        if (path.mask && !follow(warp, path))
            return false;
    }
    return true;
}

bool Machine::next(Warp &warp, Path &path) {
    if (!warp.freed.empty()) {
        path = warp.freed.back();
        warp.freed.pop_back();
    } else if (warp.remembered.mask & warp.living) {
        path = warp.remembered;
        warp.remembered.mask = 0;
    } else if (!warp.others.empty()) {
        warp.remembered.mask = 0;
        path = {warp.others.back().at, 0};
        path.mask = take_at(warp.others, path.at);
        bool at_block = false;
        for (const Wait &wait : warp.waits)
            at_block |= wait.kind == BLOCK && wait.at == path.at;
        const u32 waited = at_block ? 0 : take_at(warp.waits, path.at);
        path.mask |= waited;
        path.joined = waited != 0;
    } else
        return false;
    return true;
}

bool Machine::follow(Warp &warp, Path path) {
    const size_t count = size_t(launch.code_count);
    while (path.mask) {
        if (size_t(path.at) >= count)
            return fails("a jump leaves the code");
        if (--left < 0)
            return fails("there are too many instructions");
        const Instruction &instruction = launch.code[path.at];
        u32 mask = path.mask & warp.holds(instruction.guard);
        issue(path.at, path.mask);
        wait(warp, instruction.schedule);
        if (const Operation *operation = simple[size_t(path.at)]) {
            if (mask)
                operation->run(warp, instruction, instruction.uniform ? ALL : mask);
            pass(warp, instruction.schedule, mask != 0);
            path.at++;
            continue;
        }
        const size_t code = size_t(instruction.code) - simple_count;
        if (code < memory.count) {
            i64 pieces = 0;
            if (mask && !memory.first[code].run(*this, warp, instruction, instruction.uniform ? ALL : mask, pieces))
                return fails("an address is out of bounds or misaligned");
            counts[size_t(path.at)].requests += mask != 0;
            counts[size_t(path.at)].pieces += pieces;
            pass(warp, instruction.schedule, mask != 0);
            fetched = NEAR;
            path.at++;
            continue;
        }
        pass(warp, instruction.schedule, mask != 0);
        if (!control(warp, instruction, path, mask))
            return true;
    }
    return true;
}

// Let the lanes `taken` of `path` jump to `target`; the other lanes continue. `path` becomes the side that runs first.
void Machine::branch(Warp &warp, i32 target, u32 taken, Path &path, i32 following) {
    const u32 rest = path.mask & ~taken;
    path.at = rest ? following : target;
    if (!rest || !taken)
        return;
    if (warp.remembered.mask)
        warp.others.push_back(warp.remembered);
    if (lanes_of(taken) < lanes_of(rest)) {
        warp.remembered = {path.at, rest};
        path = {target, taken};
    } else {
        warp.remembered = {target, taken};
        path.mask = rest;
    }
}

// Let lanes jump to the addresses in a register. If these differ, or if only some lanes jump, the side that runs second
// issues the jump again.
void Machine::scatter(Warp &warp, const u32 *addresses, i32 offset, Path &path, u32 mask) {
    const u32 to = addresses[first_lane(mask)], before = path.mask;
    u32 alike = 0;
    for (u32 lanes = mask; lanes; lanes &= lanes - 1)
        alike |= addresses[first_lane(lanes)] == to ? lanes & -lanes : 0;
    const i32 target = i32(to + u32(offset)) / 16, jump = path.at;
    tables += alike != mask;
    branch(warp, target, alike, path, alike != mask ? jump : jump + 1);
    if (warp.remembered.mask && path.mask != before)
        warp.remembered.at = jump;
}

// Release the lanes of each barrier at which all living lanes wait. again: whether the released lanes issue the
// instruction once more. They always do if an ended lane is still a member of the barrier.
void Machine::release(Warp &warp, bool again) {
    for (size_t k = 0; k < warp.waits.size(); k++) {
        const Wait first = warp.waits[k];
        if (first.kind == BLOCK)
            continue;
        const u32 wanted = (first.kind == CONVERGENCE ? warp.barriers[first.barrier] : first.members) & warp.living;
        auto same = [&](const Wait &wait) {
            return wait.kind == first.kind && (wait.kind == WARP || wait.barrier == first.barrier);
        };
        u32 waiting = 0;
        int groups = 0;
        for (const Wait &wait : warp.waits)
            if (same(wait))
                waiting |= wait.mask, groups++;
        if (wanted & ~waiting)
            continue;
        const bool ended = first.kind == CONVERGENCE && (warp.barriers[first.barrier] & ~warp.living);
        std::vector<Path> freed;
        auto end = std::remove_if(warp.waits.begin(), warp.waits.end(), [&](const Wait &wait) {
            if (!same(wait) || (wait.kind == WARP && !(wait.mask & wanted)))
                return false;
            join(freed, {wait.at + 1, wait.mask & warp.living});
            return true;
        });
        warp.waits.erase(end, warp.waits.end());
        if (first.kind == CONVERGENCE)
            warp.barriers[first.barrier] = 0;
        for (const Path &path : freed) {
            if (first.kind == WARP ? groups > 1 : again || ended)
                issue(first.at, path.mask);
            if (path.mask)
                warp.freed.push_back(path);
        }
        k = size_t(-1);
    }
}

// Read a special register. mode[0]: 0 to 2: threadIdx; 3 to 5: blockIdx; 6: the number of the lane; 7 to 11: the masks
// lt, eq, le, ge and gt of lanes relative to this lane; 12: the number of the block in its cluster; 13: the upper word
// of the generic address of shared memory.
void Machine::special(Warp &warp, const Instruction &instruction, u32 mask) {
    if (instruction.into < 0)
        return;
    const i32 kind = instruction.mode[0];
    u32 values[LANES], *into = warp.registers[instruction.into];
    const u32 *from = kind < 3 ? warp.thread[kind] : values;
    for (u32 lane = 0; lane < LANES && kind >= 3; lane++)
        switch (kind) {
        case 6: values[lane] = lane; break;
        case 7: values[lane] = (1u << lane) - 1; break;
        case 8: values[lane] = 1u << lane; break;
        case 9: values[lane] = (2u << lane) - 1; break;
        case 10: values[lane] = ~((1u << lane) - 1); break;
        case 11: values[lane] = ~((2u << lane) - 1); break;
        case 13: values[lane] = u32(SHARED_WINDOW >> 32); break;
        default: values[lane] = kind < 6 ? u32(index[kind - 3]) : 0;
        }
    for (u32 lane = 0; lane < LANES; lane++)
        into[lane] = mask >> lane & 1 ? from[lane] : into[lane];
}

// Run a control instruction. Return false if all lanes of the path wait or have ended.
bool Machine::control(Warp &warp, const Instruction &instruction, Path &path, u32 mask) {
    const size_t code = size_t(instruction.code) - simple_count - memory.count;
    const i32 barrier = instruction.mode[0];
    switch (Control(code)) {
    case SPECIAL: special(warp, instruction, instruction.uniform && mask ? ALL : mask); break;
    case BRA: { // mode[0]: all lanes jump if one does (BRA.U.ANY)
        const u32 taken = mask & warp.holds(instruction.conditions[0]);
        branch(warp, instruction.target, instruction.mode[0] && taken ? path.mask : taken, path, path.at + 1);
        return true;
    }
    case BRA_DIV: { // jumps if some lanes of its mask are not in this path; mode[0]: if all are (BRA.CONV)
        if (mask && mask != path.mask)
            return fails("which lanes continue together after BRA.DIV is unknown");
        const u32 wanted = (warp.at(instruction.sources[0].place)[0] ^ instruction.sources[0].flip) & warp.living;
        if (instruction.mode[0]) {
            path.at = wanted & ~path.mask ? path.at + 1 : instruction.target;
            return true;
        }
        path.at = instruction.sources[0].place < CONSTANTS && wanted != path.mask ? instruction.target : path.at + 1;
        return true;
    }
    case BSSY: warp.barriers[barrier] |= path.mask; break;
    case BREAK:
        if (const u32 leaving = mask & warp.holds(instruction.conditions[0])) {
            warp.barriers[barrier] &= warp.living & ~leaving;
            release(warp, true);
        }
        break;
    case BMOV_FROM:
        for (u32 lane = 0; lane < LANES; lane++)
            if (instruction.into >= 0 && mask >> lane & 1)
                warp.registers[instruction.into][lane] = warp.barriers[barrier];
        if (instruction.mode[1])
            warp.barriers[barrier] = 0;
        break;
    case BMOV_TO:
        if (mask)
            warp.barriers[barrier] = warp.at(instruction.sources[0].place)[first_lane(mask)];
        break;
    case BSYNC:
        if (!mask)
            break;
        if (mask == path.mask && (warp.barriers[barrier] & warp.living) == mask) {
            if (!path.joined && warp.barriers[barrier] & ~warp.living)
                issue(path.at, mask);
            path.joined = false;
            warp.barriers[barrier] = 0;
            break;
        }
        warp.waits.push_back({CONVERGENCE, barrier, 0, mask, path.at++});
        path.mask &= ~mask;
        release(warp, false);
        return path.mask != 0;
    case WARPSYNC: { // mode[0]: whether all lanes of the warp take part; mode[1]: EXCLUSIVE
        const u32 members = instruction.mode[0] ? ALL : warp.at(instruction.sources[0].place)[first_lane(path.mask)];
        // The lanes of one mask go on. The others execute the instruction again once these wait, as an H100 does.
        if (instruction.mode[1] && path.mask & ~members) {
            const u32 *masks = warp.at(instruction.sources[0].place);
            for (u32 rest = path.mask & ~members; rest; rest &= rest - 1)
                groups += lanes_of(masks[first_lane(rest)] & warp.living) != lanes_of(members & warp.living);
            join(warp.others, {path.at, path.mask & ~members});
            path.mask &= members;
        }
        if (!(members & warp.living & ~path.mask))
            break;
        warp.waits.push_back({WARP, 0, members, path.mask, path.at});
        release(warp, false);
        return false;
    }
    case BAR:
        if (!mask)
            break;
        return arrive(warp, instruction, path, mask);
    case TRAP:
        if (!mask)
            break;
        why = "a trap stops the kernel";
        return false;
    case B2R: // mode[0]: which reduction (0 POPC, 1 AND, 2 OR)
        for (u32 lane = 0; lane < LANES; lane++)
            if (instruction.into >= 0 && mask >> lane & 1)
                warp.registers[instruction.into][lane] = u32(reduced[instruction.mode[0]]);
        if (instruction.into_predicate[0] >= 0)
            warp.predicates[instruction.into_predicate[0]] =
                (warp.predicates[instruction.into_predicate[0]] & ~mask) | (reduced[instruction.mode[0]] ? mask : 0);
        break;
    case EXIT: {
        const u32 ended = mask & warp.holds(instruction.conditions[0]);
        path.at++;
        if (!ended)
            return true;
        warp.living &= ~ended;
        path.mask &= ~ended;
        // If a barrier has no living lanes, its ended lanes stay members: see `release`.
        for (u32 &members : warp.barriers)
            members &= members & warp.living ? ~ended : ALL;
        release(warp, true);
        return path.mask != 0;
    }
    case CALL: branch(warp, instruction.target, mask, path, path.at + 1); return true;
    case JUMP:
        if (!mask)
            break;
        scatter(warp, warp.at(instruction.sources[0].place), instruction.offset, path, mask);
        return true;
    default: break;
    }
    path.at++;
    return true;
}

} // namespace sass

using namespace sass;

PUBLIC i64 cudabench_machine_operations() {
    const sass::Tables all = sass::operations();
    return i64(all.registers_only.count + all.memory.count + CONTROL_COUNT);
}

PUBLIC const char *cudabench_machine_operation(i64 number) {
    const auto [table, memory] = sass::operations();
    size_t place = size_t(number);
    if (place < table.count)
        return table.first[place].name;
    place -= table.count;
    return place < memory.count ? memory.first[place].name : CONTROLS[place - memory.count];
}

PUBLIC i64 cudabench_machine_size(i64 which) {
    const i64 sizes[] = {i64(sizeof(Instruction)), i64(sizeof(Counted)), i64(sizeof(MachineLaunch)),
                         i64(sizeof(BlockClocks))};
    return sizes[which];
}

// Run a launch. Return null if it ended, or the reason why it did not.
PUBLIC const char *cudabench_machine_run(const MachineLaunch *launch) {
    try {
        Progress progress;
        std::vector<std::unique_ptr<Machine>> machines;
        for (i64 k = 0; k < launch->threads; k++)
            machines.push_back(std::make_unique<Machine>(*launch));
        std::vector<std::thread> helpers;
        for (size_t k = 1; k < machines.size(); k++)
            helpers.emplace_back([&, k] { machines[k]->run(progress); });
        machines[0]->run(progress);
        for (std::thread &helper : helpers)
            helper.join();
        for (const auto &machine : machines) {
            if (machine->failed == progress.failed && *machine->why)
                return machine->why;
            machine->add_counts();
        }
        return nullptr;
    } catch (const std::bad_alloc &) {
        return "there is not enough memory";
    }
}

} // namespace engine
