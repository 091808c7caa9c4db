// Keeps track of the asynchronous copies to shared memory that are not complete. A wait instruction completes them.
#include "launch.hpp"

#include <algorithm>

namespace engine {

void PendingCopies::start() {
    if (copies.empty())
        return;
    copies.clear();
    std::fill(words.begin(), words.end(), false);
}

bool PendingCopies::touches(const Request &request) const {
    if (copies.empty())
        return false;
    for (u32 rest = request.mask; rest; rest &= rest - 1) {
        const i64 address = request.addresses[first_lane(rest)];
        for (i64 word = address / 4; word <= (address + request.access.size - 1) / 4; word++)
            if (word < i64(words.size()) && words[size_t(word)])
                return true;
    }
    return false;
}

void PendingCopies::mark(const Copy &copy, bool under_way) {
    for (u32 rest = copy.mask; rest; rest &= rest - 1)
        for (i64 offset = 0; offset < copy.access->size; offset += 4) {
            const size_t word = size_t(copy.addresses[first_lane(rest)] + offset) / 4;
            if (word >= words.size())
                words.resize(word + 1);
            words[word] = under_way;
        }
}

void PendingCopies::add(const Op &op, const Request &request) {
    copies.push_back({&op, &request.access, request.warp, request.mask, {}, 0});
    std::copy_n(request.addresses, LANES, copies.back().addresses);
    mark(copies.back(), true);
}

void PendingCopies::commit(const Block &block, const Op &op) {
    for (Copy &copy : copies) {
        const u32 mask = block.mask[copy.warp];
        if (mask && mask != block.root[copy.warp])
            block.suspect("some lanes of a warp close a group of asynchronous copies", op);
        copy.groups += mask != 0;
    }
}

void PendingCopies::wait(const Block &block, const Op &op, i64 latest) {
    std::vector<Copy> done;
    for (const Copy &copy : copies) {
        const u32 mask = block.mask[copy.warp];
        if (mask && mask != block.root[copy.warp])
            block.suspect("some lanes of a warp wait for asynchronous copies", op);
        if (mask && copy.groups > latest)
            done.push_back(copy);
    }
    copies.erase(std::remove_if(copies.begin(), copies.end(),
                                [&](const Copy &copy) { return block.mask[copy.warp] && copy.groups > latest; }),
                 copies.end());
    for (const Copy &copy : done)
        mark(copy, false);
    // The data counts as written at this time, so threads that read it must synchronize with the threads that waited.
    for (const Copy &copy : done) {
        u8 data[16 * LANES] = {};
        const i64 size = copy.access->size;
        for (u32 rest = copy.mask; rest; rest &= rest - 1)
            std::memcpy(data + first_lane(rest) * size, block.shared + copy.addresses[first_lane(rest)], size_t(size));
        Request request{*copy.access, SHARED, 0, copy.warp, copy.mask, copy.addresses};
        block.worker.races.note(block, *copy.op, request, copy.addresses[first_lane(copy.mask)], data);
    }
}

} // namespace engine
