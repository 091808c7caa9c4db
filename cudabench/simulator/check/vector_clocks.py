"""The order that fences and flags give to the accesses of the blocks of a launch.

A flag is a word that is accessed by atomics, or by volatile, relaxed or release/acquire accesses. A fence alone orders
nothing. Block A makes accesses, executes a fence and writes a flag; block B reads this flag: then the accesses of A
before the fence are ordered before the accesses of B after the read. We say that the flag announces the accesses. An
atomic update of a flag keeps the accesses that the flag announced before (PTX ISA, "Release and Acquire Patterns" and
"Release Sequence"). Barriers of a block order its threads. So only blocks are distinguished, not threads: accesses of a
block before its last barrier count as made by the thread that executes the fence. Stores after that barrier are ordered
only by a fence of the storing thread, see `check.grid_races`.

The reading thread must execute a fence after the read, with these exceptions: an acquire; an atomic read (NVIDIA's
threadFenceReduction has no fence there); a barrier of the block (NVIDIA's CUB uses it after a volatile poll); a store
after the read, since it cannot come before the poll that decides whether it is executed.

Time is a number that grows with each access and fence. Each block has a vector clock: for each other block, the time
until which that block's accesses are ordered before the next accesses of this block. Each flag has the number of a
clock: the clock of the block that wrote the flag, with the time of this block's last fence. No correct kernel is
reported. Some races are missed, because a block is treated as one thread and because the simulator runs the blocks in
one order only.
"""

from __future__ import annotations

import numpy as np

from cudabench.simulator.values import Array, different

# Limits of this module.
MOST_BLOCKS = 2048  # larger launches have no clocks; at this limit, each of the three matrices has 16 MB
MOST_BYTES = 5 << 23  # the largest size in bytes of all clocks that flags have
MOST_UPDATES = 1_000_000  # the search is given up after this many updates of clocks


class GaveUp(Exception):
    """The search for races between blocks reached a limit; the text says which one."""


