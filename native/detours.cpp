// Divisions and roots of which some lanes call a subroutine, by line; and what else vector code asks of a launch.
#include "launch.hpp"

namespace engine {

void note_detour(Block &block, const Op &op, u32 called, u32 others, u32 zero) {
    if (!block.launch.about.checked)
        return;
    Detour &more = block.worker.detours[op.line];
    more.taken += lanes_of(called);
    more.taking += 1;
    more.parted += others != 0;
    more.zero_lanes += lanes_of(called & zero);
    more.zero_warps += (called & zero) != 0;
}

i64 constant_regions(const Block &block, const Region *&first) {
    first = block.launch.regions.data();
    return i64(block.launch.regions.size());
}

} // namespace engine

using namespace engine;

// Fill in lines and what was noted of each, up to a number of them; return how many there are.
PUBLIC i64 cudabench_detours(Launch *launch, i32 *lines, Detour *detours, i64 most) {
    std::map<i32, Detour> found;
    for (const auto &worker : launch->workers)
        for (const auto &[line, more] : worker->detours) {
            Detour &sum = found[line];
            sum.taken += more.taken;
            sum.taking += more.taking;
            sum.parted += more.parted;
            sum.zero_lanes += more.zero_lanes;
            sum.zero_warps += more.zero_warps;
        }
    i64 place = 0;
    for (const auto &[line, sum] : found) {
        if (place < most)
            lines[place] = line, detours[place] = sum;
        place++;
    }
    return i64(found.size());
}
