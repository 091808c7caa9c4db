// Memory of all spaces: bounds, alignment, loads and stores; what was written can be undone.
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
    // Keep the pages of a region from one byte to another, counted from its start; several workers may.
    void keep(const Launch &launch, i32 region, i64 low, i64 high);
    // Keep those of lanes at some places from a first one on; low, high: the least and the greatest place.
    void keep(const Launch &launch, i32 region, i64 first, const i64 *places, i64 low, i64 high, i64 size);
    void restore(const Launch &launch);

  private:
    static constexpr i64 PAGE = 512;
    static constexpr u32 FILLED = 2, KEPT = FILLED + 256;
    // Of a page: 0 untouched, 1 being looked at, FILLED + the byte that it is full of, KEPT + the number of its copy.
    using State = std::atomic<u32>;
    template <class T> static T *made(std::atomic<T *> &place, size_t many);
    static bool is_filled(const u8 *page);
    u8 *copy(u32 number);
    std::unique_ptr<std::atomic<State *>[]> regions; // the states of their pages, null where nobody wrote
    size_t count = 0;
    std::atomic<u32> kept{0};
    std::atomic<u8 *> chunks[32]{}; // of copies
};

// Where the lanes of a warp went by an instruction: most warps go there in the same form again. All zeros before the
// first one.
struct Pattern {
    u32 mask;
    bool straight;        // a full warp of one stride
    bool apart;           // each lane's word is in a bank of its own
    u32 rows;             // bits: which eights of lanes are all active and have the stride
    u32 behind, together; // lanes of which the next one goes to the place behind theirs, or to theirs
    i64 stride;
    i64 low, high, bits;         // of the steps: the least, the greatest, all of their bits
    i64 steps[LANES], on[LANES]; // from the first active lane, 0 where a lane is not active; -1 where it is
    u32 known;                   // of `costs`
    struct {
        u32 pieces, ideal;
    } costs[32]; // by the byte of its sector at which the first lane is
};

// Asynchronous copies to a block's shared memory. They are carried out at once; until their group has been waited for,
// nobody is to touch what they write, and only then they have been written.
class Flying {
  public:
    void start(); // a block
    bool touches(const Request &request) const;
    void add(const Op &op, const Request &request);
    // Close the groups of warps; wait for all groups but the latest ones.
    void commit(const Block &block, const Op &op);
    void wait(const Block &block, const Op &op, i64 but);

    // Where the lanes of a warp read that copy: what `copy.fetch` found for `copy.keep`.
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
    std::vector<bool> words; // of shared memory, that are written to

    void mark(const Copy &copy, bool under_way);
};

} // namespace engine
