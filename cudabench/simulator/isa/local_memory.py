"""Local memory: each lane's own bytes, counted as the hardware lays them out."""

from __future__ import annotations

from typing import Any

import numpy as np

from cudabench.simulator.count.counters import NOWHERE
from cudabench.simulator.count.patterns import NEIGHBOURS
from cudabench.simulator.count.requests import sectors, spread
from cudabench.simulator.isa.access import Lanes, MemoryOp, bounded, put
from cudabench.simulator.machine import Machine
from cudabench.simulator.values import Affine, Array, Chunk, Value, as_array


def _local_address(address: Affine | Array, chunk: Chunk, offsets: Array) -> Array:
    """Return addresses as the hardware lays local memory out: word k of all lanes of a warp lie side by side."""
    lane = np.arange(chunk.threads, dtype=np.int64) & 31
    return (offsets >> 2) * 128 + lane * 4 + (offsets & 3)


def local_index(machine: Machine, access: MemoryOp, address: Value, offset: int) -> tuple[Any, Array | None] | None:
    """Return (byte index into the flat local memory or the uniform offset, mask), all checked and counted."""
    chunk = machine.chunk
    least, most = access.bounds or (0, machine.local_bytes)
    number = access.numbers["local"]
    if access.skewed:
        place = Lanes(machine, address, offset).address
        machine.hazards.misaligned(machine, access, np.ones((1, 1), dtype=bool), place, access.size)
        return None
    if type(address) is Affine and address.coefficients is None:
        place = address.base + offset
        full = machine.mask is None
        if full and place >= least and place + access.size <= most and place % access.size == 0:
            _, size = machine.counters.issued.get(number, (0, access.size))
            if size:
                pieces = machine.warps * max(1, size // 4) * 4
                machine.counters.add(number, machine.warps, pieces, machine.warps * size, NOWHERE, NEIGHBOURS[size])
            else:
                machine.counters.merged[number] += machine.warps
            return place, machine.mask
    lanes = Lanes(machine, address, offset)
    if not bounded(machine, access, lanes, least, most):
        return None
    mask = lanes.exact(machine)
    shift, size = machine.counters.issued.get(number, (0, access.size))
    if size:
        rows, some, times = spread(_local_address(address, chunk, lanes.fill(0)), mask, chunk)
        words = range(shift // 4, shift // 4 + max(1, size // 4))
        pieces = sum(sectors(rows + word * 128, min(4, size), some)[0] for word in words) * times
        machine.counters.add(number, machine.warps, pieces, machine.warps * size)
    else:
        machine.counters.merged[number] += machine.warps
    row = machine.local.shape[2]
    start = np.arange(chunk.blocks * chunk.threads, dtype=np.int64).reshape(chunk.shape) * row
    return lanes.fill(0) + start, mask


def load_local(machine: Machine, access: MemoryOp, address: Value, offset: int) -> list[Array] | None:
    """Return the elements that each lane reads from its local memory."""
    found = local_index(machine, access, address, offset)
    if found is None:
        return None
    index, _ = found
    width = access.width
    if isinstance(index, int):
        view = machine.local.view(access.dtype)
        return [np.ascontiguousarray(view[:, :, index // width + place]) for place in range(access.count)]
    view = machine.local.reshape(-1).view(access.dtype)
    index = index >> (width.bit_length() - 1)
    return [view.take(index + place) for place in range(access.count)]


def store_local(machine: Machine, access: MemoryOp, address: Value, offset: int, data: list[Value]) -> None:
    """Write each lane's elements to its local memory."""
    found = local_index(machine, access, address, offset)
    if found is None:
        return
    index, mask = found
    width = access.width
    for place in range(access.count):
        value = as_array(data[place], access.dtype, machine.chunk)
        if isinstance(index, int):
            view = machine.local.view(access.dtype)[:, :, index // width + place]
            if mask is None:
                view[...] = value
            else:
                np.copyto(view, value, where=mask)
        else:
            flat_view = machine.local.reshape(-1).view(access.dtype)
            put(flat_view, (index >> (width.bit_length() - 1)) + place, value, mask)
