// Atomic operations: how often they meet, and whether the order of the blocks shows in what they leave.
#pragma once

#include "engine.hpp"

namespace engine {

// Entries by address.
template <class Entry> class ByAddress {
  public:
    Entry &operator[](i64 address) {
        if (3 * (used + 1) > 2 * entries.size())
            grow();
        Entry &found = entries[place(entries, address)];
        if (!found.there) {
            found.there = true;
            found.address = address;
            used++;
        }
        return found;
    }
    size_t size() const { return used; }
    void clear() {
        entries = {};
        used = 0;
    }
    template <class F> void each(F look) const {
        for (const Entry &entry : entries)
            if (entry.there)
                look(entry);
    }

  private:
    static size_t place(const std::vector<Entry> &in, i64 address) {
        size_t found = size_t(u64(address) * 0x9E3779B97F4A7C15ull >> 20) & (in.size() - 1);
        while (in[found].there && in[found].address != address)
            found = (found + 1) & (in.size() - 1);
        return found;
    }
    void grow() {
        std::vector<Entry> more(entries.empty() ? 64 : 2 * entries.size());
        for (const Entry &entry : entries)
            if (entry.there)
                more[place(more, entry.address)] = entry;
        entries.swap(more);
    }
    std::vector<Entry> entries; // a power of two
    size_t used = 0;
};

// The lanes of a request by address, neighbours at one address or all of them together.
struct Places {
    int count = 0;
    i64 address[LANES];
    i32 lanes[LANES];
};

// The bank of shared memory that has an address, or for 8 bytes the pair of banks.
inline int bank_of(i64 address, int width) { return int(width == 8 ? address >> 3 & 15 : address >> 2 & 31); }
// Sectors of an atomic on global memory.
i64 atomic_sectors(const i64 *addresses, u32 mask, i64 size);
// Wavefronts of an atomic that shared memory does itself; served: of an Access.
i64 atomic_wavefronts(const i64 *addresses, u32 mask, int width, i32 served);

// What one worker's blocks did with atomics.
class Atomics {
  public:
    explicit Atomics(const Launch &launch);
    void start();
    // Begin an execution of an instruction.
    void begin(i32 access) { execution = executions[size_t(access)]++; }
    // Note lanes in global memory, of a block at a place in the order.
    void contend(i32 access, i64 place, const Places &places);
    // Note the same for what shows the order of the blocks; return whether blocks do not have the order that they have
    // in step.
    bool order(const Op &op, bool shows, i64 place, const Places &places);
    // Note what lanes put in the place of what is there, `size` bytes each: the order shows where it differs.
    void swap(const Request &request, const u8 *data, i64 size);

    struct Hits {
        i64 address, hits, blocks, last; // last: place of the block that came last
        bool there;
    };
    struct Met {
        ByAddress<Hits> at;
        bool full = false; // there are too many addresses to tell
    };
    std::vector<Met> met; // by access

  private:
    struct First {
        i64 address, place, execution;
        u64 value;
        i32 access, code;
        bool swapped, there, shows, several, again, unlike; // several blocks, other executions, other operations
    };
    ByAddress<First> first;
    std::vector<i64> executions;
    i64 execution = 0; // which one of the instruction in its block
};

// Count a request of an atomic, to global memory with how often it meets others; return the bytes of a lane.
// data: by lane what it does it with.
i64 count_atomic(Block &block, const Op &op, const Request &request, const u8 *data);

} // namespace engine
