"""How often atomics meet: the hits of the address that an instruction uses most, and the blocks that they come from."""

from __future__ import annotations

import numpy as np

from cudabench.simulator.values import Array

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
        places, hits = np.unique(addresses, return_counts=True)
        self.more.append((places, hits, distinct_pairs(addresses, blocks)))
        pairs = self.more[-1][2]
        self.waiting += len(pairs)
        if self.waiting > MOST_KEPT:
            self.merge()

    def merge(self) -> None:
        """Bring together what was noted."""
        places = np.concatenate([self.places, *(each[0] for each in self.more)])
        hits = np.concatenate([self.hits, *(each[1] for each in self.more)])
        self.places, where = np.unique(places, return_inverse=True)
        self.hits = np.bincount(where.reshape(-1), weights=hits).astype(np.int64)
        if self.pairs is not None:
            pairs = np.concatenate([self.pairs, *(each[2] for each in self.more)])
            self.pairs = distinct_pairs(pairs[:, 0], pairs[:, 1])
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


def distinct_pairs(addresses: Array, blocks: Array) -> Array:
    """Return the different pairs as rows of two columns; by one number a pair, since rows are slow to compare."""
    places, which = np.unique(addresses, return_inverse=True)
    width = int(blocks.max(initial=0)) + 1
    found = np.unique(which.reshape(-1) * width + blocks)
    return np.stack([places[found // width], found % width], axis=1)
