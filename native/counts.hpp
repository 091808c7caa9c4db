// Counts of memory requests: sectors, wavefronts, and the address patterns of some warps. The rules are the same as in
// cudabench/simulator/count/requests.py and banks.py.
#pragma once

#include "engine.hpp"

#include <unordered_map>

namespace engine {

// The cost of a request. pieces: its sectors or wavefronts; ideal: the lowest number that its distinct bytes could
// need.
struct Cost {
    i64 pieces, ideal;
};

// What a PatternExample describes. WARP: the addresses of one warp. ONE_PLACE: one address that all warps of a block
// access. REST: all requests beyond the limit MOST_PATTERNS.
enum ExampleKind : i32 { WARP, ONE_PLACE, REST };

// An address pattern of one memory instruction. The fields are those of PATTERN_EXAMPLE in
// cudabench/simulator/native/layout.py.
struct PatternExample {
    i32 number, region;
    u32 mask; // the active lanes; for ONE_PLACE: the mean number of active lanes in a warp
    i32 kind; // an ExampleKind
    // varies: whether the position in the sector differs for other warps (for ONE_PLACE: the address for other blocks)
    i32 varies, reserved;
    i64 addresses[LANES]; // the addresses of the first request with this pattern
};

// The counts of the requests that have one pattern in one execution of an instruction. The fields are those of
// PATTERN_COUNTS in layout.py.
struct PatternCounts {
    i32 pattern;
    i32 execution; // how often the block ran the instruction on this array before; at most MOST_EXECUTIONS
    i64 requests, pieces, ideal;
};

// The addresses of a warp of the first block. The fields are those of
// WARP_ADDRESSES in layout.py.
struct WarpAddresses {
    i32 number, region;
    i32 warp, execution;
    u32 mask;
    i32 reserved;
    i64 addresses[LANES];
};

constexpr i32 MOST_EXECUTIONS = 64;

class Counters {
  public:
    explicit Counters(const Launch &launch);
    void start(const Block &block);
    // Count a request whose lanes are in bounds and aligned. Return how many bytes of each lane are counted; 0 means
    // that another memory instruction is counted in place of this one.
    i64 count(const Block &block, const Request &request);
    // Return the cost of a request that reads or writes `size` bytes for each lane, `shift` bytes after the lane's
    // address.
    Cost cost_of(const Request &request, i64 size, i64 shift);
    bool sampling() const { return sampled; } // whether the address patterns of the current block are sampled
    bool any_sampled() const;                 // whether any block is sampled
    // Add a request whose cost is known. `shift` bytes are added to its addresses.
    void add(const Block &block, const Request &request, Cost cost, i64 reloads, i64 shift = 0);
    // Finish counting the last execution of an instruction by a sampled block.
    void finish();
    std::vector<Counts> rows; // indexed by the number of the memory instruction and by array

    // Samples of blocks, each with the position of its block in the order. first_only: the sample has only the first
    // request of each instruction, made by the worker's first block that runs this instruction.
    struct Row {
        std::vector<i32> examples;
        std::vector<PatternCounts> counts;
        i32 count = 0; // how often the instruction ran
    };
    struct Sample {
        i64 place;
        bool first_only;
        std::vector<PatternExample> examples;
        std::unordered_map<u64, Row> by_row;
    };
    std::vector<Sample> samples;
    std::vector<WarpAddresses> warp_addresses;

  private:
    // The last request of an instruction. It is kept because the next request with the same pattern has the same cost.
    struct LastRequest {
        u32 mask = 0;
        i32 size = 0, phase = 0; // size: bytes of a lane; phase: position of the first lane's address in a line
        bool straight = false;
        i64 stride = 0;
        Cost cost{};
        i32 pattern = -1;
        i64 steps[LANES] = {}; // distance of each lane's address from the first lane's
    };
    struct Pending {
        i64 row;
        i64 first; // the first lane's address
        Cost cost;
        u32 mask;
        i32 pattern;
        bool single_address;
    };
    i32 pattern_of(const Request &request, i64 row, i64 shift);
    i32 single_address(const PatternExample &example, i64 row, u32 lanes);
    void sample(const Request &request, i64 row, i64 shift, Cost cost);
    void add_execution(const Pending *first, const Pending *end);
    void record_addresses(const Request &request, i64 row, i64 shift);

    const Launch &launch;
    std::vector<LastRequest> last_requests; // indexed by the number of the memory instruction
    bool sampled = false;
    std::vector<Pending> pending; // the requests of the current execution of an instruction
    i32 pending_number = -1, pending_warp = -1;
    // for the first block: how many executions are recorded, by row, then by warp
    std::unordered_map<u64, std::vector<i32>> executions;
};

// Return how many sectors of 32 bytes the active lanes access; each lane accesses `size` bytes.
Cost sectors(const i64 *addresses, u32 mask, i64 size);
// Return how many wavefronts a request to shared memory needs. size: the bytes of a lane, at most 16.
Cost wavefronts(const i64 *addresses, u32 mask, i64 size, bool load);

} // namespace engine
