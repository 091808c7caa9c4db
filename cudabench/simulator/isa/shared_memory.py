"""Shared memory: address checks, counts, the race log, then the data of each block's row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cudabench.simulator import values
from cudabench.simulator.check.races import LogEntry
from cudabench.simulator.clusters import REMOTE, Remote
from cudabench.simulator.count.counters import AWAY, Settles
from cudabench.simulator.isa.access import Lanes, MemoryOp, Reach, aligned, check, put
from cudabench.simulator.masks import Masks
from cudabench.simulator.memory import (
    flat,
)
from cudabench.simulator.values import Affine, Array, Chunk, Key, Value, as_array, broadcast

if TYPE_CHECKING:
    from cudabench.simulator.machine import Machine


class Settled:
    """An access that came to linear addresses with a mask before: what was checked and counted then holds again.

    counted: array, wavefronts, ideal ones and pattern, as `Counters.add` takes them; warps: of the mask. entry: what
    was logged; logged: the bytes that the log grew by. start, shape, strides: where in the shared memory of a chunk a
    load reads whole blocks; index: else the places of all lanes; chosen: those that a store writes, and which lanes do.
    """

    __slots__ = ("chosen", "counted", "entry", "index", "logged", "shape", "start", "strides", "warps")

    def __init__(self, counted: Settles, warps: int, entry: LogEntry, logged: int) -> None:
        self.counted, self.warps, self.entry, self.logged = counted, warps, entry, logged
        self.start = 0
        self.shape: tuple[int, ...] = ()
        self.strides: tuple[int, ...] = ()
        self.index: Array = None
        self.chosen: tuple[Array, Array] | None = None

    def note(self, machine: Machine, access: MemoryOp, entry: LogEntry) -> None:
        """Count and log the access once more."""
        number = access.numbers["shared"]
        if self.counted is AWAY:
            machine.counters.merged[number] += self.warps
        else:
            array, pieces, ideal, look = self.counted
            machine.counters.add(number, self.warps, pieces, ideal, array, look)
        machine.shared_races.append(entry, self.logged)


def name_of(machine: Machine, kept: Masks, access: MemoryOp, address: Value, offset: int) -> Key | None:
    """Return what a settled access is kept under; None where each is looked at by itself."""
    mask = machine.mask
    if not machine.settles or type(address) is not Affine or machine.shared_races.asynchronous:
        return None
    if mask is not None and id(mask) not in kept.names:
        return None
    issued = machine.counters.issued.get(access.numbers["shared"]) if machine.counters.issued else None
    return access.number, issued, address.base + offset, address.coefficients, address.low, address.high, id(mask)


def settle(machine: Machine, access: MemoryOp, name: Key | None, counted: Settles | None) -> Settled | None:
    """Keep an access that was just counted and logged, where it will count the same again."""
    entries, kept = machine.shared_races.entries, machine.chunk.masks
    if name is None or counted is None or kept is None or not entries:
        return None
    entry = entries[-1]
    if not isinstance(entry, LogEntry) or entry.access is not access or entry.key is None:
        return None
    logged = 64 if isinstance(entry.address, Affine) else entry.address.nbytes
    logged += 0 if entry.mask is None else entry.mask.nbytes
    found = kept.settled[name] = Settled(counted, machine.warps, entry, logged)
    kept.note(256)
    return found


def load_shared(machine: Machine, access: MemoryOp, address: Value, offset: int) -> list[Array] | None:
    """Return the elements that each lane reads from its block's shared memory."""
    chunk = machine.chunk
    memory = machine.shared
    dtype, width = access.dtype, access.width
    kept = chunk.masks
    name = None if kept is None else name_of(machine, kept, access, address, offset)
    if kept is not None and name is not None:
        settled = kept.settled.get(name)
        if settled is not None:
            settled.note(machine, access, settled.entry)
            if settled.index is not None:
                return taken(memory, dtype, settled.index, access.count)
            return [
                np.ndarray(settled.shape, dtype, memory, settled.start + place * width, settled.strides)
                .copy("C")
                .reshape(chunk.blocks, -1)
                for place in range(access.count)
            ]
    least, most = access.shared_bounds or (0, machine.shared_size)
    if type(address) is Affine and address.low + offset >= 1 << 31:  # not a generic one, whose window is in `offset`
        address = values.signed(address, 32) or address
    if type(address) is Affine:
        c = address.coefficients
        if (
            address.low + offset >= least
            and address.high + offset + access.size <= most
            and (c is None or not (c[3] or c[4] or c[5] or chunk.ragged))
            and aligned(address, offset, access.size)
        ):
            counted = _note_shared(machine, access, address, offset, machine.mask, ())
            start = address.base + offset
            row = memory.shape[1]
            shape: tuple[int, ...] = (chunk.blocks, 1)
            strides: tuple[int, ...] = (row, 0)
            if c is not None:
                shape, strides = (chunk.blocks, *chunk.box[3:]), (row, c[2], c[1], c[0])
            settled = settle(machine, access, name, counted)
            if settled is not None:
                settled.start, settled.shape, settled.strides = start, shape, strides
            return [
                np.ndarray(shape, dtype, memory, start + place * width, strides).copy("C").reshape(chunk.blocks, -1)
                for place in range(access.count)
            ]
    lanes = Lanes(machine, address, offset)
    low, high, bits = lanes.extremes()
    if high >= REMOTE and machine.plan.cluster is not None:
        return load_remote(machine, access, lanes)
    if (low < least or high + access.size > most or bits & (access.size - 1)) and not check(
        machine, access, lanes, least, most, access.size
    ):
        return None
    mask = lanes.exact(machine)
    reach = lanes.reach
    counted = _note_shared(machine, access, lanes.address, 0, mask, (), reach)
    index = None if reach is None else reach.index.get(width)
    if index is None:
        index = lanes.fill(0)
        if index.shape[0] > 1:
            index = index + row_starts(chunk, memory)
        index = index >> (width.bit_length() - 1)
        if reach is not None:
            reach.index[width] = index
    if reach is not None:
        settled = settle(machine, access, name, counted)
        if settled is not None:
            settled.index = index
    return taken(memory, dtype, index, access.count)


