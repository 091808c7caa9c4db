"""Helpers for counts of requests: which warps have active lanes, and how many sectors of global memory they access."""

from __future__ import annotations

import numpy as np

from cudabench.simulator.count.patterns import SECTOR, SECTOR_SHIFT
from cudabench.simulator.values import Array, Chunk, broadcast

LANES = 32  # lanes of a warp
Steps = tuple[int, int, int]  # by how many bytes the address grows if threadIdx.x, y or z grows by 1


def warp_bits(mask: Array) -> Array:
    """Return a flat bool array: for each warp, whether any of its lanes is active.

    mask: the active lanes, of shape (..., 32 * warps).
    """
    return mask.reshape(-1, LANES).any(axis=1)


def active(mask: Array | None, chunk: Chunk) -> tuple[int, int]:
    """Return the number of warps of the chunk with an active lane, and the number of active lanes.

    mask: broadcasts to (blocks, threads); None if all lanes are active.
    """
    if mask is None:
        return chunk.blocks * chunk.warps, chunk.blocks * chunk.threads
    times = chunk.blocks if mask.shape[0] == 1 else 1
    lanes = int(np.count_nonzero(mask)) * int(chunk.blocks * chunk.threads // mask.size)
    return lanes // 32 if mask.shape[1] == 1 else int(np.count_nonzero(warp_bits(mask))) * times, lanes


def changes(first: Array, *others: Array) -> Array:
    """Return a mask: for each row, whether it differs from the row before; True for the first row.

    Each argument is one column of the rows.
    """
    changed = np.ones(len(first), np.bool_)
    np.not_equal(first[1:], first[:-1], out=changed[1:])
    for column in others:
        changed[1:] |= column[1:] != column[:-1]
    return changed


def distinct(rows: Array) -> Array:
    """Return the number of distinct values in each row of a (rows, n) array."""
    rows = np.sort(rows, axis=1)
    return np.count_nonzero(rows[:, 1:] != rows[:, :-1], axis=1) + 1


def rows_of(addresses: Array, mask: Array | None) -> Array:
    """Return the addresses of all warps with an active lane, of shape (rows, 32).

    Inactive lanes repeat the address of an active lane. mask: broadcasts to the shape of the addresses.
    """
    lanes = addresses.reshape(-1, LANES)
    if mask is None:
        return lanes
    on = np.broadcast_to(mask, addresses.shape).reshape(-1, LANES)
    lanes, on = lanes[on.any(axis=1)], on[on.any(axis=1)]
    first = lanes[np.arange(len(lanes)), on.argmax(axis=1)]
    return np.where(on, lanes, first[:, None])


def sectors(addresses: Array, size: int, mask: Array | None) -> tuple[int, int]:
    """Return the number of sectors and of ideal sectors, summed over all requests.

    addresses: byte addresses of shape (..., 32 * warps), int64, multiples of `size`; size: bytes per lane; mask: the
    active lanes, of the same shape, or None for all lanes.
    """
    rows = rows_of(addresses, mask)
    # Aligned accesses of one size do not overlap unless they are equal, so distinct addresses are distinct bytes.
    different = distinct(rows)
    ideal = int((-(-different * size // SECTOR)).sum())
    if size >= SECTOR:
        return int(different.sum()) * (size // SECTOR), ideal
    return int(distinct(rows >> SECTOR_SHIFT).sum()), ideal


def thread_steps(index: Array, places: Array) -> Steps | None:
    """Return by how many bytes the address grows if threadIdx.x, y or z grows by 1; None if it is not linear.

    index: threadIdx of some threads of a block, of shape (threads, 3); places: the address that each thread accesses.
    """
    index, places = index - index[0], places - places[0]
    steps = [0, 0, 0]
    for axis in range(3):
        # Find threads that differ from the first one along this axis, and otherwise only along axes before it.
        steps_along = np.flatnonzero((index[:, axis] != 0) & (index[:, axis + 1 :] == 0).all(axis=1))
        if len(steps_along):
            at = steps_along[0]
            steps[axis], rest = divmod(int(places[at] - index[at] @ np.array(steps)), int(index[at, axis]))
            if rest:
                return None
    return None if (index @ np.array(steps) != places).any() else (steps[0], steps[1], steps[2])


def spread(address: Array, mask: Array | None, chunk: Chunk) -> tuple[Array, Array | None, int]:
    """Return addresses and mask broadcast to one shape (rows, threads), and how many blocks a row represents."""
    blocks = max(address.shape[0], 1 if mask is None else mask.shape[0])
    shape = (blocks, chunk.threads)
    return broadcast(address, shape), None if mask is None else broadcast(mask, shape), chunk.blocks // blocks
