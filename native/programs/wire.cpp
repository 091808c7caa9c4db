// Sends the core's requests to Python, over the socket that `cudabench exec` gives to the program.
#include "wire.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

namespace programs {

// this process uses the lower half of the file, Python the upper half
const size_t FILE_BYTES = size_t(1) << 40, OURS = FILE_BYTES / 2;
const size_t PAGE = 4096, PADDED = 2 << 20; // a GPU maps memory in multiples of PADDED

struct Range {
    size_t offset, bytes;
};

static int line = -1, file = -1;
static bool forked; // whether this process was forked from a process that is connected to Python
static char *base;  // where the file is mapped in this process
static std::map<size_t, size_t> free_ranges{{0, OURS}}; // free ranges of the file: from offset to number of bytes
static std::map<int, Range> ranges;                     // the range of the file that each slot uses
static Message changes; // changes of memory since the last launch, which Python does not know yet
static unsigned changed;
struct Variable {
    Address address;
    size_t offset, bytes;
};
static std::map<int, std::map<std::string, Variable>> variables; // for each module, its variables by name

// The file descriptors are only for this process: child processes and programs that they execute must not use them.
__attribute__((constructor)) static void take_descriptors() {
    const char *setting = getenv("CUDABENCH_PROGRAM");
    if (!setting || sscanf(setting, "%d,%d,%llu", &line, &file, &schedule) < 2)
        return;
    fcntl(line, F_SETFD, FD_CLOEXEC), fcntl(file, F_SETFD, FD_CLOEXEC);
    unsetenv("CUDABENCH_PROGRAM");
    pthread_atfork(nullptr, nullptr, [] { forked = true, line = -1; });
}

Status absent() { return forked && base ? NOT_INITIALIZED : NO_DEVICE; } // a forked child cannot use CUDA of its parent

bool connected() { return line >= 0; }
bool callable() { return connected(); }
void lock(std::recursive_mutex &mutex) { mutex.lock(); }
void interrupt() { raise(SIGINT); }

static bool send_all(const char *from, size_t count) {
    while (count) {
        ssize_t done = send(line, from, count, MSG_NOSIGNAL);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return false;
        from += done, count -= size_t(done);
    }
    return true;
}

static bool receive_all(char *to, size_t count) {
    while (count) {
        ssize_t done = recv(line, to, count, 0);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return false;
        to += done, count -= size_t(done);
    }
    return true;
}

// End the program, because the connection is closed (for example after a timeout), so its results would be wrong.
[[noreturn]] static void stop() {
    line = -1;
    raise(SIGTERM);
    _exit(128 + SIGTERM);
}

static void send_message(RequestKind kind, const Message &message) {
    std::string request = Message().put(kind).put(unsigned(message.bytes.size())).bytes + message.bytes;
    if (!send_all(request.data(), request.size()))
        stop();
}

Reply send_request(RequestKind kind, const Message &message) {
    struct {
        Status status;
        unsigned bytes;
    } head{};
    Reply reply{connected() ? UNKNOWN : NO_DEVICE, {}};
    if (!connected())
        return reply;
    send_message(kind, message);
    if (!receive_all((char *)&head, sizeof head))
        stop();
    reply.bytes.resize(head.bytes);
    if (!receive_all(&reply.bytes[0], head.bytes))
        stop();
    reply.status = head.status;
    return reply;
}

// Memory ------------------------------------------------------------------------------------------------------------

static size_t rounded(size_t bytes, size_t to = PAGE) { return (bytes + to - 1) / to * to; }

static size_t take_range(size_t bytes) {
    for (auto &[offset, room] : free_ranges)
        if (room >= bytes) {
            size_t start = offset, rest = room - bytes;
            free_ranges.erase(start);
            if (rest)
                free_ranges[start + bytes] = rest;
            return start;
        }
    return OURS;
}

static void give_range(size_t offset, size_t bytes) {
    fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, off_t(offset), off_t(bytes));
    auto next = free_ranges.lower_bound(offset);
    if (next != free_ranges.end() && next->first == offset + bytes)
        bytes += next->second, next = free_ranges.erase(next);
    if (next != free_ranges.begin() && std::prev(next)->first + std::prev(next)->second == offset)
        std::prev(next)->second += bytes;
    else
        free_ranges[offset] = bytes;
}

static void change(int slot, Kind kind, size_t offset, size_t bytes, const CallStack &place) {
    changes.put(slot).put(unsigned(kind)).put(uint64_t(offset)).put(uint64_t(bytes)).text(text_of(place));
    changed++;
}

void send_changes() {
    if (changed)
        send_request(RequestKind::MEMORY, Message{Message().put(changed).bytes + changes.bytes});
    changes.bytes.clear(), changed = 0;
}

