"""How often atomics meet: the hits of the address that an instruction uses most, and the blocks that they come from."""

from __future__ import annotations

import numpy as np

from cudabench.simulator.values import Array

MOST_KEPT = 1 << 21  # addresses, and pairs of address and block, that are told apart for an instruction


class Contention:
    """The addresses of one atomic instruction in global memory, with the blocks that hit them and how often.

    by_block: whether blocks are still told apart, all as 0 otherwise; full: whether there are too many addresses, too.
    """

    def __init__(self) -> None:
        self.found: list[tuple[Array, Array, Array]] = []  # addresses, blocks and hits, each pair once in each entry
        self.pairs = 0
        self.by_block, self.full = True, False

    def add(self, addresses: Array, blocks: Array) -> None:
        """Note the lanes of one execution: an address and the number of the block for each."""
        if self.full or not addresses.size:
            return
        self.found.append(summed(addresses, blocks if self.by_block else np.zeros_like(blocks), None))
        self.pairs += len(self.found[-1][0])
        if self.pairs > MOST_KEPT:
            self.merge()

    def merge(self) -> None:
        """Bring together what was noted."""
        found = summed(*map(np.concatenate, zip(*self.found, strict=True)))
        if self.by_block and len(found[0]) > MOST_KEPT:
            self.by_block = False
            found = summed(found[0], np.zeros_like(found[1]), found[2])
        self.full = len(found[0]) > MOST_KEPT
        self.found, self.pairs = [found], 0

    def hottest(self) -> tuple[int | None, int | None]:
        """Return the hits of the most used address and the blocks that hit it, None where there was too much to tell.

        Also None, None where no lane was active.
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
    """Return the different pairs of addresses and blocks, and the sums of their hits, one each where none are given."""
    width = int(blocks.max()) + 1
    addresses, which = np.unique(places, return_inverse=True)
    pairs, sums = totals(which.reshape(-1) * width + blocks, hits)  # by one number a pair: rows are slow to compare
    return addresses[pairs // width], pairs % width, sums


def totals(values: Array, hits: Array | None) -> tuple[Array, Array]:
    """Return the different integers and the sums of their hits, one each where none are given."""
    found, which = np.unique(values, return_inverse=True)
    return found, np.bincount(which.reshape(-1), weights=hits)
