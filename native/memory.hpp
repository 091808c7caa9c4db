// State of memory accesses: the old contents of written pages, address patterns, asynchronous copies.
#pragma once

#include "engine.hpp"

#include <cstdlib>
#include <memory>

namespace engine {

// Keeps the pages of arrays as they were before the launch first wrote to them, so that they can be restored.
class Undo {
  public:
    ~Undo();
    void start(const Launch &launch);
    // Keep the pages of a region from byte `low` to byte `high`. Several workers may call this at the same time.
    void keep(const Launch &launch, i32 region, i64 low, i64 high);
    // Keep the pages that lanes write; lane k is at first + places[k]. low, high: the lowest and the highest of
    // `places`.
    void keep(const Launch &launch, i32 region, i64 first, const i64 *places, i64 low, i64 high, i64 size);
    void restore(const Launch &launch);

  private:
    static constexpr i64 PAGE = 512;
    static constexpr u32 FILLED = 2, KEPT = FILLED + 256;
    // The state of a page: 0: not written; 1: being copied; FILLED + b: all its bytes were b; KEPT + n: it is copy n.
    using State = std::atomic<u32>;
    template <class T> static T *allocated(std::atomic<T *> &place, size_t elements);
    static bool is_filled(const u8 *page);
    u8 *copy(u32 number);
    std::unique_ptr<std::atomic<State *>[]> regions; // for each region the states of its pages; null if not written
    size_t count = 0;
    std::atomic<u32> kept{0};
    std::atomic<u8 *> chunks[32]{}; // of copies
};

// The address pattern of the last warp that executed an instruction, because most warps have the same one. Before the
// first warp it is all zeros.
struct Pattern {
    u32 mask;
    bool straight;        // whether all lanes are active, and all neighbouring lanes have the same distance
    bool apart;           // whether the words of all lanes are in different banks
    u32 rows;             // bits: the groups of eight lanes that are all active and have the stride
    u32 behind, together; // the lanes whose next lane accesses the element after theirs; the same element
    i64 stride;
    i64 low, high, bits;         // the lowest step, the highest step, all steps ORed
    i64 steps[LANES], on[LANES]; // distance from the first active lane (inactive: 0); -1 for active lanes, else 0
    u32 known;                   // which of `costs` are set
    struct {
        u32 pieces, ideal;
    } costs[32]; // by the position of the first lane's byte in its sector
};

// Asynchronous copies to a block's shared memory that have not ended. The data is copied at once, but the block must
// not access it until it waits for the copy's group; then it counts as written.
class Flying {
  public:
    void start(); // begin with a new block
    bool touches(const Request &request) const;
    void add(const Op &op, const Request &request);
    // Close the current groups of warps; and wait for all groups of a warp except the latest ones.
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
    std::vector<bool> words; // the words of shared memory that unfinished copies write

    void mark(const Copy &copy, bool under_way);
};

} // namespace engine
