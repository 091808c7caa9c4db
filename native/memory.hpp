// State of memory accesses: the old contents of written pages, address patterns, and unfinished asynchronous copies.
#pragma once

#include "engine.hpp"

#include <cstdlib>
#include <memory>

namespace engine {

// Keeps copies of the pages of arrays from before the launch first wrote to them, so that memory can be restored.
class Undo {
  public:
    ~Undo();
    void start(const Launch &launch);
    // Save the pages that the lanes of a warp write. Lane k writes at first + places[k]. low, high: the lowest and the
    // highest value of `places`. Several workers may call this at the same time.
    void keep(const Launch &launch, i32 region, i64 first, const i64 *places, i64 low, i64 high, i64 size);
    void restore(const Launch &launch);

  private:
    // The pages of a launch are so large that its largest array has about MOST_PAGES, because their states should stay
    // in the processor's cache. Small pages take less copying where few bytes are written.
    static constexpr int LEAST_PAGE_BITS = 9, MOST_PAGE_BITS = 13;
    static constexpr i64 MOST_PAGES = 8192;
    static constexpr u32 FILLED = 2, KEPT = FILLED + 256;
    // The state of a page. 0: not written; 1: a worker is saving it; FILLED + b: all its bytes had the value b; KEPT +
    // n: it was saved as copy n.
    using State = std::atomic<u32>;
    template <class T> static T *allocated(std::atomic<T *> &place, size_t elements);
    bool is_filled(const u8 *page) const;
    void save(const Region &array, i64 page, State &state);
    u8 *copy(u32 number);
    // for each region, the states of its pages; null if the region was not written
    std::unique_ptr<std::atomic<State *>[]> regions;
    size_t count = 0;
    int page_bits = LEAST_PAGE_BITS; // a page has 2^page_bits bytes
    std::atomic<u32> kept{0};
    std::atomic<u8 *> chunks[32]{}; // memory for the saved pages
};

constexpr int PATTERNS = 8; // how many address patterns are kept for each memory instruction

// The address pattern of a warp that executed an instruction. It is kept because most warps have the same
// pattern as the warp before, or as the same warp of the block before. Before the first warp it is all zeros.
struct Pattern {
    u32 mask;
    bool straight;       // whether all lanes are active, and the address grows by `stride` from each lane to the next
    bool distinct_banks; // whether the words of all lanes are in different banks
    u32 rows;            // bit k is set if the eight lanes of group k are all active and have this stride
    // contiguous: the lanes whose next lane accesses the next element; same_element: those whose next lane accesses the
    // same element
    u32 contiguous, same_element;
    i64 stride;
    i64 low, high, bits; // the lowest step, the highest step, and the OR of all steps
    // steps: distance from the first active lane's address (0 for inactive lanes); on: -1 for active lanes, 0 for
    // others
    i64 steps[LANES], on[LANES];
    u64 hash;        // see hash_of()
    u32 known_costs; // bit k is set if costs[k] is known
    struct {
        u32 pieces, ideal;
    } costs[32]; // indexed by the position of the first lane's first byte in its sector
};

// Asynchronous copies to a block's shared memory that are not complete. The engine copies the data at once, but the
// block must not access it until it waits for the group of the copy. Only then does the data count as written.
class PendingCopies {
  public:
    void start(); // forget the copies of the block before
    bool touches(const Request &request) const;
    void add(const Op &op, const Request &request);
    // commit: close the current copy group of each active warp. wait: wait for all groups of each active warp except
    // the latest ones.
    void commit(const Block &block, const Op &op);
    void wait(const Block &block, const Op &op, i64 latest);

    // The source addresses of a warp's copy, which the operation `copy.fetch` passes to `copy.keep`.
    struct Source {
        u32 mask;
        i64 row; // the row of the counts to which the copy is added
        i64 addresses[LANES];
    };
    std::vector<Source> sources; // for each warp

  private:
    struct Copy {
        const Op *op;
        const Access *access;
        int warp;
        u32 mask;
        i64 addresses[LANES];
        i64 groups; // how many groups the warp has closed since this copy
    };
    std::vector<Copy> copies;
    std::vector<bool> words; // for each word of shared memory, whether an unfinished copy writes it

    void mark(const Copy &copy, bool under_way);
};

} // namespace engine
