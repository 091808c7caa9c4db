// The memory that a launch touches. The numbers are the same as in cudabench/simulator/count/footprint.py.
#pragma once

#include "engine.hpp"

#include <memory>

namespace engine {

// The time of an access. 0 means never, and an earlier time is a greater number. Times are ordered as in the NumPy
// engine: first by chunk (a group of blocks that it runs in step), then by loop iteration, then by instruction. So the
// order in which this engine runs the blocks does not matter.
using Moment = u32;

// For each sector of each array: the time when the launch first read it and when it first wrote it. All workers share
// this record.
class FirstAccesses {
  public:
    ~FirstAccesses();
    void start(const Launch &launch);
    struct Sectors {
        Moment *first;
        i64 count;
        // All sectors out of bounds share the last entry; shifted addresses can lead to such sectors.
        Moment &operator[](i64 sector) const { return first[u64(sector) < u64(count) ? sector : count - 1]; }
    };
    // Return the times of the first reads of an array's sectors or, with `written`, of the first writes.
    Sectors sectors(i64 region, bool written);
    // Return how many distinct sectors are read before they are written or, with `written`, how many are written; -1
    // for none.
    i64 count(i32 region, bool written) const;
    Moment moment(i64 chunk, i64 iteration, i64 instruction) const;

    std::vector<i32> order;                  // for each memory instruction, its position in the program
    std::atomic<i64> last_logged{INT64_MAX}; // the last chunk whose requests for constants are logged

  private:
    struct Region {
        std::atomic<Moment *> first[2]{};
        i64 sectors = 0;
    };
    std::unique_ptr<Region[]> regions;
    i64 regions_count = 0;
    int instruction_bits = 0, iteration_bits = 0, chunk_bits = 0;
};

// Sums over the requests of the followed blocks, for one memory instruction and one array.
struct Sums {
    i64 requests, sectors, lines, quarter_cycles, partial, fresh, missing;
};

// A request in which lanes read constants at different addresses. lines: for each active lane, the 64-byte line that it
// reads.
struct ConstantRequest {
    i64 place;
    i32 step, warp;
    u32 mask;
    u16 lines[LANES];
    i32 reserved;
};

class Footprints {
  public:
    explicit Footprints(Launch &launch);
    void start(const Block &block);
    // Record a counted request to global or constant memory. Its lanes may access several arrays. size: bytes of a
    // lane.
    void note(const Block &block, const Request &request, i64 size) {
        if (enabled && request.space == GLOBAL)
            global(request, size);
        else if (enabled && request.space == CONSTANT)
            constant(block, request);
    }
    // End the last step in which the block read constants.
    void close();

    std::vector<Sums> sums; // indexed by the number of the memory instruction and by region
    std::vector<ConstantRequest> constants;
    i64 constant_requests = 0;
    bool single_worker = true; // whether no other worker runs blocks of the launch

  private:
    const Launch &launch;
    FirstAccesses &first_accesses;
    const bool enabled;
    bool followed = false;
    i64 chunk = -1, first_place = 0, stride = 1; // chunk: the chunk that contains the current block
    const Access *last = nullptr;
    i64 iteration = 0;
    Moment now = 0;
    // for each region two sets of bits: the sectors that the block has touched, and those that it has written
    std::vector<std::vector<u64>> touched;
    // These fields describe the current step, in which all warps run one instruction that reads constants.
    const Access *reads = nullptr;
    int warp = 0;
    i32 step = 0;
    bool differs = false;
    i64 address = 0, pending = 0;
    size_t kept = 0;

    void global(const Request &request, i64 size);
    void mark(const Request &request, bool written, i64 size);
    void follow(const Request &request, i64 size);
    std::vector<u64> &bits(i64 region, bool written);
    void constant(const Block &block, const Request &request);
};

} // namespace engine
