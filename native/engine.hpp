// Types that the parts of the engine share: a decoded program, a launch, a running block of threads.
//
// The registers of a block are stored register by register: a 32-bit register of a block of 256 threads is 256 adjacent
// words, one for each lane. A predicate is one 32-bit word for each warp. A block is padded to whole warps; the lanes
// that only fill up the last warp are never active. At any time all warps of a block run the same basic block of code.
// If lanes wait at several basic blocks, the one with the lowest rank runs next, as in the NumPy engine.
//
// The engine detects whether a launch may have a hazard. At the first sign of one (a suspicion) it stops and restores
// memory. Then the caller runs the launch on the NumPy engine, which reports the hazard by name.
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

// Return `bytes` bytes of memory that are zero, for std::free. Throws std::bad_alloc.
void *zeros(size_t bytes);

constexpr int LANES = 32;
constexpr u32 ALL = 0xFFFFFFFFu;
constexpr int SLOT_BITS = 40; // an array has 2^40 bytes of address space, see cudabench/simulator/memory.py
// Generic addresses of parameter, shared and local memory begin here.
constexpr i64 PARAMETER_WINDOW = i64(1) << 36, SHARED_WINDOW = i64(1) << 37, LOCAL_WINDOW = i64(1) << 38;

enum Space : i32 { GLOBAL, SHARED, LOCAL, CONSTANT, PARAMETER, GENERIC };
enum AccessKind : i32 { LOAD, STORE, ATOMIC };
enum BlockEnd : i32 { FALLS, BRANCH, EXIT, BARRIER, TABLE };
constexpr i32 AS_IT_IS = -1, ONE_LANE = -2; // see Access::issued

// The structures below have the same fields as those of cudabench/simulator/native/layout.py.

struct Op {
    i32 code;     // index of the operation in the list of all operations
    i32 guard;    // predicate register, or -1
    i32 inverted; // whether the guard is inverted
    i32 line;     // line number in the PTX
    i32 into[4];  // registers that are written, -1 for none
    i32 from[8];  // registers that are read, -1 for none
    i32 access;   // index of the memory instruction, or -1
    i32 flags;    // their meaning depends on the operation
    i64 immediate;
};

struct CodeBlock {
    i32 first, count; // its operations: index of the first one, and how many
    i32 weight;       // how many PTX instructions it has
    i32 rank;
    i32 end; // BlockEnd
    i32 guard, inverted;
    i32 target;   // the basic block to which a branch jumps; for a jump by table: the index of the table's first entry
    i32 targets;  // number of entries of the table
    i32 selector; // register whose value selects the entry
    // if it begins with a warp-wide instruction: the register of its mask, or -2 if all lanes take part; else -1
    i32 members;
    i32 warp_barrier;    // whether this warp-wide instruction is __syncwarp()
    i32 reduction;       // the operation of bar.red: 1 popc, 2 and, 3 or; 0 for no bar.red
    i32 into, predicate; // for bar.red: the registers of its result and of its predicate
    i32 flip;            // for bar.red: whether its predicate is inverted
    // for a barrier: the register with the number of threads that it waits for; -1: all threads of the block
    i32 expected;
};

// How shared memory performs an atomic, see cudabench/simulator/count/atomics.py.
constexpr i32 WORDS = 0, OF_LANES = 1, SWAPPED = 2, LOOP = 3;

struct Access {
    i32 number[4]; // for each Space up to CONSTANT: the number under which requests are counted; -1: not counted
    i32 kind;      // an AccessKind
    i32 space;     // a Space
    i32 size;      // bytes that each lane accesses
    i32 width;     // bytes of one element
    i32 count;     // elements that each lane accesses
    i32 uniform;   // for a store: whether all lanes write the same constant
    i32 served;    // for an atomic on shared memory: how it is performed (WORDS, OF_LANES, SWAPPED or LOOP)
    i32 returns;   // for an atomic: whether its result is used
    i32 line;      // line of the PTX
    i32 skewed;    // whether its addresses in local memory may be unaligned
    // whether it is a load whose value a later compare-and-swap checks; such a load is not reported as a race
    i32 guess;
    // for a load whose value only one selp reads: the number from 1 on of the selp's predicate register, negative if
    // the selp chooses the value where the predicate is false; else 0
    i32 chosen;
    i64 local_low, local_high;   // bounds of the local array that it accesses; if low > high, they are not known
    i64 shared_low, shared_high; // bounds of the shared array that it accesses; if low > high, they are not known
    i32 shift[4];                // for each Space: bytes to add to the address when the request is counted
    // for each Space: how many bytes of a lane are counted. AS_IT_IS: as many as it accesses; ONE_LANE: one lane
    // performs the atomic for the warp; 0: another memory instruction is counted in place of this one
    i32 issued[4];
};

