"""Races between blocks over global memory.

Blocks run in any order and concurrently. Within a launch, only atomics, fences, volatile accesses and accesses with a
memory order can order two blocks. `check.fenced_races` examines the kernels with fences or such accesses. This module
examines the other kernels. There a block is not examined after its first atomic, because it may have waited for another
block by that atomic. There is one exception: the block overwrites, with a different value, the last write of another
block, and since this write the other block has executed nothing that blocks can wait for, such as an atomic. So every
reported race is real, but not every race is found.

In some kernels each block increments a counter by an atomic, and the last block to do so reads the results that all
blocks have written. Such a kernel needs a fence between writing and counting (CUDA C++ Programming Guide, "Memory Fence
Functions"). This is checked in every kernel.

A barrier of a cluster orders the accesses of its blocks (PTX ISA, "barrier.cluster": arrive releases and wait acquires,
unless specified otherwise): accesses before the barrier do not race with accesses after it.

For each granule (a few bytes) of a region that the kernel writes, three blocks are recorded: the last that wrote it,
the last that read it, and the last that updated it by an atomic. Two blocks that write the same value are not reported.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cudabench.simulator.check.block_cures import MANY, cure
from cudabench.simulator.check.hazards import VERBS, Hazards
from cudabench.simulator.check.places import in_region
from cudabench.simulator.check.vector_clocks import VectorClocks
from cudabench.simulator.memory import Region, flat, granules
from cudabench.simulator.program.code import Code
from cudabench.simulator.program.ptx import Location
from cudabench.simulator.values import Array, Chunk, Index3, Value, as_array, broadcast, different

if TYPE_CHECKING:
    from cudabench.simulator.check.races import LogEntry
    from cudabench.simulator.isa.access import MemoryOp
    from cudabench.simulator.machine import Machine


MOST_LANES = 1 << 20  # launches with more lanes are not examined, because the time for each access grows with the lanes
MOST_GRANULES = 1 << 24  # regions with more granules are not examined
BETWEEN_BLOCKS = 4  # the scope of a race between blocks, see `cures`
LAST_UPDATE = "atomic latest"  # the kind of the last atomic that may have changed a value
# For each kind of access: the kinds of earlier accesses that it races with.
AGAINST = {"load": ("store", "atomic"), "store": ("store", "load", "atomic"), "atomic": ("store", "load")}


class BlockShadow:
    """Records for each granule of a region the last block that accessed it (numbered from 1 on), and the number of the
    access."""

    def __init__(self, granules: int) -> None:
        self.granules = granules
        # For each kind of access, an array of four rows with one column per granule: the number of the block, the
        # number of the access, how many cluster barriers the block had passed, and the time (negative for an access
        # that does not race).
        self.kinds: dict[str, Array] = defaultdict(lambda: np.zeros((4, granules), np.int32))

    def others(self, kind: str, granules: Array, blocks: Array) -> Array | None:
        """Return for each granule whether another block made an access of this kind; None if the region has none."""
        if kind not in self.kinds:
            return None
        last = self.kinds[kind][0][granules]
        return (last != 0) & (last != blocks)

    def record(
        self, kind: str, granules: Array, blocks: Array, access: int, passed: Array | None, now: int = 0,
        latest: bool = False,
    ) -> bool:  # fmt: skip
        """Record an access, and return whether several blocks access the same granule by it.

        passed: for each block, how many cluster barriers it has passed; None if there was no such barrier. now: the
        time. latest: whether only the last block is kept, as always for stores.
        """
        last, numbers, when, times = self.kinds[kind]
        if passed is not None:
            when[granules] = passed[blocks]
        if now:
            times[granules] = now
        previous = None if latest or kind == "store" else last[granules]
        last[granules] = blocks
        overlapping = last[granules] != blocks
        overlap = bool(overlapping.any())
        if previous is None:
            numbers[granules] = access
            return overlap
        several = (previous != 0) & (previous != blocks)
        numbers[granules[~several]] = access  # for a granule that several blocks accessed, the earlier access is kept
        if overlap:
            several |= overlapping
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

    def only(self, lanes: Array) -> Touch:
        """Return the access restricted to some lanes; `lanes`: a bool for each lane."""
        part = np.repeat(lanes, self.granules.size // max(1, lanes.size))
        return self._replace(
            chosen=self.chosen[lanes], start=self.start[lanes], granules=self.granules[part], owners=self.owners[part]
        )

    def last(self, kind: str) -> Array:
        """Return for each granule the number of the block that last made an access of this kind, 0 for none."""
        return self.shadow.kinds[kind][0][self.granules]

    def times(self, kind: str) -> Array:
        """Return for each granule the time of the last access of this kind."""
        return self.shadow.kinds[kind][3][self.granules]

    def others(self, kind: str) -> Array | None:
        """Return for each granule whether another block made an access of this kind; None if the region has none."""
        return self.shadow.others(kind, self.granules, self.owners)


def keeps_value(access: MemoryOp, operands: Sequence[Array]) -> bool:
    """Return whether an atomic does not change the value in memory, as `atomicAdd(p, 0)`.

    True also for `atomicMax(p, 0)`, since flags are not negative.
    """
    name = access.update
    if name == "cas":
        return bool((operands[0] == operands[1]).all())
    if name == "and":
        return bool((operands[0].view(f"i{access.width}") == -1).all())
    return name in ("add", "or", "xor", "max") and not operands[0].any()


def too_many(hazards: Hazards, code: Code, grid: Index3, block: Index3) -> None:
    """Record a message if a launch has too many threads to look for races between its blocks."""
    blocks = prod(grid)
    if blocks > 1 and blocks * prod(block) > MOST_LANES and code.written:
        hazards.unsearched(
            code.accesses[0].location,
            f"races between blocks are looked for in launches of at most {MOST_LANES} threads: take a smaller problem",
            "too-large",
        )  # fmt: skip


class GridRaces:
    """Looks for races between the blocks of one launch."""

    def __init__(self, machine: Machine, width: int) -> None:
        x, y, z = machine.grid
        bx, by, bz = machine.block
        self.machine, self.width = machine, width
        blocks = x * y * z
        lanes = blocks * bx * by * bz
        self.enabled = blocks > 1 and lanes <= MOST_LANES
        too_many(machine.hazards, machine.code, machine.grid, machine.block)
        self.reported = False  # whether it is already reported that the search was given up
        self.too_large: set[int] = set()  # the bases of the regions that are too large to examine
        # In a kernel without fences, only `clocks.now` is used.
        self.clocks = VectorClocks(blocks if self.enabled else 0)
        # For each block: whether it may have waited for other blocks.
        self.waited = np.zeros(self.clocks.blocks + 1, dtype=bool)
        self.any_waited = False
        self.origin: Any = None  # (origin, extent) of the chunk that `numbered` belongs to
        self.numbered: Array = None  # the number of each block of that chunk
        self.shadows: dict[int, BlockShadow] = {}
        # For each block: the times of its last atomic, of its last fence before this atomic, and of its last signal to
        # other blocks (an atomic, a fence or a flag).
        self.atomics, self.fenced, self.signals = np.zeros((3, self.waited.size), np.int32)
        self.updated: set[int] = set()  # the bases of the regions that an atomic has updated, such as locks
        # For each block: how many cluster barriers it has passed; None until the first one.
        self.passed: Array | None = None

    def fence(self, chunk: Chunk, mask: Array | None) -> None:
        """Record a fence that the lanes of `mask` execute."""
        if self.enabled:
            blocks = self.block_numbers(chunk)[chunk.lanes(mask).any(axis=1)]
            self.clocks.fence(blocks)
            self.signals[blocks] = self.clocks.now

    def barrier(self) -> None:
        """Record that every block passes a barrier (of the block)."""
        self.clocks.barrier()
        self.synchronize()

    def synchronize(self) -> None:
        """Record that threads of a block may have synchronized, by a barrier, a flag or a fence of their block."""

    def cluster_barrier(self, chunk: Chunk, mask: Array | None, waited: Array) -> None:
        """Record that the lanes of `mask` have passed a barrier of their cluster.

        waited: for each lane of the chunk, how many cluster barriers the lane has passed by now.
        """
        if not self.enabled:
            return
        self.fence(chunk, mask)
        if self.passed is None:
            self.passed = np.zeros(self.waited.size, np.int32)
        rows = chunk.lanes(mask).any(axis=1)
        blocks = self.block_numbers(chunk)[rows]
        self.passed[blocks] = broadcast(waited, chunk.shape).max(axis=1)[rows]
        if self.machine.code.orders:
            self.clocks.cluster_barrier(blocks, self.cluster)

    @cached_property
    def cluster(self) -> Array:
        """The number of each block's cluster, by the block's number; -1 for number 0."""
        grid, cluster = self.machine.grid[::-1], (self.machine.plan.cluster or (1, 1, 1))[::-1]
        places = np.unravel_index(np.arange(self.clocks.blocks), grid)
        within = tuple(place // size for place, size in zip(places, cluster, strict=True))
        return np.append(-1, np.ravel_multi_index(within, grid))

    def before_cluster_barrier(self, shadow: BlockShadow, kind: str, granules: Array, blocks: Array) -> Array:
        """Return for each granule whether a cluster barrier lies between its last access and the next one of a block.

        True also if several blocks made the last access: perhaps all these blocks are in the cluster.
        """
        if self.passed is None:
            return np.zeros(granules.shape, bool)
        last, _, when, _ = shadow.kinds[kind][:, granules]
        ordered: Array = (self.cluster[last] == self.cluster[blocks]) & (when < self.passed[blocks])
        return ordered | (last == MANY)

    def log(self, region: Region, entry: LogEntry) -> None:
        """Report the races of an access with earlier accesses, and record it, before it is executed."""
        if not self.enabled:
            return
        if region.size > MOST_GRANULES * self.width:
            if region.base not in self.too_large:
                self.too_large.add(region.base)
                self.machine.hazards.unsearched(
                    entry.access.location,
                    f"races between blocks are looked for in arrays of at most {MOST_GRANULES * self.width} bytes, and "
                    f"'{region.name}' has {region.size}: take a smaller problem",
                    "too-large",
                )
            return
        chunk, mask = self.machine.chunk, entry.mask
        self.clocks.now += self.machine.code.orders
        lanes = np.flatnonzero(chunk.lanes(chunk.root if mask is None else mask))
        blocks = self.block_numbers(chunk)[lanes // chunk.threads]
        places = broadcast(flat(entry.address, entry.offset), chunk.shape).reshape(-1)[lanes]
        self.search(self.touch(region, entry, lanes, places, blocks))

    def search(self, touch: Touch) -> None:
        """Report the races of an access with earlier accesses, and record it, before it is executed."""
        access = touch.access
        reportable: Array = True
        if access.kind == "atomic":
            if self.any_waited:  # waiting may have ordered the accesses, so report only blocks that cannot have waited
                reportable = ~self.waited[touch.owners]
            self.note_atomic(touch.blocks)
            self.updated.add(touch.region.base)
            if not self.changes_nothing(touch):
                self.record(touch, LAST_UPDATE, latest=True)
        elif access.kind == "store":
            touch = self.store_after_wait(touch)
            reportable = self.changes_value(touch)
        elif self.any_waited:
            free = self.waited[touch.blocks]
            unfenced = touch.only(free)
            if unfenced.start.size and "store" in touch.shadow.kinds:
                self.missing_fence(unfenced, self.without_fence(unfenced))
            if unfenced.start.size and not access.strong:
                self.report(unfenced, self.updated_since(unfenced), LAST_UPDATE)
            touch = touch.only(~free)
        if not touch.start.size:
            return
        for kind in AGAINST[access.kind]:
            bad = touch.others(kind)
            if bad is not None and bad.any():
                bad &= ~self.before_cluster_barrier(touch.shadow, kind, touch.granules, touch.owners) & reportable
                self.report(touch, bad, kind)
        if self.record(touch, access.kind) and access.kind == "store":
            self.report_written_twice(touch)

    def store_after_wait(self, touch: Touch) -> Touch:
        """Examine and record a store of those blocks that may have waited for other blocks; return the rest of the
        store.

        The examined part races only with the last write of a block that has executed no atomic, fence or flag since.
        """
        if not self.any_waited or not (free := self.waited[touch.blocks]).any():
            return touch
        plain = touch.region.base not in self.updated
        if plain and "store" in touch.shadow.kinds:
            bad = self.without_signal(touch)
            if bad.any():
                self.report(touch, bad & self.changes_value(touch), "store")
        free_touch = touch.only(free)
        if self.record(free_touch, "store") and plain:
            self.report_written_twice(free_touch)
        return touch.only(~free)

    def touch(self, region: Region, entry: LogEntry, chosen: Array, address: Array, blocks: Array) -> Touch:
        """Return the record of an access to a region.

        chosen: the lanes, by index in the chunk; address, blocks: the address and the block's number of each lane.
        """
        if region.base not in self.shadows:
            self.shadows[region.base] = BlockShadow(-(-region.size // self.width))
        access, start = entry.access, address - region.base
        owners = np.repeat(blocks, access.size // self.width) if access.size > self.width else blocks
        places = granules(start, access.size, self.width)
        return Touch(access, region, self.shadows[region.base], chosen, start, places, owners, entry.data)

    def record(self, touch: Touch, kind: str, latest: bool = False) -> bool:
        """Record an access in the region's shadow, see `BlockShadow.record`."""
        number = touch.access.numbers["global"]
        return touch.shadow.record(kind, touch.granules, touch.owners, number, self.passed, self.clocks.now, latest)

    def note_atomic(self, lanes: Array) -> None:
        """Record that blocks execute an atomic; `lanes`: the number of each lane's block."""
        blocks = different(lanes)
        self.clocks.now += 1
        self.atomics[blocks] = self.signals[blocks] = self.clocks.now
        self.fenced[blocks] = self.clocks.fences[blocks]
        self.waited[blocks] = self.any_waited = True

    def changes_nothing(self, touch: Touch) -> bool:
        """Return whether an atomic changes no value.

        This is an atomic such as `atomicAdd(p, 0)`, or a compare-and-swap in which no lane finds its expected value.
        """
        access, chunk = touch.access, self.machine.chunk
        operands = [as_array(value, access.dtype) for value in touch.data]
        if keeps_value(access, operands):
            return True
        if access.update != "cas":
            return False
        places = touch.granules[:: access.size // self.width] * self.width // access.size
        current = touch.region.view(access.dtype)[places]
        return not (current == broadcast(operands[0], chunk.shape).reshape(-1)[touch.chosen]).any()

    def updated_since(self, touch: Touch) -> Array:
        """Return for each granule whether another block updated it by an atomic after the last atomic of this block.

        This block cannot have waited for that update. If several blocks made their atomics by the same execution of an
        instruction, only the last of these blocks counts as the one that updated the granule.
        """
        updated = touch.others(LAST_UPDATE)
        if updated is None:
            return np.zeros(touch.granules.shape, bool)
        later: Array = updated & (touch.times(LAST_UPDATE) >= self.atomics[touch.owners])
        return later & ~self.before_cluster_barrier(touch.shadow, LAST_UPDATE, touch.granules, touch.owners)

    def without_signal(self, touch: Touch) -> Array:
        """Return for each granule whether another block wrote it last and since then has executed no atomic, fence or
        flag."""
        return touch.others("store") & (self.signals[touch.last("store")] <= np.abs(touch.times("store")))

    def changes_value(self, touch: Touch) -> Array:
        """Return for each granule of a store whether the store changes the value of its element."""
        access, values = touch.access, self.stored_values(touch)
        place = (touch.start // access.width)[:, None] + np.arange(access.count)
        return self.by_granule(touch, touch.region.view(values.dtype)[place] != values)

    def by_granule(self, touch: Touch, elements: Array) -> Array:
        """Return an array of shape (lanes, elements) as a flat array with one element per granule."""
        return np.repeat(elements, touch.access.size // self.width // touch.access.count, axis=1).reshape(-1)

    def without_fence(self, touch: Touch) -> Array:
        """Return for each granule whether another block wrote it and then executed an atomic, with no fence between."""
        writers, times = touch.last("store"), np.abs(touch.times("store"))
        return touch.others("store") & (self.atomics[writers] > times) & (self.fenced[writers] <= times)

    def missing_fence(self, touch: Touch, bad: Array, signal: str = "an atomic") -> None:
        """Report the reads of granules whose writer executed no fence before `signal`; `bad`: a bool per granule."""
        if not bad.any():
            return
        place = int(np.argmax(bad))
        block, thread, spot = self.message_names(touch, place)
        party, location = self.last_accessor(touch, place, "store")
        self.machine.hazards.add(
            "missing-fence", location, int(different(touch.granules[bad]).size), block, thread,
            f"{party} writes {spot} and then {signal}, without __threadfence() in between; thread {thread} of block "
            f"{block} reads it in line {touch.access.location.line} and may get the old value. "
            f"{self.fence_cure(touch, place, signal.partition(' ')[2])}",
        )  # fmt: skip

    def fence_cure(self, touch: Touch, place: int, signal: str) -> str:
        """Return where to put a fence after the last store to a granule; `signal`: "atomic" or "flag"."""
        return f"Put __threadfence() between the write and the {signal}."

    def message_names(self, touch: Touch, place: int) -> tuple[Any, Any, str]:
        """Return (block, thread, name of the element) for a message; `place`: an index into the access's granules."""
        chunk = self.machine.chunk
        block, thread = divmod(int(touch.chosen[place // (touch.granules.size // touch.chosen.size)]), chunk.threads)
        spot = in_region(touch.region, int(touch.granules[place]) * self.width, touch.access.width)
        return chunk.block_index(block), chunk.thread_index(thread), spot

    def last_accessor(self, touch: Touch, place: int, kind: str) -> tuple[str, Location]:
        """Return (name of the block for messages, source location) of the last access of a kind to a granule.

        place: an index into the granules of `touch`.
        """
        last, number, _, _ = touch.shadow.kinds[kind][:, touch.granules[place]].tolist()
        return "another block" if last == MANY else self.block_name(last), self.machine.code.accesses[number].location

    def block_name(self, number: int) -> str:
        """Return the name of the block with this number for messages, such as 'block (2, 0, 0)'."""
        x, y, _ = self.machine.grid
        return f"block {((number - 1) % x, (number - 1) // x % y, (number - 1) // (x * y))}"

    def block_numbers(self, chunk: Chunk) -> Array:
        """Return an array with the number in the grid, from 1 on, of each block of a chunk."""
        place = chunk.origin, chunk.extent
        if self.origin != place:
            x, y, _ = self.machine.grid
            own = chunk.block_indices()
            self.origin = place
            self.synchronize()
            self.numbered = (own[0] + x * (own[1] + y * own[2]) + 1).astype(np.int32)
        return self.numbered

    def stored_values(self, touch: Touch) -> Array:
        """Return the bit patterns that the lanes store, an array of shape (lanes, elements)."""
        chunk = self.machine.chunk
        bits = np.dtype(f"u{touch.access.width}")
        columns = [broadcast(as_array(data, bits), chunk.shape).reshape(-1)[touch.chosen] for data in touch.data]
        return np.stack(columns, axis=1)

    def report_written_twice(self, touch: Touch) -> None:
        """Report granules to which several blocks write different values when the same store is executed once, or which
        several blocks update by the same atomic of block scope."""
        order = np.argsort(touch.granules, kind="stable")
        later, earlier = order[1:], order[:-1]
        bad = (touch.granules[later] == touch.granules[earlier]) & (touch.owners[later] != touch.owners[earlier])
        kind = touch.access.kind
        if kind == "store":
            values = self.by_granule(touch, self.stored_values(touch))
            bad &= values[later] != values[earlier]
        if bad.any():
            place, other = int(later[bad][0]), int(earlier[bad][0])
            location = touch.access.location
            self.add(touch, place, int(bad.sum()), self.block_name(int(touch.owners[other])), kind, location)

    def flag_cure(self, touch: Touch, place: int, line: str) -> str:
        """Return the cure if the reader of a granule has read a flag that does not announce the granule, else ''."""
        return ""

    def stored_by_others(self, touch: Touch, place: int) -> bool:
        """Return whether other blocks also store to a granule, earlier or by the same store.

        place: an index into the granules of `touch`.
        """
        together = touch.owners[touch.granules == touch.granules[place]] != touch.owners[place]
        before = touch.others("store")
        return bool(together.any() or (before is not None and before[place]))

    def report(self, touch: Touch, bad: Array, kind: str) -> None:
        """Report an access that races with earlier accesses of other blocks.

        bad: for each granule, whether it races. kind: the kind of the earlier accesses.
        """
        if bad.any():
            place = int(np.argmax(bad))
            lanes = int(bad.reshape(touch.start.size, -1).any(axis=1).sum())
            party, location = self.last_accessor(touch, place, kind)
            self.add(touch, place, lanes, party, kind.partition(" ")[0], location)

    def add(self, touch: Touch, place: int, count: int, party: str, kind: str, location: Location) -> None:
        """Record the race of an access with an access of another block as a hazard.

        place: an index into the granules of `touch`. count: how many lanes race. party: the other block's name; kind,
        location: the kind and the source place of its access.
        """
        access, hazards = touch.access, self.machine.hazards
        if hazards.count_again("race", access.location, count, BETWEEN_BLOCKS):
            return
        block, thread, spot = self.message_names(touch, place)
        line = "the same line" if location.line == access.location.line else f"line {location.line}"
        advice = cure(self, touch, place, kind, line, {access.location.ptx_line, location.ptx_line})
        text = (
            f"thread {thread} of block {block} {VERBS[access.kind]} {spot}, which {party} {VERBS[kind]} in {line}; "
            f"blocks run in any order: {advice}."
        )
        hazards.add("race", access.location, count, block, thread, text, BETWEEN_BLOCKS)
