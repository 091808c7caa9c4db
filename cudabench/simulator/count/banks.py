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

import numpy as np

from cudabench.simulator.values import Array

BANKS = 32
WORD = 4
NO_WORD = -1


def lanes_together(width: int) -> int:
    """Return how many lanes are served together if each accesses `width` bytes: 32, 16 or 8."""
    return {8: 16, 16: 8}.get(width, 32)


def merged(addresses: Array, mask: Array) -> Array:
    """Return, for each load of 8 or 16 bytes per lane, whether two groups of lanes are served together.

    addresses: byte addresses of shape (..., 32); mask: the active lanes, of the same shape. The result is a bool array
    of shape (...).
    """
    others = [np.arange(32) ^ step for step in (1, 2)]
    same = [(addresses == addresses[..., other]) | ~mask | ~mask[..., other] for other in others]
    return same[0].all(axis=-1) | same[1].all(axis=-1)


def wavefronts(addresses: Array, width: int, mask: Array | None = None, *, load: bool = True) -> Array:
    """Return the number of wavefronts of each warp's request, of shape (...); 0 if no lane is active.

    addresses: byte addresses below 256 KiB, of shape (..., 32), one per lane, multiples of `width`; width: bytes per
    lane, 1 to 16; mask: the active lanes, which broadcasts to this shape, or None for all; load: True for a load, False
    for a store or an atomic.
    """
    return both(addresses, width, mask, load=load)[0]


def cost(addresses: Array, on: Array, width: int, load: bool) -> tuple[int, int, int]:
    """Return the sums of the wavefronts and of the ideal wavefronts of requests, as a `requests.Cost`."""
    taken, ideal = both(addresses, width, on, load=load)
    return int(taken.sum()), int(ideal.sum()), 0


def both(addresses: Array, width: int, mask: Array | None = None, *, load: bool = True) -> tuple[Array, Array]:
    """Return the numbers of wavefronts and of ideal wavefronts of each request; arguments as for `wavefronts`.

    The ideal number is how many wavefronts the same distinct words would take without bank conflicts: ceil(words / 32).
    """
    addresses = np.asarray(addresses)
    shape = addresses.shape[:-1]
    on = np.broadcast_to(np.True_ if mask is None else mask, addresses.shape).reshape(-1, 32)
    addresses = addresses.reshape(-1, 32)
    words = words_of(addresses, width, on)
    groups = 32 // lanes_together(width)
    taken = most_words(words.reshape(-1, BANKS)).reshape(-1, groups).sum(axis=1)
    if load and groups > 1:
        wide = merged(addresses, on)
        taken[wide] = most_words(words[wide].reshape(-1, 2 * BANKS)).reshape(-1, groups // 2).sum(axis=1)
    distinct = np.count_nonzero(_new(np.sort(words, axis=1)), axis=1)
    return taken.reshape(shape), -(-distinct // BANKS).reshape(shape)


def words_of(addresses: Array, width: int, on: Array) -> Array:
    """Return the numbers of the 4-byte words that each request accesses, NO_WORD for inactive lanes.

    Arguments as for `wavefronts`, of shape (requests, 32); the result has one row for each request.
    """
    words = (addresses >> 2)[:, :, None] + np.arange(max(1, width // WORD))
    return np.where(on[:, :, None], words, NO_WORD).reshape(len(addresses), 32 * words.shape[2])


def _new(words: Array) -> Array:
    """Return a mask: whether a word, in sorted rows of words, is not the same as the word before it in its row."""
    new = words != NO_WORD
    new[:, 1:] &= words[:, 1:] != words[:, :-1]
    return new


def most_words(words: Array) -> Array:
    """Return, for each row of words that are served together, how many distinct words the bank with the most has."""
    words = np.sort(words, axis=1)
    row, place = np.nonzero(_new(words))
    bank = words[row, place] & (BANKS - 1)
    return np.bincount(row * BANKS + bank, minlength=len(words) * BANKS).reshape(-1, BANKS).max(axis=1)