char *map_memory(int slot, size_t bytes, Kind kind, const CallStack &place) {
    size_t room = rounded(bytes, PADDED), offset = take_range(room);
    if (offset == OURS)
        return nullptr;
    char *host = base + offset;
    if (kind != DEVICE) {
        // the memory has the same address in the host process as on the device
        void *same = (void *)(Address(slot) << SLOT_BITS);
        void *mapped =
            mmap(same, rounded(bytes), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE, file, off_t(offset));
        if (mapped != same) {
            if (mapped != MAP_FAILED)
                munmap(mapped, rounded(bytes));
            give_range(offset, room);
            return nullptr;
        }
    }
    ranges[slot] = {offset, room};
    change(slot, kind, offset, bytes, place);
    return host;
}

bool add_registered(int slot, char *host, size_t bytes, const CallStack &place) {
    size_t room = rounded(bytes, PADDED), offset = take_range(room);
    if (offset == OURS)
        return false;
    ranges[slot] = {offset, room};
    add_memory(slot, Memory{host, bytes, context(), REGISTERED, place});
    change(slot, REGISTERED, offset, bytes, place);
    return true;
}

void unmap_memory(int slot, const Memory &memory) {
    auto range = ranges.find(slot);
    if (range == ranges.end())
        return; // the slot is that of a variable, whose memory belongs to its module
    if (memory.kind == PINNED || memory.kind == MANAGED)
        munmap((void *)(Address(slot) << SLOT_BITS), rounded(memory.bytes));
    give_range(range->second.offset, range->second.bytes);
    ranges.erase(range);
    freed[slot] = call_stack();
    change(slot, memory.kind, 0, 0, freed[slot]);
}

static void move_registered(bool to_device) {
    for (int slot : page_locked) {
        const Memory &memory = memories[slot];
        if (memory.kind != REGISTERED)
            continue;
        char *alias = base + ranges[slot].offset;
        if (to_device)
            memcpy(alias, memory.host, memory.bytes);
        else if (memcmp(memory.host, alias, memory.bytes)) // write only changes, because the memory may be read-only
            memcpy(memory.host, alias, memory.bytes);
    }
}

// Return whether a slot is free and a host process can map its addresses: only slots below 128 qualify. Programs and
// libraries are loaded in slots 85, 126 and 127.
static bool fits_host(int slot) {
    return slot > 0 && slot < 126 && slot != 85 && !memories.count(slot) && !reserved.count(slot);
}

static int no_host_slot() {
    static bool told;
    if (!told)
        fprintf(stderr,
                "cudabench: 124 allocations of managed and page-locked memory and variables of modules with managed "
                "variables are in use, and there is no address for another one: use fewer and larger ones.\n");
    told = true;
    return 0;
}

int host_slot() {
    for (int slot = 125; slot > 0; slot--)
        if (fits_host(slot))
            return slot;
    return no_host_slot();
}

// Callbacks ---------------------------------------------------------------------------------------------------------

static int unload_module(int module) {
    variables.erase(module);
    return send_request(RequestKind::UNLOAD, Message().put(module)).status;
}

static int load_module(int module, const void *image, size_t bytes, int first, int *slots) {
    Reply reply =
        send_request(RequestKind::LOAD, Message().put(module).put(first).put(uint64_t(bytes)).raw(image, bytes));
    if (reply.status)
        return reply.status;
    *slots = reply.take<int>();
    for (unsigned rest = reply.take<unsigned>(); rest; rest--) {
        std::string symbol = reply.text();
        Variable &var = variables[module][symbol];
        var.address = reply.take<uint64_t>(), var.offset = reply.take<uint64_t>(), var.bytes = reply.take<uint64_t>();
    }
    for (int slot = first; first < 128 && slot < first + *slots; slot++)
        if (!fits_host(slot))
            return no_host_slot(), unload_module(module), OUT_OF_MEMORY;
    return reply.status;
}

static int find_function(int module, const char *name, Function *function) {
    Reply reply = send_request(RequestKind::FIND, Message().put(module).text(name));
    if (!reply.status)
        *function = reply.take<Function>();
    return reply.status;
}

static int find_symbol(int module, const char *name, Address *address, void **host, size_t *bytes) {
    auto variable = variables[module].find(name);
    if (variable == variables[module].end())
        return NOT_FOUND;
    *address = variable->second.address, *bytes = variable->second.bytes;
    *host = base + variable->second.offset;
    if (const Memory *known = memory_at(*address))
        *host = known->host;
    else if (*address >> SLOT_BITS < 128) { // a module with managed variables: the host process has the same addresses
        *host = mmap((void *)*address, rounded(*bytes), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE, file,
                     off_t(variable->second.offset));
        if (*host != (void *)*address)
            return OUT_OF_MEMORY;
    }
    return SUCCESS;
}

