"""The order between the blocks of a launch that comes from fences and flags.

A flag is a word that is accessed by atomics, or by volatile, relaxed or release/acquire accesses. A fence alone orders
nothing. Block A makes accesses, executes a fence and writes a flag; block B reads this flag: then the accesses of A
before the fence are ordered before the accesses of B after the read. We say that the flag announces the accesses. An
atomic update of a flag keeps what the flag announced before (PTX ISA, "Release and Acquire Patterns" and "Release
Sequence"). Barriers of a block order its threads. So only blocks are distinguished, not threads: accesses of a block
before its last barrier count as made by the thread that executes the fence. Stores after it are ordered by a fence of
their own thread alone, see `check.fenced_races`.

The reader needs a fence of its own after the read, with these exceptions: an acquire; an atomic read (NVIDIA's
threadFenceReduction has no fence there); a barrier of the block (NVIDIA's CUB uses it after a volatile poll); a store
after the read, since it cannot come before the poll that decides whether it is executed.

Time is a number that grows with each access and fence. Each block has a vector clock: for each other block, the time
until which that block's accesses are ordered before the next accesses of this block. A flag holds the number of a
clock: the clock of its writer, with the time of the writer's last fence. No correct kernel is reported. Some races are
missed, because a block counts as one thread and because the simulator runs the blocks in one order only.
"""

from __future__ import annotations

import numpy as np

from cudabench.simulator.values import Array, different

# Limits of this module.
MOST_BLOCKS = 2048  # larger launches have no clocks; at this limit, each of the three matrices has 16 MB
MOST_BYTES = 5 << 23  # the most bytes of the clocks that flags hold
MOST_NEWS = 1_000_000  # the search is given up after this many updates of what blocks and flags know
MOST_KNOWN = 1 << 17  # the most entries of `Chains.known`


