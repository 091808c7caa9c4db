"""The model of shared memory's 32 banks of 4 bytes.

A request is served in wavefronts: in each, every bank delivers one 4-byte word, to all lanes that request it (CUDA C++
Programming Guide, "Shared Memory"). Lanes of 8 bytes are served by half warps and lanes of 16 bytes by quarter warps,
each of which can fill all banks at once. Loads of 8 and 16 bytes serve twice as many lanes together where every active
lane's neighbour (lane ^ 1), or every active lane's next but one (lane ^ 2), is inactive or has the same address.
NVIDIA does not document that; it holds for all of 286 patterns measured with Nsight Compute on an H200
(benchmarks/results/shared_wavefronts_h200.md).
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

BANKS = 32
WORD = 4
NO_WORD = 0xFFFF


def lanes_together(width: int) -> int:
    """Return how many lanes of `width` bytes are served together: a warp, a half or a quarter of one."""
    return {8: 16, 16: 8}.get(width, 32)


def merged(addresses: Array, mask: Array | None) -> Array:
    """Return whether the lanes of wide loads are served in groups of twice the size: bool of shape (...).

    addresses: (..., 32); mask: the active lanes, same shape, or None for all.
    """
    lanes = np.arange(32)
    result: Array = np.zeros(addresses.shape[:-1], dtype=bool)
    for step in (1, 2):
        other = lanes ^ step
        same = addresses == addresses[..., other]
        if mask is not None:
            same |= ~mask | ~mask[..., other]
        result |= same.all(axis=-1)
    return result


def wavefronts(addresses: Array, width: int, mask: Array | None = None, *, load: bool = True) -> Array:
    """Return the wavefronts that each warp's request takes.

    addresses: byte addresses of shape (..., 32), one lane in each place; width: bytes per lane (1 to 16, aligned;
    below 256 KiB); mask: the active lanes, same shape; load: a load, or else a store or an atomic. The result has shape
    (...): 0 where no lane is active.
    """
    return both(addresses, width, mask, load=load)[0]


def both(addresses: Array, width: int, mask: Array | None = None, *, load: bool = True) -> tuple[Array, Array]:
    """Return (wavefronts, ideal wavefronts); arguments as for `wavefronts`.

    The ideal is that of the same distinct words without any conflict: ceil(words / 32), at least 1.
    """
    addresses = np.asarray(addresses)
    shape = addresses.shape[:-1]
    addresses = addresses.reshape(-1, 32)
    if mask is not None:
        mask = (mask if mask.shape == (*shape, 32) else np.broadcast_to(mask, (*shape, 32))).reshape(-1, 32)
    words = _words(addresses, width, mask)
    groups = 32 // lanes_together(width)
    taken, distinct = _wavefronts(words.reshape(-1, BANKS))
    taken = taken.reshape(-1, groups).sum(axis=1)
    if groups == 1:
        return taken.reshape(shape), -(-distinct // BANKS).reshape(shape)
    if load:
        wide = merged(addresses, mask)
        if wide.any():
            merged_taken, _ = _wavefronts(words[wide].reshape(-1, 2 * BANKS))
            taken[wide] = merged_taken.reshape(-1, groups // 2).sum(axis=1)
    _, distinct = _wavefronts(words)
    return taken.reshape(shape), -(-distinct // BANKS).reshape(shape)


def _words(addresses: Array, width: int, mask: Array | None) -> Array:
    """Return the 4-byte words that each request's lanes touch, NO_WORD for inactive ones: (requests, words)."""
    # All of a block's words fit into 16 bits, which sort fastest.
    words = (addresses >> 2).astype(np.uint16)
    if mask is not None:
        words = np.where(mask, words, NO_WORD)
    if width > WORD:
        steps = np.arange(width // WORD, dtype=np.uint16)
        wide = words[:, :, None] + steps
        if mask is not None:
            wide = np.where(mask[:, :, None], wide, NO_WORD)
        words = wide.reshape(len(words), -1)
    return words.astype(np.uint16, copy=False)


def _wavefronts(words: Array) -> tuple[Array, Array]:
    """Return the wavefronts and the number of distinct words of each row of words served together."""
    order = np.sort(words, axis=1)
    rows = order.shape[0]
    new = np.ones(order.shape, dtype=bool)
    np.not_equal(order[:, 1:], order[:, :-1], out=new[:, 1:])
    new &= order != NO_WORD
    # A word that differs from its left neighbour in sorted order is a distinct one: count those per bank.
    place = (order & (BANKS - 1)).astype(np.int64) + np.arange(rows, dtype=np.int64)[:, None] * BANKS
    load = np.bincount(place.reshape(-1), weights=new.reshape(-1), minlength=rows * BANKS).astype(np.int64)
    return load.reshape(rows, BANKS).max(axis=1), np.count_nonzero(new, axis=1)
