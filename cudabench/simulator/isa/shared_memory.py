"""Shared memory: address checks, counts, the race log, then the data of each block's row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from cudabench.simulator import values
from cudabench.simulator.check.races import LogEntry
from cudabench.simulator.clusters import REMOTE, Remote
from cudabench.simulator.count.atomics import Served
from cudabench.simulator.count.counters import AWAY, Settles
from cudabench.simulator.isa.access import Lanes, MemoryOp, Reach, aligned, bounded, put
from cudabench.simulator.machine import Machine
from cudabench.simulator.memory import flat
from cudabench.simulator.values import Affine, Array, Chunk, Key, Value, as_array, broadcast

Box = tuple[int, tuple[int, ...], tuple[int, ...]]


class Settled(NamedTuple):
    """An access that came to linear addresses with a mask before: what was checked and counted then holds again.

    counted: array, wavefronts, ideal ones and pattern, as `Counters.add` takes them; warps: of the mask. entry: what
    was logged; logged: the bytes that the log grew by. box: where in the shared memory of a chunk a load reads whole
    blocks, by start, shape and strides; index: else the places of all lanes; chosen: those that a store writes, and
    which lanes do.
    """

    counted: Settles
    warps: int
    entry: LogEntry
    logged: int
    box: Box | None = None
    index: Array = None
    chosen: tuple[Array, Array] | None = None

    def note(self, machine: Machine, access: MemoryOp, entry: LogEntry) -> None:
        """Count and log the access once more."""
        number = access.numbers["shared"]
        if self.counted is AWAY:
            machine.counters.merged[number] += self.warps
        else:
            array, pieces, ideal, look = self.counted
            machine.counters.add(number, self.warps, pieces, ideal, array, look)
        machine.shared_races.append(entry, self.logged)


def before(machine: Machine, access: MemoryOp, address: Value, offset: int) -> tuple[Key | None, Settled | None]:
    """Return what a settled access is kept under, None where each is looked at by itself, and the one that is kept."""
    kept, mask = machine.chunk.masks, machine.mask
    if kept is None or not machine.settles or type(address) is not Affine or machine.shared_races.asynchronous:
        return None, None
    if mask is not None and id(mask) not in kept.names:
        return None, None
    issued = machine.counters.issued.get(access.numbers["shared"]) if machine.counters.issued else None
    name = access.number, issued, address.base + offset, address.coefficients, address.low, address.high, id(mask)
    return name, kept.settled.get(name)


def settle(machine: Machine, access: MemoryOp, name: Key | None, counted: Settles | None, **found: Any) -> None:
    """Keep an access that was just counted and logged, where it will count the same again."""
    entries, kept = machine.shared_races.entries, machine.chunk.masks
    if name is None or counted is None or kept is None or not entries:
        return
    entry = entries[-1]
    if isinstance(entry, LogEntry) and entry.access is access and entry.key is not None:
        logged = 64 if isinstance(entry.address, Affine) else entry.address.nbytes
        logged += 0 if entry.mask is None else entry.mask.nbytes
        kept.settled[name] = Settled(counted, machine.warps, entry, logged, **found)
        kept.note(256)


def box_of(machine: Machine, access: MemoryOp, address: Value, offset: int) -> Box | None:
    """Return (start, shape, strides) in the chunk's shared memory, where all blocks go to the same places of their
    own, in bounds and aligned; else None."""
    if type(address) is not Affine:
        return None
    c, chunk = address.coefficients, machine.chunk
    least, most = access.shared_bounds or (0, machine.shared_size)
    beyond = address.low + offset < least or address.high + offset + access.size > most
    if beyond or (c and (c[3] or c[4] or c[5] or chunk.ragged)) or not aligned(address, offset, access.size):
        return None
    row, start = machine.shared.shape[1], address.base + offset
    if c is None:
        return start, (chunk.blocks, 1), (row, 0)
    return start, (chunk.blocks, *chunk.box[3:]), (row, c[2], c[1], c[0])


def views(machine: Machine, access: MemoryOp, box: Box) -> list[Array]:
    """Return a view of shared memory for each element of a lane."""
    start, shape, strides = box
    return [
        np.ndarray(shape, access.dtype, machine.shared, start + place * access.width, strides)
        for place in range(access.count)
    ]


def own_address(address: Value, offset: int) -> Value:
    """Return an address of 32 bits by its sign; not a generic one, whose window is in the offset."""
    if type(address) is Affine and address.low + offset >= 1 << 31:
        return values.by_sign(address, 32, True) or address
    return address


def lanes_of(machine: Machine, access: MemoryOp, address: Value, offset: int) -> Lanes | Remote | None:
    """Return the lanes that are in bounds and aligned, all checked; None without any.

    A Remote goes to the memory of other blocks of the cluster, and is counted by `count_remote`.
    """
    lanes = Lanes(machine, address, offset)
    if machine.plan.cluster is not None and lanes.extremes()[1] >= REMOTE:
        return Remote(machine, access, lanes.address, lanes.exact(machine), access.size)
    bounds = access.shared_bounds or (0, machine.shared_size)
    return lanes if bounded(machine, access, lanes, *bounds) else None


def count_remote(machine: Machine, access: MemoryOp, remote: Remote, how: Served | None = None) -> None:
    """Count an access to the memory of other blocks; how: of an atomic, see `atomics.served`."""
    machine.counters.cluster(
        access.numbers["shared"], remote.rows, remote.offset, access.size, remote.lanes, machine.chunk,
        access.kind == "load", how,
    )  # fmt: skip
    if access.kind != "load":
        machine.shared_races.written(remote.rows[remote.lanes], remote.offset[remote.lanes], access.size)


def load_shared(machine: Machine, access: MemoryOp, address: Value, offset: int) -> list[Array] | None:
    """Return the elements that each lane reads from its block's shared memory."""
    chunk = machine.chunk
    name, settled = before(machine, access, address, offset)
    if settled is not None:
        settled.note(machine, access, settled.entry)
        if settled.box is None:
            return taken(machine, access, settled.index)
        return [view.copy("C").reshape(chunk.blocks, -1) for view in views(machine, access, settled.box)]
    address = own_address(address, offset)
    box = box_of(machine, access, address, offset)
    if box is not None:
        settle(machine, access, name, note_shared(machine, access, address, offset, machine.mask), box=box)
        return [view.copy("C").reshape(chunk.blocks, -1) for view in views(machine, access, box)]
    lanes = lanes_of(machine, access, address, offset)
    if lanes is None:
        return None
    if isinstance(lanes, Remote):
        if not lanes.lanes.any():
            return None
        count_remote(machine, access, lanes)
        return taken(machine, access, lanes.places // access.width)
    reach = lanes.reach
    counted = note_shared(machine, access, lanes.address, 0, lanes.exact(machine), (), reach)
    index = index_of(machine, access, lanes)
    if reach is not None:
        settle(machine, access, name, counted, index=index)
    return taken(machine, access, index)


def index_of(machine: Machine, access: MemoryOp, lanes: Lanes) -> Array:
    """Return the place of each lane in elements: of a load by all blocks, one row's; else those of all rows."""
    loads, reach, width = access.kind == "load", lanes.reach, access.width
    key = width if loads else -width
    index = None if reach is None else reach.index.get(key)
    if index is None:
        index = lanes.fill(0) if loads else lanes.address
        if not loads or index.shape[0] > 1:
            index = index + row_starts(machine.chunk, machine.shared)
        index = index >> (width.bit_length() - 1)
        if reach is not None:
            reach.index[key] = index
    return index


def taken(machine: Machine, access: MemoryOp, index: Array) -> list[Array]:
    """Return what lanes read from places of their blocks' memory, or with one row of them in each block's row."""
    if index.shape[0] == 1:
        view, index = machine.shared.view(access.dtype), index[0]
        return [view.take(index + place if place else index, axis=1) for place in range(access.count)]
    view = machine.shared.reshape(-1).view(access.dtype)
    return [view.take(index + place if place else index) for place in range(access.count)]


def row_starts(chunk: Chunk, memory: Array) -> Array:
    """Return the offset of each block's row in the flat shared memory of the chunk: (blocks, 1)."""
    return (np.arange(chunk.blocks, dtype=np.int64) * memory.shape[1]).reshape(-1, 1)


def note_shared(
    machine: Machine, access: MemoryOp, address: Value, offset: int, mask: Array | None, data: Sequence[Value] = (),
    reach: Reach | None = None, how: Served | None = None,
) -> Settles | None:  # fmt: skip
    """Count, log and trace an access; return its counts where they hold whenever it comes again.

    how: of an atomic, see `atomics.served`.
    """
    chunk, counted = machine.chunk, None
    copies = machine.shared_races.asynchronous  # of which the hardware counts no store to shared memory (LDGSTS)
    number, warps = access.numbers["shared"], machine.warps
    if how is not None:
        machine.counters.shared_atomic(number, address, access.size, mask, warps, chunk, how)
    elif not copies:
        known = None if reach is None else reach.counted
        counted = machine.counters.shared(
            number, address, offset, access.size, mask, warps, chunk, access.kind == "load", known
        )
    machine.shared_races.log(access, address, offset, mask, data, None if reach is None else reach.name)
    if machine.proxies.used and access.kind == "store" and not copies:
        machine.proxies.store(flat(address, offset, chunk), mask, access.size)
    if machine.plan.cluster is not None and how is None:
        lanes = chunk.real(np.ones((1, 1), bool) if mask is None else mask)
        own = broadcast(np.arange(chunk.blocks, dtype=np.int64).reshape(-1, 1), chunk.shape)
        machine.cluster_races.log(access, own, broadcast(flat(address, offset, chunk), chunk.shape), lanes, access.size)
    if machine.trace is not None:
        machine.trace.record(machine, access, "shared", flat(address, offset, chunk), mask)
    return counted


def store_shared(machine: Machine, access: MemoryOp, address: Value, offset: int, data: list[Value]) -> None:
    """Write each lane's elements to its block's shared memory."""
    chunk = machine.chunk
    name, settled = before(machine, access, address, offset)
    if settled is not None and settled.chosen is not None:
        settled.note(machine, access, machine.shared_races.stored(settled.entry, data))
        scatter(machine, access, settled.chosen, machine.mask, data)
        return
    address = own_address(address, offset)
    box = box_of(machine, access, address, offset) if machine.mask is None else None
    if box is not None and address.coefficients is not None:
        note_shared(machine, access, address, offset, None, data)
        for view, value in zip(views(machine, access, box), data, strict=True):
            value = as_array(value, access.dtype, chunk)
            rows, columns = value.shape
            view[...] = value.reshape(rows, *(chunk.box[3:] if columns > 1 else (1, 1, 1)))
        return
    lanes = lanes_of(machine, access, address, offset)
    if lanes is None:
        return
    view = machine.shared.reshape(-1).view(access.dtype)
    if isinstance(lanes, Remote):
        count_remote(machine, access, lanes)
        index = lanes.places[lanes.lanes] // access.width
        for place, value in enumerate(data):
            view[index + place] = broadcast(as_array(value, access.dtype, chunk), chunk.shape)[lanes.lanes]
        return
    # A uniform address has a mask of one place; which lanes write still matters for the value.
    mask, reach = lanes.exact(machine), lanes.reach
    counted = note_shared(machine, access, lanes.address, 0, mask, data, reach)
    index = index_of(machine, access, lanes)
    if reach is None or mask is None or mask.shape != index.shape:
        for place, value in enumerate(data):
            put(view, index + place if place else index, as_array(value, access.dtype, chunk), mask)
        return
    chosen = reach.chosen.get(access.width)
    if chosen is None:
        lanes_on = np.flatnonzero(mask)
        chosen = reach.chosen[access.width] = index.reshape(-1)[lanes_on], lanes_on
    if mask is machine.mask:
        settle(machine, access, name, counted, chosen=chosen)
    scatter(machine, access, chosen, mask, data)


def scatter(
    machine: Machine, access: MemoryOp, chosen: tuple[Array, Array], mask: Array, data: Sequence[Value]
) -> None:
    """Write elements to the places in shared memory of the lanes of a full mask, each given as flat indices."""
    places, lanes = chosen
    view = machine.shared.reshape(-1).view(access.dtype)
    for place, value in enumerate(data):
        value = as_array(value, access.dtype, machine.chunk)
        value = value.reshape(()) if value.size == 1 else broadcast(value, mask.shape).take(lanes)
        view[places + place if place else places] = value
