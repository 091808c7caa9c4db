"""Loads and stores of global and constant memory.

Each access is checked, counted and logged for the race check, and then moves its data. No kernel writes constant
memory, so there are no races in constant memory.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cudabench.simulator.count import atomics, requests
from cudabench.simulator.heap import HeapRegion
from cudabench.simulator.isa.access import Lanes, MemoryOp, check, put, read_only, take
from cudabench.simulator.machine import Machine
from cudabench.simulator.memory import HALF_SLOT, PARAMETER_WINDOW, SLOT_BITS, WINDOW, Region
from cudabench.simulator.values import Array, Value, as_array, different

Regions = list[tuple[Region, Array]]  # accessed regions, each with the mask of its lanes (None: all lanes)


def find(machine: Machine, access: MemoryOp, lanes: Lanes) -> Regions:
    """Check the lanes' addresses; return the regions that valid lanes access. Invalid lanes are masked off."""
    active, space, address, original = lanes.active(), machine.space, lanes.address, lanes.mask
    low, high = int(active.min()), int(active.max())
    slot = low >> SLOT_BITS
    if 0 < slot < len(space.slots) and not (active & (access.size - 1)).any():
        region = space.slots[slot]
        if high + access.size <= region.end:
            return [(region, original)]
    if low >= PARAMETER_WINDOW and high < PARAMETER_WINDOW + WINDOW:
        region = machine.parameters
        inside = check(machine, access, lanes, region.base, region.end, access.size)
        return [(region, lanes.mask)] if inside else []
    owners = (address + HALF_SLOT) >> SLOT_BITS
    regions: Regions = []
    for number in different((active + HALF_SLOT) >> SLOT_BITS).tolist():
        lanes.mask = before = (owners == number) & (np.True_ if original is None else original)
        if not 0 < number < len(space.slots):
            check(machine, access, lanes, 1, 0, access.size)
            continue
        region, padded = space.slots[number], space.slots[number].padded
        inside = check(
            machine, access, lanes, region.base, region.base + region.size, access.size, padded.end if padded else 0
        )
        if padded is not None and lanes.mask is not before:
            ends = (address > region.end - access.size) & (address <= padded.end - access.size)
            beyond = before & ends & (address & (access.size - 1) == 0)
            if beyond.any():
                regions.append((padded, beyond))
        if inside and isinstance(region, HeapRegion):
            lanes.mask = region.keep_inside(machine, access, address, lanes.mask)
            inside = bool(lanes.mask.any())
        if inside:
            regions.append((region, lanes.mask))
    lanes.mask = np.logical_or.reduce([mask for _, mask in regions]) if regions else np.zeros((1, 1), bool)
    return regions


def slots_of(regions: Regions) -> int | tuple[int, ...]:
    """Return the address-space slot of the accessed regions: an int, or a sorted tuple if there are several slots."""
    slots = {region.base >> SLOT_BITS for region, _ in regions}
    return slots.pop() if len(slots) == 1 else tuple(sorted(slots))


def reached(
    machine: Machine, access: MemoryOp, address: Value, offset: int, data: Sequence[Value] = ()
) -> tuple[Lanes, Regions]:
    """Check, count, log and trace an access; return its lanes and the accessed regions."""
    lanes = Lanes(machine, address, offset)
    regions = find(machine, access, lanes)
    mask = lanes.mask
    if not regions or (access.kind == "load" and regions[0][0] is machine.parameters):
        return lanes, regions
    spaces = machine.space.slots
    padding = [part for region, part in regions if spaces[region.base >> SLOT_BITS] is not region]
    for part in padding:
        mask = mask & ~part
    number, slots = access.numbers["global"], slots_of(regions)
    if padding and not np.any(mask):
        pass  # accesses to padding are not counted
    elif access.kind == "atomic":
        machine.counters.count(machine, number, lanes.address, access.size, mask, slots, atomics.sectors)
    else:
        machine.counters.count(machine, number, lanes.address, access.size, mask, slots, requests.sectors, direct=True)
    if machine.trace is not None:
        machine.trace.record(machine, access, "global", lanes.address, mask)
    for region, exact in regions:
        if access.kind != "load" and not region.writable:
            read_only(machine, access, region)
        if spaces[region.base >> SLOT_BITS] is region:
            machine.global_races.log(access, region, address, offset, exact, data)
    return lanes, regions


def load_global(machine: Machine, access: MemoryOp, address: Value, offset: int) -> list[Array] | None:
    """Return the elements that the lanes read from global memory, one array per element of a lane.

    Return None if no lane has a valid address.
    """
    return gathered(access, *reached(machine, access, address, offset))


def load_constant(machine: Machine, access: MemoryOp, address: Value, offset: int) -> list[Array] | None:
    """Return the elements that the lanes read from constant memory, as `load_global` does."""
    lanes = Lanes(machine, address, offset)
    regions = find(machine, access, lanes)
    if regions:
        machine.counters.count(
            machine, access.numbers["constant"], lanes.address, access.size, lanes.mask, slots_of(regions),
            requests.constants,
        )  # fmt: skip
    return gathered(access, lanes, regions)


def gathered(access: MemoryOp, lanes: Lanes, regions: Regions) -> list[Array] | None:
    """Return the elements that the lanes read from the regions found by `find`; None if there is no region."""
    total: list[Array] | None = None
    for region, mask in regions:
        part = take(region.bytes, access, lanes.address - region.base)
        total = part if total is None else [np.where(mask, new, old) for new, old in zip(part, total, strict=True)]
    return total


def store_global(machine: Machine, access: MemoryOp, address: Value, offset: int, data: list[Value]) -> None:
    """Write each lane's elements to global memory."""
    lanes, regions = reached(machine, access, address, offset, data)
    for region, mask in regions:
        view, index = region.view(access.dtype), (lanes.address - region.base) // access.width
        for place, value in enumerate(data):
            put(view, index + place, as_array(value, access.dtype), mask)
