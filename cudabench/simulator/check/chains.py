"""The order between the blocks of a launch, by fences and by flags that blocks write and read.

A fence alone orders nothing. Accesses of a block before a fence are ordered before those of another block that follow
its read of a flag (an atomic, or a volatile, relaxed or released word), which the first block wrote after the fence; an
atomic passes on what its word announced before (PTX ISA, "Release and Acquire Patterns" and "Release Sequence").
Barriers of a block order its threads, so blocks are distinguished, not threads: all earlier accesses of a block count
as made by the thread that executes the fence.

The reader needs a fence of its own, unless it acquires. If it reads by an atomic, none is required: NVIDIA's
threadFenceReduction has no fence there. A barrier of the block counts as one, as NVIDIA's CUB uses it after a volatile
poll. And a store cannot come before the poll that decides whether it is executed at all.

Time is a number that grows with each access and fence. A block has a vector clock: for each other block the time until
which its accesses are ordered before the next ones of this block. A flag word holds the number of such a clock: what
its writer knew, and the time of its last fence. Ordered accesses stay ordered, so no correct kernel is reported; some
races are missed, since a block counts as one thread and blocks run in one order.
"""

from __future__ import annotations

import numpy as np

from cudabench.simulator.values import Array, different

MOST_BLOCKS = 2048  # whose clocks are kept: three matrices of 16 MB
MOST_BYTES = 5 << 23  # of the clocks that words hold
MOST_NEWS = 1_000_000  # times that a block or a word gets new information
MOST_KNOWN = 1 << 17  # pairs of a block and a clock that it has heard of


