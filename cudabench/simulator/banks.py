"""The model of shared memory's 32 banks of 4 bytes.

A request is served in passes, here called wavefronts: in one pass each bank delivers one 4-byte word, to all lanes
that ask for it (CUDA C++ Programming Guide, "Shared Memory"). Lanes of 8 bytes are served by half warps and lanes of
16 bytes by quarter warps, each of which can fill all banks at once.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

BANKS = 32
WORD = 4
NO_WORD = 0xFFFF


def lanes_together(width: int) -> int:
    """Return how many lanes of so many bytes are served together: a warp, a half or a quarter of one."""
    return {8: 16, 16: 8}.get(width, 32)


def _words(addresses: Array, width: int) -> Array:
    """Return the 4-byte words that the lanes touch, one row for each group of lanes served together: (rows, 32)."""
    lanes = lanes_together(width)
    first = (addresses >> 2).reshape(-1, lanes)
    if lanes == 32:
        return first
    steps = np.arange(width // WORD, dtype=first.dtype)
    return (first[:, :, None] + steps).reshape(-1, 32)


def wavefronts(addresses: Array, width: int, mask: Array | None = None) -> Array:
    """Return the passes that each warp's request takes.

    addresses: byte addresses of shape (..., 32), one lane in each place; width: bytes per lane (1 to 16, aligned;
    below 256 KiB); mask: the active lanes, same shape. The result has shape (...): 0 where no lane is active.
    """
    return _passes(addresses, width, mask)[0]


def ideal_wavefronts(addresses: Array, width: int, mask: Array | None = None) -> Array:
    """Return the passes that the same distinct words would take without any conflict: ceil(words / 32), at least 1."""
    return _passes(addresses, width, mask)[1]


def _passes(addresses: Array, width: int, mask: Array | None) -> tuple[Array, Array]:
    shape = addresses.shape[:-1]
    words = _words(np.asarray(addresses), width)
    if mask is not None:
        active = np.broadcast_to(mask, addresses.shape).reshape(-1)
        if width > WORD:
            active = np.repeat(active, width // WORD)
        words = np.where(active.reshape(words.shape), words, NO_WORD)
    # All of a block's words fit into 16 bits, which sort fastest.
    order = np.sort(words.astype(np.uint16), axis=1)
    rows = order.shape[0]
    new = np.ones((rows, BANKS), dtype=bool)
    np.not_equal(order[:, 1:], order[:, :-1], out=new[:, 1:])
    if mask is not None:
        new &= order != NO_WORD
    # A word that differs from its left neighbour in sorted order is a distinct one: count those per bank.
    place = (order & (BANKS - 1)).astype(np.int64) + np.arange(rows, dtype=np.int64)[:, None] * BANKS
    load = np.bincount(place.reshape(-1), weights=new.reshape(-1), minlength=rows * BANKS).astype(np.int64)
    groups = max(1, width // WORD)
    passes = load.reshape(rows, BANKS).max(axis=1).reshape(*shape, groups).sum(axis=-1)
    if groups == 1:
        distinct = np.count_nonzero(new, axis=1).reshape(shape)
    else:
        whole = np.sort(order.reshape(-1, BANKS * groups), axis=1)
        fresh = np.ones(whole.shape, dtype=bool)
        np.not_equal(whole[:, 1:], whole[:, :-1], out=fresh[:, 1:])
        distinct = np.count_nonzero(fresh & (whole != NO_WORD), axis=1).reshape(shape)
    return passes, -(-distinct // BANKS)


def both(addresses: Array, width: int, mask: Array | None = None) -> tuple[Array, Array]:
    """Return (wavefronts, ideal wavefronts) in one go; arguments as for `wavefronts`."""
    return _passes(addresses, width, mask)
