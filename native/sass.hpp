// Decoded machine code, and the warps that run it. The decoder is cudabench/simulator/machine_code/decode.py.
//
// A warp runs alone until its lanes wait at a barrier of the block. Its registers are stored register by register, with
// 32 lanes each: 0 to 254 are R0 to R254; 256 to 318 are the uniform registers, whose lanes are all equal; from
// CONSTANTS on follow values from constant banks and immediate values. A predicate is one word for each warp: P0 to P6,
// PT, UP0 to UP6, UPT.
#pragma once

#include "engine.hpp"

#include <atomic>

namespace engine::sass {

constexpr i32 UNIFORM = 256, CONSTANTS = 320, PREDICATES = 16, BARRIERS = 16;

// The structures below are those of cudabench/simulator/machine_code/layout.py, field by field.

struct Source {
    i32 place;
    u32 keep, flip, plus; // the operand is ((word & keep) ^ flip) + plus; with 64 bits, only the upper word is changed
    i32 half;             // which 16-bit floats are used: 0 both, 1 the lower one twice, 2 the upper one twice
};

struct Condition {
    i32 predicate;
    u32 flip;
};

struct Instruction {
    i32 code; // index of the operation
    Condition guard;
    i32 into; // register that is written, -1 for none
    i32 into_predicate[2];
    i32 uniform; // whether it is executed once for the whole warp
    i32 flags;   // for floats: rounding and denormals, as in lanes.hpp
    i32 mode[4];
    i32 target;  // for a branch: the number of the instruction to jump to
    i32 size;    // for a memory instruction: bytes of a lane
    i32 address; // register, -1 for none
    i32 beside;  // uniform register that is added, -1 for none
    i32 offset;
    i32 wide;  // bits of the address that are read from `address`: 32 or 64
    i32 scale; // bits to shift it left
    Source sources[4];
    Condition conditions[3];
};

struct Counted {
    i64 warps, lanes, requests,
        pieces; // requests: executions with a lane whose guard holds; pieces: their sectors or wavefronts
};

struct MachineLaunch {
    const Instruction *code;
    const u32 *constants;
    const u8 *banks[6];
    const Region *regions;
    Counted *counts; // by instruction
    i64 code_count, constants_count, bank_sizes[6], regions_count;
    i64 grid[3], block[3];
    i64 shared_size, local_size;
    i64 budget;        // most warp instructions
    i64 *tables;       // how often lanes diverged at a jump by table
    i64 threads;       // most threads of the host
    const i64 *blocks; // the numbers of the blocks to run, x first
    i64 blocks_count;
};

// Lanes of a warp that are at the same instruction.
struct Path {
    i32 at;
    u32 mask;
    bool met = false; // whether lanes that had waited at this instruction joined them
};

enum WaitKind : i32 { CONVERGENCE, WARP, BLOCK };
struct Wait {
    WaitKind kind;
    i32 barrier; // register of CONVERGENCE
    u32 members; // of WARP
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
    std::vector<Path> freed, others;
    Path remembered;
    std::vector<Wait> waits;
    std::vector<u8> local;

    const u32 *at(i32 place) const { return place < CONSTANTS ? registers[place] : constants[place - CONSTANTS]; }
    u32 holds(const Condition &c) const { return predicates[c.predicate] ^ c.flip; }
};

// An operation on registers alone.
struct Operation {
    const char *name;
    void (*run)(Warp &, const Instruction &, u32 mask);
};
struct Table {
    const Operation *first;
    size_t count;
};

class Machine;
// An operation on memory; returns false if the launch may not access an address.
struct MemoryOperation {
    const char *name;
    bool (*run)(Machine &, Warp &, const Instruction &, u32 mask, i64 &pieces);
};
struct MemoryTable {
    const MemoryOperation *first;
    size_t count;
};

// The address pattern of the last request of a memory instruction, relative to its first lane, and its cost; all zeros
// at first.
struct Priced {
    i64 steps[LANES], phase, pieces;
    u32 mask;
};

// State that the threads of the host share; each thread takes the next block from it.
struct Progress {
    std::atomic<i64> next{0}, instructions{0};
    std::atomic<i64> failed{INT64_MAX}; // the place of the first block that could not be run
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
    std::vector<Priced> priced; // by instruction

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
    bool fails(const char *reason);
    void special(Warp &warp, const Instruction &instruction, u32 mask);
    bool open_barrier(size_t warps);

    size_t simple_count; // number of operations on registers alone
    MemoryTable memory;
    std::vector<const Operation *> simple; // by instruction; null where it is not one
    std::vector<u32> constants;
    std::vector<Warp *> warps;
    std::vector<Counted> counts;
    i64 index[3] = {}, left = 0, tables = 0;
    // For BAR.RED: lanes whose predicate holds; lanes that arrived; the results of POPC, AND and OR.
    i64 set = 0, reducing = 0, reduced[3] = {};
};

} // namespace engine::sass
