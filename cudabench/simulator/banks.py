"""The model of shared memory's 32 banks of 4 bytes.

A request is served in passes, here called wavefronts: in one pass each bank delivers one 4-byte word, to all lanes that ask
for it (CUDA C++ Programming Guide, "Shared Memory"). Lanes of 8 bytes are served by half warps and lanes of 16 bytes by
quarter warps, each of which can fill all banks at once.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

BANKS = 32
WORD = 4


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

    addresses: byte addresses of shape (..., 32), one lane in each place; width: bytes per lane (1 to 16, aligned);
    mask: the active lanes, same shape. The result has shape (...): 0 where no lane is active.
    """
    return _passes(addresses, width, mask)[0]


def ideal_wavefronts(addresses: Array, width: int, mask: Array | None = None) -> Array:
    """Return the passes that the same distinct words would take without any conflict: ceil(words / 32), at least 1."""
    return _passes(addresses, width, mask)[1]


def _passes(addresses: Array, width: int, mask: Array | None) -> tuple[Array, Array]:
    shape = addresses.shape[:-1]
    words = np.asarray(_words(np.asarray(addresses), width), dtype=np.int64)
    rows = words.shape[0]
    order = np.sort(words if mask is None else _fill(words, width, mask), axis=1)
    new = np.ones((rows, 32), dtype=bool)
    np.not_equal(order[:, 1:], order[:, :-1], out=new[:, 1:])
    new &= order >= 0
    # A word that differs from its left neighbour in sorted order is a distinct one: count those per bank.
    bank = (order & (BANKS - 1)) + np.arange(rows, dtype=np.int64)[:, None] * BANKS
    load = np.bincount(bank[new], minlength=rows * BANKS).reshape(rows, BANKS)
    groups = max(1, width // WORD) if width > WORD else 1
    passes = load.max(axis=1).reshape(*shape, groups).sum(axis=-1)
    if mask is None or groups == 1:
        distinct = new.sum(axis=1).reshape(*shape, groups).sum(axis=-1) if groups > 1 else new.sum(axis=1).reshape(shape)
        if groups > 1:
            distinct = _distinct(order.reshape(-1, 32 * groups)).reshape(shape)
    else:
        distinct = _distinct(order.reshape(-1, 32 * groups)).reshape(shape)
    return passes, -(-distinct // BANKS)


def _distinct(words: Array) -> Array:
    order = np.sort(words, axis=1)
    return (order[:, :1] >= 0).sum(axis=1) + ((order[:, 1:] != order[:, :-1]) & (order[:, 1:] >= 0)).sum(axis=1)


def _fill(words: Array, width: int, mask: Array) -> Array:
    """Return the words with -1, which no bank serves, in place of the inactive lanes'."""
    active = np.broadcast_to(mask, (*mask.shape[:-1], 32)).reshape(-1)
    if width > WORD:
        active = np.repeat(active, width // WORD)
    return np.where(active.reshape(words.shape), words, -1)


def both(addresses: Array, width: int, mask: Array | None = None) -> tuple[Array, Array]:
    """Return (wavefronts, ideal wavefronts) in one go; arguments as for `wavefronts`."""
    return _passes(addresses, width, mask)
