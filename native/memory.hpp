// State of memory accesses: the undo of writes, address patterns, asynchronous copies.
#pragma once

#include "engine.hpp"

#include <cstdlib>
#include <memory>

namespace engine {

// The pages of the arrays as they were before the launch first wrote to them.
class Undo {
  public:
    ~Undo();
    void start(const Launch &launch);
    // Keep the pages of a region from one byte to another, counted from its start; several workers may do so at once.
    void keep(const Launch &launch, i32 region, i64 low, i64 high);
    // Keep the pages of lanes at `places` behind `first`; low, high: the least and the greatest place.
    void keep(const Launch &launch, i32 region, i64 first, const i64 *places, i64 low, i64 high, i64 size);
    void restore(const Launch &launch);

  private:
    static constexpr i64 PAGE = 512;
    static constexpr u32 FILLED = 2, KEPT = FILLED + 256;
    // Of a page: 0 untouched, 1 being copied, FILLED + the byte that it is full of, KEPT + the number of its copy.
    using State = std::atomic<u32>;
    template <class T> static T *allocated(std::atomic<T *> &place, size_t elements);
    static bool is_filled(const u8 *page);
    u8 *copy(u32 number);
    std::unique_ptr<std::atomic<State *>[]> regions; // the states of their pages; null: not written
    size_t count = 0;
    std::atomic<u32> kept{0};
    std::atomic<u8 *> chunks[32]{}; // of copies
};

// The last address pattern of an instruction: most warps repeat it. All zeros before the first warp.
struct Pattern {
    u32 mask;
    bool straight;        // a full warp of one stride
    bool apart;           // each lane's word is in a bank of its own
    u32 rows;             // bits: the groups of eight lanes that are all active and have the stride
    u32 behind, together; // lanes whose next lane accesses the place behind theirs, or the same place
    i64 stride;
    i64 low, high, bits;         // of the steps: the least, the greatest, all of their bits
    i64 steps[LANES], on[LANES]; // from the first active lane, 0 for inactive lanes; -1 for active lanes
    u32 known;                   // of `costs`
    struct {
        u32 pieces, ideal;
    } costs[32]; // by the first lane's byte in its sector
};

// Asynchronous copies to a block's shared memory. The data is copied at once, but must not be accessed until a wait
// for the copy's group, at which it counts as written.
class Flying {
  public:
    void start(); // a block
    bool touches(const Request &request) const;
    void add(const Op &op, const Request &request);
    // Close the groups of warps; wait for all groups but the latest ones.
    void commit(const Block &block, const Op &op);
    void wait(const Block &block, const Op &op, i64 latest);

    // The source addresses of a warp's copy, which `copy.fetch` passes to `copy.keep`.
    struct Source {
        u32 mask;
        i64 row; // of the counts
        i64 addresses[LANES];
    };
    std::vector<Source> sources; // by warp

  private:
    struct Copy {
        const Op *op;
        const Access *access;
        int warp;
        u32 mask;
        i64 addresses[LANES];
        i64 groups; // closed since
    };
    std::vector<Copy> copies;
    std::vector<bool> words; // of shared memory that copies under way write

    void mark(const Copy &copy, bool under_way);
};

} // namespace engine
