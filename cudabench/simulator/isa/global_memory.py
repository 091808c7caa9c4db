"""Global memory: address checks, counts, the race log, then the data.

Affine addresses that are known to be in bounds move as strided views; all others as gathers and scatters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cudabench.simulator.heap import HeapRegion
from cudabench.simulator.isa.access import Lanes, MemoryOp, aligned, check, put, read_only
from cudabench.simulator.memory import (
    HALF_SLOT,
    PARAMETER_WINDOW,
    SLOT_BITS,
    WINDOW,
    Region,
    flat,
)
from cudabench.simulator.values import Affine, Array, Chunk, Value, as_array, different

if TYPE_CHECKING:
    from cudabench.simulator.machine import Machine


def find(machine: Machine, access: MemoryOp, lanes: Lanes) -> list[tuple[Region, Array | None]]:
    """Return the regions that the lanes touch, each with its lanes (None: all of the mask), all checked."""
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
    address = np.broadcast_to(
        lanes.address, np.broadcast_shapes(lanes.address.shape, (1, 1) if lanes.mask is None else lanes.mask.shape)
    )
    owners = (address + HALF_SLOT) >> SLOT_BITS
    found: list[tuple[Region, Array | None]] = []
    chosen = owners if lanes.mask is None else owners[np.broadcast_to(lanes.mask, owners.shape)]
    original = lanes.mask
    keep = np.zeros(address.shape, dtype=bool)
    for number in different(chosen).tolist():
        part = owners == number
        if original is not None:
            part = part & original
        lanes.mask = part
        if not 0 < number < len(space.slots):
            check(machine, access, lanes, 1, 0, access.size)
            continue
        region = space.slots[number]
        if isinstance(region, HeapRegion):
            if check(machine, access, lanes, region.base, region.base + region.size, access.size):
                inside = part if lanes.mask is None else lanes.mask
                lanes.mask = region.keep_inside(machine, access, address, np.broadcast_to(inside, address.shape))
                if lanes.mask.any():
                    found.append((region, lanes.mask))
                    keep |= lanes.mask
            continue
        if check(machine, access, lanes, region.base, region.end, access.size):
            found.append((region, lanes.mask))
            keep |= lanes.mask
    lanes.mask = keep
    return found


def slots_of(regions: list[tuple[Region, Array | None]]) -> int | tuple[int, ...]:
    """Return the slot of the address space that lanes went to, or the slots where they are several."""
    if len(regions) == 1:
        return regions[0][0].base >> SLOT_BITS
    return tuple(sorted(region.base >> SLOT_BITS for region, _ in regions))


def load_global(machine: Machine, access: MemoryOp, address: Value, offset: int) -> list[Array] | None:
    """Return the elements that each lane reads from global memory, or None where no lane may read."""
    chunk = machine.chunk
    number = access.numbers["global"]
    if type(address) is Affine and not chunk.ragged:
        low = address.low + offset
        slot = low >> SLOT_BITS
        slots = machine.space.slots
        if 0 < slot < len(slots):
            region = slots[slot]
            if address.high + offset + access.size <= region.end and aligned(address, offset, access.size):
                machine.counters.global_(number, address, offset, access.size, machine.mask, machine.warps, chunk, slot)
                machine.global_races.log(access, region, address, offset, machine.mask, ())
                if machine.trace is not None:
                    machine.trace.record(machine, access, "global", flat(address, offset, chunk), machine.mask)
                return [
                    _shaped(region.strided(address, offset + place * access.width, access.dtype, chunk), address)
                    for place in range(access.count)
                ]
    lanes = Lanes(machine, address, offset)
    regions = find(machine, access, lanes)
    if not regions:
        return None
    parameters = regions[0][0] is machine.parameters
    if not parameters:
        warps = machine.warps
        machine.counters.global_(
            number, lanes.address, 0, access.size, lanes.exact(machine), warps, chunk, slots_of(regions), address
        )
        if machine.trace is not None:
            machine.trace.record(machine, access, "global", lanes.address, lanes.exact(machine))
    if len(regions) == 1:
        if not parameters:
            machine.global_races.log(access, regions[0][0], lanes.address, 0, lanes.exact(machine), ())
    else:
        for region, mask in regions:
            assert mask is not None
            exact = mask if machine.mask is None else mask & machine.mask
            machine.global_races.log(access, region, lanes.address, 0, exact, ())
    return gathered(access, lanes, regions)


def gathered(access: MemoryOp, lanes: Lanes, regions: list[tuple[Region, Array | None]]) -> list[Array]:
    """Return the elements that each lane reads from the regions that `find` gave."""
    if len(regions) == 1:
        region = regions[0][0]
        return _gather(region, access, lanes.fill(region.base) - region.base)
    total: list[Array] = []
    for region, mask in regions:
        assert mask is not None
        part = _gather(region, access, np.where(mask, lanes.address, region.base) - region.base)
        total = part if not total else [np.where(mask, new, old) for new, old in zip(part, total, strict=True)]
    return total


def _shaped(view: Array, address: Affine) -> Array:
    coefficients = address.coefficients
    if coefficients is None:
        return view.copy()
    if not any(coefficients[3:]):
        return view.reshape(1, -1).copy()
    if not any(coefficients[:3]):
        return view.reshape(-1, 1).copy()
    blocks = view.shape[0] * view.shape[1] * view.shape[2]
    result = np.empty(view.shape, view.dtype)
    result[...] = view
    return result.reshape(blocks, -1)


def _gather(region: Region, access: MemoryOp, offsets: Array) -> list[Array]:
    width = access.width
    view = region.view(access.dtype)
    if access.count == 1 or region.size % width == 0:
        index = offsets >> (width.bit_length() - 1)
        return [view.take(index + place if place else index) for place in range(access.count)]
    index = offsets >> (width.bit_length() - 1)
    return [view.take(index + place) for place in range(access.count)]


def store_global(machine: Machine, access: MemoryOp, address: Value, offset: int, data: list[Value]) -> None:
    """Write each lane's elements to global memory."""
    chunk = machine.chunk
    number = access.numbers["global"]
    dtype = access.dtype
    if type(address) is Affine and not chunk.ragged:
        low = address.low + offset
        slot = low >> SLOT_BITS
        slots = machine.space.slots
        if 0 < slot < len(slots):
            region = slots[slot]
            if address.high + offset + access.size <= region.end and aligned(address, offset, access.size):
                if not region.writable:
                    read_only(machine, access, region)
                machine.counters.global_(number, address, offset, access.size, machine.mask, machine.warps, chunk, slot)
                machine.global_races.log(access, region, address, offset, machine.mask, data)
                if machine.trace is not None:
                    machine.trace.record(machine, access, "global", flat(address, offset, chunk), machine.mask)
                if machine.mask is None and address.coefficients is not None and any(address.coefficients[:3]):
                    for place in range(access.count):
                        view = region.strided(address, offset + place * access.width, dtype, chunk)
                        _assign(view, as_array(data[place], dtype, chunk), chunk)
                    return
                _scatter(machine, region, access, flat(address, offset, chunk), machine.mask, data)
                return
    lanes = Lanes(machine, address, offset)
    regions = find(machine, access, lanes)
    if not regions:
        return
    mask = lanes.exact(machine)
    machine.counters.global_(
        number, lanes.address, 0, access.size, mask, machine.warps, chunk, slots_of(regions), address
    )
    if machine.trace is not None:
        machine.trace.record(machine, access, "global", lanes.address, mask)
    for region, part in regions:
        if not region.writable:
            read_only(machine, access, region)
        chosen = part if part is not None else lanes.mask
        exact = machine.mask if chosen is None else chosen if machine.mask is None else chosen & machine.mask
        machine.global_races.log(access, region, lanes.address, 0, exact, data)
        _scatter(machine, region, access, lanes.address, exact, data)


def _assign(view: Array, value: Array, chunk: Chunk) -> None:
    """Write (blocks, threads) values through a view of the shape of a box."""
    if value.size > 1:
        blocks = chunk.box[:3] if value.shape[0] == chunk.blocks and chunk.blocks > 1 else (1, 1, 1)
        threads = chunk.box[3:] if value.shape[1] == chunk.threads else (1, 1, 1)
        value = value.reshape(*blocks, *threads)
        if view.shape[:3] == (1, 1, 1) and blocks != (1, 1, 1):
            # All blocks write the same place: the last one stays.
            value = value[-1:, -1:, -1:]
    else:
        value = value.reshape(())
    view[...] = value


def _scatter(
    machine: Machine, region: Region, access: MemoryOp, address: Array, mask: Array | None, data: list[Value]
) -> None:
    view = region.view(access.dtype)
    shift = access.width.bit_length() - 1
    chunk = machine.chunk
    index = (address - region.base) >> shift
    for place in range(access.count):
        value = as_array(data[place], access.dtype, chunk)
        put(view, index + place if place else index, value, mask)
