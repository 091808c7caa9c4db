"""Parts of requests: the warps with active lanes, and the sectors of global memory that their lanes touch."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cudabench.simulator.count.patterns import SECTOR, SECTOR_SHIFT
from cudabench.simulator.values import Affine, Array, Chunk, broadcast

LANES = 32  # of a warp
Steps = tuple[int, int, int]  # bytes by axis of threadIdx
_FULL_WARP = np.uint64(0x0101010101010101)


def warp_bits(mask: Array) -> tuple[Array, Array]:
    """Return for a bool array (..., 32 * warps) which warps have any lane and which have all: two flat bool arrays."""
    words = np.ascontiguousarray(mask).view(np.uint64).reshape(-1, 4)
    any_ = (words[:, 0] | words[:, 1] | words[:, 2] | words[:, 3]) != 0
    all_ = (words[:, 0] & words[:, 1] & words[:, 2] & words[:, 3]) == _FULL_WARP
    return any_, all_


def active(mask: Array | None, chunk: Chunk) -> tuple[int, int]:
    """Return (warps of the chunk with an active lane, active lanes); a mask broadcasts over (blocks, threads)."""
    if mask is None:
        return chunk.blocks * chunk.warps, chunk.blocks * chunk.threads
    times = chunk.blocks if mask.shape[0] == 1 else 1
    lanes = int(np.count_nonzero(mask)) * int(chunk.blocks * chunk.threads // mask.size)
    return lanes // 32 if mask.shape[1] == 1 else int(np.count_nonzero(warp_bits(mask)[0])) * times, lanes


def changes(first: Array, *others: Array) -> Array:
    """Return which rows of the columns differ from the row before; the first row counts as different."""
    changed = np.ones(len(first), np.bool_)
    np.not_equal(first[1:], first[:-1], out=changed[1:])
    for column in others:
        changed[1:] |= column[1:] != column[:-1]
    return changed


def distinct(rows: Array) -> Array:
    """Return the number of distinct values in each row of a (rows, n) array."""
    left, right = rows[:, :-1], rows[:, 1:]
    if not (right >= left).all():
        rows = np.sort(rows, axis=1)
        left, right = rows[:, :-1], rows[:, 1:]
    return np.count_nonzero(right != left, axis=1) + 1


def _parts(addresses: Array, mask: Array | None) -> Iterator[Array]:
    """Yield the addresses of the warps whose lanes are all active, then of those with some, each (rows, 32).

    In the latter, inactive lanes repeat an active one.
    """
    lanes = addresses.reshape(-1, 32)
    if mask is None:
        yield lanes
        return
    mask = broadcast(mask, addresses.shape) if mask.ndim == 2 else np.broadcast_to(mask, addresses.shape)
    any_, all_ = warp_bits(mask)
    if all_.all():
        yield lanes
        return
    if all_.any():
        yield lanes[all_]
    partial = any_ & ~all_
    if partial.any():
        active_lanes = mask.reshape(-1, 32)[partial]
        values = lanes[partial]
        first = values[np.arange(len(values)), active_lanes.argmax(axis=1)]
        yield np.where(active_lanes, values, first[:, None])


def rows_of(addresses: Array, mask: Array | None) -> Array:
    """Return the addresses of the warps with an active lane, (rows, 32), inactive lanes repeating an active one."""
    return np.concatenate([np.empty((0, LANES), addresses.dtype), *_parts(addresses, mask)])


def sectors(addresses: Array, size: int, mask: Array | None) -> tuple[int, int]:
    """Return (sectors, ideal sectors), summed over all requests.

    addresses: bytes, (..., 32 * warps) int64, aligned to size; size: bytes per lane; mask: same shape, or None for
    all lanes.
    """
    pieces = ideal = 0
    for rows in _parts(addresses, mask):
        # Aligned accesses of one size are equal or disjoint, so distinct addresses give the distinct bytes.
        steps = rows[:, 1:] - rows[:, :-1]
        if (steps < 0).any():
            rows = np.sort(rows, axis=1)
            steps = rows[:, 1:] - rows[:, :-1]
        different = np.count_nonzero(steps, axis=1) + 1
        ideal += int((-(-different * size // SECTOR)).sum())
        if size >= SECTOR:
            pieces += int(different.sum()) * (size // SECTOR)
            continue
        places = rows >> SECTOR_SHIFT
        pieces += int(np.count_nonzero(places[:, 1:] != places[:, :-1])) + len(rows)
    return pieces, ideal


def thread_steps(address: Affine, chunk: Chunk) -> Steps:
    """Return the bytes that a step of threadIdx.x, y and z makes, 0 where the block is one thread wide."""
    x, y, z = (c if span else 0 for c, span in zip((address.coefficients or (0, 0, 0))[:3], chunk.spans, strict=False))
    return x, y, z


def repeats(address: Array, mask: Array | None, chunk: Chunk) -> int:
    """Return how many blocks each row of addresses and lanes stands for."""
    return int(chunk.blocks // max(address.shape[0], 1 if mask is None else mask.shape[0]))


def spread(address: Array, mask: Array | None, chunk: Chunk) -> tuple[Array, Array | None, int]:
    """Return addresses and mask broadcast to a common shape of whole warps, and how many blocks a row stands for."""
    blocks = max(address.shape[0], 1 if mask is None else mask.shape[0])
    shape = (blocks, chunk.threads)
    return broadcast(address, shape), None if mask is None else broadcast(mask, shape), chunk.blocks // blocks
