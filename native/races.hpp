// Whether a launch may have races or reads shared memory that nobody has written: more than the NumPy engine names may
// look like it, never less. The rules are those of cudabench/simulator/check/shadow.py (threads of one block) and
// grid_races.py (blocks).
//
// Each granule of memory has two cells: who stored there last, and who read or updated it by atomics since. A cell is a
// time, flags, and the lowest and highest thread. The time of a worker grows with each memory instruction, barrier and
// meeting of a warp, so that what was before the block's start or its last barrier is known by its time, and nothing is
// cleared. Workers have cells of their own, which are compared at the end of the launch: what two of them did to one
// granule was done by two blocks.
#pragma once

#include "cells.hpp"

#include <memory>

namespace engine {

// What all workers share.
class Shadows {
  public:
    bool between_blocks = false; // whether races between blocks are looked for
    void start(const Launch &launch);
    // Tell whether blocks of different workers may have raced, at the end of a launch.
    bool conflict(const Launch &launch) const;
};

class Races {
  public:
    Races(const Launch &launch, int worker);
    void start(const Block &block);
    // All threads of the block have met.
    void barrier(const Block &block);
    // Lanes of a warp have met, each of which names all the others.
    void meet(const Block &block, int warp, u32 lanes);
    // Note a request of lanes in bounds, to shared memory or to a watched region; before: it has not been done yet.
    // data: of a store, what lanes write, by lane, `access.size` bytes each.
    void note(const Block &block, const Op &op, const Request &request, const u8 *data);

  private:
    friend class Shadows;
    static constexpr int PAGE_BITS = 6, PAGE = 1 << PAGE_BITS; // granules
    struct Page {
        u64 stored[PAGE], used[PAGE];
        u32 value[PAGE];
    };
    struct Pages {
        std::vector<Page *> of; // by number, null where nothing was touched
    };
    // Lanes in a row that go to one place, or each to the place after the last one's.
    struct Run {
        i64 granule;
        int low, high; // threads
        bool one;      // all to one place
    };

    const Launch &launch;
    const RowLoops &loops;
    u64 now, began, met_all; // times: of the last event, of the block's start, of the last barrier
    const Op *latest = nullptr;
    int latest_warp = 0;
    bool looks; // whether races between blocks are looked for
    const u32 *exited = nullptr;
    std::vector<u64> met;     // by warp, when all of its lanes met
    std::vector<u64> partly;  // by warp, when some of its lanes met
    std::vector<u32> meeting; // by warp, the lanes of the latest meeting
    std::vector<u64> noted;   // by warp, when it last had a request
    std::vector<u64> pairs;   // by warp, lane and lane, likewise; empty until some did
    std::vector<u64> shared_stored, shared_used;
    std::vector<u32> shared_value;
    std::vector<Pages> regions;
    std::vector<std::pair<i32, i64>> touched;                    // pages, where they are for one block alone
    std::vector<std::unique_ptr<Page, void (*)(void *)>> chunks; // of pages
    size_t pages_used = 0;

    Page *page(i32 region, i64 number);
    bool ordered(int thread, u64 cell) const;
    bool parted(u64 cell, int low, int high) const;
    template <bool GLOBAL> const char *visit(const Request &request, const u8 *data, const Run &run);
    template <bool GLOBAL> const char *scattered(const Request &request, i64 base, int shift, const u8 *data);
    template <bool GLOBAL>
    const char *visit(const Access &access, const Cells &cells, const Row &row, const Run &run, const u8 *data);
    template <bool GLOBAL> const char *read(const Cells &cells, i64 at, int low, int high, bool updates);
    template <bool GLOBAL> const char *write(const Cells &cells, i64 at, int low, int high, bool uniform, u32 value);
};

} // namespace engine
