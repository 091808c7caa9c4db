"""Shared memory: address checks, counts, the race log, then the data of each block's row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from cudabench.simulator import values
from cudabench.simulator.clusters import REMOTE, Remote
from cudabench.simulator.isa.access import Lanes, MemoryOp, Reach, aligned, check, put
from cudabench.simulator.memory import (
    flat,
)
from cudabench.simulator.values import Affine, Array, Chunk, Value, as_array, broadcast

if TYPE_CHECKING:
    from cudabench.simulator.machine import Machine


def load_shared(machine: Machine, access: MemoryOp, address: Value, offset: int) -> list[Array] | None:
    """Return the elements that each lane reads from its block's shared memory."""
    chunk = machine.chunk
    memory = machine.shared
    dtype, width = access.dtype, access.width
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
            _note_shared(machine, access, address, offset, machine.mask, ())
            start = address.base + offset
            row = memory.shape[1]
            if c is None:
                return [
                    np.ndarray((chunk.blocks, 1), dtype, memory, start + place * width, (row, 0)).copy()
                    for place in range(access.count)
                ]
            return [
                np.ndarray(
                    (chunk.blocks, *chunk.box[3:]),
                    dtype,
                    memory,
                    start + place * width,
                    (row, c[2], c[1], c[0]),
                )
                .copy("C")
                .reshape(chunk.blocks, -1)
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
    _note_shared(machine, access, lanes.address, 0, mask, (), lanes.reach)
    reach = lanes.reach
    index = None if reach is None else reach.index.get(width)
    if index is None:
        index = lanes.fill(0)
        if index.shape[0] > 1:
            index = index + row_starts(chunk, memory)
        index = index >> (width.bit_length() - 1)
        if reach is not None:
            reach.index[width] = index
    if index.shape[0] == 1:
        view, index = memory.view(dtype), index[0]
        return [view.take(index + place if place else index, axis=1) for place in range(access.count)]
    view = memory.reshape(-1).view(dtype)
    return [view.take(index + place if place else index) for place in range(access.count)]


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
) -> None:
    if not machine.shared_races.asynchronous:  # the hardware counts no shared store for an asynchronous copy (LDGSTS)
        machine.counters.shared(
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


def store_shared(machine: Machine, access: MemoryOp, address: Value, offset: int, data: list[Value]) -> None:
    """Write each lane's elements to its block's shared memory."""
    chunk = machine.chunk
    memory = machine.shared
    dtype, width = access.dtype, access.width
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
    _note_shared(machine, access, lanes.address, 0, mask, data, reach)
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
        places, lanes_on = chosen
        for place in range(access.count):
            value = as_array(data[place], dtype, chunk)
            if value.shape != mask.shape and value.size > 1:
                value = broadcast(value, mask.shape)
            view[places + place if place else places] = value.reshape(()) if value.size == 1 else value.take(lanes_on)
        return
    for place in range(access.count):
        put(view, index + place if place else index, as_array(data[place], dtype, chunk), mask)
