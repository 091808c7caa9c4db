// The core of a CUDA implementation that works without a GPU: memory, streams as queues, events, graphs, modules and
// launches. Two front ends use it: the runtime's calls (cuda*) of a program, in runtime*.cpp, and the driver's calls
// (cu*) of the driver that the tests simulate, in tests/driver/driver.cpp.
//
// Allocations have the simulator's addresses, with 2^40 bytes of address space each, so a pointer has the same meaning
// wherever a kernel reads it. Streams are queues: queued work runs when the program waits for it. Time is simulated:
// each piece of work reports how many nanoseconds it takes. Work that needs Python (loading a module, launching) is
// done by a callback. If Python is another process, it runs launches while this process goes on; other work, and every
// wait, first waits for these launches. Their results are the same as if they ran when the program waits: a launch runs
// early only if no work is queued and the host cannot access the memory of kernels.
//
// Queued work may run long after the call that queued it. So it keeps shared pointers to events, streams and kernels;
// it keeps the address of device memory and looks it up when it runs; and it keeps a copy of data from ordinary host
// memory. During a callback, Python's garbage collector may free objects of this core; they are destroyed only when the
// outermost call ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#define API extern "C" __attribute__((visibility("default")))

namespace programs {

typedef int Status;
typedef unsigned long long Address;

// clang-format off
enum : Status {
    SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, INVALID_CONFIGURATION = 9, INVALID_PITCH = 12,
    INVALID_SYMBOL = 13, INVALID_DIRECTION = 21, MISSING_CONFIGURATION = 52, INVALID_FUNCTION = 98, NO_DEVICE = 100,
    INVALID_DEVICE = 101, INVALID_IMAGE = 200, INVALID_CONTEXT = 201, NO_BINARY = 209, INVALID_HANDLE = 400,
    NOT_FOUND = 500, NOT_READY = 600, ILLEGAL_ADDRESS = 700, OUT_OF_RESOURCES = 701, ALREADY_REGISTERED = 712,
    NOT_REGISTERED = 713, LAUNCH_FAILED = 719, TOO_LARGE = 720, NOT_SUPPORTED = 801, CAPTURING = 900,
    CAPTURE_UNJOINED = 904, CAPTURED_EVENT = 907, UPDATE_FAILED = 910, INVALID_CLUSTER = 912,
    // INTERRUPTED: the callback of a launch returns it if the user pressed Ctrl-C while a kernel ran
    UNKNOWN = 999, INTERRUPTED = -1,
};
// clang-format on
const int SLOT_BITS = 40;
const size_t SLOT = size_t(1) << SLOT_BITS;
enum { MEMORY_HOST = 1, MEMORY_DEVICE = 2, MEMORY_ARRAY = 3, MEMORY_UNIFIED = 4 }; // CUmemorytype

// Set by the code that provides the callbacks -----------------------------------------------------------------------

struct Card {
    char name[128];
    int attributes[256]; // indexed by CUdevice_attribute; -1: unknown
    size_t memory;
    double bytes_per_ns;
    unsigned char uuid[16];
    char properties[2][1032]; // cudaDeviceProp of CUDA 13, and that of CUDA 12
};

struct Function {
    int attributes[16]; // indexed by CUfunction_attribute
    int parameters;
    unsigned offsets[256], sizes[256];
};

struct CallStack { // a position in the program's code: the return addresses on the call stack, innermost first
    void *frames[6];
};

struct Launch {
    int module;
    const char *name;
    unsigned sides[6], cluster[3], shared;
    const void *parameters;
    size_t parameter_bytes;
    // The Python code of the tests' driver uses only the fields above, so new fields must come after them.
    unsigned cooperative;
    Address stream;
    const CallStack *place;
};

struct Callbacks {
    int (*load)(int module, const void *image, size_t bytes, int first_slot, int *slots);
    int (*unload)(int module);
    int (*find)(int module, const char *name, Function *function);
    int (*variable)(int module, const char *name, Address *address, void **host, size_t *bytes);
    int (*launch)(const Launch *launch, double *nanoseconds);
    int (*texture)(Address handle, const void *resource, const void *texture, void *host, Address place, size_t bytes,
                   const size_t *extents, unsigned flags);
    int (*forget)(int slot);
    int (*tensor_map)(void *map, int type, unsigned rank, Address place, const void *sizes, const void *strides,
                      const void *box, const void *steps, int swizzle, int fill);
};

extern Callbacks callbacks;
extern std::vector<Card> cards;

// State -------------------------------------------------------------------------------------------------------------

struct Context;

// REGISTERED: ordinary host memory that was page-locked later
enum Kind { DEVICE, PINNED, REGISTERED, VARIABLE, MANAGED };

struct Memory {
    char *host;
    size_t bytes;
    Context *context;
    Kind kind;
    CallStack place;
    bool of_graph = false; // whether a node of a graph allocated it
    bool of_host() const { return kind == PINNED || kind == REGISTERED; }
};

enum NodeType {
    KERNEL,
    COPY,
    FILL,
    HOST_CALL,
    CHILD,
    EMPTY,
    WAIT_EVENT,
    RECORD_EVENT,
    ALLOCATE = 10,
    FREE,
    CONDITIONAL = 13
}; // the type of a node of a graph

struct Work {
    std::function<Status(double *)> run;  // null: the work is only a wait for another stream
    std::shared_ptr<struct Stream> other; // this work must run after the work of this stream up to number `until`
    unsigned long long until = 0;
    NodeType type = EMPTY;
};
typedef std::shared_ptr<std::vector<Work>> Capture;

struct Stream {
    Context *context;
    bool blocking; // whether this stream and the default stream wait for each other
    std::deque<std::pair<unsigned long long, Work>> queue;
    Capture captured;
    int priority = 0;
    Address number = 0;
    struct Graph *target = nullptr;      // the graph that gets the captured work; null: a new graph
    std::vector<struct Node *> before{}; // the nodes of this graph that must run before the captured work
};

struct Event {
    Context *context;
    bool timed;
    std::shared_ptr<Stream> stream; // the stream in which the event was recorded last, by the work with number `until`
    unsigned long long until = 0;
    double at = -1;
    Capture captured;
};

struct Context { // contexts are never deleted, because queued work and events refer to them
    int device;
    Status failed = SUCCESS;
    std::shared_ptr<Stream> default_stream;       // the default stream
    std::vector<std::shared_ptr<Stream>> streams; // the other streams
    double now = 0;                               // the simulated time in nanoseconds
    int references = 1;
};

struct Module {
    int number, first_slot, slots;
    Context *context;
    std::map<std::string, struct Kernel *> kernels;
};

struct Kernel {
    Module *module;
    std::string name;
    Function function;
    int dynamic_shared;
    bool large_clusters = false;
};

struct Array {
    Address place;
    size_t extents[3];
    int format;
    unsigned channels, flags;
    size_t row() const;
    size_t bytes() const;
};

struct Node {
    Work work;
    std::vector<Node *> before; // the nodes that must run before this one
    Node *origin = nullptr;     // if this node is a copy: the original node
};

struct Graph {
    std::vector<std::shared_ptr<Node>> nodes;
    std::vector<Work> first{}; // what runs before all nodes, and is not a node
};

template <class T> std::map<T *, std::shared_ptr<T>> live; // keeps the objects alive to which the program has handles

template <class T> T *add_handle(T *object) {
    live<T>[object] = std::shared_ptr<T>(object);
    return object;
}
template <class T> std::shared_ptr<T> find_handle(T *handle) {
    auto entry = live<T>.find(handle);
    return entry == live<T>.end() ? nullptr : entry->second;
}

extern std::map<int, Memory> memories; // indexed by slot
extern std::set<int> page_locked;      // the slots of page-locked memory
extern std::set<int> reserved;         // the slots that variables of modules use
// the stack of current contexts; never destroyed, because destructors of the program's objects may still make calls
extern thread_local std::vector<Context *> &current;
extern Context *running; // the context whose work runs now
extern std::set<Context *> contexts;
extern unsigned long long sequence;
// the range of slots for device memory: the first one, and the next one that was never used
extern int first_slot, next_slot;
extern bool interrupted, has_objects;
// the order in which independent queues run. 0: the order of the calls; 1: the reverse order; other values: a random
// order with this seed
extern unsigned long long schedule;
extern size_t most_queued; // the most pieces of work in a queue; a further call waits until there is space, as on a GPU

inline Context *context() { return current.empty() ? nullptr : current.back(); }
inline bool sticky(Status status) { return status == 700 || status == 710 || (714 <= status && status <= 719); }

// Defined by each front end -----------------------------------------------------------------------------------------

bool callable();                             // whether the callbacks can be called now
void lock(std::recursive_mutex &mutex);      // wait for the mutex; called after try_lock has failed
void interrupt();                            // raise the exception or signal that Ctrl-C causes
bool runs_beside();                          // whether a launch can run now, while the host goes on
Status finish_launches(double *nanoseconds); // wait for the launches that still run; returns the first one's error
CallStack call_stack();                      // the program's call stack
char *map_memory(int slot, size_t bytes, Kind kind, const CallStack &place); // returns null if no memory is left
void unmap_memory(int slot, const Memory &memory);
void copy_queued(Address to, size_t bytes, const CallStack &place); // a copy into PINNED memory was queued
void copy_done(Address to, size_t bytes);
int host_slot(); // returns a slot for PINNED or MANAGED memory; 0: none is free

// One thread at a time ----------------------------------------------------------------------------------------------

extern int depth; // how many calls are nested: 2 in a call that a callback makes

struct CallLock {
    CallLock();
    ~CallLock();
};

// Run `work`, which frees objects, at a time when no queued work is running.
Status run_when_idle(const std::function<void()> &work);

// Memory ------------------------------------------------------------------------------------------------------------

size_t used(int device);
int free_slot();
void add_memory(int slot, const Memory &memory);
Status allocate(Address *address, size_t bytes, Kind kind);
void release(int slot);
Memory *memory_at(Address address);           // the memory in the slot of this address
char *host_of(Address address, size_t bytes); // null if not all of the bytes are in one allocation
int pinned_slot(const void *host);            // 0 for host memory that is not page-locked

// The source or target of a copy: device memory or, if `device` is 0, host memory. pitch: bytes from one row to the
// next; rows: rows of a layer.
struct CopyEnd {
    Address device;
    char *host;
    size_t pitch, rows;
    char *first_byte(const size_t *box) const; // the first byte of the box; null if the box is not in one allocation
};
Status copy_box(CopyEnd to, CopyEnd from, size_t width, size_t height, size_t layers, Stream *handle, bool wait);
Status fill(Address at, size_t pitch, const void *pattern, size_t width, size_t count, size_t rows, Stream *handle);

// Contexts, streams, events, graphs ---------------------------------------------------------------------------------

Context *new_context(int device);
void destroy(Context *gone); // run queued work, then free all objects of the context
std::shared_ptr<Stream> stream_of(Stream *stream);
Status queue(const std::shared_ptr<Stream> &stream, Work work);
Status run_work(const Work &work, Context *in);
Status finish_launches(Context *in);
Status queue(const std::shared_ptr<Stream> &stream, NodeType type, std::function<Status(double *)> run);
Status wait_for(Stream *stream, unsigned long long until);
Status wait_for_all(Context *in);
void finish_all_work();
Status make_stream(Stream **made, unsigned flags, int priority);
Status destroy_stream(Stream *stream);
Status stream_wait_event(Stream *handle, Event *event);
Status make_event(Event **made, unsigned flags);
Status destroy_event(Event *event);
Status record(Event *handle, Stream *on);
Status wait_for_event(Event *event);
Status elapsed(float *milliseconds, Event *start, Event *stop);
Status begin_capture(Stream *handle);
Status end_capture(Stream *handle, Graph **graph);
Status copy_graph(Graph **made, Graph *graph, bool in_order);
Work work_of_graph(const Graph &graph, Context *in);
Status launch_graph(Graph *handle, Stream *on);

// Modules and launches ----------------------------------------------------------------------------------------------

Status load(Module **made, const void *image, size_t bytes, bool managed = false);
void unload(Module *module);
Status find_kernel(Kernel **result, Module *module, const char *name);
Status find_variable(Address *address, size_t *bytes, Module *module, const char *name);
Status kernel_attribute(int *value, int attribute, const Kernel *kernel);
Status set_kernel_attribute(Kernel *kernel, int attribute, int value);
int most_blocks(const Kernel *kernel, unsigned threads, size_t shared); // how many blocks fit on one multiprocessor

struct Geometry {
    // sides: of the grid, then of the block; cluster: null for a launch without clusters
    const unsigned *sides, *cluster;
    unsigned shared;
    bool cooperative;
};
extern std::string refusal; // why the sizes of the last launch are invalid; empty if they are valid
uint64_t random_number();   // returns a random number of 53 bits
Status launch(Kernel *handle, const Geometry &how, Stream *on, void **parameters, void **extra);

// Arrays, textures and surfaces -------------------------------------------------------------------------------------

struct ArrayDescriptor {
    size_t width, height, depth;
    int format;
    unsigned channels, flags;
};
struct Resource { // CUDA_RESOURCE_DESC
    int type;
    union {
        Array *array;
        struct {
            Address place;
            int format;
            unsigned channels;
            size_t bytes;
        } linear;
        int all[32];
    } of;
    unsigned flags;
};
Status make_array(Array **made, const ArrayDescriptor &how);
Status destroy_array(Array *handle);
// Return the source or target of a copy of a box. If it is invalid, set `status` to the error.
CopyEnd end_of(int type, const void *host, Address device, Array *handle, const size_t *from, size_t pitch, size_t rows,
               const size_t *box, Status *status);
Status make_object(Address *handle, const Resource *resource, const void *how,
                   const size_t *sides = nullptr); // sides: of 2D memory, its width, height and pitch
Status destroy_object(Address handle);

// Errors ------------------------------------------------------------------------------------------------------------

struct Error {
    int number;
    const char *runtime, *driver, *text;
};
const Error *error_of(int number); // null: no error has this number

} // namespace programs
