"""The cost of atomics whose lanes contend: wavefronts in shared memory, sectors in global memory.

NVIDIA does not document these costs. The following rules hold for all single requests that were measured with Nsight
Compute on an H200 (benchmarks/results/atomics_h200.md):

* "lanes": A native atomic on shared memory takes as many wavefronts as the bank with the most lanes has lanes, even if
  these lanes access the same word.
* "words": An addition of the constant 1 takes as many wavefronts as the bank with the most distinct words has words,
  as a store does.
* "swap": A compare-and-swap takes twice as many wavefronts as in "lanes". For 8 bytes, each half warp is served
  separately.
* "loop": Other atomics, such as the addition of floats, are a loop in the machine code. In each iteration, all lanes
  that have not stored yet load. Then one lane of each bank may store, in two wavefronts, if the word has not changed
  since this lane loaded it.
* In global memory, each sector of a request is counted as often as its most accessed word has lanes.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from cudabench.simulator.count import banks
from cudabench.simulator.count.patterns import SECTOR, SECTOR_SHIFT
from cudabench.simulator.values import Array, changes

Served = Literal["words", "lanes", "swap", "loop"]
NO_WORD = -1
ONE_LANE = -1  # used in place of the bytes per lane if one lane of a warp executes the atomic for all lanes


def served(operation: str, type_: str, by_one: bool) -> Served:
    """Return how shared memory serves a PTX operation such as "add" on a type such as "u32", from sm_70 on.

    by_one: whether it is an addition of the constant 1 whose result is not used.
    """
    if type_ in ("u32", "s32", "b32"):
        return "words" if by_one else "swap" if operation == "cas" else "lanes"
    if type_ == "b64" and operation in ("exch", "cas"):
        return "swap" if operation == "cas" else "lanes"
    return "loop"


def shared(addresses: Array, on: Array, width: int, how: Served) -> tuple[int, int, int]:
    """Return the cost of atomic requests to shared memory, as a `requests.Cost`: their wavefronts, how many they would
    take if the same lanes did not contend, and how many of the wavefronts are the loads of a loop.

    addresses, on: byte addresses and active lanes, of shape (requests, 32); width: bytes per lane; how: the result of
    `served`.
    """
    if how == "words":
        return banks.cost(addresses, on, width, load=False)
    groups = 2 if width == 8 else 1
    if how == "loop":
        return _loop(addresses, width, on, groups)
    most = _fullest_bank(_banks(addresses, width), on, groups)
    per_lane = 2 if how == "swap" else 1
    return int(most.sum()) * per_lane, int(np.count_nonzero(most)) * per_lane, 0


def _banks(addresses: Array, width: int) -> Array:
    """Return the number of each lane's bank; for 8 bytes per lane, the number of its pair of banks."""
    return (addresses >> 3) & 15 if width == 8 else (addresses >> 2) & 31


def _fullest_bank(places: Array, on: Array, groups: int) -> Array:
    """Return how many active lanes the bank with the most active lanes has, for each group of lanes of each request.

    places: the lanes' banks; groups: how many groups of a request's lanes are served separately. The result has shape
    (requests * groups,).
    """
    rows = len(places) * groups
    flat = places.reshape(rows, -1) + np.arange(rows, dtype=np.int64)[:, None] * 32
    return np.bincount(flat[on.reshape(rows, -1)], minlength=rows * 32).reshape(rows, 32).max(axis=1)


def _loop(addresses: Array, width: int, on: Array, groups: int) -> tuple[int, int, int]:
    """Return the cost of a "loop": all iterations are simulated, for all requests at once."""
    waiting = on.copy()
    places, words = _banks(addresses, width), addresses >> (3 if width == 8 else 2)
    wavefronts = reloads = 0
    ideal = 3 * int(np.count_nonzero(waiting.reshape(-1, 32 // groups).any(axis=1)))
    while waiting.any():
        reloads += int(banks.wavefronts(addresses, width, waiting).sum())
        wavefronts += 2 * int(np.count_nonzero(waiting.reshape(-1, 32 // groups).any(axis=1)))
        # For each bank: the word that is stored in this iteration.
        stored = np.full((len(waiting), 32), NO_WORD, dtype=np.int64)
        for lanes in np.split(np.arange(32), groups):
            row, lane = np.nonzero(waiting[:, lanes])
            lane = lanes[lane]
            _, chosen = np.unique(row * 32 + places[row, lane], return_index=True)  # the lowest lane of each bank
            row, lane = row[chosen], lane[chosen]
            bank, word = places[row, lane], words[row, lane]
            wins = stored[row, bank] != word
            stored[row, bank] = word
            waiting[row[wins], lane[wins]] = False
    return wavefronts + reloads, ideal, reloads


def sectors(addresses: Array, on: Array, size: int) -> tuple[int, int, int]:
    """Return the sectors and the ideal sectors of atomic requests to global memory, as a `requests.Cost`."""
    request, places = np.nonzero(on)[0], addresses[on]
    order = np.lexsort((places, request))
    request, places = request[order], places[order]
    starts = np.flatnonzero(changes(places, request))  # where the lanes of each distinct address begin
    times = np.diff(starts, append=len(places))
    request, places = request[starts], places[starts] >> SECTOR_SHIFT
    most = np.maximum.reduceat(times, np.flatnonzero(changes(places, request)))
    ideal = -(-np.bincount(request) * size // SECTOR)
    return int(most.sum()), int(ideal.sum()), 0
