"""cp.async.bulk between an array and a block's shared memory (PTX ISA 9.7.9.25): one thread's copy of many bytes.

It is carried out at once. The other bulk copies are in `tma`.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import numpy as np

from cudabench.simulator.isa import mbarrier
from cudabench.simulator.isa.access import MemoryOp, read_only
from cudabench.simulator.isa.tma import build_reduction, build_tensor, build_wide
from cudabench.simulator.memory import HALF_SLOT, SLOT_BITS, Region, flat
from cudabench.simulator.program.builder import Builder
from cudabench.simulator.program.code import Refuse, Run
from cudabench.simulator.program.ptx import Instruction
from cudabench.simulator.values import INT64, UNSIGNED, Array, as_array, broadcast, different

if TYPE_CHECKING:
    from cudabench.simulator.machine import Machine

ALIGNMENT = 16
SECTOR, WAVEFRONT = 32, 128


def build_bulk(builder: Builder, ins: Instruction) -> Run | None:
    """Build cp.async.bulk between global and shared memory, with its groups; copies end at once."""
    words = ins.modifiers
    if "commit_group" in words or "wait_group" in words or "prefetch" in words:
        return None  # every copy has ended
    if "tensor" in words:
        return build_tensor(builder, ins)
    if "reduce" in words:
        return build_reduction(builder, ins)
    if "cp_mask" in words or "ignore_oob" in words:
        raise Refuse(f"bulk copies of some bytes ({ins.text})")
    spaces = [word for word in words if word.partition(":")[0] in ("global", "shared")]
    into_shared = spaces[0].startswith("shared") and spaces[1] == "global"
    if "multicast:cluster" in words or (spaces[0].startswith("shared") and spaces[1].startswith("shared")):
        return build_wide(builder, ins)
    into, into_offset = builder.address(ins.operands[0])
    builder.proxies |= not into_shared
    if not into_shared:
        builder.write_addresses.append(into)
    out_of, out_offset = builder.address(ins.operands[1])
    size = builder.source(ins.operands[2], "u32")
    barrier, barrier_offset = builder.address(ins.operands[3]) if into_shared else (-1, 0)
    builder.address_register = into
    load = MemoryOp(builder, "load", UNSIGNED[64], 1, "global" if into_shared else "shared")
    store = MemoryOp(builder, "store", UNSIGNED[64], 1, "shared" if into_shared else "global")
    shared_op, global_op = (store, load) if into_shared else (load, store)

    def run(machine: Machine) -> None:
        chunk = machine.chunk
        lanes = machine.lanes()
        if chunk.root is not None:
            lanes = lanes & chunk.root
        sizes = broadcast(as_array(machine.registers[size], UNSIGNED[32], chunk).astype(np.int64), chunk.shape)
        near, far = (into, into_offset), (out_of, out_offset)
        if not into_shared:
            near, far = far, near
        inside = broadcast(mbarrier.shared_offsets(machine, *near), chunk.shape)
        outside = broadcast(flat(machine.registers[far[0]], far[1], chunk), chunk.shape)
        place = (
            broadcast(mbarrier.shared_offsets(machine, barrier, barrier_offset), chunk.shape) if into_shared else None
        )
        # One thread of each block at a time, as a rule the only one.
        while lanes.any():
            first = np.zeros_like(lanes)
            rows = np.flatnonzero(lanes.any(axis=1))
            first[rows, lanes.argmax(axis=1)[rows]] = True
            lanes = lanes & ~first
            for nbytes in different(sizes[first]).tolist():
                chosen = first & (sizes == nbytes)
                _copy(machine, chosen, nbytes, inside, outside, shared_op, global_op, into_shared)
            if place is not None:
                for block, thread in np.argwhere(first).tolist():
                    offset = int(place[block, thread])
                    if 0 <= offset <= machine.shared_size - 8:
                        mbarrier.complete(machine, block, offset, int(sizes[block, thread]))

    return run


def _copy(
    machine: Machine,
    chosen: Array,
    nbytes: int,
    inside: Array,
    outside: Array,
    shared_op: MemoryOp,
    global_op: MemoryOp,
    into_shared: bool,
) -> None:
    """Copy nbytes for each chosen lane, at most one of a block; report and leave out lanes with a fault."""
    hazards = machine.hazards
    mask, warps = machine.mask, machine._warps
    machine.mask, machine._warps = chosen, -1
    try:
        for access, address in ((shared_op, inside), (global_op, outside)):
            bad = chosen & ((address | nbytes) % ALIGNMENT != 0)
            if bad.any():
                hazards.misaligned(machine, access, bad, address, ALIGNMENT)
                chosen = chosen & ~bad
        bad = chosen & ((inside < 0) | (inside > machine.shared_size - nbytes))
        if bad.any():
            hazards.outside(machine, shared_op, bad, inside, nbytes, 0, machine.shared_size)
            chosen = chosen & ~bad
        moves: list[tuple[int, int, Region, int]] = []
        regions: dict[int, Region] = {}
        for block, thread in np.argwhere(chosen).tolist():
            address = int(outside[block, thread])
            region = machine.space.nearest(address)
            if region is None or not region.base <= address <= region.end - nbytes:
                alone = np.zeros_like(chosen)
                alone[block, thread] = True
                low, high = (1, 0) if region is None else (region.base, region.end)
                hazards.outside(machine, global_op, alone, outside, nbytes, low, high)
                chosen = chosen & ~alone
                continue
            if not into_shared and not region.writable:
                read_only(machine, global_op, region)
            regions[region.base] = region
            moves.append((block, int(inside[block, thread]), region, address - region.base))
        if not moves:
            return
        machine.mask = chosen
        _note(machine, chosen, nbytes, inside, outside, shared_op, global_op, regions, into_shared)
        for block, offset, region, start in moves:
            here, there = machine.shared[block, offset : offset + nbytes], region.bytes[start : start + nbytes]
            if into_shared:
                here[:] = there
            else:
                pieces = np.arange(offset // ALIGNMENT, (offset + nbytes) // ALIGNMENT)
                lane = int(np.argmax(chosen[block]))
                machine.proxies.read(shared_op.location, [block], pieces, [lane], "a bulk copy")
                there[:] = here
    finally:
        machine.mask, machine._warps = mask, warps


def _note(
    machine: Machine,
    chosen: Array,
    nbytes: int,
    inside: Array,
    outside: Array,
    shared_op: MemoryOp,
    global_op: MemoryOp,
    regions: dict[int, Region],
    into_shared: bool,
) -> None:
    """Count a copy, and log it for the race checks as one access of many bytes."""
    count = int(chosen.sum())
    pieces = int((-(-(outside[chosen] % SECTOR + nbytes) // SECTOR)).sum())
    machine.counters.add(global_op.numbers["global"], count, pieces, count * -(-nbytes // SECTOR))
    turns = count * -(-nbytes // WAVEFRONT)
    machine.counters.add(shared_op.numbers["shared"], count, turns, turns)
    wide = []
    for access in (shared_op, global_op):
        sized = copy.copy(access)
        sized.size, sized.count = nbytes, nbytes // access.width
        sized.number = access.number + (nbytes << 32)  # an access of its own for what is remembered by number
        wide.append(sized)
    rows = np.arange(machine.chunk.blocks)
    thread = chosen.argmax(axis=1)
    data: list[Array] = []
    start = inside[rows, thread].astype(INT64)
    if into_shared:
        # Stands for bytes that are no other thread's: whoever else writes there races.
        data = [np.arange(machine.chunk.threads, dtype=np.uint64).reshape(1, -1)]
    else:
        flat_words = machine.shared.reshape(-1).view(np.uint64)
        first = np.where(chosen.any(axis=1), start, 0) // 8 + rows * (machine.shared.shape[1] // 8)
        data = [flat_words[first + step].reshape(-1, 1) for step in range(nbytes // 8)]
    machine.shared_races.log(wide[0], inside, 0, chosen, data if into_shared else ())
    owners = (outside + HALF_SLOT) >> SLOT_BITS
    for base, region in regions.items():
        part = chosen & (owners == base >> SLOT_BITS)
        machine.global_races.log(wide[1], region, outside, 0, part, () if into_shared else data)
