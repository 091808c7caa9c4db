// Detects launches that may have races or read unwritten shared memory: all that the NumPy engine reports, and perhaps
// others. The rules are those of cudabench/simulator/check/shadow.py (threads of one block) and grid_races.py (blocks).
//
// Each granule of memory has two cells: its last store, and its reads and atomic updates since. A cell is a time, flags
// and the lowest and highest thread. The time of a worker grows with each memory instruction, barrier and
// synchronization of a warp, so that accesses before the block's start or its last barrier are known by their time, and
// no cell is cleared. Each worker has its own cells, which are compared at the end of the launch: accesses of two
// workers to one granule are accesses of two blocks.
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
    // All threads of the block passed a barrier.
    void barrier(const Block &block);
    // Lanes of a warp synchronized; each lane's mask names them all.
    void meet(const Block &block, int warp, u32 lanes);
    // Record a request of lanes in bounds, to shared memory or to a watched region, before it is performed. data: of a
    // store, the values by lane, `access.size` bytes each.
    void note(const Block &block, const Op &op, const Request &request, const u8 *data);

  private:
    friend class Shadows;
    static constexpr int PAGE_BITS = 6, PAGE = 1 << PAGE_BITS; // granules
    struct Page {
        u64 stored[PAGE], used[PAGE];
        u32 value[PAGE];
    };
    struct Pages {
        std::vector<Page *> by_number; // null: untouched
    };
    // Consecutive lanes that access one place, or each the place after the previous lane's.
    struct Run {
        i64 granule;
        int low, high;  // threads
        bool one_place; // all lanes access it
    };

    const Launch &launch;
    const RowLoops &loops;
    u64 now, began, met_all; // times: of the last event, of the block's start, of the last barrier
    const Op *latest = nullptr;
    int latest_warp = 0;
    bool between_blocks; // whether races between blocks are detected
    const u32 *exited = nullptr;
    std::vector<u64> met;     // by warp, when all of its lanes synchronized
    std::vector<u64> partly;  // by warp, when some of its lanes synchronized
    std::vector<u32> meeting; // by warp, the lanes that synchronized last
    std::vector<u64> noted;   // by warp, when it last had a request
    std::vector<u64> pairs;   // by warp, lane and lane, when they synchronized; empty until then
    std::vector<u64> shared_stored, shared_used;
    std::vector<u32> shared_value;
    std::vector<Pages> regions;
    std::vector<std::pair<i32, i64>> touched;                    // pages that are kept for one block only
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
