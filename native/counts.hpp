// Counts of memory requests: sectors, wavefronts, and the address patterns of some warps. The rules are those
// of cudabench/simulator/count/requests.py and banks.py.
#pragma once

#include "engine.hpp"

#include <unordered_map>

namespace engine {

// The cost of a request: its sectors or wavefronts, and the fewest that its distinct bytes could need.
struct Cost {
    i64 pieces, ideal;
};

// What a Look is: the addresses of one warp; one address that all warps of a block access; requests beyond MOST_LOOKS.
enum LookKind : i32 { WARP, ONE_PLACE, REST };

// An address pattern of one memory instruction: the LOOK of cudabench/simulator/native/layout.py.
struct Look {
    i32 number, region;
    u32 mask;             // the active lanes; for ONE_PLACE: the number of lanes of a warp
    i32 kind;             // LookKind
    i32 varies, reserved; // varies: whether other warps (for ONE_PLACE: other blocks) start elsewhere in their sector
    i64 addresses[LANES]; // the addresses of the first request with this pattern
};

// The counts of the executions of an instruction in one turn that have the same look: the TURN of layout.py.
struct Turn {
    i32 look;
    i32 turn; // how often the block ran the instruction on the array before; at most MOST_TURNS
    i64 requests, pieces, ideal;
};

// The addresses of a warp of the first block: the VISIT of layout.py.
struct Visit {
    i32 number, region;
    i32 warp, turn;
    u32 mask;
    i32 reserved;
    i64 addresses[LANES];
};

constexpr i32 MOST_TURNS = 64;

class Counters {
  public:
    explicit Counters(const Launch &launch);
    void start(const Block &block);
    // Count a request of lanes that are in bounds and aligned; return how many bytes of each lane are counted, 0 if
    // another access is counted in place of this one.
    i64 count(const Block &block, const Request &request);
    // Return the cost of a request for `size` bytes of each lane that start `shift` bytes after its addresses.
    Cost price(const Request &request, i64 size, i64 shift);
    bool looks() const { return sampled; } // whether address patterns of the current block are sampled
    bool looked_at() const;                // whether any block is sampled
    // Add a request whose cost is known, for bytes that start `shift` bytes after its addresses.
    void add(const Block &block, const Request &request, Cost cost, i64 reloads, i64 shift = 0);
    // Finish the last execution of an instruction by a sampled block.
    void finish();
    std::vector<Counts> rows; // by number and place

    // Samples of blocks, by the block's position in the order. first_only: the sample has only the first request of
    // each instruction, from the worker's first block that runs it.
    struct Row {
        std::vector<i32> looks;
        std::vector<Turn> turns;
        i32 count = 0; // of turns
    };
    struct Sample {
        i64 place;
        bool first_only;
        std::vector<Look> looks;
        std::unordered_map<u64, Row> by_row;
    };
    std::vector<Sample> samples;
    std::vector<Visit> visits;

  private:
    // The last request of an instruction, kept because a request with the same pattern costs the same.
    struct Memory {
        u32 mask = 0;
        i32 size = 0, phase = 0; // bytes; of the first lane in a line
        bool straight = false;
        i64 stride = 0;
        Cost cost{};
        i32 look = -1;
        i64 steps[LANES] = {}; // from the first lane
    };
    struct Pending {
        i64 row;
        i64 first; // address
        Cost cost;
        u32 mask;
        i32 look;
        bool one_place;
    };
    i32 look_of(const Request &request, i64 row, i64 shift);
    i32 one_place(const Look &example, i64 row, u32 lanes);
    void sample(const Request &request, i64 row, i64 shift, Cost cost);
    void close(const Pending *first, const Pending *end);
    void visit(const Request &request, i64 row, i64 shift);

    const Launch &launch;
    std::vector<Memory> memories; // by number
    bool sampled = false;
    std::vector<Pending> pending; // of the current execution
    i32 pending_number = -1, pending_warp = -1;
    std::unordered_map<u64, std::vector<i32>> turns; // for the first block: turns by row, then by warp
};

// Return the sectors of 32 bytes that the active lanes touch; each lane accesses `size` bytes.
Cost sectors(const i64 *addresses, u32 mask, i64 size);
// Return the wavefronts of a request to shared memory; size: the bytes of a lane, at most 16.
Cost wavefronts(const i64 *addresses, u32 mask, i64 size, bool load);

} // namespace engine