def taken(memory: Array, dtype: np.dtype[Any], index: Array, count: int) -> list[Array]:
    """Return what lanes read from places of their blocks' memory, or with one row of them in each block's row."""
    if index.shape[0] == 1:
        view, index = memory.view(dtype), index[0]
        return [view.take(index + place if place else index, axis=1) for place in range(count)]
    view = memory.reshape(-1).view(dtype)
    return [view.take(index + place if place else index) for place in range(count)]


def load_remote(machine: Machine, access: MemoryOp, lanes: Lanes) -> list[Array] | None:
    """Return what each lane reads from the shared memory of a block of its cluster."""
    remote = Remote(machine, access, lanes.address, lanes.exact(machine), access.size)
    if not remote.lanes.any():
        return None
    machine.counters.cluster(
        access.numbers["shared"], remote.rows, remote.offset, access.size, remote.lanes, machine.chunk, True
    )
    index = remote.places // access.width
    view = machine.shared.reshape(-1).view(access.dtype)
    return [view.take(index + place) for place in range(access.count)]


def store_remote(machine: Machine, access: MemoryOp, remote: Remote, data: Sequence[Value]) -> None:
    """Write each lane's elements to the shared memory of a block of its cluster, which is then initialised."""
    chunk = machine.chunk
    machine.counters.cluster(
        access.numbers["shared"], remote.rows, remote.offset, access.size, remote.lanes, chunk, False
    )
    index = remote.places[remote.lanes] // access.width
    view = machine.shared.reshape(-1).view(access.dtype)
    for place in range(access.count):
        values_ = broadcast(as_array(data[place], access.dtype, chunk), chunk.shape)
        view[index + place] = values_[remote.lanes]
    machine.shared_races.written(remote.rows[remote.lanes], remote.offset[remote.lanes], access.size)


def row_starts(chunk: Chunk, memory: Array) -> Array:
    """Return the offset of each block's row in the flat shared memory of the chunk: (blocks, 1)."""
    return (np.arange(chunk.blocks, dtype=np.int64) * memory.shape[1]).reshape(-1, 1)


