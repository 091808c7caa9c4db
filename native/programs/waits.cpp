// Detects host code that accesses page-locked memory before a queued copy into this memory has ended.
#include "wire.hpp"

#include <list>
#include <sys/mman.h>

namespace programs {

const Address PAGE = 4096;

struct Pending {
    Address from, until; // the range of whole pages that are protected against access
    CallStack place;     // where the program made the copy
};
static auto &pending = *new std::list<Pending>;

void copy_queued(Address to, size_t bytes, const CallStack &place) {
    const Memory *memory = memory_at(to);
    // Nothing else is in the last page of an allocation.
    bool to_end = to + bytes == (to >> SLOT_BITS << SLOT_BITS) + memory->bytes;
    Address from = (to + PAGE - 1) / PAGE * PAGE, until = (to + bytes + (to_end ? PAGE - 1 : 0)) / PAGE * PAGE;
    if (from < until && !mprotect((void *)from, until - from, PROT_NONE))
        pending.push_back({from, until, place});
}

static std::list<Pending>::iterator unprotect(std::list<Pending>::iterator copy) {
    mprotect((void *)copy->from, copy->until - copy->from, PROT_READ | PROT_WRITE);
    return pending.erase(copy);
}

void copy_done(Address to, size_t bytes) {
    for (auto copy = pending.begin(); copy != pending.end();)
        copy = copy->from < to + bytes && to < copy->until ? unprotect(copy) : std::next(copy);
}

// Return whether a fault is at an address in page-locked memory that a queued copy protects. If so, report the copies
// there, and end the protection of their pages, so that the program can continue.
bool is_early(Address address) {
    const Memory *memory = memory_at(address);
    if (!memory || memory->kind != PINNED)
        return false;
    for (auto copy = pending.begin(); copy != pending.end();) {
        bool hit = copy->from <= address && address < copy->until;
        if (hit && !memory->context->failed)
            finding("host-read-before-wait",
                    "Host code touches page-locked memory before it waits for the copy into it.", call_stack(),
                    copy->place);
        copy = hit ? unprotect(copy) : std::next(copy);
    }
    return true;
}

} // namespace programs