struct Sent { // a launch that Python has, and whose result is not known yet
    std::string name, parameters;
    CallStack place;
};
static auto &sent = *new std::vector<Sent>;
const size_t MOST_SENT = 4096;

// After a kernel made an invalid access: report those of its parameters that point to host memory.
static void name_host_pointers(const Sent &launch) {
    for (size_t offset = 0; offset + 8 <= launch.parameters.size(); offset += 8) {
        Address value;
        memcpy(&value, launch.parameters.data() + offset, 8);
        bool of_host = value >= PAGE && value >> (SLOT_BITS + 7) == 0 && !memory_at(value);
        // the page is mapped, so the value is a pointer
        if (of_host && !msync((void *)(value / PAGE * PAGE), 1, MS_ASYNC))
            finding("host-pointer",
                    "Kernel " + launch.name +
                        " is given a pointer to the host's memory, and needs one to the device's.",
                    launch.place);
    }
}

Status finish_launches(double *nanoseconds) {
    if (sent.empty() || !connected())
        return SUCCESS;
    Reply reply = send_request(RequestKind::FINISH, {});
    *nanoseconds = reply.take<double>();
    auto last = reply.take<unsigned>(); // the number of the launch that failed
    std::string output = reply.text();
    fwrite(output.data(), 1, output.size(), stdout);
    std::vector<Sent> finished;
    finished.swap(sent);
    if (reply.status == ILLEGAL_ADDRESS && last < finished.size())
        name_host_pointers(finished[last]);
    return reply.status;
}

static bool any_registered() {
    return std::any_of(page_locked.begin(), page_locked.end(),
                       [](int slot) { return memories[slot].kind == REGISTERED; });
}

// The host can access page-locked memory, and the memory in the slots below 128.
bool runs_beside() { return page_locked.empty() && (memories.empty() || memories.begin()->first >= 128); }

static int run_launch(const Launch *launch, double *nanoseconds) {
    send_changes();
    bool moves = any_registered();
    if (moves)
        move_registered(true);
    Message message;
    message.put(launch->module).text(launch->name).put(launch->sides).put(launch->cluster).put(launch->shared);
    message.put(launch->cooperative);
    send_message(RequestKind::LAUNCH, message.raw(launch->parameters, launch->parameter_bytes));
    sent.push_back({launch->name, {(const char *)launch->parameters, launch->parameter_bytes}, *launch->place});
    if (!moves && sent.size() < MOST_SENT)
        return SUCCESS;
    Status status = finish_launches(nanoseconds);
    if (moves)
        move_registered(false);
    return status;
}

static int make_texture(Address handle, const void *resource, const void *texture, void *, Address place, size_t bytes,
                        const size_t *extents, unsigned flags) {
    send_changes();
    Message message;
    message.put(uint64_t(handle)).put(int(resource != nullptr));
    char zeros[144] = {};
    message.raw(resource ? resource : zeros, 144).put(int(texture != nullptr)).raw(texture ? texture : zeros, 104);
    message.put(int(place >> SLOT_BITS)).put(uint64_t(place & (SLOT - 1))).put(uint64_t(bytes));
    for (int axis = 0; axis < 3; axis++)
        message.put(uint64_t(extents ? extents[axis] : 0));
    return send_request(RequestKind::TEXTURE, message.put(flags)).status;
}

static int forget_slot(int) { return SUCCESS; } // nothing to do, because the MEMORY message reports it

bool start() {
    static bool tried;
    if (tried)
        return connected() && !cards.empty();
    tried = true;
    void *mapped = MAP_FAILED;
    if (connected())
        mapped = mmap(nullptr, FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
    if (mapped == MAP_FAILED) {
        fprintf(stderr, forked ? "cudabench: a process that the program forked has no simulated card.\n"
                               : "cudabench: this program runs without a GPU by `cudabench exec`, which was not used "
                                 "here.\n");
        line = -1;
        return false;
    }
    base = (char *)mapped;
    first_slot = next_slot = 128;
    callbacks = Callbacks{load_module, unload_module, find_function, find_symbol,
                          run_launch,  make_texture,  forget_slot,   nullptr};
    Reply reply = send_request(RequestKind::HELLO, Message().put(1u).put(unsigned(getpid())));
    for (unsigned rest = reply.status ? 0 : reply.take<unsigned>(); rest; rest--)
        cards.push_back(reply.take<Card>());
    if (reply.status)
        cards.clear();
    catch_faults(), note_exit();
    return !cards.empty();
}

bool finding_reported;

void finding(const char *kind, const std::string &message, const CallStack &place, const CallStack &other) {
    finding_reported = true;
    send_request(RequestKind::FINDING, Message().text(kind).text(message).text(text_of(place)).text(text_of(other)));
}

} // namespace programs