struct Region {
    i64 base, size;
    u8 *data;
    i32 writable;
    i32 watched; // whether the launch may write to this array; only then are accesses to it checked for races
    i32 heap, constant;
};

struct Register {
    i32 bits;    // 1, 8, 16, 32 or 64
    i32 special; // 0: an ordinary register; other values: see fill_special() in machine.cpp
    i64 value;   // initial value
};

struct LaunchDescription {
    const Op *ops;
    const CodeBlock *blocks;
    const i32 *tables;
    const Access *accesses;
    const Register *registers;
    const Region *regions; // indexed by slot; [0] is unused
    const u8 *parameters;
    const i64 *order;         // the numbers of the blocks of the grid that run, in the order in which they start
    const i32 *shared_starts; // start addresses of the shared variables
    const u8 *followed;       // for each position in `order`: 1 if the footprint of this block is recorded
    // for each position in `order`: 1 if the address patterns of this block are sampled; null: no block is sampled
    const u8 *sampled;
    const i64 *chunks; // positions in `order` at which the NumPy engine begins a new chunk of blocks
    i64 ops_count, blocks_count, tables_count, accesses_count, registers_count, regions_count, parameters_size;
    i64 order_count, shared_starts_count, numbers_count, chunks_count;
    i64 grid[3], block[3];
    i64 shared_size, dynamic_shared, local_bytes;
    i64 budget; // the most instructions that one block of threads may run
    i32 footprint;
    i32 shares;                         // whether instructions are counted separately for each block
    i32 granule_global, granule_shared; // bytes of the smallest access to global or to shared memory
    i32 ordered;  // whether results may depend on the order of the blocks; if so, one worker runs them all
    i32 checked;  // whether races are detected and requests are counted; array bounds are checked in any case
    i32 deferred; // whether races are searched for at the end of each block, see block_log.hpp
};

// The counts of one memory instruction on one array.
struct Counts {
    // beside: requests that access this array too, but are counted for another array
    i64 requests, pieces, ideal, merged, reloads, beside;
};

// How often a basic block of code ran.
struct Executed {
    i64 warps, lanes, taken, diverged;
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

// One running block of threads. `mask` has, for each warp, the lanes that execute the current operation (their guard
// holds).
struct Block {
    Launch &launch;
    Worker &worker;
    u8 **registers;  // for each register: the address of its value for the first lane
    const u32 *mask; // for each warp
    const u32 *root; // for each warp, the lanes that are threads of the block (padding lanes are not)
    const u32 *exited;
    int warps;
    bool full; // whether all lanes of all warps are active
    i64 place; // position of this block in the order of the blocks
    i64 index[3];
    u8 *shared;
    u8 *local; // local memory: `local_stride` bytes for each thread, one thread after the other
    i64 local_stride;

    template <class T> T *at(i32 index_) const { return reinterpret_cast<T *>(registers[index_]); }
    u32 *predicate(i32 index_) const { return reinterpret_cast<u32 *>(registers[index_]); }
    // Stop the launch, so that the NumPy engine runs it again. why: the reason as a string literal, for developers of
    // this engine.
    void suspect(const char *why, const Op &op) const;
};

inline int lanes_of(u32 mask) { return mask == ALL ? LANES : __builtin_popcount(mask); }
inline int first_lane(u32 mask) { return __builtin_ctz(mask); }

// A list of the operations that one file of vector code (see lanes.hpp) implements.
struct Table {
    const Operation *first;
    size_t count;
};

// Set `first` to the launch's regions and return their number. It is for vector code that does not include
// launch.hpp.
i64 constant_regions(const Block &block, const Region *&first);

// The operations that memory.cpp, atomics.cpp and warp.cpp implement, each with its name.
const std::vector<Operation> &memory_operations();
const std::vector<Operation> &atomic_operations();
const std::vector<Operation> &warp_operations();

// One request: the lanes of a warp that access one memory space with one instruction. counts.cpp, races.cpp and
// footprint.cpp record it. region: the index of the array in global or constant memory, or of the shared variable; 0 in
// other spaces.
struct Request {
    const Access &access;
    i32 space;
    i32 region;
    int warp;
    u32 mask;
    const i64 *addresses;  // 32 addresses in this space; inactive lanes have the address of the first active lane
    bool straight = false; // whether all lanes are active, and lane k has the address addresses[0] + k * stride
    i64 stride = 0;
    const Pattern *pattern = nullptr; // the pattern of the addresses; null if the caller does not know it
};

} // namespace engine
