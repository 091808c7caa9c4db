"""Helpers for counts of requests: which warps have active lanes, and how many sectors of global memory they access."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cudabench.simulator.count.patterns import SECTOR, SECTOR_SHIFT
from cudabench.simulator.values import Array, Chunk, active_warps, broadcast

LANES = 32  # lanes of a warp
ALL: Array = np.ones((1, 1), np.bool_)  # the mask of all lanes
Steps = tuple[int, int, int]  # by how many bytes the address grows if threadIdx.x, y or z grows by 1
# The cost of requests: a function of the lanes' addresses, the mask of active lanes, both of shape (requests, 32) with
# an active lane in each row, and the bytes per lane. It returns the sums of the pieces, of the ideal pieces, and of the
# reloads (see `report.Access`).
Cost = Callable[[Array, Array, int], tuple[int, int, int]]


def active(mask: Array | None, chunk: Chunk) -> tuple[int, int]:
    """Return the number of warps of the chunk with an active lane, and the number of active lanes.

    mask: broadcasts to (blocks, threads); None if all lanes are active.
    """
    if mask is None:
        return chunk.blocks * chunk.warps, chunk.blocks * chunk.threads
    times = chunk.blocks if mask.shape[0] == 1 else 1
    lanes = int(np.count_nonzero(mask)) * int(chunk.blocks * chunk.threads // mask.size)
    return lanes // 32 if mask.shape[1] == 1 else int(np.count_nonzero(active_warps(mask))) * times, lanes


def sorted_rows(values: Array, on: Array) -> Array:
    """Return the values of each row in ascending order, -1 for inactive lanes.

    values, on: numbers of at least 0, and the active lanes, of shape (rows, 32).
    """
    return np.sort(np.where(on, values, -1), axis=1)


def distinct(rows: Array) -> Array:
    """Return how many distinct numbers of at least 0 each row has; rows: from `sorted_rows`."""
    return np.count_nonzero(rows[:, 1:] != rows[:, :-1], axis=1) + (rows[:, 0] >= 0)


def sectors(addresses: Array, on: Array, size: int) -> tuple[int, int, int]:
    """Return the sectors and the ideal sectors of loads or stores as a `Cost`; addresses are multiples of `size`."""
    # Aligned accesses of one size do not overlap unless they are equal, so distinct addresses are distinct bytes.
    rows = sorted_rows(addresses, on)
    different = distinct(rows)
    ideal = int((-(-different * size // SECTOR)).sum())
    pieces = different * (size // SECTOR) if size >= SECTOR else distinct(rows >> SECTOR_SHIFT)
    return int(pieces.sum()), ideal, 0


def constants(addresses: Array, on: Array, size: int) -> tuple[int, int, int]:
    """Return the wavefronts of loads from constant memory as a `Cost`: each distinct address of a warp takes one."""
    different = distinct(sorted_rows(addresses, on))
    return int(different.sum()), len(different), 0


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


def spread(address: Array, mask: Array | None, chunk: Chunk) -> tuple[Array, Array, int]:
    """Return the lanes' addresses and the active lanes, both of shape (warps, 32), and how often to count these warps.

    address, mask: broadcast to (blocks, threads); if the blocks are alike, the warps are those of one block.
    """
    blocks = max(address.shape[0], 1 if mask is None else mask.shape[0])
    lanes, on = (broadcast(part, (blocks, chunk.threads)) for part in (address, ALL if mask is None else mask))
    return lanes.reshape(-1, LANES), on.reshape(-1, LANES), chunk.blocks // blocks
