// Defers the search for races to the end of each block. Most blocks of a launch make the same requests as the block
// before, at other places. So a block's requests are only logged and hashed, with addresses relative to the first one
// in each array. If a block with this hash was examined and had no race, this block has none either. If not, races.cpp
// examines the logged requests. For races between blocks, one bit per granule shows whether earlier blocks accessed it.
//
// Where this is not enough (a block with many requests, warps of which a part synchronizes, blocks that access the same
// granule), the launch runs again from its start without it.
#pragma once

#include "engine.hpp"

#include <array>
#include <memory>
#include <unordered_set>

namespace engine {

// The granules of all arrays that some blocks accessed.
class Granules {
  public:
    enum Kind { STORED, READ, UPDATED };
    // Bit sets, one for each kind of access; empty if there was no such access.
    using Bits = std::array<std::vector<u64>, 3>;
    void start(size_t regions_count) { regions.resize(regions_count); }
    // Return whether a request accesses a granule that an earlier block accessed, and one of the two may change it.
    bool conflict(const Access &access, i32 region, i64 first, const i64 *steps, u32 mask, int shift) const;
    void add(const Access &access, i32 region, i64 first, const i64 *steps, u32 mask, int shift, i64 region_size);
    // Add the granules of `other`. Return whether one of them conflicts with a granule that is already here.
    bool merge(const Granules &other);

  private:
    std::vector<Bits> regions;
};

class BlockLog {
  public:
    struct Entry {
        const Op *op; // null for a barrier, or where all lanes of a warp synchronize
        const Access *access;
        i32 space, region, warp; // warp: -1 for a barrier
        u32 mask;
        i64 first; // the address of the first active lane
        i64 data;  // where its data begins in `data`; -1 for none
        i64 stride;
        bool straight;
        i64 steps[LANES]; // how much higher the address of each lane is
    };
    std::vector<u8> data;

    explicit BlockLog(const Launch &launch);
    void start();
    // Add a request. Return false if the log is full. pattern: see `Request`; with it, `addresses` need not be filled.
    bool add(const Launch &launch, const Op &op, const Request &request, i64 first, const u8 *values);
    // Add a barrier (warp is -1), or a synchronization of all lanes of a warp.
    bool add_barrier(int warp);
    size_t size() const { return count; }
    const Entry &operator[](size_t number) const { return chunks[number / CHUNK][number % CHUNK]; }
    // Return whether a block with the same requests was examined before.
    bool known() const { return clean.count(digest) != 0; }
    void set_known() { clean.insert(digest); }

  private:
    static constexpr size_t MOST_ENTRIES = 512, CHUNK = 16;
    std::vector<std::unique_ptr<Entry[]>> chunks; // CHUNK entries each; most blocks need few
    size_t count = 0;
    u64 digest = 0;
    std::unordered_set<u64> clean; // the hashes of examined blocks
    // For each array, the address of the block's first request, if `block_of` is the current block.
    std::vector<i64> bases, block_of;
    i64 block = 0;

    Entry *next(); // returns null if the log is full
    void mix(u64 value);
};

// Return a hash of the lanes' steps. The factors differ in each process, so that no kernel can be written to have equal
// hashes.
u64 hash_of(const i64 *steps, u32 mask);

} // namespace engine
