"""How often atomics meet: the hits of the address that an instruction uses most, and the blocks that they come from."""

from __future__ import annotations

import numpy as np

from cudabench.simulator.values import Array, different

DENSE = 8  # entries of a table for each value, up to which it is faster than sorting
MOST_KEPT = 1 << 21  # addresses, and pairs of address and block, that are told apart for an instruction


class Contention:
    """The addresses of one atomic instruction in global memory, with their hits and the blocks that hit them."""

    def __init__(self) -> None:
        self.places: Array = np.empty(0, np.int64)
        self.hits: Array = np.empty(0, np.int64)
        self.pairs: Array | None = np.empty((0, 2), np.int64)  # None where they were too many
        self.more: list[tuple[Array, Array, Array]] = []
        self.waiting = 0
        self.full = False

    def add(self, addresses: Array, blocks: Array) -> None:
        """Note the lanes of one execution: an address and the number of the block for each."""
        if self.full:
            return
        places, which, hits = told_apart(addresses)
        pairs = distinct_pairs(places, which, blocks)
        self.more.append((places, hits, pairs))
        self.waiting += len(pairs)
        if self.waiting > MOST_KEPT:
            self.merge()

    def merge(self) -> None:
        """Bring together what was noted."""
        places = np.concatenate([self.places, *(each[0] for each in self.more)])
        hits = np.concatenate([self.hits, *(each[1] for each in self.more)])
        self.places, where, _ = told_apart(places)
        self.hits = np.bincount(where, weights=hits).astype(np.int64)
        if self.pairs is not None:
            pairs = np.concatenate([self.pairs, *(each[2] for each in self.more)])
            places, which, _ = told_apart(pairs[:, 0])
            self.pairs = distinct_pairs(places, which, pairs[:, 1])
            if len(self.pairs) > MOST_KEPT:
                self.pairs = None
        self.full = len(self.places) > MOST_KEPT
        self.more, self.waiting = [], 0

    def hottest(self) -> tuple[int | None, int | None]:
        """Return the hits of the most used address and the blocks that hit it, None where there was too much to tell.

        Also None, None where no lane was active.
        """
        if self.more:
            self.merge()
        if self.full or not self.hits.size:
            return None, None
        most = int(self.hits.argmax())
        if self.pairs is None:
            return int(self.hits[most]), None
        return int(self.hits[most]), int(np.count_nonzero(self.pairs[:, 0] == self.places[most]))


def told_apart(values: Array) -> tuple[Array, Array, Array]:
    """Return the different integers, which of them each is, and how often each is there: np.unique, in a table of
    what is between the least and the most where that is not much longer than the values."""
    if not values.size:
        return values, np.empty(0, np.int64), np.empty(0, np.int64)
    least, most = int(values.min()), int(values.max())
    if most - least > DENSE * values.size:
        places, which, hits = np.unique(values, return_inverse=True, return_counts=True)
        return places, which.reshape(-1), hits
    counts = np.bincount(values - least)
    there = counts.nonzero()[0]
    which = (np.cumsum(counts > 0) - 1)[values - least]
    return there + least, which, counts[there]


def distinct_pairs(places: Array, which: Array, blocks: Array) -> Array:
    """Return the different pairs of places[which] and blocks as rows of two columns; by one number a pair, since rows
    are slow to compare."""
    width = int(blocks.max(initial=0)) + 1
    found = _different(which * width + blocks)
    return np.stack([places[found // width], found % width], axis=1)


def _different(values: Array) -> Array:
    """Return the different integers in ascending order, found as in `told_apart`."""
    if not values.size:
        return values
    least, most = int(values.min()), int(values.max())
    if most - least > DENSE * values.size:
        return different(values)
    there = np.zeros(most - least + 1, dtype=bool)
    there[values - least] = True
    return np.flatnonzero(there) + least
