// A launch, and the workers that run its blocks.
#pragma once

#include "atomics.hpp"
#include "counts.hpp"
#include "engine.hpp"
#include "footprint.hpp"
#include "memory.hpp"
#include "races.hpp"

#include <chrono>
#include <map>
#include <memory>
#include <string>

namespace engine {

using Clock = std::chrono::steady_clock;

enum Status : i32 { FINISHED, GOES_ON, SUSPECT };

// A launch: a copy of its description, and the state that all workers share.
struct Launch {
    LaunchDescription about;
    std::vector<Op> ops;
    std::vector<Run> runs; // by op
    std::vector<CodeBlock> blocks;
    std::vector<i32> by_rank; // blocks
    std::vector<i32> tables;
    std::vector<Access> accesses;
    std::vector<Register> registers;
    std::vector<Region> regions;
    std::vector<u8> parameters;
    std::vector<i64> order, chunks;
    std::vector<i64> per_block; // instructions by position of the block in the order, for the footprint
    std::vector<i32> shared_starts;
    std::vector<u8> followed, sampled;
    int threads, warps; // of a block, padded to whole warps
    i64 places;         // number of arrays for which an instruction has separate counts
    std::vector<u32> root;

    std::atomic<i64> next{0}, done{0};
    std::atomic<bool> suspected{false};
    std::atomic<const char *> why{nullptr};
    std::atomic<i32> suspect_line{0};
    Undo undo;
    Shadows shadows;
    Marks marks;
    std::vector<std::unique_ptr<Worker>> workers;
    std::vector<Look> looks; // of the sampled blocks, once requested
    std::vector<Turn> turns;

    explicit Launch(const LaunchDescription &description);
    ~Launch();
    Status advance(double seconds);
    void suspect(const char *reason, i32 line);
};

// Runs blocks one after another, on one thread of the host; a block may be unfinished between two calls of `run`.
struct Worker {
    Launch &launch;
    int number;
    Block block;
    std::vector<u8> frame, shared, local;
    std::vector<u8 *> registers;
    std::vector<u32> exited, active, guarded;
    std::vector<u32> ready, waiting;             // by rank and warp
    std::vector<u64> ready_ranks, waiting_ranks; // bits
    std::vector<u32> parked;                     // lanes at barriers, by warp
    i32 parked_at = -1, lanes_ready = 0;         // code block of the barrier
    bool running = false;
    i64 instructions = 0, steps = 0;
    std::vector<Executed> executed;
    std::vector<i64> shares; // executions by basic block and position of the block in the order
    Counters counters;
    Races races;
    Footprints footprints;
    Flying flying;
    Atomics atomics;
    std::unique_ptr<Pattern[], void (*)(void *)> patterns; // by access

    Worker(Launch &launch, int number);
    // Run until the time `end` or until all blocks have run; return whether some blocks have not run completely.
    bool run(Clock::time_point end);

  private:
    bool run_blocks(Clock::time_point end);
    void start();
    bool step(); // returns false if the block has ended, or if the launch is suspected
    bool release();
    void execute(const CodeBlock &code, i32 number, const u32 *mask);
    bool members_missing(const CodeBlock &code, const u32 *mask);
    void arrive(i32 number, const u32 *mask);
    void fill_special(const Register &about, i32 index, bool first);
};

} // namespace engine
