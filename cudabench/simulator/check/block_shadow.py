"""Records the last accesses of blocks to each granule of a memory (a few bytes)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cudabench.simulator.memory import Region
from cudabench.simulator.values import Array, Value

if TYPE_CHECKING:
    from cudabench.simulator.isa.access import MemoryOp

MANY = np.int32(-1)  # used in place of a block's number if several blocks accessed the granule
# For each kind of access: the kinds of earlier accesses that it races with.
AGAINST = {"load": ("store", "atomic"), "store": ("store", "load", "atomic"), "atomic": ("store", "load")}


class BlockShadow:
    """Records for each granule of a region the last block that accessed it (numbered from 1 on), and the number of the
    access."""

    def __init__(self, granules: int) -> None:
        self.granules = granules
        # For each kind of access, an array of three rows with one column per granule: the number of the block, the
        # number of the access, and the time (negative for a store that is a flag).
        self.kinds: dict[str, Array] = defaultdict(lambda: np.zeros((3, granules), np.int32))

    def others(self, kind: str, granules: Array, blocks: Array) -> Array:
        """Return for each granule whether another block made an access of this kind."""
        if kind not in self.kinds:
            return np.zeros(granules.shape, bool)
        last: Array = self.kinds[kind][0][granules]
        return (last != 0) & (last != blocks)

    def record(
        self, kind: str, granules: Array, blocks: Array, access: int, now: int = 0, latest: bool = False
    ) -> bool:  # fmt: skip
        """Record an access, and return whether several blocks access the same granule by it.

        now: the time. latest: whether only the last block is kept, as always for stores.
        """
        last, numbers, times = self.kinds[kind]
        times[granules] = now
        previous = None if latest or kind == "store" else last[granules]
        last[granules] = blocks
        overlapping = last[granules] != blocks
        overlap = bool(overlapping.any())
        if previous is None:
            numbers[granules] = access
            return overlap
        several = overlapping | ((previous != 0) & (previous != blocks))
        numbers[granules[~several]] = access  # for a granule that several blocks accessed, the earlier access is kept
        last[granules[several]] = MANY
        return overlap


class Touch(NamedTuple):
    """An access by several lanes to a region.

    shadow: the shadow of the region. chosen, start: with an element for each lane, the lane's index in the chunk and
    the first byte that it accesses. granules, owners: with an element for each granule of each lane, the granule's
    number and the number of the block that accesses it (from 1 on). data: the values that a store writes.
    """

    access: MemoryOp
    region: Region
    shadow: BlockShadow
    chosen: Array
    start: Array
    granules: Array
    owners: Array
    data: Sequence[Value]

    @property
    def blocks(self) -> Array:
        """The number of the block of each lane."""
        return self.owners[:: max(1, self.granules.size // max(1, self.start.size))]

    def last(self, kind: str) -> Array:
        """Return for each granule the number of the block that last made an access of this kind, 0 for none."""
        return self.shadow.kinds[kind][0][self.granules]

    def times(self, kind: str) -> Array:
        """Return for each granule the time of the last access of this kind."""
        return self.shadow.kinds[kind][2][self.granules]

    def others(self, kind: str) -> Array:
        """Return for each granule whether another block made an access of this kind."""
        return self.shadow.others(kind, self.granules, self.owners)


class Unfenced(NamedTuple):
    """Stores of threads that have executed no fence or barrier since.

    granules, owners, lanes: for each stored granule its number, the number of the storing block, and the index of the
    storing lane in the chunk. time: the time of the stores.
    """

    shadow: BlockShadow
    granules: Array
    owners: Array
    lanes: Array
    time: int

    def only(self, chosen: Array, time: int) -> Unfenced:
        """Return some of the stores; `chosen`: a bool for each granule, `time`: their new time."""
        return Unfenced(self.shadow, self.granules[chosen], self.owners[chosen], self.lanes[chosen], time)