class Chains:
    """The clocks of the blocks of a launch; blocks are numbered from 1 on, and 0 means no block."""

    def __init__(self, blocks: int) -> None:
        self.blocks = blocks
        self.now = 0
        self.lost = ""  # the reason why the search was given up, or ""
        self.fences: Array = np.zeros(blocks + 1, np.int32)  # the time of each block's last fence, 0 for none
        # Times in matrices of shape (block, other block), None until the first flag is read. `heard`: flags have told
        # the block about the other block's accesses up to this time. `clock`: the other block's accesses up to this
        # time are ordered before the block's next accesses. `seen`: the time when the other block wrote the latest of
        # its flags that the block has read.
        self.heard: Array | None = None
        self.clock: Array | None = None
        self.seen: Array | None = None
        self.news: Array = np.zeros(blocks + 1, bool)  # for each block: whether `heard` has later times than `clock`
        self.met = False  # whether blocks passed a cluster barrier although there are too many for clocks
        self.named: Array = np.zeros(blocks + 1, np.int32)  # for each block: the time of the latest clock that it owns
        # The clocks that flags hold, indexed by the clock's number. `owner` and `when`: the block that owns the clock,
        # and this block's time; both are 0 for a clock that joins several clocks. `rows`: the times of all blocks, or
        # None if the clock has only its owner's time.
        self.owner, self.when = np.zeros((2, 1024), np.int32)
        self.rows: list[Array | None] = [None]
        self.bytes = 0
        # For each block: the number of the clock that the block's next flag announces; 0 if this clock does not exist
        # yet.
        self.own: Array = np.zeros(blocks + 1, np.int32)
        # For each region: an array with the number of the clock that each granule holds.
        self.words: dict[int, Array] = {}
        # Keyed by the numbers of two clocks: the number of the clock that joins them.
        self.sums: dict[tuple[int, int], int] = {}
        self.known: set[int] = set()  # `(block << 32) + clock` for each clock that a block has joined
        self.changes = 0

    # The order.

    def before(self, blocks: Array, others: Array, times: Array, stores: bool) -> Array:
        """Return for each element whether the access of `others` at `times` is ordered before a new access of `blocks`.

        The arrays have one element per pair of accesses. stores: whether the new accesses are stores.
        """
        if self.lost:
            return np.ones(blocks.shape, bool)
        matrix = self.heard if stores else self.clock
        ordered: Array = times <= (0 if matrix is None else matrix[blocks, others])
        return ordered

    # Actions of blocks.

    def fence(self, blocks: Array) -> None:
        """Record that blocks execute a fence."""
        self.now += 1
        self.fences[blocks] = self.now
        self.own[blocks] = 0
        self.settle(blocks)

    def barrier(self) -> None:
        """Record that every block passes a barrier (of the block)."""
        if self.heard is not None and self.news.any():
            self.settle(np.flatnonzero(self.news))

    def settle(self, blocks: Array) -> None:
        """Order all accesses that flags have announced to these blocks before the blocks' next accesses."""
        if self.heard is None or self.clock is None:
            return
        blocks = blocks[self.news[blocks]]
        if blocks.size:
            self.clock[blocks] = self.heard[blocks]
            self.news[blocks] = False
            self.own[blocks] = 0  # 0, so that the next flag of each block announces a new clock

    def meet(self, blocks: Array, cluster: Array) -> None:
        """Record that blocks pass a barrier of their clusters; `cluster`: by block, the number of its cluster."""
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
        """Record that `blocks` read flags that `others` wrote at `times`; one element per read."""
        if self.lost or self.blocks > MOST_BLOCKS or not others.size:
            return
        if self.seen is None:
            self.seen = np.zeros((self.blocks + 1, self.blocks + 1), np.int32)
        self.seen[blocks, others] = np.maximum(self.seen[blocks, others], times)

    def write(self, base: int, granules: int, places: Array, blocks: Array) -> None:
        """Record that blocks write flags by a store, which replaces the clocks of these flags.

        base, granules: the region's address and size. places: the granules that are written; blocks: the writers.
        """
        if self.lost:
            return
        self.name(blocks)
        if not self.lost and (base in self.words or self.own[blocks].any()):
            self.flags(base, granules)[places] = self.own[blocks]

    def hear(self, base: int, places: Array, blocks: Array, acquire: bool) -> None:
        """Record that blocks read flags; `acquire`: what the flags announce is ordered before their next accesses."""
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
        """Record that blocks update flags by atomics, in the given order.

        returns: whether the atomics return the old value; they then also acquire.
        """
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
        """Return an array with the number of the clock that each granule of a region holds."""
        if base not in self.words:
            self.words[base] = np.zeros(granules, np.int32)
        return self.words[base]

    def room(self) -> Array:
        """Return the matrix `heard`; allocate the matrices on the first use."""
        if self.heard is None:
            self.heard, self.clock = np.zeros((2, self.blocks + 1, self.blocks + 1), np.int32)
        return self.heard

    def add(self, owner: int, when: int, row: Array | None) -> int:
        """Add a clock, and return its number; the arguments are its elements of `owner`, `when` and `rows`."""
        number = len(self.rows)
        if number == len(self.owner):
            self.owner, self.when = (np.concatenate([part, np.zeros_like(part)]) for part in (self.owner, self.when))
        self.owner[number], self.when[number] = owner, when
        self.count(row)
        self.rows.append(row)
        return number

    def count(self, row: Array | None) -> None:
        """Count a change and the bytes of its row, and give up or free memory beyond the limits."""
        self.changes += 1
        if self.changes > MOST_NEWS:
            self.give_up(f"blocks waited for each other more than {MOST_NEWS} times")
        elif row is not None:
            if self.bytes + row.nbytes > MOST_BYTES:
                self.collect()
            self.bytes += row.nbytes

    def name(self, blocks: Array) -> None:
        """Add the clock that each of these blocks announces, if the block has a fence and no such clock yet."""
        for block in different(blocks[(self.fences[blocks] > 0) & (self.own[blocks] == 0)]).tolist():
            if self.met:
                self.too_many()
            if self.lost:
                return
            row, when = None, int(self.fences[block])
            if self.clock is not None and self.clock[block].any():
                row = self.clock[block].copy()
                row[block] = when
            # Only a block's first clock after a fence has an owner. A later clock has the same time but contains more
            # times of other blocks, so owner and time do not identify it.
            first = self.named[block] != when
            self.named[block] = when
            self.own[block] = self.add(block if first else 0, when if first else 0, row)

    def sum(self, number: int, own: int) -> int:
        """Return the number of a clock that joins two; `own`: the clock that a block announces."""
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
        """Return the array of a clock's times, one per block."""
        row = self.rows[number]
        if row is None:
            row = np.zeros(self.blocks + 1, np.int32)
            row[self.owner[number]] = self.when[number]
        return row

    def join(self, block: int, number: int) -> None:
        """Record that a flag with a clock announces it to a block."""
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
        """Free the clocks that no flag holds any more."""
        used = {int(number) for number in different(self.own)}
        for words in self.words.values():
            used.update(different(words).tolist())
        self.rows = [row if number in used else None for number, row in enumerate(self.rows)]
        self.sums.clear()
        self.bytes = sum(row.nbytes for row in self.rows if row is not None)
        if self.bytes > MOST_BYTES // 4 * 3:
            self.give_up(f"what flags tell of other blocks takes more than {MOST_BYTES >> 20} MB")

    def too_many(self) -> None:
        """Give up because the launch has too many blocks."""
        self.give_up(f"{self.blocks} blocks that may wait for each other are over the limit of {MOST_BLOCKS}")

    def give_up(self, reason: str) -> None:
        """Treat all accesses as ordered from now on, so that no more races are found; `reason`: for the message."""
        self.lost = self.lost or reason
        self.heard = self.clock = self.seen = None
        self.words, self.rows, self.sums, self.known = {}, [None] * len(self.rows), {}, set()
