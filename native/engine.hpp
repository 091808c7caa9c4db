// Types that the parts of the engine share: a decoded program, a launch, a running block of threads.
//
// The registers of a block are stored register by register: a 32-bit register of a block of 256 threads is 256 adjacent
// words, one for each lane. A predicate is one 32-bit word for each warp. A block is padded to whole warps; the lanes
// that only fill up the last warp are never active. All warps of a block run the same basic block of code at the same
// time: of the basic blocks at which lanes wait, the one of the lowest rank, as in the NumPy engine.
//
// The engine finds out whether a launch has a hazard. At the first sign of one (a suspicion) it stops and restores
// memory, and the caller runs the launch on the NumPy engine, which names the hazard.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#define PUBLIC extern "C" __attribute__((visibility("default")))

namespace engine {

using i8 = int8_t;
using i16 = int16_t;
using i32 = int32_t;
using i64 = int64_t;
using u8 = uint8_t;
using u16 = uint16_t;
using u32 = uint32_t;
using u64 = uint64_t;
using f32 = float;
using f64 = double;

constexpr int LANES = 32;
constexpr u32 ALL = 0xFFFFFFFFu;
constexpr int SLOT_BITS = 40; // an array has 2^40 bytes of addresses, see cudabench/simulator/memory.py

enum Space : i32 { GLOBAL, SHARED, LOCAL, CONSTANT, PARAMETER, GENERIC };
enum AccessKind : i32 { LOAD, STORE, ATOMIC };
enum BlockEnd : i32 { FALLS, BRANCH, EXIT, BARRIER, TABLE };
constexpr i32 AS_IT_IS = -1, ONE_LANE = -2; // see Access::issued

// The structures below are those of cudabench/simulator/native/layout.py, field by field.

struct Op {
    i32 code;     // index of the operation
    i32 guard;    // predicate register, or -1
    i32 inverted; // whether the guard is inverted
    i32 line;     // line of the PTX
    i32 into[4];  // registers that are written, -1 for none
    i32 from[8];  // registers that are read, -1 for none
    i32 access;   // index of the memory instruction, or -1
    i32 flags;    // their meaning depends on the operation
    i64 immediate;
};

struct CodeBlock {
    i32 first, count; // its operations: index of the first, number
    i32 weight;       // number of its PTX instructions
    i32 rank;
    i32 end; // BlockEnd
    i32 guard, inverted;
    i32 target;          // the basic block to which a branch jumps; for a jump by table: the table's first entry
    i32 targets;         // number of entries of the table
    i32 selector;        // register whose value selects the entry
    i32 members;         // if it begins with a warp-wide instruction: the register of its mask, or -2 for all; else -1
    i32 warp_barrier;    // whether that instruction is __syncwarp()
    i32 reduction;       // for bar.red: 0 none, 1 popc, 2 and, 3 or
    i32 into, predicate; // for bar.red: registers
    i32 flip;            // for bar.red: whether the predicate is inverted
    i32 expected;        // for a barrier: register of the number of threads that it waits for; -1: all of the block
};

// How shared memory serves an atomic, see cudabench/simulator/count/atomics.py.
constexpr i32 WORDS = 0, OF_LANES = 1, SWAPPED = 2, LOOP = 3;

struct Access {
    i32 number[4]; // by Space up to CONSTANT: the number under which requests are counted; -1 for none
    i32 kind;      // AccessKind
    i32 space;     // Space
    i32 size;      // bytes of a lane
    i32 width;     // bytes of an element
    i32 count;     // elements of a lane
    i32 uniform;   // for a store: whether all lanes write the same constant
    i32 served;    // for an atomic on shared memory: how it is served (WORDS ...)
    i32 returns;   // for an atomic: whether its result is used
    i32 line;      // line of the PTX
    i32 skewed;    // whether its addresses in local memory may be unaligned
    i32 guess;     // whether it is a load whose value a compare-and-swap checks later; such a load is not a race
    i32 reserved;
    i64 local_low, local_high;   // bounds of the local array that it accesses; low > high: not known
    i64 shared_low, shared_high; // bounds of the shared array, likewise
    i32 shift[4];                // by Space: bytes to add to the address, for the count
    i32 issued[4]; // by Space: bytes of a lane that are counted, or AS_IT_IS, ONE_LANE, 0: another access is counted
};

struct Region {
    i64 base, size;
    u8 *data;
    i32 writable;
    i32 watched; // whether the launch may write to it; only then accesses are checked for races
    i32 heap, constant;
};

struct Register {
    i32 bits;    // 1, 8, 16, 32, 64
    i32 special; // 0: none, else see fill_special() in machine.cpp
    i64 value;   // initial value
};

struct LaunchDescription {
    const Op *ops;
    const CodeBlock *blocks;
    const i32 *tables;
    const Access *accesses;
    const Register *registers;
    const Region *regions; // [0] is unused
    const u8 *parameters;
    const i64 *order;         // numbers of the blocks of the grid that run, in this order
    const i32 *shared_starts; // of the shared variables
    const u8 *followed;       // by position in `order`: 1 if the footprint of the block is recorded
    const u8 *sampled;        // by position in `order`: 1 if its address patterns are sampled; null: of no block
    const i64 *chunks;        // positions in `order` at which the chunks of the NumPy engine begin
    i64 ops_count, blocks_count, tables_count, accesses_count, registers_count, regions_count, parameters_size;
    i64 order_count, shared_starts_count, numbers_count, chunks_count;
    i64 grid[3], block[3];
    i64 shared_size, dynamic_shared, local_bytes;
    i64 budget;  // most instructions of one block of threads
    i32 threads; // most threads of the host that run blocks
    i32 footprint;
    i32 shares;                         // whether the instructions of each block are counted separately
    i32 granule_global, granule_shared; // bytes of the smallest access to this memory
    i32 ordered; // whether results may depend on the order of the blocks; then one worker runs them all
    i32 checked; // whether races are detected and requests counted; bounds are always checked
};

// The counts of one memory instruction on one array.
struct Counts {
    i64 requests, pieces, ideal, merged, reloads, beside; // beside: requests that are counted for another array
};

// How often a basic block of code ran.
struct Executed {
    i64 warps, lanes, taken, parted;
};

struct Launch;
struct Pattern;
struct Worker;
struct Block;
using Run = void (*)(Block &, const Op &);

struct Operation {
    const char *name;
    Run run;
};

// One running block of threads. `mask` has the active lanes of each warp for the current operation, guard included.
struct Block {
    Launch &launch;
    Worker &worker;
    u8 **registers;  // by register index: the address of the first lane
    const u32 *mask; // by warp
    const u32 *root; // all threads of the block, by warp
    const u32 *exited;
    int warps;
    bool full; // whether all lanes of all warps are active
    i64 place; // position in the order of blocks
    i64 index[3];
    u8 *shared;
    u8 *local; // local memory, thread by thread, `local_stride` bytes each
    i64 local_stride;

