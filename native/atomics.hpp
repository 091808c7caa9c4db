// Atomic operations: how often they contend, and whether their results depend on the order of the blocks.
#pragma once

#include "engine.hpp"

namespace engine {

// A hash map from addresses to entries.
template <class Entry> class ByAddress {
  public:
    Entry &operator[](i64 address) {
        if (3 * (used + 1) > 2 * entries.size())
            grow();
        Entry &entry = entries[place(entries, address)];
        if (!entry.there) {
            entry.there = true;
            entry.address = address;
            used++;
        }
        return entry;
    }
    size_t size() const { return used; }
    void clear() {
        entries = {};
        used = 0;
    }
    template <class F> void each(F visit) const {
        for (const Entry &entry : entries)
            if (entry.there)
                visit(entry);
    }

  private:
    static size_t place(const std::vector<Entry> &table, i64 address) {
        size_t index = size_t(u64(address) * 0x9E3779B97F4A7C15ull >> 20) & (table.size() - 1);
        while (table[index].there && table[index].address != address)
            index = (index + 1) & (table.size() - 1);
        return index;
    }
    void grow() {
        std::vector<Entry> larger(entries.empty() ? 64 : 2 * entries.size());
        for (const Entry &entry : entries)
            if (entry.there)
                larger[place(larger, entry.address)] = entry;
        entries.swap(larger);
    }
    std::vector<Entry> entries; // the hash table; its size is a power of two
    size_t used = 0;
};

// The distinct addresses of a request, and how many lanes access each of them.
struct Places {
    int count = 0;
    i64 address[LANES];
    i32 lanes[LANES];
};

// Return the bank of shared memory that contains an address. For accesses of 8 bytes, return the index of the pair of
// banks.
inline int bank_of(i64 address, int width) { return int(width == 8 ? address >> 3 & 15 : address >> 2 & 31); }
// Return how many sectors an atomic on global memory accesses.
i64 atomic_sectors(const i64 *addresses, u32 mask, i64 size);
// Return how many wavefronts an atomic needs that shared memory performs itself, without a loop in the machine code.
// served: see Access::served.
i64 atomic_wavefronts(const i64 *addresses, u32 mask, int width, i32 served);

// Records the atomics of the blocks that one worker runs.
class Atomics {
  public:
    explicit Atomics(const Launch &launch);
    void start();
    // Record that the block executes an instruction once more.
    void begin(i32 access) { execution = executions[size_t(access)]++; }
    // Record the global addresses that an atomic of a block accesses. place: the block's position in the order of the
    // blocks.
    void contend(i32 access, i64 place, const Places &places);
    // Record the addresses of an atomic whose result may depend on the order of the blocks. Return true if the result
    // may differ from that of the NumPy engine, which runs blocks in step (all at the same time, instruction by
    // instruction).
    bool order(const Op &op, bool shows, i64 place, const Places &places);
    // Record the values that lanes exchange, `size` bytes each. If lanes give different values to one address, the
    // result depends on the order.
    void swap(const Request &request, const u8 *data, i64 size);

    struct Hits {
        i64 address, hits, blocks, last; // last: the position in the order of the last block that used the address
        bool there;
    };
    struct Contention {
        ByAddress<Hits> at;
        bool full = false; // whether there are too many addresses to count
    };
    std::vector<Contention> contentions; // indexed by memory instruction

  private:
    struct FirstUse {
        i64 address, place, execution;
        u64 value;
        i32 access, code;
        // several_blocks, several_executions, several_operations: more than one block, more than one execution,
        // different operations used the address
        bool swapped, there, shows, several_blocks, several_executions, several_operations;
    };
    ByAddress<FirstUse> first;
    std::vector<i64> executions;
    i64 execution = 0; // how often the block ran the current instruction before
};

// Count a request of an atomic and, in global memory, its contention. Return how many bytes of each lane are counted.
// data: the operands, lane by lane.
i64 count_atomic(Block &block, const Op &op, const Request &request, const u8 *data);

} // namespace engine
