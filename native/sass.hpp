// Decoded machine code, and the warps that run it. cudabench/simulator/machine_code/decode.py decodes it.
//
// A warp runs alone until all its lanes wait at a barrier of the block or have ended. Its registers are stored register
// by register, with 32 lanes each. The first indices, 0 to 254, are R0 to R254; 256 to 318 are the uniform registers,
// whose lanes are all equal; from CONSTANTS on, the "registers" are values from constant banks and immediate values. A
// predicate is one word for each warp; the order is P0 to P6, PT, UP0 to UP6, UPT.
#pragma once

#include "engine.hpp"

#include <atomic>
#include <utility>
#include <vector>

namespace engine::sass {

constexpr i32 UNIFORM = 256, CONSTANTS = 320, PREDICATES = 16, BARRIERS = 16;

// The structures below have the same fields as those of cudabench/simulator/machine_code/layout.py.

struct Source {
    i32 place;
    // the operand is ((word & keep) ^ flip) + plus; of a 64-bit operand, only the upper word is changed
    u32 keep, flip, plus;
    i32 half; // which 16-bit floats of the register are used: 0: both; 1: the lower one twice; 2: the upper one twice
};

struct Condition {
    i32 predicate;
    u32 flip;
};

// When a warp may issue an instruction, and the next one: cudabench/compile/schedule.py.
struct Schedule {
    i32 stall;   // clocks until the next instruction
    i32 waits;   // a bit for each counter that must be zero
    i32 sets;    // the counter that tells when the result is there; -1: none
    i32 delayed; // the clocks until the result; 0: it is a load, whose time depends on the card
};

struct Instruction {
    i32 code; // index of the operation
    Condition guard;
    i32 into; // the register that is written; -1: none
    i32 into_predicate[2];
    i32 uniform; // whether it is executed once for the whole warp, on uniform registers
    i32 flags;   // for floats: rounding mode and treatment of denormals, as in lanes.hpp
    i32 mode[4];
    i32 target;  // for a branch: the index of the instruction to jump to
    i32 size;    // for a memory instruction: bytes that each lane accesses
    i32 address; // the register of the address; -1: none
    i32 beside;  // the uniform register that is added to the address; -1: none
    i32 offset;
    i32 wide;  // how many bits of the address are in the register `address`: 32 or 64
    i32 scale; // how many bits this register is shifted to the left
    Source sources[4];
    Condition conditions[3];
    Schedule schedule;
};

struct Counted {
    // requests: executions in which the guard of at least one lane holds; pieces: their sectors or wavefronts
    i64 warps, lanes, requests, pieces;
};

// Clocks on a path through the code, apart from the waits for loads, and how many loads of each kind are waited for.
// The time of a load depends on the card, so that only its count is known here.
enum LoadKind : i32 { NEAR, SMALL, SHARED_BY_BLOCKS, FAR, LOAD_KINDS };
// About the clocks of each kind, to decide which of two paths is longer.
constexpr i64 USUAL[LOAD_KINDS] = {30, 200, 200, 500};
struct Clocks {
    i64 fixed, loads[LOAD_KINDS];
    i64 usual() const {
        i64 sum = fixed;
        for (int kind = 0; kind < LOAD_KINDS; kind++)
            sum += loads[kind] * USUAL[kind];
        return sum;
    }
};
// The clocks of blocks: their sum, and those of the longest. A block takes as long as its longest warp.
struct BlockClocks {
    Clocks sum, longest;
};

// An aligned word of 8 bytes of an array that the launch has changed, and its value before.
struct Change {
    i64 region, word;
    u64 old;
};

struct MachineLaunch {
    const Instruction *code;
    const u32 *constants;
    const u8 *banks[6];
    const Region *regions;
    Counted *counts; // one entry for each instruction
    i64 code_count, constants_count, bank_sizes[6], regions_count;
    i64 grid[3], block[3];
    i64 shared_size, local_size;
    i64 budget; // the most warp instructions that the launch may run
    // the caller's counters: how often lanes diverged at a jump by table, and how often groups of different sizes met
    // at a WARPSYNC.EXCLUSIVE
    i64 *unsettled;
    i64 threads; // the most threads of the host that run blocks
    BlockClocks *clocks;
    const i32 *kinds;  // for each region, the LoadKind of a load that no earlier access of the block has fetched
    const i64 *blocks; // the numbers of the blocks to run; in the numbering, x grows first
    i64 blocks_count;
    // room for the words of arrays that the launch changes, in the order of its stores; null: they are not recorded
    Change *changes;
    i64 changes_size; // how many there is room for: the launch fails if it changes more
    i64 *changes_count;
};

// Lanes of a warp that are at the same instruction.
struct Path {
    i32 at;
    u32 mask;
    bool joined = false; // whether lanes that had waited at this instruction have joined this path
};

enum WaitKind : i32 { CONVERGENCE, WARP, BLOCK };
struct Wait {
    WaitKind kind;
    i32 barrier; // for CONVERGENCE: the barrier's register; for BLOCK: the barrier's number
    u32 members; // for WARP: the lanes that wait for each other; for BLOCK: how many threads wait, 0: all
    u32 mask;
    i32 at; // the instruction at which they wait
};

struct Warp {
    alignas(64) u32 registers[CONSTANTS][LANES];
    alignas(64) u32 thread[3][LANES]; // threadIdx
    u32 predicates[PREDICATES];
    const u32 (*constants)[LANES];
    u32 barriers[BARRIERS];
    u32 living;
    i32 number;
    Clocks clocks;     // of the instructions so far
    Clocks ready[6];   // for each counter, when it is zero again
    i64 now, until[6]; // `usual()` of these
    std::vector<Path> freed, others;
    Path remembered;
    std::vector<Wait> waits;
    std::vector<u8> local;

