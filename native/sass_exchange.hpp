// Machine code: exchange between the lanes of a warp, and predicates.
#pragma once

#include "sass_integers.hpp"

namespace engine::LEVEL {

namespace {

// mode[0]: 0 idx, 1 up, 2 down, 3 bfly
void shuffle(Warp &warp, const Instruction &instruction, u32 mask) {
    Words own[3], results;
    const u32 *x = word(warp, instruction.sources[0], own[0]), *by = word(warp, instruction.sources[1], own[1]);
    const u32 *how = word(warp, instruction.sources[2], own[2]);
    u32 inside = 0;
    EACH {
        const i32 segment = how[lane] >> 8 & 31, clamp = how[lane] & 31, step = by[lane] & 31;
        const i32 limit = (lane & segment) | (clamp & ~segment);
        const i32 to = instruction.mode[0] == 0   ? (lane & segment) | (step & ~segment)
                       : instruction.mode[0] == 1 ? lane - step
                       : instruction.mode[0] == 2 ? lane + step
                                                  : lane ^ step;
        const bool in = instruction.mode[0] == 1 ? to >= limit : to <= limit;
        inside |= u32(in) << lane;
        results.of[lane] = x[in ? to & 31 : lane];
    }
    write(warp, instruction, results.of, mask);
    write_predicate(warp, instruction.into_predicate[0], inside, mask);
}
// mode[0]: 0 any, 1 all, 2 equal; mode[1]: whether the result goes to a uniform register
void vote(Warp &warp, const Instruction &instruction, u32 mask) {
    Words results;
    const u32 voters = warp.holds(instruction.conditions[0]) & mask, to = instruction.mode[1] ? ALL : mask;
    const bool holds = instruction.mode[0] == 0   ? voters != 0
                       : instruction.mode[0] == 1 ? voters == mask
                                                  : voters == 0 || voters == mask;
    EACH results.of[lane] = voters;
    write(warp, instruction, results.of, to);
    write_predicate(warp, instruction.into_predicate[0], holds ? ALL : 0, to);
}
// mode[0]: whether to match all lanes (MATCH.ALL)
void match(Warp &warp, const Instruction &instruction, u32 mask) {
    Words own, results;
    const u32 *x = word(warp, instruction.sources[0], own), first = x[first_lane(mask)];
    if (instruction.mode[0]) {
        const bool same = !(mask & ~lanes_where<u32>([=](int lane) { return x[lane] == first; }));
        EACH results.of[lane] = same ? mask : 0;
        write(warp, instruction, results.of, mask);
        return write_predicate(warp, instruction.into_predicate[0], same ? ALL : 0, mask);
    }
    for (u32 rest = mask; rest;) {
        const u32 value = x[first_lane(rest)];
        const u32 alike = rest & lanes_where<u32>([=](int lane) { return x[lane] == value; });
        EACH results.of[lane] = alike & bit<u32>(lane) ? alike : results.of[lane];
        rest &= ~alike;
    }
    write(warp, instruction, results.of, mask);
}
// mode[0]: 0 sum, 1 min, 2 max, 3 and, 4 or, 5 xor; mode[1]: signed
void reduce(Warp &warp, const Instruction &instruction, u32 mask) {
    Words own;
    const u32 *x = word(warp, instruction.sources[0], own);
    u32 total = x[first_lane(mask)];
    for (u32 rest = mask & (mask - 1); rest; rest &= rest - 1) {
        const u32 y = x[first_lane(rest)];
        switch (instruction.mode[0]) {
        case 0: total += y; break;
        case 1:
        case 2: total = (instruction.mode[1] ? lesser_signed : lesser)(instruction.mode[0] == 1, total, y); break;
        case 3: total &= y; break;
        case 4: total |= y; break;
        default: total ^= y;
        }
    }
    EACH own.of[lane] = total;
    write(warp, instruction, own.of, ALL);
}
// Copy the first active lane's value to a uniform register.
void first_active(Warp &warp, const Instruction &instruction, u32 mask) {
    Words own;
    const u32 *values = word(warp, instruction.sources[0], own), value = values[first_lane(mask)];
    u32 alike = 0;
    EACH alike |= u32(values[lane] == value) << lane;
    write_predicate(warp, instruction.into_predicate[0], alike, mask);
    EACH own.of[lane] = value;
    write(warp, instruction, own.of, ALL);
}
void predicate_logic(Warp &warp, const Instruction &instruction, u32 mask) {
    const u32 x = warp.holds(instruction.conditions[0]), y = warp.holds(instruction.conditions[1]),
              z = warp.holds(instruction.conditions[2]);
    write_predicate(warp, instruction.into_predicate[0], looked_up(instruction.mode[0], x, y, z), mask);
    write_predicate(warp, instruction.into_predicate[1], looked_up(instruction.mode[1], x, y, z), mask);
}
// mode[0]: how many bits the predicates are shifted
void predicates_to_register(Warp &warp, const Instruction &instruction, u32 mask) {
    const u32 *all = warp.predicates + (instruction.uniform ? sass::PREDICATES / 2 : 0);
    Words own[2], results;
    const u32 *x = word(warp, instruction.sources[0], own[0]), *which = word(warp, instruction.sources[1], own[1]);
    EACH {
        u32 set = 0;
        for (int k = 0; k < 7; k++)
            set |= (all[k] >> lane & 1) << k;
        results.of[lane] =
            (x[lane] & ~(which[lane] << instruction.mode[0])) | ((set & which[lane]) << instruction.mode[0]);
    }
    write(warp, instruction, results.of, mask);
}
void register_to_predicates(Warp &warp, const Instruction &instruction, u32 mask) {
    Words own[2];
    const u32 *x = word(warp, instruction.sources[0], own[0]), which = word(warp, instruction.sources[1], own[1])[0];
    for (int k = 0; k < 7; k++)
        if (which >> k & 1)
            write_predicate(warp, k,
                            lanes_where<u32>([=](int lane) { return x[lane] >> (instruction.mode[0] + k) & 1; }), mask);
}

} // namespace

} // namespace engine::LEVEL
