"""The cost of atomics that contend: wavefronts of shared memory, and sectors of global memory.

NVIDIA does not document it. These rules hold for all single requests that were measured with Nsight Compute on an H200
(benchmarks/results/atomics_h200.md):

* A native atomic of shared memory takes a wavefront for each lane that contends with another for a bank, also for the
  same word ("lanes"). Adding the constant one takes them word by word, as a store does ("words"). Compare-and-swap
  takes two wavefronts a lane ("swap"). For 8 bytes, each half warp is served separately.
* Other atomics, such as the addition of floats, are a loop of the machine code ("loop"): all lanes load, and in each
  turn one lane of every bank may store, in two wavefronts, if its word is unchanged since it loaded it.
* In global memory, a request's sector is counted once for each lane of its most accessed word.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from cudabench.simulator.count import banks
from cudabench.simulator.count.patterns import SECTOR, SECTOR_SHIFT
from cudabench.simulator.count.requests import changes
from cudabench.simulator.values import Array

Served = Literal["words", "lanes", "swap", "loop"]
NO_WORD = -1
ONE_LANE = -1  # in place of bytes a lane: an atomic that one lane of a warp carries out for all


class Cost(NamedTuple):
    """Requests of atomics on shared memory, summed.

    wavefronts: of the atomics alone. ideal: of as many lanes without contention, with the loads of a loop.
    reloads: the wavefronts of a loop's loads.
    """

    wavefronts: int
    ideal: int
    reloads: int = 0


def served(operation: str, type_: str, by_one: bool) -> Served:
    """Return how shared memory serves an operation of the PTX ("add") on a type ("u32") from sm_70 on.

    by_one: an addition of the constant one, whose result is not used.
    """
    if type_ in ("u32", "s32", "b32"):
        return "words" if by_one else "swap" if operation == "cas" else "lanes"
    if type_ == "b64" and operation in ("exch", "cas"):
        return "swap" if operation == "cas" else "lanes"
    return "loop"


def shared(addresses: Array, width: int, mask: Array | None, how: Served) -> Cost:
    """Return what requests to shared memory cost; addresses: bytes (requests, 32); mask: active lanes, or None."""
    if not len(addresses):
        return Cost(0, 0)
    if how == "words":
        taken, ideal = banks.both(addresses, width, mask, load=False)
        return Cost(int(taken.sum()), int(ideal.sum()))
    on = np.ones(addresses.shape, dtype=bool) if mask is None else mask
    groups = 2 if width == 8 else 1
    most = _fullest_bank(_banks(addresses, width), on, groups)
    per_lane = 2 if how == "swap" else 1
    if how != "loop":
        return Cost(int(most.sum()) * per_lane, int(np.count_nonzero(most)) * per_lane)
    return _loop(addresses, width, on, groups)


def _banks(addresses: Array, width: int) -> Array:
    """Return the bank of each lane, or for 8 bytes the pair of banks."""
    return (addresses >> 3) & 15 if width == 8 else (addresses >> 2) & 31


def _fullest_bank(places: Array, on: Array, groups: int) -> Array:
    """Return the number of lanes in the fullest bank, by row and group of lanes served together: (rows * groups,)."""
    rows = len(places) * groups
    flat = places.reshape(rows, -1) + np.arange(rows, dtype=np.int64)[:, None] * 32
    return np.bincount(flat[on.reshape(rows, -1)], minlength=rows * 32).reshape(rows, 32).max(axis=1)


def _loop(addresses: Array, width: int, on: Array, groups: int) -> Cost:
    """Simulate the loop turn by turn, for all requests at once."""
    rows = np.flatnonzero(on.any(axis=1))
    addresses, waiting = addresses[rows], on[rows].copy()
    places, words = _banks(addresses, width), addresses >> (3 if width == 8 else 2)
    wavefronts = reloads = 0
    ideal = 3 * int(np.count_nonzero(waiting.reshape(len(waiting) * groups, -1).any(axis=1)))
    while len(waiting):
        reloads += int(banks.wavefronts(addresses, width, waiting).sum())
        wavefronts += 2 * int(np.count_nonzero(waiting.reshape(len(waiting) * groups, -1).any(axis=1)))
        stored = np.full((len(waiting), 32), NO_WORD, dtype=np.int64)  # by bank: the word that was stored this turn
        size = 32 // groups
        for first in range(0, 32, size):
            row, lane = np.nonzero(waiting[:, first : first + size])
            lane += first
            bank = places[row, lane]
            _, chosen = np.unique(row * 32 + bank, return_index=True)  # the lowest lane of each bank
            row, lane, bank = row[chosen], lane[chosen], bank[chosen]
            word = words[row, lane]
            wins = stored[row, bank] != word
            stored[row, bank] = word
            waiting[row[wins], lane[wins]] = False
        going = waiting.any(axis=1)
        if not going.all():
            addresses, waiting, places, words = addresses[going], waiting[going], places[going], words[going]
    return Cost(wavefronts, ideal, reloads)


def sectors(addresses: Array, size: int, mask: Array | None) -> tuple[int, int]:
    """Return (sectors, ideal sectors) of atomics on global memory, summed; arguments as for `shared`, size as width."""
    if not len(addresses):
        return 0, 0
    if mask is None:
        order, on = np.sort(addresses, axis=1), None
    else:
        high = np.int64(1) << 62
        order = np.sort(np.where(mask, addresses, high), axis=1)
        on = order != high
    new = np.ones(order.shape, dtype=bool)
    np.not_equal(order[:, 1:], order[:, :-1], out=new[:, 1:])
    starts = np.flatnonzero(new)  # of the lanes at one address
    times = np.diff(starts, append=order.size)
    places = order.reshape(-1)[starts] >> SECTOR_SHIFT
    rows = starts // order.shape[1]
    if on is not None:
        active = on.reshape(-1)[starts]
        times, places, rows = times[active], places[active], rows[active]
    if not len(rows):
        return 0, 0
    most = np.maximum.reduceat(times, np.flatnonzero(changes(places, rows)))
    distinct = np.bincount(rows)
    ideal = -(-distinct * size // SECTOR)
    return int(most.sum()), int(ideal.sum())
