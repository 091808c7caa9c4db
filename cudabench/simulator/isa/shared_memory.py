"""Loads and stores of shared memory, which is an array with one row per block of the chunk.

Each access is checked, counted and logged for the race check, and then moves its data.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cudabench.simulator import values
from cudabench.simulator.clusters import REMOTE, RemoteAccess
from cudabench.simulator.count.atomics import Served
from cudabench.simulator.isa.access import Lanes, MemoryOp, aligned, bounded, put
from cudabench.simulator.machine import Machine
from cudabench.simulator.memory import flat
from cudabench.simulator.values import Affine, Array, Chunk, Value, as_array, broadcast

Box = tuple[int, tuple[int, ...], tuple[int, ...]]


def box_of(machine: Machine, access: MemoryOp, address: Value, offset: int) -> Box | None:
    """Return start, shape and strides of a NumPy view of shared memory that holds the accessed elements.

    Return None if there may be no such view: a view needs affine addresses that are the same offsets in every block, in
    bounds and aligned.
    """
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
    """Return views of shared memory; view k holds element k of each lane's access."""
    start, shape, strides = box
    return [
        np.ndarray(shape, access.dtype, machine.shared, start + place * access.width, strides)
        for place in range(access.count)
    ]


def own_address(address: Value, offset: int) -> Value:
    """Return a 32-bit shared address sign-extended.

    A generic address is returned as it is: `offset` subtracts the start of the shared window from it.
    """
    if type(address) is Affine and address.low + offset >= 1 << 31:
        return values.by_sign(address, 32, True) or address
    return address


def lanes_of(machine: Machine, access: MemoryOp, address: Value, offset: int) -> Lanes | RemoteAccess | None:
    """Check the lanes' addresses; return the lanes that are in bounds and aligned, or None if there are none.

    Return a RemoteAccess if lanes access the shared memory of other blocks of the cluster; `count_remote` counts such
    an access.
    """
    lanes = Lanes(machine, address, offset)
    if machine.plan.cluster is not None and lanes.extremes()[1] >= REMOTE:
        return RemoteAccess(machine, access, lanes.address, lanes.exact(machine), access.size)
    bounds = access.shared_bounds or (0, machine.shared_size)
    return lanes if bounded(machine, access, lanes, *bounds) else None


def count_remote(machine: Machine, access: MemoryOp, remote: RemoteAccess, how: Served | None = None) -> None:
    """Count an access to the memory of other blocks; how: for an atomic, the result of `count.atomics.served`."""
    machine.counters.cluster(
        access.numbers["shared"], remote.rows, remote.offset, access.size, remote.lanes, machine.chunk,
        access.kind == "load", how,
    )  # fmt: skip
    if access.kind != "load":
        machine.shared_races.written(remote.rows[remote.lanes], remote.offset[remote.lanes], access.size)


def load_shared(machine: Machine, access: MemoryOp, address: Value, offset: int) -> list[Array] | None:
    """Return the elements that the lanes read from shared memory, one array per element of a lane.

    Return None if no lane has a valid address.
    """
    chunk = machine.chunk
    address = own_address(address, offset)
    box = box_of(machine, access, address, offset)
    if box is not None:
        note_shared(machine, access, address, offset, machine.mask)
        return [view.copy("C").reshape(chunk.blocks, -1) for view in views(machine, access, box)]
    lanes = lanes_of(machine, access, address, offset)
    if lanes is None:
        return None
    if isinstance(lanes, RemoteAccess):
        if not lanes.lanes.any():
            return None
        count_remote(machine, access, lanes)
        return taken(machine, access, lanes.places // access.width)
    note_shared(machine, access, lanes.address, 0, lanes.exact(machine))
    return taken(machine, access, index_of(machine, access, lanes))


def index_of(machine: Machine, access: MemoryOp, lanes: Lanes) -> Array:
    """Return the element index of each lane in the flat shared memory of the chunk.

    For a load with the same offsets in all blocks, return the index in a block's row; the first dimension is 1.
    """
    loads = access.kind == "load"
    index = lanes.fill(0) if loads else lanes.address
    if not loads or index.shape[0] > 1:
        index = index + row_starts(machine.chunk, machine.shared)
    return index >> (access.width.bit_length() - 1)


def taken(machine: Machine, access: MemoryOp, index: Array) -> list[Array]:
    """Return the elements that lanes read at the indices given by `index_of`, one array per element of a lane."""
    if index.shape[0] == 1:
        view, index = machine.shared.view(access.dtype), index[0]
        return [view.take(index + place if place else index, axis=1) for place in range(access.count)]
    view = machine.shared.reshape(-1).view(access.dtype)
    return [view.take(index + place if place else index) for place in range(access.count)]


def row_starts(chunk: Chunk, memory: Array) -> Array:
    """Return the byte offset of each block's row in the flat shared memory of the chunk, of shape (blocks, 1)."""
    return (np.arange(chunk.blocks, dtype=np.int64) * memory.shape[1]).reshape(-1, 1)


def note_shared(
    machine: Machine, access: MemoryOp, address: Value, offset: int, mask: Array | None, data: Sequence[Value] = (),
    how: Served | None = None,
) -> None:  # fmt: skip
    """Count, log and trace an access; how: for an atomic, the result of `count.atomics.served`."""
    chunk = machine.chunk
    # Whether this is a store by cp.async (LDGSTS); the hardware does not count these stores.
    copies = machine.shared_races.asynchronous
    number, warps = access.numbers["shared"], machine.warps
    if how is not None:
        machine.counters.shared_atomic(number, address, access.size, mask, warps, chunk, how)
    elif not copies:
        machine.counters.shared(number, address, offset, access.size, mask, warps, chunk, access.kind == "load")
    machine.shared_races.log(access, address, offset, mask, data)
    if machine.proxies.used and access.kind == "store" and not copies:
        machine.proxies.store(flat(address, offset, chunk), mask, access.size)
    if machine.plan.cluster is not None and how is None:
        lanes = chunk.real(np.ones((1, 1), bool) if mask is None else mask)
        own = broadcast(np.arange(chunk.blocks, dtype=np.int64).reshape(-1, 1), chunk.shape)
        machine.cluster_races.log(access, own, broadcast(flat(address, offset, chunk), chunk.shape), lanes, access.size)
    if machine.trace is not None:
        machine.trace.record(machine, access, "shared", flat(address, offset, chunk), mask)


def store_shared(machine: Machine, access: MemoryOp, address: Value, offset: int, data: list[Value]) -> None:
    """Write each lane's elements to its block's shared memory."""
    chunk = machine.chunk
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
    if isinstance(lanes, RemoteAccess):
        count_remote(machine, access, lanes)
        index = lanes.places[lanes.lanes] // access.width
        for place, value in enumerate(data):
            view[index + place] = broadcast(as_array(value, access.dtype, chunk), chunk.shape)[lanes.lanes]
        return
    # For a uniform address, lanes.mask has one entry; the exact mask decides which lane's value is written.
    mask = lanes.exact(machine)
    note_shared(machine, access, lanes.address, 0, mask, data)
    index = index_of(machine, access, lanes)
    for place, value in enumerate(data):
        put(view, index + place if place else index, as_array(value, access.dtype, chunk), mask)
