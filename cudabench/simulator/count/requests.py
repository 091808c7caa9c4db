"""Helpers for counts of requests: which warps have active lanes, and how many sectors of global memory they access."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cudabench.simulator.count.patterns import SECTOR, SECTOR_SHIFT
from cudabench.simulator.values import Affine, Array, Chunk, broadcast

LANES = 32  # lanes of a warp
Steps = tuple[int, int, int]  # by how many bytes the address grows if threadIdx.x, y or z grows by 1
_FULL_WARP = np.uint64(0x0101010101010101)


def warp_bits(mask: Array) -> tuple[Array, Array]:
    """Return two flat bool arrays: for each warp, whether any of its lanes is active, and whether all its lanes are.

    mask: the active lanes, of shape (..., 32 * warps).
    """
    words = np.ascontiguousarray(mask).view(np.uint64).reshape(-1, 4)
    any_ = (words[:, 0] | words[:, 1] | words[:, 2] | words[:, 3]) != 0
    all_ = (words[:, 0] & words[:, 1] & words[:, 2] & words[:, 3]) == _FULL_WARP
    return any_, all_


def active(mask: Array | None, chunk: Chunk) -> tuple[int, int]:
    """Return the number of warps of the chunk with an active lane, and the number of active lanes.

    mask: broadcasts to (blocks, threads); None if all lanes are active.
    """
    if mask is None:
        return chunk.blocks * chunk.warps, chunk.blocks * chunk.threads
    times = chunk.blocks if mask.shape[0] == 1 else 1
    lanes = int(np.count_nonzero(mask)) * int(chunk.blocks * chunk.threads // mask.size)
    return lanes // 32 if mask.shape[1] == 1 else int(np.count_nonzero(warp_bits(mask)[0])) * times, lanes


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
    left, right = rows[:, :-1], rows[:, 1:]
    if not (right >= left).all():
        rows = np.sort(rows, axis=1)
        left, right = rows[:, :-1], rows[:, 1:]
    return np.count_nonzero(right != left, axis=1) + 1


def _parts(addresses: Array, mask: Array | None) -> Iterator[Array]:
    """Yield the addresses of the warps with active lanes, as one or two arrays of shape (rows, 32).

    The first array has the warps whose lanes are all active, the second the warps with some active lanes. In the
    second, inactive lanes repeat the address of an active lane.
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
    """Return the addresses of all warps with an active lane, of shape (rows, 32).

    Inactive lanes repeat the address of an active lane.
    """
    return np.concatenate([np.empty((0, LANES), addresses.dtype), *_parts(addresses, mask)])


def sectors(addresses: Array, size: int, mask: Array | None) -> tuple[int, int]:
    """Return the number of sectors and of ideal sectors, summed over all requests.

    addresses: byte addresses of shape (..., 32 * warps), int64, multiples of `size`; size: bytes per lane; mask: the
    active lanes, of the same shape, or None for all lanes.
    """
    pieces = ideal = 0
    for rows in _parts(addresses, mask):
        # Aligned accesses of one size do not overlap unless they are equal, so distinct addresses are distinct bytes.
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
    """Return by how many bytes the address grows if threadIdx.x, y or z grows by 1; 0 for an axis along which blocks
    have size 1."""
    x, y, z = (c if span else 0 for c, span in zip((address.coefficients or (0, 0, 0))[:3], chunk.spans, strict=False))
    return x, y, z


def spread(address: Array, mask: Array | None, chunk: Chunk) -> tuple[Array, Array | None, int]:
    """Return addresses and mask broadcast to one shape (rows, threads), and how many blocks a row represents."""
    blocks = max(address.shape[0], 1 if mask is None else mask.shape[0])
    shape = (blocks, chunk.threads)
    return broadcast(address, shape), None if mask is None else broadcast(mask, shape), chunk.blocks // blocks
