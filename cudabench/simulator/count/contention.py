"""The contention of atomics: how many lanes access the most used address of an instruction, and from how many
blocks."""

from __future__ import annotations

import numpy as np

from cudabench.simulator.values import Array

MOST_KEPT = 1 << 21  # the largest number of addresses, or pairs of address and block, kept for an instruction


class Contention:
    """The global addresses that one atomic instruction accesses, with the blocks that access each address and how often
    they access it.

    `by_block`: whether blocks are distinguished; if not, all blocks have number 0. `full`: whether there are more
    addresses than can be kept.
    """

    def __init__(self) -> None:
        # Arrays (addresses, blocks, hits), one element for each pair of address and block.
        self.entries: list[tuple[Array, Array, Array]] = []
        self.pairs = 0
        self.by_block, self.full = True, False

    def add(self, addresses: Array, blocks: Array) -> None:
        """Add one execution; addresses, blocks: the address and the block number of each active lane."""
        if self.full or not addresses.size:
            return
        self.entries.append(summed(addresses, blocks if self.by_block else np.zeros_like(blocks), None))
        self.pairs += len(self.entries[-1][0])
        if self.pairs > MOST_KEPT:
            self.merge()

    def merge(self) -> None:
        """Merge all entries into one."""
        merged = summed(*map(np.concatenate, zip(*self.entries, strict=True)))
        if self.by_block and len(merged[0]) > MOST_KEPT:
            self.by_block = False
            merged = summed(merged[0], np.zeros_like(merged[1]), merged[2])
        self.full = len(merged[0]) > MOST_KEPT
        self.entries, self.pairs = [merged], 0

    def hottest(self) -> tuple[int | None, int | None]:
        """Return how many lanes accessed the most used address, and from how many blocks.

        A number is None if there were too many addresses, or pairs, to keep. Both are None if no lane was active.
        """
        if self.entries:
            self.merge()
        if self.full or not self.entries:
            return None, None
        places, _, hits = self.entries[0]
        addresses, sums = totals(places, hits)
        most = int(sums.argmax())
        return int(sums[most]), int(np.count_nonzero(places == addresses[most])) if self.by_block else None


def summed(places: Array, blocks: Array, hits: Array | None) -> tuple[Array, Array, Array]:
    """Return three arrays: addresses and blocks of the distinct pairs, and the sum of hits of each pair.

    hits: the hits of each given pair; None for one hit each.
    """
    width = int(blocks.max()) + 1
    addresses, inverse = np.unique(places, return_inverse=True)
    pairs, sums = totals(inverse.reshape(-1) * width + blocks, hits)  # one integer encodes an address and a block
    return addresses[pairs // width], pairs % width, sums


def totals(values: Array, hits: Array | None) -> tuple[Array, Array]:
    """Return the distinct integers and the sum of hits of each; hits: None for one hit per given integer."""
    distinct, inverse = np.unique(values, return_inverse=True)
    return distinct, np.bincount(inverse.reshape(-1), weights=hits)
