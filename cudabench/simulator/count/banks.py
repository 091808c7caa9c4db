"""The model of shared memory's 32 banks of 4 bytes.

A request is served in wavefronts. In each wavefront, every bank delivers one 4-byte word to all lanes that request this
word (CUDA C++ Programming Guide, "Shared Memory"). With 8 bytes per lane, the half warps are served one after the
other; with 16 bytes per lane, the quarter warps are served one after the other. Each half or quarter warp can use all
banks at once.

Loads of 8 or 16 bytes per lane serve two such groups together if, for every active lane, lane ^ 1 is inactive or has
the same address; or if, for every active lane, lane ^ 2 is inactive or has the same address. NVIDIA does not document
this rule; it holds for all 286 patterns that were measured with Nsight Compute on an H200
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
    """Return how many lanes are served together if each accesses `width` bytes: 32, 16 or 8."""
    return {8: 16, 16: 8}.get(width, 32)


def merged(addresses: Array, mask: Array | None) -> Array:
    """Return, for each load of 8 or 16 bytes per lane, whether two groups of lanes are served together.

    addresses: byte addresses of shape (..., 32); mask: the active lanes, of the same shape, or None for all. The result
    is a bool array of shape (...).
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
    """Return the number of wavefronts of each warp's request, of shape (...); 0 if no lane is active.

    addresses: byte addresses below 256 KiB, of shape (..., 32), one per lane, multiples of `width`; width: bytes per
    lane, 1 to 16; mask: the active lanes, of the same shape, or None for all; load: True for a load, False for a store
    or an atomic.
    """
    return both(addresses, width, mask, load=load)[0]


def both(addresses: Array, width: int, mask: Array | None = None, *, load: bool = True) -> tuple[Array, Array]:
    """Return the numbers of wavefronts and of ideal wavefronts of each request; arguments as for `wavefronts`.

    The ideal number is how many wavefronts the same distinct words would take without bank conflicts: ceil(words / 32).
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
    """Return the numbers of the 4-byte words that each request accesses, of shape (requests, words).

    Inactive lanes have NO_WORD.
    """
    # Word numbers of a block's shared memory fit in 16 bits, and NumPy sorts 16-bit integers fastest.
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
    """Return the number of wavefronts, and of distinct words, of each row of words that are served together."""
    order = np.sort(words, axis=1)
    rows = order.shape[0]
    new = np.ones(order.shape, dtype=bool)
    np.not_equal(order[:, 1:], order[:, :-1], out=new[:, 1:])
    new &= order != NO_WORD
    # In sorted order, a word that differs from the word before it is a new word. Count the new words of each bank.
    place = (order & (BANKS - 1)).astype(np.int64) + np.arange(rows, dtype=np.int64)[:, None] * BANKS
    load = np.bincount(place.reshape(-1), weights=new.reshape(-1), minlength=rows * BANKS).astype(np.int64)
    return load.reshape(rows, BANKS).max(axis=1), np.count_nonzero(new, axis=1)
