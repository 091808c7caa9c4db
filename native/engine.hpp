// Types that the parts of the engine share: a decoded program, a launch, a running block of threads.
//
// A block's registers are ordered by register, then lane: a 32-bit register in a block of 256 threads has 256 adjacent
// words. A predicate is one word a warp. Threads are padded to whole warps; lanes that only fill up the last warp are
// never active. All warps of a block run the same basic block of code at once: the block of lowest rank where lanes
// wait, like the lanes of a chunk in the NumPy engine.
//
// The engine determines whether a launch is clean. At the first sign of a fault it stops and restores memory, and the
// caller runs the launch on the NumPy engine, which names the fault.
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
    i32 inverted; // whether the guard is
    i32 line;     // of the PTX
    i32 into[4];  // registers that are written, -1 for none
    i32 from[8];  // registers that are read, -1 for none
    i32 access;   // index of the memory instruction, or -1
    i32 flags;    // defined by the operation
    i64 immediate;
};

struct CodeBlock {
    i32 first, count; // ops
    i32 weight;       // instructions of the PTX
    i32 rank;
    i32 end; // BlockEnd
    i32 guard, inverted;
    i32 target;          // block behind a branch; first entry of a table
    i32 targets;         // entries of the table
    i32 selector;        // register that picks from it
    i32 members;         // of a block that begins with a warp-wide instruction: register of its mask, -2 for all; or -1
    i32 warp_barrier;    // whether that is __syncwarp()
    i32 reduction;       // of bar.red: 0 none, 1 popc, 2 and, 3 or
    i32 into, predicate; // of bar.red: registers
    i32 flip;            // of bar.red: whether the predicate is read inverted
    i32 expected;        // of a barrier: register of the number of threads that it waits for, -1: all of the block
};

// How shared memory serves an atomic, see cudabench/simulator/count/atomics.py.
constexpr i32 WORDS = 0, OF_LANES = 1, SWAPPED = 2, LOOP = 3;

struct Access {
    i32 number[4]; // under which requests are counted, by Space up to CONSTANT; -1 for none
    i32 kind;      // AccessKind
    i32 space;     // Space
    i32 size;      // bytes of a lane
    i32 width;     // bytes of an element
    i32 count;     // elements of a lane
    i32 uniform;   // of a store: whether all lanes write one constant
    i32 served;    // of an atomic on shared memory: WORDS ...
    i32 returns;   // of an atomic: whether its result is used
    i32 line;      // of the PTX
    i32 skewed;    // local memory: alignment is not guaranteed
    i32 guess;     // a load whose value a compare-and-swap checks: it does not race
    i32 reserved;
    i64 local_low, local_high;   // bounds of the array that it accesses; low > high: not known
    i64 shared_low, shared_high; // likewise
    i32 shift[4];                // by Space: bytes to add to the address that is counted
    i32 issued[4]; // by Space: bytes of a lane that are counted; AS_IT_IS; 0: another access is counted; ONE_LANE
};

struct Region {
    i64 base, size;
    u8 *data;
    i32 writable;
    i32 watched; // whether the launch may write it, so that accesses are checked for races
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
    const u8 *followed;       // by place in `order`: 1 where the footprint of the block is followed
    const u8 *sampled;        // likewise: 1 where its address patterns are sampled; null for no block
    const i64 *chunks;        // places in `order` at which the chunks of the NumPy engine begin
    i64 ops_count, blocks_count, tables_count, accesses_count, registers_count, regions_count, parameters_size;
    i64 order_count, shared_starts_count, numbers_count, chunks_count;
    i64 grid[3], block[3];
    i64 shared_size, dynamic_shared, local_bytes;
    i64 budget;  // instructions of one block of threads
    i32 threads; // of the host
    i32 footprint;
    i32 shares;                         // whether each block's instructions are counted
    i32 granule_global, granule_shared; // bytes of the smallest access
    i32 ordered; // whether results may depend on the order of the blocks, so that one worker runs them
    i32 checked; // whether races are detected and requests counted; bounds are always checked
};

// The counts of one memory instruction on one array.
struct Counts {
    i64 requests, pieces, ideal, merged, reloads, beside; // beside: requests counted on another array
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

// One block of threads as it runs. Operations read `mask`: the active lanes by warp, guard included.
struct Block {
    Launch &launch;
    Worker &worker;
    u8 **registers;  // by index: the first lane
    const u32 *mask; // by warp
    const u32 *root; // all threads of the block, by warp
    const u32 *exited;
    int warps;
    bool full; // whether all lanes of all warps are active
    i64 place; // in the order of blocks
    i64 index[3];
    u8 *shared;
    u8 *local; // thread by thread, `local_stride` bytes each
    i64 local_stride;

    template <class T> T *at(i32 index_) const { return reinterpret_cast<T *>(registers[index_]); }
    u32 *predicate(i32 index_) const { return reinterpret_cast<u32 *>(registers[index_]); }
    // Stop the launch, so that the NumPy engine runs it. why: a literal, for developers of the engine.
    void suspect(const char *why, const Op &op) const;
};

inline int lanes_of(u32 mask) { return mask == ALL ? LANES : __builtin_popcount(mask); }
inline int first_lane(u32 mask) { return __builtin_ctz(mask); }

// The operations of a file of vector code, see lanes.hpp.
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

// One request, which counts.cpp, races.cpp and footprint.cpp record: the lanes of a warp that access one space by one
// instruction. region: index of the region in global and constant memory, of the shared variable, else 0.
struct Request {
    const Access &access;
    i32 space;
    i32 region;
    int warp;
    u32 mask;
    const i64 *addresses;  // 32, in the space; inactive lanes have that of the first active lane
    bool straight = false; // a full warp of which lane k is at addresses[0] + k * stride
    i64 stride = 0;
    const Pattern *pattern = nullptr; // of the lanes; null: not known
};

} // namespace engine
