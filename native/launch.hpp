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

// AGAIN: the launch must run again without `deferred`.
enum Status : i32 { FINISHED, GOES_ON, SUSPECT, AGAIN };

// A launch: a copy of its description, and the state that all workers share.
struct Launch {
    LaunchDescription about;
    std::vector<Op> ops;
    std::vector<Run> runs; // for each op, the function that runs it
    std::vector<CodeBlock> blocks;
    std::vector<i32> by_rank; // the basic blocks, sorted by rank
    std::vector<i32> tables;
    std::vector<Access> accesses;
    std::vector<Register> registers;
    std::vector<Region> regions;
    std::vector<u8> parameters;
    std::vector<i64> order, chunks;
    std::vector<i64> per_block; // for the footprint: how many instructions each block ran, by its position in the order
    std::vector<i32> shared_starts;
    std::vector<u8> followed, sampled;
    int threads, warps; // sizes of a block that is padded to whole warps
    i64 places;         // for how many arrays an instruction has separate counts
    std::vector<u32> root;

    std::atomic<i64> next{0}, done{0};
    std::atomic<bool> suspected{false}, again{false};
    std::atomic<const char *> why{nullptr};
    std::atomic<i32> suspect_line{0};
    Undo undo;
    Shadows shadows;
    FirstAccesses first_accesses;
    std::vector<std::unique_ptr<Worker>> workers;
    std::vector<PatternExample> examples; // of the sampled blocks; empty until the caller asks for them
    std::vector<PatternCounts> pattern_counts;

    explicit Launch(const LaunchDescription &description);
    ~Launch();
    // Run for some seconds, or until the launch ends. threads: the most threads of the host that run blocks.
    Status advance(double seconds, i64 threads);
    void suspect(const char *reason, i32 line);
    Status ended();
    void run_again(); // stop the launch, so that it runs again without `deferred`
};

// Runs blocks one after another, on one thread of the host. When `run` returns because its time is over, a block may be
// unfinished; the next call continues it.
struct Worker {
    Launch &launch;
    int number;
    Block block;
    std::vector<u8> frame, shared, local;
    std::vector<u8 *> registers;
    std::vector<u32> exited, active, guarded;
    // for each rank and warp, the lanes that can run there, and the lanes that wait there
    std::vector<u32> ready, waiting;
    // bit sets: the ranks at which lanes can run, and those at which lanes wait
    std::vector<u64> ready_ranks, waiting_ranks;
    std::vector<u32> parked;             // for each warp, the lanes that wait at a barrier
    i32 parked_at = -1, lanes_ready = 0; // parked_at: the basic block that ends with this barrier
    bool running = false;
    i64 instructions = 0, steps = 0;
    std::vector<Executed> executed;
    std::vector<i64> shares; // how often each basic block ran, for each position in the order of the blocks
    Counters counters;
    Races races;
    Footprints footprints;
    PendingCopies pending_copies;
    Atomics atomics;
    std::unique_ptr<Pattern[], void (*)(void *)> patterns; // the latest patterns of each memory instruction

    Worker(Launch &launch, int number);
    // Run until the time `end`, or until all blocks have run. Return true if some blocks have not finished.
    bool run(Clock::time_point end);

  private:
    bool run_blocks(Clock::time_point end);
    void start();
    bool step(); // returns false if the block has ended, or if the launch is suspected of a hazard
    bool release();
    void execute(const CodeBlock &code, i32 number, const u32 *mask);
    bool members_missing(const CodeBlock &code, const u32 *mask);
    void arrive(i32 number, const u32 *mask);
    void fill_special(const Register &about, i32 index, bool first);
};

} // namespace engine
