"""Loads and stores of global and constant memory.

Each access is checked, counted and logged for the race check, and then moves its data. No kernel writes constant
memory, so there are no races in constant memory.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cudabench.simulator.count import atomics, requests
from cudabench.simulator.heap import HeapRegion
from cudabench.simulator.isa.access import Lanes, MemoryOp, check, put, read_only
from cudabench.simulator.machine import Machine
from cudabench.simulator.memory import HALF_SLOT, PARAMETER_WINDOW, SLOT_BITS, WINDOW, Region
from cudabench.simulator.values import Array, Value, as_array, different

# Accessed regions, each with the mask of the lanes that access it (None: all active lanes).
Regions = list[tuple[Region, Array]]


def find(machine: Machine, access: MemoryOp, lanes: Lanes) -> Regions:
    """Check the lanes' addresses; return the regions that valid lanes access. Invalid lanes are masked off."""
    low, high, bits = lanes.extremes()
    space = machine.space
    slot = low >> SLOT_BITS
    if 0 < slot < len(space.slots):
        region = space.slots[slot]
        if high + access.size <= region.end and bits & (access.size - 1) == 0:
            return [(region, None)]
    if low >= PARAMETER_WINDOW and high < PARAMETER_WINDOW + WINDOW:
        region = machine.parameters
        return [(region, None)] if check(machine, access, lanes, region.base, region.end, access.size) else []
    address = lanes.spread()
    owners = (address + HALF_SLOT) >> SLOT_BITS
    regions: Regions = []
    chosen = owners if lanes.mask is None else owners[np.broadcast_to(lanes.mask, owners.shape)]
    original = lanes.mask
    keep = np.zeros(address.shape, dtype=bool)
    for number in different(chosen).tolist():
        part = owners == number
        lanes.mask = part if original is None else part & original
        if not 0 < number < len(space.slots):
            check(machine, access, lanes, 1, 0, access.size)
            continue
        region, padded, before = space.slots[number], space.slots[number].padded, lanes.mask
        inside = check(
            machine, access, lanes, region.base, region.base + region.size, access.size, padded.end if padded else 0
        )
        if padded is not None and lanes.mask is not before:
            ends = (address > region.end - access.size) & (address <= padded.end - access.size)
            beyond = before & ends & (address & (access.size - 1) == 0)
            if beyond.any():
                regions.append((padded, beyond))
                keep |= beyond
        if not inside:
            continue
        if isinstance(region, HeapRegion):
            lanes.mask = region.keep_inside(machine, access, address, np.broadcast_to(lanes.mask, address.shape))
            if not lanes.mask.any():
                continue
        regions.append((region, lanes.mask))
        keep |= lanes.mask
    lanes.mask = keep
    return regions


def slots_of(regions: Regions) -> int | tuple[int, ...]:
    """Return the address-space slot of the accessed regions: an int, or a sorted tuple if there are several slots."""
    slots = {region.base >> SLOT_BITS for region, _ in regions}
    return slots.pop() if len(slots) == 1 else tuple(sorted(slots))


def reached(
    machine: Machine, access: MemoryOp, address: Value, offset: int, data: Sequence[Value] = ()
) -> tuple[Lanes, Regions, list[Array | None]]:
    """Check, count, log and trace an access; return a tuple of three.

    The items are the access's lanes, the accessed regions, and for each region the mask with one entry per lane.
    """
    lanes = Lanes(machine, address, offset)
    regions = find(machine, access, lanes)
    mask = lanes.exact(machine)
    masks = [mask]
    if len(regions) > 1:
        masks = [part if machine.mask is None else part & machine.mask for _, part in regions]
    if not regions or (access.kind == "load" and regions[0][0] is machine.parameters):
        return lanes, regions, masks
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
        machine.counters.count(machine, number, lanes.address, access.size, mask, slots, requests.sectors, address)
    if machine.trace is not None:
        machine.trace.record(machine, access, "global", lanes.address, mask)
    for (region, _), exact in zip(regions, masks, strict=True):
        if access.kind != "load" and not region.writable:
            read_only(machine, access, region)
        if spaces[region.base >> SLOT_BITS] is region:
            machine.global_races.log(access, region, address, offset, exact, data)
    return lanes, regions, masks


def load_global(machine: Machine, access: MemoryOp, address: Value, offset: int) -> list[Array] | None:
    """Return the elements that the lanes read from global memory, one array per element of a lane.

    Return None if no lane has a valid address.
    """
    lanes, regions, _ = reached(machine, access, address, offset)
    return gathered(access, lanes, regions)


def load_constant(machine: Machine, access: MemoryOp, address: Value, offset: int) -> list[Array] | None:
    """Return the elements that the lanes read from constant memory, as `load_global` does."""
    lanes = Lanes(machine, address, offset)
    regions = find(machine, access, lanes)
    if regions:
        machine.counters.count(
            machine, access.numbers["constant"], lanes.address, access.size, lanes.exact(machine), slots_of(regions),
            requests.constants,
        )  # fmt: skip
    return gathered(access, lanes, regions)


def gathered(access: MemoryOp, lanes: Lanes, regions: Regions) -> list[Array] | None:
    """Return the elements that the lanes read from the regions found by `find`; None if there is no region."""
    total: list[Array] | None = None
    for region, mask in regions:
        address = lanes.fill(region.base) if len(regions) == 1 else np.where(mask, lanes.address, region.base)
        view, index = region.view(access.dtype), (address - region.base) // access.width
        part = [view.take(index + place) for place in range(access.count)]
        total = part if total is None else [np.where(mask, new, old) for new, old in zip(part, total, strict=True)]
    return total


def store_global(machine: Machine, access: MemoryOp, address: Value, offset: int, data: list[Value]) -> None:
    """Write each lane's elements to global memory."""
    lanes, regions, masks = reached(machine, access, address, offset, data)
    for (region, _), mask in zip(regions, masks, strict=False):
        view, index = region.view(access.dtype), (lanes.address - region.base) // access.width
        for place, value in enumerate(data):
            put(view, index + place, as_array(value, access.dtype, machine.chunk), mask)
