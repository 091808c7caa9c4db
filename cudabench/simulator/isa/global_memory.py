"""Loads and stores of global and constant memory.

Each access is checked, counted and logged for the race check. Then its data is moved: through strided views if the
addresses are affine and known to be in bounds, otherwise by an index per lane. No kernel writes constant memory, so
there are no races in constant memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from cudabench.simulator.heap import HeapRegion
from cudabench.simulator.isa.access import Lanes, MemoryOp, aligned, check, put, read_only
from cudabench.simulator.machine import Machine
from cudabench.simulator.memory import HALF_SLOT, PARAMETER_WINDOW, SLOT_BITS, WINDOW, Region, flat
from cudabench.simulator.values import Affine, Array, Value, as_array, different

ONE = (1, 1, 1)
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


def linear(machine: Machine, access: MemoryOp, address: Value, offset: int) -> Region | None:
    """Return the region that contains all lanes of an affine, aligned address.

    Return None if this simple test finds no such region: then each lane's address must be checked.
    """
    if type(address) is not Affine or machine.chunk.ragged or access.kind == "atomic":
        return None
    slot, slots = address.low + offset >> SLOT_BITS, machine.space.slots
    if not 0 < slot < len(slots) or address.high + offset + access.size > slots[slot].end:
        return None
    return slots[slot] if aligned(address, offset, access.size) else None


def reached(
    machine: Machine, access: MemoryOp, address: Value, offset: int, data: Sequence[Value] = ()
) -> tuple[Lanes | None, Regions, list[Array | None]]:
    """Check, count, log and trace an access; return a tuple of three.

    The items are the access's lanes (None if `linear` has found one region for all lanes), the accessed regions, and
    for each region the mask with one entry per lane.
    """
    region, chunk = linear(machine, access, address, offset), machine.chunk
    lanes, addresses, mask = None, address, machine.mask
    if region is not None:
        regions: Regions = [(region, None)]
    else:
        lanes = Lanes(machine, address, offset)
        regions = find(machine, access, lanes)
        addresses, offset, mask = lanes.address, 0, lanes.exact(machine)
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
        machine.counters.global_atomic(number, addresses, access.size, mask, machine.warps, chunk, slots)
    else:
        machine.counters.global_(number, addresses, offset, access.size, mask, machine.warps, chunk, slots, address)
    if machine.trace is not None:
        machine.trace.record(machine, access, "global", flat(addresses, offset, chunk), mask)
    for (region, _), exact in zip(regions, masks, strict=True):
        if access.kind != "load" and not region.writable:
            read_only(machine, access, region)
        if spaces[region.base >> SLOT_BITS] is region:
            machine.global_races.log(access, region, addresses, offset, exact, data)
    return lanes, regions, masks


def load_global(machine: Machine, access: MemoryOp, address: Value, offset: int) -> list[Array] | None:
    """Return the elements that the lanes read from global memory, one array per element of a lane.

    Return None if no lane has a valid address.
    """
    lanes, regions, _ = reached(machine, access, address, offset)
    if lanes is not None:
        return gathered(access, lanes, regions)
    places = range(offset, offset + access.size, access.width)
    views = (regions[0][0].strided(address, place, access.dtype, machine.chunk) for place in places)
    return [view.copy("C").reshape(math.prod(view.shape[:3]), -1) for view in views]


def load_constant(machine: Machine, access: MemoryOp, address: Value, offset: int) -> list[Array] | None:
    """Return the elements that the lanes read from constant memory, as `load_global` does."""
    lanes = Lanes(machine, address, offset)
    regions = find(machine, access, lanes)
    if regions:
        machine.counters.constant(
            access.numbers["constant"], lanes.address, access.size, lanes.exact(machine), machine.warps, machine.chunk,
            slots_of(regions),
        )  # fmt: skip
    return gathered(access, lanes, regions)


def gathered(access: MemoryOp, lanes: Lanes, regions: Regions) -> list[Array] | None:
    """Return the elements that the lanes read from the regions found by `find`; None if there is no region."""
    if len(regions) == 1:
        region = regions[0][0]
        return _gather(region, access, lanes.fill(region.base))
    total: list[Array] | None = None
    for region, mask in regions:
        part = _gather(region, access, np.where(mask, lanes.address, region.base))
        total = part if total is None else [np.where(mask, new, old) for new, old in zip(part, total, strict=True)]
    return total


def _gather(region: Region, access: MemoryOp, address: Array) -> list[Array]:
    view, index = region.view(access.dtype), (address - region.base) >> (access.width.bit_length() - 1)
    return [view.take(index + place if place else index) for place in range(access.count)]


def store_global(machine: Machine, access: MemoryOp, address: Value, offset: int, data: list[Value]) -> None:
    """Write each lane's elements to global memory."""
    chunk, width = machine.chunk, access.width
    lanes, regions, masks = reached(machine, access, address, offset, data)
    written = [as_array(value, access.dtype, chunk) for value in data]
    if lanes is None and machine.mask is None and address.coefficients is not None and any(address.coefficients[:3]):
        for place, value in enumerate(written):
            view = regions[0][0].strided(address, offset + place * width, access.dtype, chunk)
            rows, columns = value.shape
            value = value.reshape(*(chunk.box[:3] if rows > 1 else ONE), *(chunk.box[3:] if columns > 1 else ONE))
            # If all blocks write to the same addresses, memory keeps the value of the last block.
            view[...] = value[-1:, -1:, -1:] if view.shape[:3] == ONE else value
        return
    addresses = flat(address, offset, chunk) if lanes is None else lanes.address
    for (region, _), mask in zip(regions, masks, strict=False):
        view, index = region.view(access.dtype), (addresses - region.base) >> (width.bit_length() - 1)
        for place, value in enumerate(written):
            put(view, index + place if place else index, value, mask)
