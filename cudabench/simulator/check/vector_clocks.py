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
MOST_JOINED = 1 << 17  # the largest number of entries in `VectorClocks.joined`


class VectorClocks:
    """The clocks of the blocks of a launch; blocks are numbered from 1 on, and 0 means no block."""

    def __init__(self, blocks: int) -> None:
        self.blocks = blocks
        self.now = 0
        self.gave_up = ""  # the reason why the search was given up, or ""
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
        self.missed_barrier = False  # whether blocks passed a cluster barrier although there are too many for clocks
        # For each block: the time of the latest clock that it owns.
        self.own_times: Array = np.zeros(blocks + 1, np.int32)
        # The clocks of flags, indexed by the clock's number. `owner` and `when`: the block that owns the clock, and
        # this block's time; both are 0 for a clock that joins several clocks. `rows`: the times of all blocks, or None
        # if the clock has only its owner's time.
        self.owner, self.when = np.zeros((2, 1024), np.int32)
        self.rows: list[Array | None] = [None]
        self.bytes = 0
        # For each block: the number of the clock that the block's next flag announces; 0 if this clock does not exist
        # yet.
        self.next_clock: Array = np.zeros(blocks + 1, np.int32)
        # For each region: an array with the number of the clock that each granule has as a flag.
        self.flag_clocks: dict[int, Array] = {}
        # Keyed by the numbers of two clocks: the number of the clock that joins them.
        self.joins: dict[tuple[int, int], int] = {}
        self.joined: set[int] = set()  # `(block << 32) + clock` for each clock that a block has joined
        self.updates = 0

    # The order.

    def before(self, blocks: Array, others: Array, times: Array, stores: bool) -> Array:
        """Return for each element whether the access of `others` at `times` is ordered before a new access of `blocks`.

        The arrays have one element per pair of accesses. stores: whether the new accesses are stores.
        """
        if self.gave_up:
            return np.ones(blocks.shape, bool)
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
        if self.blocks > MOST_BLOCKS:
            self.missed_barrier = True
            return
        announced = self.matrix()
        for number in different(cluster[blocks]):
            members = 1 + np.flatnonzero(cluster[1:] == number)
            together = announced[members].max(axis=0)
            together[members] = self.now
            arrived = blocks[cluster[blocks] == number]
            announced[arrived] = together
            announced[arrived, arrived] = 0
        self.pending[blocks] = True
        self.acquire(blocks)

    def note_flag_writes(self, blocks: Array, others: Array, times: Array) -> None:
        """Record that `blocks` read flags that `others` wrote at `times`; one element per read."""
        if self.gave_up or self.blocks > MOST_BLOCKS or not others.size:
            return
        if self.flag_times is None:
            self.flag_times = np.zeros((self.blocks + 1, self.blocks + 1), np.int32)
        self.flag_times[blocks, others] = np.maximum(self.flag_times[blocks, others], times)

    def write(self, base: int, granules: int, places: Array, blocks: Array) -> None:
        """Record that blocks write flags by a store, which replaces the clocks of these flags.

        base, granules: the region's address and size. places: the granules that are written; blocks: the writers.
        """
        if self.gave_up:
            return
        self.add_own_clocks(blocks)
        if not self.gave_up and (base in self.flag_clocks or self.next_clock[blocks].any()):
            self.clock_numbers(base, granules)[places] = self.next_clock[blocks]

    def read(self, base: int, places: Array, blocks: Array, acquire: bool) -> None:
        """Record that blocks read flags; `acquire`: whether the announced accesses are ordered before the blocks' next
        ones."""
        if base in self.flag_clocks and not self.gave_up:
            numbers = self.flag_clocks[base][places]
            fresh = (numbers > 0) & (self.owner[numbers] != blocks)
            if self.announced is not None:
                known = (self.owner[numbers] > 0) & (self.announced[blocks, self.owner[numbers]] >= self.when[numbers])
                fresh &= ~known
            for pair in different((blocks[fresh].astype(np.int64) << 32) + numbers[fresh]).tolist():
                self.announce(pair >> 32, pair & 0xFFFFFFFF)
                if self.gave_up:
                    return
        if acquire:
            self.acquire(blocks)

    def update(self, base: int, granules: int, places: Array, blocks: Array, returns: bool) -> None:
        """Record that blocks update flags by atomics, in the given order.

        returns: whether the atomics return the old value; they then also acquire.
        """
        if not self.gave_up and (base in self.flag_clocks or self.fences[blocks].any()):
            order = np.argsort(places, kind="stable")
            lanes = (places[order].astype(np.int64) << 32) + blocks[order]
            lanes = lanes[np.append(True, lanes[1:] != lanes[:-1])]
            self.add_own_clocks(blocks)
            words, last = self.clock_numbers(base, granules), -1
            for lane in lanes.tolist():
                place, block = lane >> 32, lane & 0xFFFFFFFF
                if place != last:
                    last, number = place, int(words[place])
                if number and returns:
                    self.announce(block, number)
                own = int(self.next_clock[block])
                if own and own != number:
                    words[place] = number = self.joined_clock(number, own)
                if self.gave_up:
                    return
        if returns:
            self.acquire(blocks)

    # Clocks.

    def clock_numbers(self, base: int, granules: int) -> Array:
        """Return an array with the number of the clock that each granule of a region has as a flag."""
        if base not in self.flag_clocks:
            self.flag_clocks[base] = np.zeros(granules, np.int32)
        return self.flag_clocks[base]

    def matrix(self) -> Array:
        """Return the matrix `announced`; allocate the matrices on the first use."""
        if self.announced is None:
            self.announced, self.clock = np.zeros((2, self.blocks + 1, self.blocks + 1), np.int32)
        return self.announced

    def add_clock(self, owner: int, when: int, row: Array | None) -> int:
        """Add a clock, and return its number; the arguments are its elements of `owner`, `when` and `rows`."""
        number = len(self.rows)
        if number == len(self.owner):
            self.owner, self.when = (np.concatenate([part, np.zeros_like(part)]) for part in (self.owner, self.when))
        self.owner[number], self.when[number] = owner, when
        self.count_update(row)
        self.rows.append(row)
        return number

    def count_update(self, row: Array | None) -> None:
        """Count an update of the clocks and the bytes of its row; give up, or free memory, if a limit is exceeded."""
        self.updates += 1
        if self.updates > MOST_UPDATES:
            self.give_up(f"blocks waited for each other more than {MOST_UPDATES} times")
        elif row is not None:
            if self.bytes + row.nbytes > MOST_BYTES:
                self.free_unused()
            self.bytes += row.nbytes

    def add_own_clocks(self, blocks: Array) -> None:
        """Add the clock that each of these blocks announces, if the block has a fence and no such clock yet."""
        for block in different(blocks[(self.fences[blocks] > 0) & (self.next_clock[blocks] == 0)]).tolist():
            if self.missed_barrier:
                self.too_many()
            if self.gave_up:
                return
            row, when = None, int(self.fences[block])
            if self.clock is not None and self.clock[block].any():
                row = self.clock[block].copy()
                row[block] = when
            # Only a block's first clock after a fence has an owner. A later clock has the same time but contains more
            # times of other blocks, so owner and time do not identify it.
            first = self.own_times[block] != when
            self.own_times[block] = when
            self.next_clock[block] = self.add_clock(block if first else 0, when if first else 0, row)

    def joined_clock(self, number: int, own: int) -> int:
        """Return the number of the clock that joins clock `number` of a flag with clock `own`, which a block
        announces."""
        block, when, row = int(self.owner[own]), int(self.when[own]), self.rows[number]
        if not number:
            return own
        if block:
            same = int(self.owner[number]) == block
            known = int(self.when[number]) if same else 0 if row is None else int(row[block])
            if same or known >= when:
                return number if known >= when else own
        joined = self.joins.get((number, own))
        if joined is None:
            if self.blocks > MOST_BLOCKS:
                self.too_many()
                return 0
            joined = self.joins[number, own] = self.add_clock(0, 0, np.maximum(self.row(number), self.row(own)))
        return joined

    def row(self, number: int) -> Array:
        """Return the array of a clock's times, one per block."""
        row = self.rows[number]
        if row is None:
            row = np.zeros(self.blocks + 1, np.int32)
            row[self.owner[number]] = self.when[number]
        return row

    def announce(self, block: int, number: int) -> None:
        """Record that a flag announces its clock, which has this number, to a block."""
        owner, row, pair = int(self.owner[number]), self.rows[number], (block << 32) + number
        if owner == block or pair in self.joined:
            return
        if self.blocks > MOST_BLOCKS:
            self.too_many()
            return
        announced = self.matrix()
        if row is None:
            announced[block, owner] = max(announced[block, owner], self.when[number])
        else:
            np.maximum(announced[block], row, out=announced[block])
            announced[block, block] = 0
        if len(self.joined) == MOST_JOINED:
            self.joined.clear()
        self.joined.add(pair)
        self.pending[block] = True
        self.count_update(None)

    def free_unused(self) -> None:
        """Free the clocks that no flag has any more."""
        used = {int(number) for number in different(self.next_clock)}
        for words in self.flag_clocks.values():
            used.update(different(words).tolist())
        self.rows = [row if number in used else None for number, row in enumerate(self.rows)]
        self.joins.clear()
        self.bytes = sum(row.nbytes for row in self.rows if row is not None)
        if self.bytes > MOST_BYTES // 4 * 3:
            self.give_up(f"the clocks of flags take more than {MOST_BYTES >> 20} MB")

    def too_many(self) -> None:
        """Give up because the launch has too many blocks."""
        self.give_up(f"{self.blocks} blocks that may wait for each other are over the limit of {MOST_BLOCKS}")

    def give_up(self, reason: str) -> None:
        """Treat all accesses as ordered from now on, so that no more races are found; `reason`: for the message."""
        self.gave_up = self.gave_up or reason
        self.announced = self.clock = self.flag_times = None
        self.flag_clocks, self.rows, self.joins, self.joined = {}, [None] * len(self.rows), {}, set()
