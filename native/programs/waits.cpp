// Page-locked memory that a copy is still to write: whoever reads it has not waited, and a GPU might not be there yet.
#include "wire.hpp"

#include <list>
#include <sys/mman.h>

namespace programs {

const Address PAGE = 4096;

struct Pending {
    Address from, until; // whole pages, which nobody may touch
    Place place;         // of the copy
};
static auto &pending = *new std::list<Pending>;

void copy_waits(Address to, size_t bytes, const Place &place) {
    Address from = (to + PAGE - 1) / PAGE * PAGE, until = (to + bytes) / PAGE * PAGE;
    if (from < until && !mprotect((void *)from, until - from, PROT_NONE))
        pending.push_back({from, until, place});
}

static std::list<Pending>::iterator let(std::list<Pending>::iterator one) {
    mprotect((void *)one->from, one->until - one->from, PROT_READ | PROT_WRITE);
    return pending.erase(one);
}

void copy_done(Address to, size_t bytes) {
    for (auto one = pending.begin(); one != pending.end();)
        one = one->from < to + bytes && to < one->until ? let(one) : std::next(one);
}

// Whether a fault is one of such memory: it is told, and the memory can be touched again.
bool is_early(Address address) {
    const Memory *memory = memory_at(address);
    if (!memory || memory->kind != PINNED)
        return false;
    for (auto one = pending.begin(); one != pending.end();) {
        bool hit = one->from <= address && address < one->until;
        if (hit && !memory->context->failed)
            finding("host-read-before-wait",
                    "Host code touches page-locked memory before it waits for the copy into it.", here(), one->place);
        one = hit ? let(one) : std::next(one);
    }
    return true;
}

} // namespace programs
