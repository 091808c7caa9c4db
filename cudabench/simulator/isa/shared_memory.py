"""Loads and stores of shared memory, which is an array with one row per block of the chunk.

Each access is checked, counted and logged for the race check, and then moves its data.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cudabench.simulator.clusters import REMOTE, RemoteAccess
from cudabench.simulator.count.atomics import Served
from cudabench.simulator.count.counters import shared_cost
from cudabench.simulator.isa.access import Lanes, MemoryOp, bounded, put, take
from cudabench.simulator.machine import Machine
from cudabench.simulator.values import Array, Chunk, Value, as_array, broadcast


def lanes_of(machine: Machine, access: MemoryOp, address: Value, offset: int) -> Lanes | RemoteAccess | None:
    """Check the lanes' addresses; return the lanes that are in bounds and aligned, or None if there are none.

    Return a RemoteAccess if lanes access the shared memory of other blocks of the cluster; `count_remote` counts such
    an access.
    """
    lanes = Lanes(machine, address, offset)
    if machine.plan.cluster is not None and lanes.active().max() >= REMOTE:
        return RemoteAccess(machine, access, lanes.address, lanes.mask, access.size)
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
    lanes = lanes_of(machine, access, address, offset)
    if lanes is None or (isinstance(lanes, RemoteAccess) and not lanes.lanes.any()):
        return None
    if isinstance(lanes, RemoteAccess):
        count_remote(machine, access, lanes)
        places = lanes.places
    else:
        note_shared(machine, access, lanes.address, lanes.mask)
        places = lanes.address + row_starts(machine.chunk, machine.shared)
    return take(machine.shared.reshape(-1), access, places)


def row_starts(chunk: Chunk, memory: Array) -> Array:
    """Return the byte offset of each block's row in the flat shared memory of the chunk, of shape (blocks, 1)."""
    return (np.arange(chunk.blocks, dtype=np.int64) * memory.shape[1]).reshape(-1, 1)


def note_shared(
    machine: Machine, access: MemoryOp, address: Array, mask: Array | None, data: Sequence[Value] = (),
    how: Served | None = None,
) -> None:  # fmt: skip
    """Count, log and trace an access.

    how: for an atomic, the result of `count.atomics.served`.
    """
    chunk = machine.chunk
    # Whether this is a store by cp.async (LDGSTS); the hardware does not count these stores.
    copies = machine.shared_races.asynchronous
    if how is not None or not copies:
        cost = shared_cost(access.kind == "load", how)
        machine.counters.count(
            machine, access.numbers["shared"], address, access.size, mask, None, cost, direct=how is None
        )
    machine.shared_races.log(access, address, mask, data)
    if machine.proxies.used and access.kind == "store" and not copies:
        machine.proxies.store(address, mask, access.size)
    if machine.plan.cluster is not None and how is None:
        lanes = chunk.real(np.ones((1, 1), bool) if mask is None else mask)
        own = broadcast(np.arange(chunk.blocks, dtype=np.int64).reshape(-1, 1), chunk.shape)
        machine.cluster_races.log(access, own, broadcast(address, chunk.shape), lanes, access.size)
    if machine.trace is not None:
        machine.trace.record(machine, access, "shared", address, mask)


def store_shared(machine: Machine, access: MemoryOp, address: Value, offset: int, data: list[Value]) -> None:
    """Write each lane's elements to its block's shared memory."""
    chunk = machine.chunk
    lanes = lanes_of(machine, access, address, offset)
    if lanes is None:
        return
    view = machine.shared.reshape(-1).view(access.dtype)
    if isinstance(lanes, RemoteAccess):
        count_remote(machine, access, lanes)
        places, mask = lanes.places, lanes.lanes
    else:
        mask = lanes.mask
        note_shared(machine, access, lanes.address, mask, data)
        places = lanes.address + row_starts(chunk, machine.shared)
    for place, value in enumerate(data):
        put(view, places // access.width + place, as_array(value, access.dtype), mask)
