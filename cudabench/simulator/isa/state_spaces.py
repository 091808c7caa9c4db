"""The memory that loads, stores and atomics reach, in each state space.

Each access is checked, counted and logged for the race checks, and then moves its data. Shared memory has one row per
block of the chunk, and local memory one row per lane. Sectors of local memory are counted as in the layout that the
hardware uses for it. No kernel writes constant memory, so there are no races in constant memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from cudabench.simulator.clusters import REMOTE, RemoteAccess
from cudabench.simulator.count import atomics
from cudabench.simulator.count.counters import NO_ARRAY, shared_cost
from cudabench.simulator.count.patterns import NEIGHBOURS
from cudabench.simulator.count.requests import constants, sectors, spread
from cudabench.simulator.heap import HeapRegion
from cudabench.simulator.isa.access import Lanes, MemoryOp, check, put, read_only, restricted_to
from cudabench.simulator.machine import Machine
from cudabench.simulator.memory import (
    HALF_SLOT,
    LOCAL_WINDOW,
    PARAMETER_WINDOW,
    SHARED_WINDOW,
    SLOT_BITS,
    WINDOW,
    Region,
    elements_of,
    flat,
)
from cudabench.simulator.values import Array, Value, as_array, broadcast, different

# A flat uint8 array, the byte offset of each lane's access in it, and the mask of the lanes (None: all active lanes).
# The offsets of other lanes may be outside of the array.
Place = tuple[Array, Array, Array]
_WINDOWS = (("shared", SHARED_WINDOW), ("local", LOCAL_WINDOW))


def find(machine: Machine, access: MemoryOp, lanes: Lanes) -> list[tuple[Region, Array]]:
    """Check the lanes' addresses; return the regions that valid lanes access, each with the mask of its lanes.

    Invalid lanes are masked off.
    """
    active, space, address, original = lanes.active(), machine.space, lanes.address, lanes.mask
    low, high = int(active.min()), int(active.max())
    slot = low >> SLOT_BITS
    if 0 < slot < len(space.slots) and not (active & (access.size - 1)).any():
        region = space.slots[slot]
        if high + access.size <= region.end:
            return [(region, original)]
    if low >= PARAMETER_WINDOW and high < PARAMETER_WINDOW + WINDOW:
        region = machine.parameters
        inside = check(machine, access, lanes, region.base, region.end)
        return [(region, lanes.mask)] if inside else []
    owners = (address + HALF_SLOT) >> SLOT_BITS
    regions: list[tuple[Region, Array]] = []
    for number in different((active + HALF_SLOT) >> SLOT_BITS).tolist():
        lanes.mask = before = (owners == number) & (np.True_ if original is None else original)
        if not 0 < number < len(space.slots):
            check(machine, access, lanes, 1, 0)
            continue
        region, padded = space.slots[number], space.slots[number].padded
        last = padded.end if padded else 0
        inside = check(machine, access, lanes, region.base, region.base + region.size, last)
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


def slots_of(regions: list[tuple[Region, Array]]) -> int | tuple[int, ...]:
    """Return the address-space slot of the accessed regions: an int, or a sorted tuple if there are several slots."""
    slots = {region.base >> SLOT_BITS for region, _ in regions}
    return slots.pop() if len(slots) == 1 else tuple(sorted(slots))


def reach_global(
    machine: Machine, access: MemoryOp, address: Value, offset: int, data: Sequence[Value] = ()
) -> list[Place]:
    """Check, count, log and trace an access to global or constant memory; return the places that it reaches."""
    lanes = Lanes(machine, address, offset)
    regions = find(machine, access, lanes)
    mask = lanes.mask
    places = [(region.bytes, lanes.address - region.base, part) for region, part in regions]
    if not regions or (access.kind == "load" and regions[0][0] is machine.parameters):
        return places
    spaces, slots = machine.space.slots, slots_of(regions)
    if access.space == "const":
        number = access.numbers["constant"]
        machine.counters.count(machine, number, lanes.address, access.size, mask, slots, constants)
        return places
    padding = [part for region, part in regions if spaces[region.base >> SLOT_BITS] is not region]
    for part in padding:
        mask = mask & ~part
    number = access.numbers["global"]
    if padding and not np.any(mask):
        pass  # accesses to padding are not counted
    elif access.kind == "atomic":
        machine.contend(number, lanes.address, lanes.mask, access.target in machine.code.read)
        machine.counters.count(machine, number, lanes.address, access.size, mask, slots, atomics.sectors)
    else:
        machine.counters.count(machine, number, lanes.address, access.size, mask, slots, sectors, direct=True)
    if machine.trace is not None:
        machine.trace.record(machine, access, "global", lanes.address, mask)
    for region, exact in regions:
        if access.kind != "load" and not region.writable:
            read_only(machine, access, region)
        if spaces[region.base >> SLOT_BITS] is region:
            machine.global_races.log(access, region, address, offset, exact, data)
    return places


def reach_shared(
    machine: Machine, access: MemoryOp, address: Value, offset: int, data: Sequence[Value] = ()
) -> list[Place]:
    """Check, count, log and trace an access to shared memory; return the place that it reaches.

    The list is empty if no lane has a valid address. Lanes may access the shared memory of other blocks of the cluster.
    """
    chunk, counters, races, number = machine.chunk, machine.counters, machine.shared_races, access.numbers["shared"]
    lanes, loads = Lanes(machine, address, offset), access.kind == "load"
    if machine.plan.cluster is not None and lanes.active().max() >= REMOTE:
        remote = RemoteAccess(machine, access, lanes.address, lanes.mask, access.size)
        counters.cluster(number, remote.rows, remote.offset, access.size, remote.lanes, chunk, loads, access.served)
        if not loads:
            races.written(remote.rows[remote.lanes], remote.offset[remote.lanes], access.size)
        return [(machine.shared.reshape(-1), remote.places, remote.lanes)] if remote.lanes.any() else []
    if not check(machine, access, lanes, *(access.shared_bounds or (0, machine.shared_size))):
        return []
    address, mask, how = lanes.address, lanes.mask, access.served
    if how is not None or not races.asynchronous:  # the hardware does not count the stores of cp.async (LDGSTS)
        counters.count(machine, number, address, access.size, mask, None, shared_cost(loads, how), direct=how is None)
    races.log(access, address, mask, data)
    if machine.proxies.used and access.kind == "store" and not races.asynchronous:
        machine.proxies.store(address, mask, access.size)
    own = np.arange(chunk.blocks, dtype=np.int64).reshape(-1, 1)
    if machine.plan.cluster is not None and access.served is None:
        active = chunk.real(np.ones((1, 1), bool) if mask is None else mask)
        machine.cluster_races.log(
            access, broadcast(own, chunk.shape), broadcast(address, chunk.shape), active, access.size
        )
    if machine.trace is not None:
        machine.trace.record(machine, access, "shared", address, mask)
    return [(machine.shared.reshape(-1), address + own * machine.shared.shape[1], mask)]


def reach_local(
    machine: Machine, access: MemoryOp, address: Value, offset: int, data: Sequence[Value] = ()
) -> list[Place]:
    """Check and count an access to local memory; return the place that it reaches.

    The list is empty if no lane has a valid address.
    """
    chunk, counters, warps = machine.chunk, machine.counters, machine.warps
    number = access.numbers["local"]
    lanes = Lanes(machine, address, offset)
    if access.skewed:
        machine.hazards.misaligned(machine, access, np.ones((1, 1), dtype=bool), lanes.address, access.size)
        return []
    if not check(machine, access, lanes, *(access.bounds or (0, machine.local_bytes))):
        return []
    mask, places = lanes.mask, lanes.address
    uniform = address.size == 1 and machine.mask is None
    shift, size = counters.issued.get(number, (0, access.size))
    if not size:
        counters.merged[number] += warps
    elif uniform:
        counters.add(number, warps, warps * max(1, size // 4) * 4, warps * size, NO_ARRAY, NEIGHBOURS[size])
    else:
        # In the hardware's layout of local memory, word k of all lanes of a warp is contiguous.
        lane = np.arange(chunk.threads, dtype=np.int64) & 31
        rows, active, times = spread((places >> 2) * 128 + lane * 4 + (places & 3), mask, chunk)
        words = range(shift // 4, shift // 4 + max(1, size // 4))
        pieces = sum(sectors(rows + word * 128, active, min(4, size))[0] for word in words) * times
        counters.add(number, warps, pieces, warps * size)
    start = np.arange(chunk.blocks * chunk.threads, dtype=np.int64).reshape(chunk.shape) * machine.local.shape[2]
    index = (places + start) // access.width
    if machine.unwritten is not None:
        machine.unwritten.access_local(machine, access, index, mask)
    return [(machine.local.reshape(-1), places + start, mask)]


REACH = {
    "global": reach_global, "shared": reach_shared, "local": reach_local, "const": reach_global, "param": reach_global,
}  # fmt: skip


def by_space(machine: Machine, space: str, address: Value, offset: int) -> Iterator[tuple[str, int, Array]]:
    """Split an access by state space: yield (space, offset, lanes), while only the lanes `lanes` are active.

    offset: the bytes to add to the address to get an address in the space. lanes: a mask; None for all active lanes.
    """
    if space != "generic":
        yield space, offset, None
        return
    active = Lanes(machine, address, offset).active()
    low, high = active.min(), active.max()
    if low >= 1 << 39 or high < SHARED_WINDOW - WINDOW:
        yield "global", offset, None
        return
    for name, start in _WINDOWS:
        if low >= start - WINDOW // 2 and high < start + WINDOW:
            yield name, offset - start, None
            return
    addresses, rest = broadcast(flat(address, offset), machine.chunk.shape), machine.lanes()
    for name, start in (*_WINDOWS, ("global", 0)):
        inside = (addresses >= start - WINDOW // 2) & (addresses < start + WINDOW) & rest if start else rest
        rest = rest & ~inside
        if inside.any():
            with restricted_to(machine, inside):
                yield name, offset - start, inside


def load(machine: Machine, access: MemoryOp, space: str, address: Value, offset: int) -> list[Array] | None:
    """Return the elements that the lanes read, one array per element of a lane; None if no lane has a valid address."""
    total: list[Array] | None = None
    for name, shift, _ in by_space(machine, space, address, offset):
        for memory, offsets, mask in REACH[name](machine, access, address, shift):
            view, index = elements_of(memory, access.dtype), offsets // access.width
            part = [view.take(index + place, mode="clip") for place in range(access.count)]
            total = part if total is None else [np.where(mask, n, o) for n, o in zip(part, total, strict=True)]
    return total


def store(machine: Machine, access: MemoryOp, space: str, address: Value, offset: int, data: list[Value]) -> None:
    """Write each lane's elements."""
    for name, shift, _ in by_space(machine, space, address, offset):
        for memory, offsets, mask in REACH[name](machine, access, address, shift, data):
            view, index = elements_of(memory, access.dtype), offsets // access.width
            for place, value in enumerate(data):
                put(view, index + place, as_array(value, access.dtype), mask)
