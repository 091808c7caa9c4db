// Detects launches that may have races or read unwritten shared memory: all launches that the NumPy engine reports, and
// perhaps others. The rules are in cudabench/simulator/check/shadow.py (threads of a block) and grid_races.py (blocks).
//
// Each granule (a few bytes) of memory has two cells: one for its last store, one for its reads and atomic updates
// since then. A cell has a time, flags, and the lowest and highest thread. The time of a worker grows with each memory
// instruction, barrier and synchronization of a warp. So a cell's time shows whether the access was before the block's
// start or its last barrier, and cells need not be cleared. Each worker has its own cells. They are compared at the end
// of the launch: if two workers accessed the same granule, two blocks did.
#pragma once

#include "cells.hpp"

#include <memory>

namespace engine {

// State that all workers share.
class Shadows {
  public:
    bool between_blocks = false; // whether races between blocks are detected
    void start(const Launch &launch);
    // Return whether blocks of different workers may have raced, at the end of a launch.
    bool conflict(const Launch &launch) const;
};

class Races {
  public:
    Races(const Launch &launch, int worker);
    void start(const Block &block);
    // Record that all threads of the block passed a barrier.
    void barrier(const Block &block);
    // Record that lanes of a warp synchronized; the mask of each of them names them all.
    void meet(const Block &block, int warp, u32 lanes);
    // Record a request to shared memory or to a watched region before it is performed; its lanes are in bounds. data:
    // for a store, the values by lane, `access.size` bytes each.
    void note(const Block &block, const Op &op, const Request &request, const u8 *data);

  private:
    friend class Shadows;
    static constexpr int PAGE_BITS = 6, PAGE = 1 << PAGE_BITS; // granules
    struct Page {
        u64 stored[PAGE], used[PAGE];
        u32 value[PAGE];
    };
    struct Pages {
        std::vector<Page *> by_number; // by page number; null: no granule of the page was accessed
    };
    // Consecutive lanes that all access the same element, or of which each accesses the element after the lane before.
    struct Run {
        i64 granule;
        int low, high;  // threads
        bool one_place; // whether all lanes access the same element
    };

    const Launch &launch;
    const RowLoops &loops;
    u64 now, began, met_all; // times: of the last event, of the block's start, of the last barrier
    const Op *latest = nullptr;
    int latest_warp = 0;
    bool between_blocks; // whether races between blocks are detected
    const u32 *exited = nullptr;
    std::vector<u64> met;     // by warp: the time at which all of its lanes synchronized last
    std::vector<u64> partly;  // by warp: the time at which some of its lanes synchronized last
    std::vector<u32> meeting; // by warp: the lanes that synchronized last
    std::vector<u64> noted;   // by warp: the time of its last request
    std::vector<u64> pairs;   // by warp and two lanes: the time at which they synchronized last; empty if none did
    std::vector<u64> shared_stored, shared_used;
    std::vector<u32> shared_value;
    std::vector<Pages> regions;
    std::vector<std::pair<i32, i64>> touched;                    // pages that are used for one block only
    std::vector<std::unique_ptr<Page, void (*)(void *)>> chunks; // of pages
    size_t pages_used = 0;

    Page *page(i32 region, i64 number);
    bool ordered(int thread, u64 cell) const;
    bool unordered(u64 cell, int low, int high) const;
    template <bool GLOBAL> const char *visit(const Request &request, const u8 *data, const Run &run);
    template <bool GLOBAL> const char *scattered(const Request &request, i64 base, int shift, const u8 *data);
    template <bool GLOBAL>
    const char *visit(const Access &access, const Cells &cells, const Row &row, const Run &run, const u8 *data);
    template <bool GLOBAL> const char *read(const Cells &cells, i64 at, int low, int high, bool updates);
    template <bool GLOBAL> const char *write(const Cells &cells, i64 at, int low, int high, bool uniform, u32 value);
};

} // namespace engine