class VectorClocks:
    """The clocks of the blocks of a launch; blocks are numbered from 1 on, and 0 means no block.

    Methods that record what blocks do raise GaveUp if there are too many clocks.
    """

    def __init__(self, blocks: int) -> None:
        self.blocks = blocks
        self.now = 0
        self.fences: Array = np.zeros(blocks + 1, np.int32)  # the time of each block's last fence, 0 for none
        # Times in matrices of shape (block, other block), None until the first flag is read. `announced`: flags have
        # announced to the block the other block's accesses up to this time. `clock`: the other block's accesses up to
        # this time are ordered before the block's next accesses. `flag_times`: the time when the other block wrote the
        # latest of its flags that the block has read.
        self.announced: Array | None = None
        self.clock: Array | None = None
        self.flag_times: Array | None = None
        # For each block: whether `announced` has later times than `clock`.
        self.pending: Array = np.zeros(blocks + 1, bool)
        # The clocks that flags announce: keyed by the clock's number, the times of all blocks.
        self.rows: dict[int, Array] = {}
        self.added = self.updates = 0
        # For each block: the number of the clock that the block's next flag announces; 0 if this clock does not exist
        # yet.
        self.next_clock: Array = np.zeros(blocks + 1, np.int32)
        # For each region: an array with the number of the clock that each granule has as a flag.
        self.flag_clocks: dict[int, Array] = {}
        # Keyed by the numbers of two clocks: the number of the clock that joins them.
        self.joins: dict[tuple[int, int], int] = {}

    # The order.

    def before(self, blocks: Array, others: Array, times: Array, stores: bool) -> Array:
        """Return for each element whether the access of `others` at `times` is ordered before a new access of `blocks`.

        The arrays have one element per pair of accesses. stores: whether the new accesses are stores.
        """
        matrix = self.announced if stores else self.clock
        ordered: Array = times <= (0 if matrix is None else matrix[blocks, others])
        return ordered

    # Actions of blocks.

    def fence(self, blocks: Array) -> None:
        """Record that blocks execute a fence."""
        self.now += 1
        self.fences[blocks] = self.now
        self.next_clock[blocks] = 0
        self.acquire(blocks)

    def barrier(self) -> None:
        """Record that every block passes a barrier (of the block)."""
        if self.announced is not None and self.pending.any():
            self.acquire(np.flatnonzero(self.pending))

    def acquire(self, blocks: Array) -> None:
        """Order all accesses that flags have announced to these blocks before the blocks' next accesses."""
        if self.announced is None or self.clock is None:
            return
        blocks = blocks[self.pending[blocks]]
        if blocks.size:
            self.clock[blocks] = self.announced[blocks]
            self.pending[blocks] = False
            self.next_clock[blocks] = 0  # 0, so that the next flag of each block announces a new clock

    def cluster_barrier(self, blocks: Array, cluster: Array) -> None:
        """Record that blocks pass a barrier of their clusters; `cluster`: by block, the number of its cluster."""
        self.now += 1
        announced, _ = self.matrices()
        for number in different(cluster[blocks]):
            members = 1 + np.flatnonzero(cluster[1:] == number)
            together = announced[members].max(axis=0)
            together[members] = self.now
            announced[blocks[cluster[blocks] == number]] = together
        self.pending[blocks] = True
        self.acquire(blocks)

    def note_flag_writes(self, blocks: Array, others: Array, times: Array) -> None:
        """Record that `blocks` read flags that `others` wrote at `times`; one element per read."""
        if self.blocks > MOST_BLOCKS or not others.size:
            return
        if self.flag_times is None:
            self.flag_times = np.zeros((self.blocks + 1, self.blocks + 1), np.int32)
        self.flag_times[blocks, others] = np.maximum(self.flag_times[blocks, others], times)

    def write(self, base: int, granules: int, places: Array, blocks: Array) -> None:
        """Record that blocks write flags by a store, which replaces the clocks of these flags.

        base, granules: the region's address and size. places: the granules that are written; blocks: the writers.
        """
        self.add_own_clocks(blocks)
        if base in self.flag_clocks or self.next_clock[blocks].any():
            self.clock_numbers(base, granules)[places] = self.next_clock[blocks]

    def read(self, base: int, places: Array, blocks: Array, acquire: bool) -> None:
        """Record that blocks read flags; `acquire`: whether the announced accesses are ordered before the blocks' next
        ones."""
        if base in self.flag_clocks:
            numbers = self.flag_clocks[base][places]
            for pair in different((blocks.astype(np.int64) << 32) + numbers).tolist():
                self.announce(pair >> 32, pair & 0xFFFFFFFF)
        if acquire:
            self.acquire(blocks)

    def update(self, base: int, granules: int, places: Array, blocks: Array, returns: bool) -> None:
        """Record that blocks update flags by atomics, in the given order.

        returns: whether the atomics return the old value; they then also acquire.
        """
        self.add_own_clocks(blocks)
        if base in self.flag_clocks or self.next_clock[blocks].any():
            words = self.clock_numbers(base, granules)
            order = np.argsort(places, kind="stable")
            for place, block in dict.fromkeys(zip(places[order].tolist(), blocks[order].tolist(), strict=True)):
                if returns:
                    self.announce(block, int(words[place]))
                words[place] = self.joined_clock(int(words[place]), int(self.next_clock[block]))
        if returns:
            self.acquire(blocks)

    # Clocks.

    def clock_numbers(self, base: int, granules: int) -> Array:
        """Return an array with the number of the clock that each granule of a region has as a flag."""
        if base not in self.flag_clocks:
            self.flag_clocks[base] = np.zeros(granules, np.int32)
        return self.flag_clocks[base]

    def matrices(self) -> tuple[Array, Array]:
        """Return the matrices `announced` and `clock`; allocate them on the first use."""
        if self.announced is None or self.clock is None:
            if self.blocks > MOST_BLOCKS:
                raise GaveUp(f"{self.blocks} blocks that may wait for each other are over the limit of {MOST_BLOCKS}")
            self.announced, self.clock = np.zeros((2, self.blocks + 1, self.blocks + 1), np.int32)
        return self.announced, self.clock

    def add_clock(self, row: Array) -> int:
        """Add a clock, and return its number; `row`: the times of all blocks."""
        self.count_update()
        if (len(self.rows) + 1) * row.nbytes > MOST_BYTES:
            self.free_unused()
        self.added += 1
        self.rows[self.added] = row
        return self.added

    def count_update(self) -> None:
        """Count an update of the clocks; give up after too many."""
        self.updates += 1
        if self.updates > MOST_UPDATES:
            raise GaveUp(f"blocks waited for each other more than {MOST_UPDATES} times")

    def add_own_clocks(self, blocks: Array) -> None:
        """Add the clock that each of these blocks announces, if the block has a fence and no such clock yet."""
        for block in different(blocks[(self.fences[blocks] > 0) & (self.next_clock[blocks] == 0)]).tolist():
            row = self.matrices()[1][block].copy()
            row[block] = self.fences[block]
            self.next_clock[block] = self.add_clock(row)

    def joined_clock(self, number: int, own: int) -> int:
        """Return the number of the clock that joins clock `number` of a flag with clock `own`, which a block announces;
        0 means no clock."""
        if not number or not own or number == own:
            return number or own
        if (number, own) not in self.joins:
            row = np.maximum(self.rows[number], self.rows[own])
            known = (row == self.rows[number]).all()
            self.joins[number, own] = number if known else self.add_clock(row)
        return self.joins[number, own]

    def announce(self, block: int, number: int) -> None:
        """Record that a flag announces its clock to a block; `number`: the clock's number, 0 for none."""
        if number and self.announced is not None and (self.rows[number] > self.announced[block]).any():
            np.maximum(self.announced[block], self.rows[number], out=self.announced[block])
            self.pending[block] = True
            self.count_update()

    def free_unused(self) -> None:
        """Free the clocks that no flag has any more; give up if there are still too many."""
        used = {
            number for words in (self.next_clock, *self.flag_clocks.values()) for number in different(words).tolist()
        }
        self.rows = {number: row for number, row in self.rows.items() if number in used}
        self.joins.clear()
        if sum(row.nbytes for row in self.rows.values()) > MOST_BYTES // 4 * 3:
            raise GaveUp(f"the clocks of flags take more than {MOST_BYTES >> 20} MB")
