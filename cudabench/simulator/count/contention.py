"""Contention of atomics: the hits of an instruction's most used address, and the number of blocks that hit it."""

from __future__ import annotations

import numpy as np

from cudabench.simulator.values import Array

MOST_KEPT = 1 << 21  # addresses, and pairs of address and block, that are kept for an instruction


class Contention:
    """The addresses of one atomic instruction in global memory, with the blocks that hit them and how often.

    by_block: whether blocks are distinguished, else all are 0; full: whether there are too many addresses.
    """

    def __init__(self) -> None:
        self.found: list[tuple[Array, Array, Array]] = []  # addresses, blocks and hits, each pair once in each entry
        self.pairs = 0
        self.by_block, self.full = True, False

    def add(self, addresses: Array, blocks: Array) -> None:
        """Add the lanes of one execution: an address and a block number for each."""
        if self.full or not addresses.size:
            return
        self.found.append(summed(addresses, blocks if self.by_block else np.zeros_like(blocks), None))
        self.pairs += len(self.found[-1][0])
        if self.pairs > MOST_KEPT:
            self.merge()

    def merge(self) -> None:
        """Merge all entries into one."""
        merged = summed(*map(np.concatenate, zip(*self.found, strict=True)))
        if self.by_block and len(merged[0]) > MOST_KEPT:
            self.by_block = False
            merged = summed(merged[0], np.zeros_like(merged[1]), merged[2])
        self.full = len(merged[0]) > MOST_KEPT
        self.found, self.pairs = [merged], 0

    def hottest(self) -> tuple[int | None, int | None]:
        """Return the hits of the most used address and the number of blocks that hit it, None if there were too many.

        Both are None if no lane was active.
        """
        if self.found:
            self.merge()
        if self.full or not self.found:
            return None, None
        places, _, hits = self.found[0]
        addresses, sums = totals(places, hits)
        most = int(sums.argmax())
        return int(sums[most]), int(np.count_nonzero(places == addresses[most])) if self.by_block else None


def summed(places: Array, blocks: Array, hits: Array | None) -> tuple[Array, Array, Array]:
    """Return the distinct pairs of addresses and blocks, and the sums of their hits, by default one each."""
    width = int(blocks.max()) + 1
    addresses, inverse = np.unique(places, return_inverse=True)
    pairs, sums = totals(inverse.reshape(-1) * width + blocks, hits)  # one integer per pair: rows are slow to compare
    return addresses[pairs // width], pairs % width, sums


def totals(values: Array, hits: Array | None) -> tuple[Array, Array]:
    """Return the distinct integers and the sums of their hits, by default one each."""
    distinct, inverse = np.unique(values, return_inverse=True)
    return distinct, np.bincount(inverse.reshape(-1), weights=hits)
