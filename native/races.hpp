// Detects launches that may have races or may read unwritten shared memory. It detects every launch that the NumPy
// engine reports, and perhaps some others. The rules are in cudabench/simulator/check/shadow.py (threads of a block)
// and grid_races.py (blocks).
//
// Each granule (a few bytes) of memory has two cells: one for its last store, one for its reads and atomic updates
// since that store. A cell has a time, flags, and the lowest and highest thread. The time of a worker grows with each
// memory instruction, barrier and synchronization of a warp. So a cell's time shows whether the access was before the
// block's start or before its last barrier, and the cells need not be cleared. Each worker has its own cells, which are
// compared at the end of the launch: if two workers accessed the same granule, two blocks did.
#pragma once

#include "block_log.hpp"
#include "cells.hpp"

#include <cstdlib>
#include <memory>

namespace engine {

// The part of race detection that all workers share.
class Shadows {
  public:
    bool between_blocks = false; // whether races between blocks are detected
    void start(const Launch &launch);
    // At the end of a launch, stop it if blocks that ran on different workers may have raced.
    void compare(Launch &launch) const;

  private:
    bool conflict(const Launch &launch) const;
};

// Memory for objects that begin as zeros. Each chunk has twice as many objects as the chunk before it, because a small
// launch needs few.
template <class T> class Pool {
  public:
    T *next() {
        constexpr size_t FIRST = 8;
        const size_t chunk = size_t(63 - __builtin_clzll(taken / FIRST + 1)), capacity = FIRST << chunk;
        if (chunk == chunks.size()) {
            chunks.emplace_back(static_cast<T *>(zeros(capacity * sizeof(T))), std::free);
        }
        return chunks[chunk].get() + (taken++ - (capacity - FIRST));
    }
    void reuse() { taken = 0; }

  private:
    std::vector<std::unique_ptr<T, void (*)(void *)>> chunks;
    size_t taken = 0;
};

class Races {
  public:
    Races(const Launch &launch, int worker);
    void start(const Block &block);
    // Record that all threads of the block passed a barrier.
    void barrier(const Block &block);
    // Record that lanes of a warp synchronized. The mask of each of these lanes must name all of them.
    void synchronize(const Block &block, int warp, u32 lanes);
    // Record a request to shared memory or to a watched region, before the request is performed. Its lanes are in
    // bounds. data: for a store, the values lane by lane, `access.size` bytes each.
    // With `deferred`, the addresses of a request that has a pattern need not be filled. first: the address of its
    // first active lane.
    void note(const Block &block, const Op &op, const Request &request, i64 first, const u8 *data);
    // The block has ended. With `deferred`, search its requests for races.
    void finish(const Block &block);
    const bool deferred;

  private:
    friend class Shadows;
    static constexpr int PAGE_BITS = 6, PAGE = 1 << PAGE_BITS; // the number of granules in a page
    struct Page {
        u64 stored[PAGE];
        u32 value[PAGE];
        u64 *used; // PAGE cells; `NEVER_USED` until the first read or atomic update
    };
    struct UsedCells {
        u64 cells[PAGE];
    };
    struct Pages {
        std::vector<Page *> by_number; // indexed by page number; null: no granule of this page was accessed
    };
    // Consecutive lanes that either all access the same element, or of which each lane accesses the element after that
    // of the lane before it.
    struct Run {
        i64 granule;
        int low, high;  // the first and the last thread
        bool one_place; // whether all lanes access the same element
    };

    const Launch &launch;
    const RowLoops &loops;
    u64 now, block_start, last_barrier; // the times of the last event, of the block's start, and of the last barrier
    const Op *latest = nullptr;
    int latest_warp = 0;
    bool between_blocks; // whether the cells detect races between blocks
    const u32 *exited = nullptr;
    std::vector<u64> warp_synchronized; // for each warp, the last time at which all of its lanes synchronized
    std::vector<u64> part_synchronized; // for each warp, the last time at which some of its lanes synchronized
    std::vector<u32> part_lanes;        // for each warp, the lanes that synchronized last
    std::vector<u64> last_request;      // for each warp, the time of its last request
    // for each warp and two of its lanes, the last time at which these two synchronized; empty if no lanes ever did
    std::vector<u64> pairs;
    std::vector<u64> shared_stored, shared_used;
    std::vector<u32> shared_value;
    std::vector<Pages> regions;
    std::vector<std::pair<i32, i64>> touched; // (region, page number) of the pages that only the current block uses
    Pool<Page> pages;
    Pool<UsedCells> used_cells;
    // For deferred searches. by_value: whether a race of the current block was excluded because equal values were
    // stored.
    BlockLog log;
    Granules earlier; // what earlier blocks of this worker accessed
    bool by_value = false;

    void note_chosen(const Block &block, const Op &op, const Request &request, i64 first, const u8 *data);
    void examine(const Block &block, const Op &op, const Request &request, const u8 *data);
    void examine_log(const Block &block);
    void pass_barrier();
    void synchronize_warp(int warp);
    void compare_with_earlier(const Block &block);
    Page *page(i32 region, i64 number, bool stores);
    bool ordered(int thread, u64 cell) const;
    bool unordered(u64 cell, int low, int high) const;
    template <bool GLOBAL> const char *record(const Request &request, const u8 *data, const Run &run);
    template <bool GLOBAL> const char *record_scattered(const Request &request, i64 base, int shift, const u8 *data);
    template <bool GLOBAL>
    const char *record(const Access &access, const Cells &cells, const Row &row, const Run &run, const u8 *data);
    template <bool GLOBAL> const char *read(const Cells &cells, i64 at, int low, int high, bool updates);
    template <bool GLOBAL> const char *write(const Cells &cells, i64 at, int low, int high, bool uniform, u32 value);
};

} // namespace engine