    template <class T> T *at(i32 index_) const { return reinterpret_cast<T *>(registers[index_]); }
    u32 *predicate(i32 index_) const { return reinterpret_cast<u32 *>(registers[index_]); }
    // Stop the launch, so that the NumPy engine runs it again. why: a string literal, for developers of the engine.
    void suspect(const char *why, const Op &op) const;
};

inline int lanes_of(u32 mask) { return mask == ALL ? LANES : __builtin_popcount(mask); }
inline int first_lane(u32 mask) { return __builtin_ctz(mask); }

// The operations that a file of vector code (see lanes.hpp) implements.
struct Table {
    const Operation *first;
    size_t count;
};

// Set `first` to the regions of the launch and return their number, for vector code.
i64 constant_regions(const Block &block, const Region *&first);

// The operations of each part, by name.
const std::vector<Operation> &memory_operations();
const std::vector<Operation> &atomic_operations();
const std::vector<Operation> &warp_operations();

// One request, which counts.cpp, races.cpp and footprint.cpp record: the lanes of a warp that access one memory space
// with one instruction. region: the index of the region in global or constant memory, or of the shared variable; else
// 0.
struct Request {
    const Access &access;
    i32 space;
    i32 region;
    int warp;
    u32 mask;
    const i64 *addresses;  // 32 addresses in the space; inactive lanes have that of the first active lane
    bool straight = false; // whether all lanes are active, and lane k is at addresses[0] + k * stride
    i64 stride = 0;
    const Pattern *pattern = nullptr; // the pattern of the addresses; null if it is not known
};

} // namespace engine