    const u32 *at(i32 place) const { return place < CONSTANTS ? registers[place] : constants[place - CONSTANTS]; }
    u32 holds(const Condition &c) const { return predicates[c.predicate] ^ c.flip; }
};

// An operation that uses only registers, not memory.
struct Operation {
    const char *name;
    void (*run)(Warp &, const Instruction &, u32 mask);
};
struct Table {
    const Operation *first;
    size_t count;
};

class Machine;
// An operation on memory. It returns false if the launch may not access one of the addresses.
struct MemoryOperation {
    const char *name;
    bool (*run)(Machine &, Warp &, const Instruction &, u32 mask, i64 &pieces);
};
struct MemoryTable {
    const MemoryOperation *first;
    size_t count;
};

// The last request of a memory instruction: its addresses relative to its first lane, and its cost. At first all fields
// are zero.
struct CachedCost {
    i64 steps[LANES], phase, pieces;
    u32 mask;
};

// State that the threads of the host share. Each thread takes its next block from here.
struct Progress {
    std::atomic<i64> next{0}, instructions{0};
    std::atomic<i64> failed{INT64_MAX}; // the position of the first block that could not be run
};

// Runs blocks of threads, one after the other.
class Machine {
  public:
    explicit Machine(const MachineLaunch &launch);
    ~Machine();
    void run(Progress &progress);
    void add_counts() const;
    const MachineLaunch &launch;
    const char *why = "";
    i64 failed = INT64_MAX;
    std::vector<u8> shared;
    std::vector<CachedCost> cached_costs; // one entry for each instruction
    // Note an access to sectors of a region. Return its LoadKind.
    i32 touch(const Warp &warp, i64 region, const i64 *addresses, u32 mask, i64 size);
    // Record the words that lanes are about to change. Return false if there is no room.
    bool keep(i64 region, const i64 *addresses, u32 mask, i64 size) const;
    i32 fetched = NEAR; // the LoadKind of the memory instruction that runs

  private:
    bool run_block();
    void start(Warp &warp, i64 threads);
    bool run_warp(Warp &warp);
    bool next(Warp &warp, Path &path);
    bool follow(Warp &warp, Path path);
    bool control(Warp &warp, const Instruction &instruction, Path &path, u32 mask);
    void branch(Warp &warp, i32 target, u32 taken, Path &path, i32 following);
    void scatter(Warp &warp, const u32 *addresses, i32 offset, Path &path, u32 mask);
    void release(Warp &warp, bool again);
    void issue(i32 at, u32 mask);
    void wait(Warp &warp, const Schedule &schedule) const;
    void pass(Warp &warp, const Schedule &schedule, bool active) const;
    void end_block(size_t warps);
    bool fails(const char *reason);
    void special(Warp &warp, const Instruction &instruction, u32 mask);
    bool all_wait(size_t warps);
    void open(i32 barrier);
    bool arrive(Warp &warp, const Instruction &instruction, Path &path, u32 mask);

    size_t simple_count; // how many operations use only registers
    MemoryTable memory;
    // for each instruction, its operation; null if it does not use only registers
    std::vector<const Operation *> simple;
    std::vector<u32> constants;
    std::vector<Warp *> warps;
    std::vector<Counted> counts;
    i64 index[3] = {}, left = 0, tables = 0, groups = 0;
    // For BAR.RED: how many lanes have a true predicate; how many lanes have arrived; the results of POPC, AND and OR.
    BlockClocks clocks{};
    // For each region and sector, when the block first accessed it, plus 1; 0: not yet.
    std::vector<std::vector<u32>> touched;
    std::vector<std::pair<i64, i64>> to_clear; // (region, sector) of those that are not 0
    i64 early = 0;                             // how many accesses came earlier than one that was charged
    i64 set = 0, reducing = 0, reduced[3] = {};
    u32 arrived[16] = {}; // for each barrier with a number of threads: how many have arrived
    bool opened = false;  // whether such a barrier opened since the warps last had their turns
};

} // namespace engine::sass
