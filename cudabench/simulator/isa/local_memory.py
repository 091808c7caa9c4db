"""Local memory: each lane's own bytes, counted as the hardware lays them out."""

from __future__ import annotations

from typing import Any

import numpy as np

from cudabench.simulator.count.counters import NOWHERE
from cudabench.simulator.count.patterns import NEIGHBOURS
from cudabench.simulator.count.requests import sectors, spread
from cudabench.simulator.isa.access import Lanes, MemoryOp, bounded, put
from cudabench.simulator.machine import Machine
from cudabench.simulator.values import Affine, Array, Value, as_array


def local_index(machine: Machine, access: MemoryOp, address: Value, offset: int) -> tuple[Any, Array | None] | None:
    """Return (places of elements in the flat local memory, (blocks, threads), or the one of all lanes in their own;
    mask), all checked and counted."""
    chunk, counters, warps = machine.chunk, machine.counters, machine.warps
    number = access.numbers["local"]
    lanes = Lanes(machine, address, offset)
    if access.skewed:
        machine.hazards.misaligned(machine, access, np.ones((1, 1), dtype=bool), lanes.address, access.size)
        return None
    if not bounded(machine, access, lanes, *(access.bounds or (0, machine.local_bytes))):
        return None
    mask, places = lanes.exact(machine), lanes.fill(0)
    uniform = type(address) is Affine and address.coefficients is None and machine.mask is None
    shift, size = counters.issued.get(number, (0, access.size))
    if not size:
        counters.merged[number] += warps
    elif uniform:
        counters.add(number, warps, warps * max(1, size // 4) * 4, warps * size, NOWHERE, NEIGHBOURS[size])
    else:
        # The hardware lays word k of all lanes of a warp side by side.
        lane = np.arange(chunk.threads, dtype=np.int64) & 31
        rows, some, times = spread((places >> 2) * 128 + lane * 4 + (places & 3), mask, chunk)
        words = range(shift // 4, shift // 4 + max(1, size // 4))
        pieces = sum(sectors(rows + word * 128, min(4, size), some)[0] for word in words) * times
        counters.add(number, warps, pieces, warps * size)
    if uniform:
        return int(places[0, 0]) // access.width, mask
    start = np.arange(chunk.blocks * chunk.threads, dtype=np.int64).reshape(chunk.shape) * machine.local.shape[2]
    return (places + start) >> (access.width.bit_length() - 1), mask


def load_local(machine: Machine, access: MemoryOp, address: Value, offset: int) -> list[Array] | None:
    """Return the elements that each lane reads from its local memory."""
    found = local_index(machine, access, address, offset)
    if found is None:
        return None
    index, _ = found
    if isinstance(index, int):
        view = machine.local.view(access.dtype)
        return [np.ascontiguousarray(view[:, :, index + place]) for place in range(access.count)]
    view = machine.local.reshape(-1).view(access.dtype)
    return [view.take(index + place) for place in range(access.count)]


def store_local(machine: Machine, access: MemoryOp, address: Value, offset: int, data: list[Value]) -> None:
    """Write each lane's elements to its local memory."""
    found = local_index(machine, access, address, offset)
    if found is None:
        return
    index, mask = found
    for place, value in enumerate(data):
        value = as_array(value, access.dtype, machine.chunk)
        if isinstance(index, int):
            machine.local.view(access.dtype)[:, :, index + place] = value
        else:
            put(machine.local.reshape(-1).view(access.dtype), index + place, value, mask)
