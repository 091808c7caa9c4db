"""The memory that a launch accesses: the distinct sectors of the launch, and repeated accesses by its blocks.

Each sector of a request is looked up in the L1 cache. A sector that the same block has accessed before may still be in
the L1, and one that the launch has accessed before may be in the L2. So, if a footprint is requested, three things are
counted for accesses to global memory:

* For the launch: the distinct sectors of each array that it reads, and that it writes. A sector that the launch has
  written before it reads it does not count as read, since the caches have this sector.
* For some blocks, which are spread over the launch and followed one by one: how many sectors are new to the block, and
  how many requests contain such a sector.
* For the same blocks: the lines of 128 bytes and the L1 cycles ("cycles") that a request takes, and the sectors of
  which a store writes only a part.

The L1 is the same storage as shared memory, with the same banks. So a request takes as many cycles as the bank with the
most distinct words has words: 32 for a column of a matrix with 4096 columns of floats, about 4 for scattered words of a
table in the L1. Nine scattered reads by each of 2^25 threads (`lookup global`) used 46% of the cycles of an H200
according to Nsight Compute, which is 3.9 cycles per request. A request takes at least a quarter as many cycles as it
has lines, since four lines are looked up at a time.

The results for the followed blocks are scaled to the requests and sectors of the launch, which are counted exactly.

For constants that the lanes of a warp read at different addresses, a lower bound is computed: how many 64-byte lines
were not in the constant cache of a multiprocessor, which has 2 KiB (`ConstantLines`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cudabench.simulator.count import banks
from cudabench.simulator.count.patterns import LINE_SHIFT, SECTOR, SECTOR_SHIFT
from cudabench.simulator.report import Footprint, Touch
from cudabench.simulator.values import INT64, Array, Chunk, active_warps, broadcast, changes, different

if TYPE_CHECKING:
    from cudabench.simulator.memory import AddressSpace
    from cudabench.simulator.program.code import MemoryInstruction

LINES_AT_A_TIME = 4
FOLLOWED = 16  # about how many blocks of a launch are followed
CONSTANT_SHIFT = 6
CONSTANT_LINES = 32  # lines of the constant cache, which has 2 KiB (arXiv 1804.06826, 2402.13499)
CONSTANT_BANK = 1024  # the lines in 64 KiB, the largest constant memory that a kernel indexes
MOST_EXAMINED = 64  # at most this many steps are examined, and of each step about this many requests


class ConstantLines:
    """Computes the least number of lines that the constant cache must fetch.

    Only requests whose lanes read different addresses count. A step is one execution of such a load by all warps. The
    order of warps is not known, so the better of two cases is assumed for each request. In the first case, the cache
    has the lines that the request shares with the most similar request of the same step or of the step before, and
    further lines of the request if there is room. In the second case, the cache has the lines that all requests
    together read most often. So warps that go through a table together fetch nothing, and a table that fits in the
    cache is not fetched again.
    """

    def __init__(self) -> None:
        self.requests = 0
        self.steps = 0
        self.before: Array = np.zeros((0, CONSTANT_BANK), np.float32)
        self.wanted: Array = np.zeros(CONSTANT_BANK)
        # For each step, for each of its requests: (how many lines the request has, how many lines may be cached before
        # it).
        self.seen: list[Array] = []

    def note(self, addresses: Array, mask: Array, requests: int) -> None:
        """Add one step.

        addresses: the lanes' byte addresses; mask: the active lanes; both of shape (blocks, threads) with whole warps.
        requests: how many requests the step has. If all blocks have the same requests, only one block is examined.
        """
        self.requests += requests
        if self.steps == MOST_EXAMINED:
            return
        self.steps += 1
        lines = np.where(mask, (addresses >> CONSTANT_SHIFT) % CONSTANT_BANK, -1)
        lines = (lines[:1] if (lines == lines[0]).all() else lines).reshape(-1, 32)
        lines = lines[active_warps(lines >= 0)]
        if not len(lines):
            return
        lines = lines[:: max(1, len(lines) // MOST_EXAMINED)]
        now = np.zeros((len(lines), CONSTANT_BANK), np.float32)
        request, lane = np.nonzero(lines >= 0)
        now[request, lines[request, lane]] = 1
        counts = now.sum(axis=1)
        shared = now @ np.concatenate([now, self.before]).T
        np.fill_diagonal(shared, 0)
        cached = shared.max(axis=1) + np.maximum(CONSTANT_LINES - counts, 0)
        self.seen.append(np.stack([counts, cached]))
        self.wanted += now.sum(axis=0)
        self.before = now

    def fetched(self) -> float:
        """Return the least number of lines that all requests together must fetch."""
        if not self.seen:
            return 0.0
        counts, cached = np.concatenate(self.seen, axis=1)
        frequent = float(np.sort(self.wanted)[-CONSTANT_LINES:].sum() / self.wanted.sum())
        missing = np.maximum(counts - np.maximum(cached, frequent * counts), 0)
        return float(missing.mean()) * self.requests


class Footprints:
    """Collects the footprint of one launch."""

    def __init__(self, space: AddressSpace, accesses: list[MemoryInstruction], blocks: int) -> None:
        """blocks: how many blocks will run."""
        self.space, self.accesses = space, accesses
        self.marks: dict[tuple[int, bool], Array] = {}
        # The counts of the followed blocks, keyed by (number of the instruction, array).
        self.sums: dict[tuple[int, object], dict[str, float]] = {}
        self.stride = max(1, -(-blocks // FOLLOWED))
        self.before = 0  # how many blocks the earlier chunks had
        self.chosen: Array = np.empty(0, INT64)
        # Masks of the sectors that blocks have accessed, keyed by (slot, written). Their shape is (followed blocks,
        # sectors of the array).
        self.seen: dict[tuple[int, bool], Array] = {}
        self.followed = 0
        self.constants = ConstantLines()
        # For each chunk: how many blocks it has, and how many instructions ran before it.
        self.parts: list[tuple[int, int]] = []

    def start(self, chunk: Chunk, instructions: int) -> None:
        """Begin a chunk and choose the blocks to follow; instructions: how many instructions the earlier chunks have
        executed."""
        self.parts.append((chunk.blocks, instructions))
        first = (self.stride // 2 - self.before) % self.stride
        self.chosen = np.arange(first, chunk.blocks, self.stride)
        self.before += chunk.blocks
        self.followed += len(self.chosen)
        self.seen.clear()

    def note(
        self, number: int, address: Array, size: int, mask: Array | None, chunk: Chunk, where: object
    ) -> None:  # fmt: skip
        """Add one execution of an access to global memory; arguments as for `Counters.count`; where: the array."""
        kind = self.accesses[number].kind
        slots = where if isinstance(where, tuple) else (where,)
        on = chunk.real(mask)
        lanes = broadcast(address, chunk.shape)[on]
        for slot in slots:
            region = self.space.slots[slot]
            in_region = lanes if len(slots) == 1 else lanes[(lanes >= region.base) & (lanes < region.end)]
            places = (in_region - region.base) >> SECTOR_SHIFT
            for written in (False, True) if kind == "atomic" else (kind == "store",):
                marks = self.sectors(self.marks, slot, written)
                before = None if written else self.marks.get((slot, True))
                for part in (places,) if size <= SECTOR else (places, places + 1):
                    marks[part if before is None else part[~before[part]]] = True
        if len(self.chosen):
            self.follow(number, address, size, on, chunk, where, slots, kind == "store")

    def follow(
        self, number: int, address: Array, size: int, on: Array, chunk: Chunk, where: object, slots: tuple[int, ...],
        store: bool,
    ) -> None:  # fmt: skip
        """Count one execution in the followed blocks; slots: the slots of the array; store: whether it is a store."""
        on = on[self.chosen]
        active = active_warps(on)
        if not active.any():
            return
        sums = self.sums.setdefault((number, where), defaultdict(float))
        lanes, on = broadcast(address, chunk.shape)[self.chosen].reshape(-1, 32), on.reshape(-1, 32)
        cycles = banks.most_words(banks.words_of(lanes, size, on))[active]
        request, places = np.nonzero(on)[0], lanes[on]
        order = np.lexsort((places, request))
        request, places = request[order], places[order]
        new = changes(places, request)
        request, places = request[new], places[new]
        sector = places >> SECTOR_SHIFT
        starts = np.flatnonzero(changes(sector, request))
        lengths = np.diff(starts, append=len(places))
        request, sector = request[starts], sector[starts]
        wide = max(1, size // SECTOR)
        line = sector >> (LINE_SHIFT - SECTOR_SHIFT)
        sums["requests"] += int(active.sum())
        sums["sectors"] += len(sector) * wide
        lines = np.add.reduceat(changes(line, request), np.flatnonzero(changes(request)))
        sums["lines"] += int(lines.sum())
        sums["cycles"] += float(np.maximum(cycles, lines / LINES_AT_A_TIME).sum())
        if store:
            sums["partial"] += int((lengths * size < SECTOR).sum())
        for slot in slots:
            region = self.space.slots[slot]
            seen = self.sectors(self.seen, slot, store, len(self.chosen))
            in_region = np.flatnonzero((sector >= region.base >> SECTOR_SHIFT) & (sector <= region.end >> SECTOR_SHIFT))
            rows, inside = request[in_region] // chunk.warps, sector[in_region] - (region.base >> SECTOR_SHIFT)
            fresh = ~seen[rows, inside]
            seen[rows, inside] = True
            if store:
                self.sectors(self.seen, slot, False, len(self.chosen))[rows, inside] = True
            # If several warps of a block request a new sector at once, the sector counts only once, for one of these
            # warps.
            keys, first_of = np.unique(rows[fresh] * seen.shape[1] + inside[fresh], return_index=True)
            sums["fresh"] += len(keys) * wide
            sums["missing"] += len(different(request[in_region][fresh][first_of]))

    def sectors(self, table: dict[tuple[int, bool], Array], slot: int, written: bool, *blocks: int) -> Array:
        """Return the mask of accessed (or written) sectors for an array, from a table; create it if it is not there.

        blocks: the number of followed blocks, if each has its own mask; the shape is (*blocks, sectors).
        """
        if (slot, written) not in table:
            table[slot, written] = np.zeros((*blocks, (self.space.slots[slot].size >> SECTOR_SHIFT) + 2), np.bool_)
        return table[slot, written]

    def footprint(self, counted: Mapping[tuple[int, Any], Sequence[int]], blocks: int, instructions: int) -> Footprint:
        """Return the footprint of the launch.

        counted: the requests, sectors and ideal sectors of all blocks that ran, keyed by (instruction, array); blocks:
        how many blocks the grid has; instructions: the warp instructions of all blocks.
        """

        def distinct(written: bool) -> dict[int, int]:
            slots = sorted(slot for slot, kind in self.marks if kind == written)
            return {slot: int(np.count_nonzero(self.marks[slot, written])) for slot in slots}

        ends = [before for _, before in self.parts[1:]] + [instructions]
        parts = tuple((count, end - start) for (count, start), end in zip(self.parts, ends, strict=True))
        return footprint_of(
            self.space, self.accesses, counted, self.sums, distinct(False), distinct(True), blocks, self.before,
            self.followed, parts, self.constants.fetched(),
        )  # fmt: skip


def footprint_of(
    space: AddressSpace, accesses: Sequence[MemoryInstruction], counted: Mapping[tuple[int, Any], Sequence[int]],
    sums: Mapping[tuple[int, Any], Mapping[str, float]], read: dict[int, int], written: dict[int, int], *rest: Any,
) -> Footprint:  # fmt: skip
    """Return the footprint of a launch that has ended.

    counted: as for `Footprints.footprint`; sums: the counts in the followed blocks, keyed by (instruction, array);
    read, written: the number of distinct sectors read or written, keyed by slot; rest: the fields of `Footprint` from
    `blocks` on.
    """
    touches = []
    for (number, array), (requests, sectors, _) in sorted(
        counted.items(), key=lambda item: (item[0][0], str(item[0][1]))
    ):
        access = accesses[number]
        if access.space != "global" or array == -1:
            continue
        # If no followed block executed the instruction, the counts are unknown: take the least possible values.
        own = sums.get((number, array)) or {"requests": requests, "sectors": 1, "cycles": requests, "lines": requests}
        per_request, per_sector = requests / own["requests"], sectors / own["sectors"]
        name = space.slots[array[0] if isinstance(array, tuple) else array].name
        touches.append(
            Touch(
                access.location.ptx_line, access.kind, name, access.size, requests, sectors,
                own["cycles"] * per_request, own.get("fresh", 0) * per_sector, own.get("missing", 0) * per_request,
                own.get("partial", 0) * per_sector, own["lines"] * per_request,
            )
        )  # fmt: skip
    names = {slot: space.slots[slot].name for slot in sorted({*read, *written})}
    sizes = {name: -(-space.slots[slot].size // SECTOR) for slot, name in names.items()}
    read_of, written_of = ({names[slot]: count for slot, count in own.items()} for own in (read, written))
    return Footprint(tuple(touches), read_of, written_of, sizes, *rest)