class Chains:
    """The clocks of the blocks of a launch, which have numbers from 1 on."""

    def __init__(self, blocks: int) -> None:
        self.blocks = blocks
        self.now = 0
        self.lost = ""  # why nothing is known any more
        self.fences: Array = np.zeros(blocks + 1, np.int32)  # when each block executed its last fence, 0 for never
        self.heard: Array | None = None  # (blocks, others): the time heard of; None before the first
        self.clock: Array | None = None  # likewise, of what is ordered before its next accesses
        self.seen: Array | None = None  # likewise, the time of the other's latest flag it saw
        self.news: Array = np.zeros(blocks + 1, bool)  # whether a block has heard more than is ordered
        self.met = False  # whether blocks without a clock passed a barrier of their cluster
        self.named: Array = np.zeros(blocks + 1, np.int32)  # of each block: the time of the last clock of its own
        # Clocks that words hold, by number: the owner and its time, 0 where it joins several; all its times (rows).
        self.owner, self.when = np.zeros((2, 1024), np.int32)
        self.rows: list[Array | None] = [None]
        self.bytes = 0
        # For each block the number of the clock that it announces by a flag: time of its last fence, and what it knows.
        self.own: Array = np.zeros(blocks + 1, np.int32)
        self.words: dict[int, Array] = {}  # by region, for each granule the number of the clock that it holds
        self.sums: dict[tuple[int, int], int] = {}
        self.known: set[int] = set()  # blocks, above 32 bits, with the clocks that they have heard of
        self.changes = 0

    # The order.

    def before(self, blocks: Array, others: Array, times: Array, stores: bool) -> Array:
        """Return whether accesses of others at some times are ordered before new ones of blocks; stores: they write."""
        if self.lost:
            return np.ones(blocks.shape, bool)
        matrix = self.heard if stores else self.clock
        ordered: Array = times <= (0 if matrix is None else matrix[blocks, others])
        return ordered

    # Actions of blocks.

    def fence(self, blocks: Array) -> None:
        """Let blocks execute a fence."""
        self.now += 1
        self.fences[blocks] = self.now
        self.own[blocks] = 0
        self.settle(blocks)

    def barrier(self) -> None:
        """Let all blocks pass a barrier of their own."""
        if self.heard is not None and self.news.any():
            self.settle(np.flatnonzero(self.news))

    def settle(self, blocks: Array) -> None:
        """Order what blocks have heard of before their next accesses."""
        if self.heard is None or self.clock is None:
            return
        blocks = blocks[self.news[blocks]]
        if blocks.size:
            self.clock[blocks] = self.heard[blocks]
            self.news[blocks] = False
            self.own[blocks] = 0  # they announce that from now on

    def meet(self, blocks: Array, cluster: Array) -> None:
        """Let blocks pass a barrier of their clusters; cluster: the number of each block's cluster."""
        self.now += 1
        if self.blocks > MOST_BLOCKS:
            self.met = True
            return
        heard = self.room()
        for number in different(cluster[blocks]):
            members = 1 + np.flatnonzero(cluster[1:] == number)
            together = heard[members].max(axis=0)
            together[members] = self.now
            arrived = blocks[cluster[blocks] == number]
            heard[arrived] = together
            heard[arrived, arrived] = 0
        self.news[blocks] = True
        self.settle(blocks)

    def see(self, blocks: Array, others: Array, times: Array) -> None:
        """Note that blocks see flags, which others wrote at some times."""
        if self.lost or self.blocks > MOST_BLOCKS or not others.size:
            return
        if self.seen is None:
            self.seen = np.zeros((self.blocks + 1, self.blocks + 1), np.int32)
        self.seen[blocks, others] = np.maximum(self.seen[blocks, others], times)

    def write(self, base: int, granules: int, places: Array, blocks: Array) -> None:
        """Let blocks write flags by a store, which replaces the earlier clocks; granules: the size of the region."""
        if self.lost:
            return
        self.name(blocks)
        if not self.lost and (base in self.words or self.own[blocks].any()):
            self.flags(base, granules)[places] = self.own[blocks]

    def hear(self, base: int, places: Array, blocks: Array, acquire: bool) -> None:
        """Let blocks read flags; acquire: what these announce is ordered before the blocks' next accesses."""
        if base in self.words and not self.lost:
            numbers = self.words[base][places]
            fresh = (numbers > 0) & (self.owner[numbers] != blocks)
            if self.heard is not None:
                known = (self.owner[numbers] > 0) & (self.heard[blocks, self.owner[numbers]] >= self.when[numbers])
                fresh &= ~known
            for pair in different((blocks[fresh].astype(np.int64) << 32) + numbers[fresh]).tolist():
                self.join(pair >> 32, pair & 0xFFFFFFFF)
                if self.lost:
                    return
        if acquire:
            self.settle(blocks)

    def update(self, base: int, granules: int, places: Array, blocks: Array, returns: bool) -> None:
        """Let blocks update flags, in the order given; returns: whether they read the old value, and acquire."""
        if not self.lost and (base in self.words or self.fences[blocks].any()):
            order = np.argsort(places, kind="stable")
            lanes = (places[order].astype(np.int64) << 32) + blocks[order]
            lanes = lanes[np.append(True, lanes[1:] != lanes[:-1])]
            self.name(blocks)
            words, last = self.flags(base, granules), -1
            for lane in lanes.tolist():
                place, block = lane >> 32, lane & 0xFFFFFFFF
                if place != last:
                    last, number = place, int(words[place])
                if number and returns:
                    self.join(block, number)
                own = int(self.own[block])
                if own and own != number:
                    words[place] = number = self.sum(number, own)
                if self.lost:
                    return
        if returns:
            self.settle(blocks)

    # Clocks.

    def flags(self, base: int, granules: int) -> Array:
        """Return the numbers of the clocks that the granules of a region hold."""
        if base not in self.words:
            self.words[base] = np.zeros(granules, np.int32)
        return self.words[base]

    def room(self) -> Array:
        """Return the times that blocks have heard of, allocated on first use."""
        if self.heard is None:
            self.heard, self.clock = np.zeros((2, self.blocks + 1, self.blocks + 1), np.int32)
        return self.heard

    def add(self, owner: int, when: int, row: Array | None) -> int:
        """Return the number of a new clock."""
        number = len(self.rows)
        if number == len(self.owner):
            self.owner, self.when = (np.concatenate([part, np.zeros_like(part)]) for part in (self.owner, self.when))
        self.owner[number], self.when[number] = owner, when
        self.count(row)
        self.rows.append(row)
        return number

    def count(self, row: Array | None) -> None:
        """Count one more change, and the memory that it keeps."""
        self.changes += 1
        if self.changes > MOST_NEWS:
            self.give_up(f"blocks waited for each other more than {MOST_NEWS} times")
        elif row is not None:
            if self.bytes + row.nbytes > MOST_BYTES:
                self.collect()
            self.bytes += row.nbytes

    def name(self, blocks: Array) -> None:
        """Give numbers to the clocks that blocks announce."""
        for block in different(blocks[(self.fences[blocks] > 0) & (self.own[blocks] == 0)]).tolist():
            if self.met:
                self.too_many()
            if self.lost:
                return
            row, when = None, int(self.fences[block])
            if self.clock is not None and self.clock[block].any():
                row = self.clock[block].copy()
                row[block] = when
            # To know a block's time is to know the first clock of that time, not what the block learnt later.
            first = self.named[block] != when
            self.named[block] = when
            self.own[block] = self.add(block if first else 0, when if first else 0, row)

    def sum(self, number: int, own: int) -> int:
        """Return the number of a clock that joins two, of which the second is a block's own."""
        block, when, row = int(self.owner[own]), int(self.when[own]), self.rows[number]
        if not number:
            return own
        if block:
            same = int(self.owner[number]) == block
            known = int(self.when[number]) if same else 0 if row is None else int(row[block])
            if same or known >= when:
                return number if known >= when else own
        joined = self.sums.get((number, own))
        if joined is None:
            if self.blocks > MOST_BLOCKS:
                self.too_many()
                return 0
            joined = self.sums[number, own] = self.add(0, 0, np.maximum(self.row(number), self.row(own)))
        return joined

    def row(self, number: int) -> Array:
        """Return all times of a clock."""
        row = self.rows[number]
        if row is None:
            row = np.zeros(self.blocks + 1, np.int32)
            row[self.owner[number]] = self.when[number]
        return row

    def join(self, block: int, number: int) -> None:
        """Let a block hear of a clock."""
        owner, row, pair = int(self.owner[number]), self.rows[number], (block << 32) + number
        if owner == block or pair in self.known:
            return
        if self.blocks > MOST_BLOCKS:
            self.too_many()
            return
        heard = self.room()
        if row is None:
            heard[block, owner] = max(heard[block, owner], self.when[number])
        else:
            np.maximum(heard[block], row, out=heard[block])
            heard[block, block] = 0
        if len(self.known) == MOST_KNOWN:
            self.known.clear()
        self.known.add(pair)
        self.news[block] = True
        self.count(None)

    def collect(self) -> None:
        """Forget the clocks that no word holds any more."""
        used = {int(number) for number in different(self.own)}
        for words in self.words.values():
            used.update(different(words).tolist())
        self.rows = [row if number in used else None for number, row in enumerate(self.rows)]
        self.sums.clear()
        self.bytes = sum(row.nbytes for row in self.rows if row is not None)
        if self.bytes > MOST_BYTES // 4 * 3:
            self.give_up(f"what flags tell of other blocks takes more than {MOST_BYTES >> 20} MB")

    def too_many(self) -> None:
        """Give up because of the number of blocks."""
        self.give_up(f"{self.blocks} blocks that may wait for each other are over the limit of {MOST_BLOCKS}")

    def give_up(self, reason: str) -> None:
        """Treat all accesses as ordered from now on."""
        self.lost = self.lost or reason
        self.heard = self.clock = self.seen = None
        self.words, self.rows, self.sums, self.known = {}, [None] * len(self.rows), {}, set()