def _note_shared(
    machine: Machine,
    access: MemoryOp,
    address: Value,
    offset: int,
    mask: Array | None,
    data: Sequence[Value],
    reach: Reach | None = None,
) -> Settles | None:
    counted = None
    if not machine.shared_races.asynchronous:  # the hardware counts no shared store for an asynchronous copy (LDGSTS)
        counted = machine.counters.shared(
            access.numbers["shared"],
            address,
            offset,
            access.size,
            mask,
            machine.warps,
            machine.chunk,
            access.kind == "load",
            None if reach is None else reach.counted,
        )
    machine.shared_races.log(access, address, offset, mask, data, None if reach is None else reach.name)
    if machine.proxies.used and access.kind == "store" and not machine.shared_races.asynchronous:
        machine.proxies.store(flat(address, offset, machine.chunk), mask, access.size)
    if machine.plan.cluster is not None:
        chunk = machine.chunk
        lanes = chunk.real(np.ones((1, 1), bool) if mask is None else mask)
        own = broadcast(np.arange(chunk.blocks, dtype=np.int64).reshape(-1, 1), chunk.shape)
        machine.cluster_races.log(access, own, broadcast(flat(address, offset, chunk), chunk.shape), lanes, access.size)
    if machine.trace is not None:
        machine.trace.record(machine, access, "shared", flat(address, offset, machine.chunk), mask)
    return counted


def store_shared(machine: Machine, access: MemoryOp, address: Value, offset: int, data: list[Value]) -> None:
    """Write each lane's elements to its block's shared memory."""
    chunk = machine.chunk
    memory = machine.shared
    dtype, width = access.dtype, access.width
    kept = chunk.masks
    name = None if kept is None else name_of(machine, kept, access, address, offset)
    if kept is not None and name is not None:
        settled = kept.settled.get(name)
        if settled is not None and settled.chosen is not None:
            settled.note(machine, access, machine.shared_races.stored(settled.entry, data))
            scatter(machine, access, settled.chosen, machine.mask, data)
            return
    least, most = access.shared_bounds or (0, machine.shared_size)
    if type(address) is Affine and address.low + offset >= 1 << 31:  # not a generic one, whose window is in `offset`
        address = values.signed(address, 32) or address
    if type(address) is Affine and machine.mask is None:
        c = address.coefficients
        if (
            c is not None
            and address.low + offset >= least
            and address.high + offset + access.size <= most
            and not (c[3] or c[4] or c[5])
            and aligned(address, offset, access.size)
        ):
            _note_shared(machine, access, address, offset, None, data)
            start = address.base + offset
            for place in range(access.count):
                view = np.ndarray(
                    (chunk.blocks, *chunk.box[3:]),
                    dtype,
                    memory,
                    start + place * width,
                    (memory.shape[1], c[2], c[1], c[0]),
                )
                value = as_array(data[place], dtype, chunk)
                rows, columns = value.shape
                view[...] = value.reshape(rows, *(chunk.box[3:] if columns > 1 else (1, 1, 1)))
            return
    lanes = Lanes(machine, address, offset)
    low, high, bits = lanes.extremes()
    if high >= REMOTE and machine.plan.cluster is not None:
        remote = Remote(machine, access, lanes.address, lanes.exact(machine), access.size)
        store_remote(machine, access, remote, data)
        return
    if (low < least or high + access.size > most or bits & (access.size - 1)) and not check(
        machine, access, lanes, least, most, access.size
    ):
        return
    # A uniform address has a mask of one place; which lanes write still matters for the value.
    mask = lanes.exact(machine)
    reach = lanes.reach
    counted = _note_shared(machine, access, lanes.address, 0, mask, data, reach)
    view = memory.reshape(-1).view(dtype)
    index = None if reach is None else reach.index.get(-width)
    if index is None:
        index = (lanes.address + row_starts(chunk, memory)) >> (width.bit_length() - 1)
        if reach is not None:
            reach.index[-width] = index
    if reach is not None and mask is not None and mask.shape == index.shape:
        chosen = reach.chosen.get(width)
        if chosen is None:
            lanes_on = np.flatnonzero(mask)
            chosen = reach.chosen[width] = index.reshape(-1)[lanes_on], lanes_on
        if mask is machine.mask:
            settled = settle(machine, access, name, counted)
            if settled is not None:
                settled.chosen = chosen
        scatter(machine, access, chosen, mask, data)
        return
    for place in range(access.count):
        put(view, index + place if place else index, as_array(data[place], dtype, chunk), mask)


def scatter(
    machine: Machine, access: MemoryOp, chosen: tuple[Array, Array], mask: Array | None, data: Sequence[Value]
) -> None:
    """Write elements to the places in shared memory of the lanes of a full mask, each given as flat indices."""
    places, lanes = chosen
    view = machine.shared.reshape(-1).view(access.dtype)
    assert mask is not None
    for place in range(access.count):
        value = as_array(data[place], access.dtype, machine.chunk)
        if value.size == 1:
            value = value.reshape(())
        else:
            value = (value if value.shape == mask.shape else broadcast(value, mask.shape)).take(lanes)
        view[places + place if place else places] = value
