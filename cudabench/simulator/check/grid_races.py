"""Races between blocks over global memory.

Blocks run in any order and concurrently. Within a launch, only atomics, fences, volatile accesses, accesses with a
memory order and barriers of a cluster can order two blocks. For each access to a granule (a few bytes),
`check.vector_clocks` tells whether these order the last accesses of other blocks before this access. Accesses that are
flags do not race: volatile accesses, accesses with a memory order, and two atomics. In a kernel with fences, a plain
store over a value that an atomic has updated is treated as a flag, too, because it releases a lock.

In a kernel without fences, atomics order no other accesses. But two accesses are not reported as a race if both blocks
have executed an atomic since the earlier access: one block may have waited for the other, and what lacks is a fence
(CUDA C++ Programming Guide, "Memory Fence Functions"). This is a hazard of its own, in every kernel.

A load whose value the thread has used is over. So a flag that the block writes after its next barrier orders the load
before the stores of the blocks that read the flag, even without a fence: Thrust's in-place `unique` relies on it.

For each granule of a region that the kernel writes, the block is recorded that wrote it last, and in the same way those
that read it and that updated it by an atomic. Two blocks that write the same value are not reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from cudabench.simulator.check.block_cures import cure
from cudabench.simulator.check.block_shadow import AGAINST, MANY, BlockShadow, Touch, Unfenced
from cudabench.simulator.check.hazards import VERBS, Hazards
from cudabench.simulator.check.places import in_region
from cudabench.simulator.check.vector_clocks import GaveUp, VectorClocks
from cudabench.simulator.memory import Region, flat, granules
from cudabench.simulator.program.code import Code
from cudabench.simulator.program.flow import loads_in_flight
from cudabench.simulator.program.ptx import Location
from cudabench.simulator.values import Array, Chunk, Index3, as_array, broadcast, different

if TYPE_CHECKING:
    from cudabench.simulator.check.races import LogEntry
    from cudabench.simulator.isa.access import MemoryOp
    from cudabench.simulator.machine import Machine


MOST_LANES = 1 << 20  # launches with more lanes are not examined, because the time for each access grows with the lanes
MOST_GRANULES = 1 << 24  # regions with more granules are not examined
MOST_UNFENCED = 1 << 20  # `GridRaces.unfenced` is emptied if it has more granules than this
BETWEEN_BLOCKS = 4  # the scope of a race between blocks, see `cures`
# `AGAINST` in kernels with fences. An atomic after a plain read is not reported, because the read does not need the
# value that the atomic writes.
WITH_FENCES = {"load": ("store", "atomic"), "store": ("store", "load"), "atomic": ("store",)}


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
        self.machine, self.width = machine, width
        blocks = prod(machine.grid)
        self.enabled = blocks > 1 and blocks * prod(machine.block) <= MOST_LANES
        too_many(machine.hazards, machine.code, machine.grid, machine.block)
        self.against = WITH_FENCES if machine.code.orders else AGAINST
        self.too_large: set[int] = set()  # the bases of the regions that are too large to examine
        self.clocks = VectorClocks(blocks if self.enabled else 0)
        # The order of the loads that are over, in which a barrier of the block counts as a fence.
        self.loaded = VectorClocks(self.clocks.blocks)
        self.origin: Any = None  # (origin, extent) of the chunk that `numbered` belongs to
        self.numbered: Array = None  # the number of each block of that chunk
        self.shadows: dict[int, BlockShadow] = {}
        # For each block: the times of its last atomic and of its last fence before this atomic, 0 for none.
        self.atomics, self.fenced = np.zeros((2, self.clocks.blocks + 1), np.int32)
        self.unfenced: list[Unfenced] = []
        self.alone: set[int] = set()  # numbers of stores after which only other threads executed a fence
        self.unsynchronized: list[Unfenced] = []  # all stores since the last barrier
        self.unannounced: set[int] = set()  # numbers of stores that only other threads announced, without a barrier

    # What blocks do to be ordered.

    def fence(self, chunk: Chunk, mask: Array | None) -> None:
        """Record a fence that the lanes of `mask` execute.

        The fence does not order the stores that other threads of the block have made since their last barrier: these
        stores get a time after the fence.
        """
        if self.enabled:
            numbers = self.block_numbers(chunk)
            self.clocks.fence(numbers[chunk.lanes(mask).any(axis=1)])
            if self.unfenced:
                self.unfenced = self.delayed(self.unfenced, np.flatnonzero(chunk.lanes(mask)), numbers, self.alone)

    def announce(self, touch: Touch) -> None:
        """Record that the lanes of `touch` have written a word for which other blocks may wait.

        Their fences do not order the stores of other threads of the block since the last barrier, although these
        threads may have executed fences, too: these stores get a time after the word.
        """
        if self.unsynchronized:
            numbers = self.block_numbers(self.machine.chunk)
            self.unsynchronized = self.delayed(self.unsynchronized, touch.chosen, numbers, self.unannounced)

    def delayed(self, all_stores: list[Unfenced], lanes: Array, numbers: Array, found: set[int]) -> list[Unfenced]:
        """Give a new time to those stores that other lanes of the blocks of `lanes` made; return the stores that are
        left.

        lanes: indices in the chunk. numbers: the number of each block of the chunk. found: to this set the numbers of
        the delayed stores are added.
        """
        chunk = self.machine.chunk
        chosen = np.zeros(chunk.blocks * chunk.threads, bool)
        chosen[lanes] = True
        concerned = np.zeros(self.clocks.blocks + 1, bool)
        concerned[numbers[lanes // chunk.threads]] = True
        self.clocks.now += 1
        later = []
        for stores in all_stores:
            others = ~chosen[stores.lanes]
            late = others & concerned[stores.owners]
            last, accesses, times = stores.shadow.kinds["store"]
            late &= (last[stores.granules] == stores.owners) & (times[stores.granules] == stores.time)
            times[stores.granules[late]] = self.clocks.now
            found.update(different(accesses[stores.granules[late]]).tolist())
            later += [stores.only(late, self.clocks.now), stores.only(others & ~concerned[stores.owners], stores.time)]
        return [stores for stores in later if stores.granules.size]

    def barrier(self) -> None:
        """Record that every block passes a barrier (of the block)."""
        self.clocks.barrier()
        self.loaded.fences[:] = self.clocks.now
        self.loaded.next_clock[:] = 0
        self.synchronize()

    def synchronize(self) -> None:
        """Record that threads of a block may have synchronized, by a barrier, a flag or a fence of their block: a later
        fence of one orders the stores of all."""
        self.unfenced, self.unsynchronized = [], []

    def cluster_barrier(self, chunk: Chunk, mask: Array | None) -> None:
        """Record that the lanes of `mask` have passed a barrier of their cluster."""
        if self.enabled:
            self.fence(chunk, mask)
            blocks = self.block_numbers(chunk)[chunk.lanes(mask).any(axis=1)]
            try:
                self.clocks.cluster_barrier(blocks, self.cluster)
            except GaveUp as reason:
                self.give_up(reason, self.machine.code.accesses[0].location)

    @cached_property
    def cluster(self) -> Array:
        """The number of each block's cluster, by the block's number; -1 for number 0."""
        grid, cluster = self.machine.grid[::-1], (self.machine.plan.cluster or (1, 1, 1))[::-1]
        places = np.unravel_index(np.arange(self.clocks.blocks), grid)
        within = tuple(place // size for place, size in zip(places, cluster, strict=True))
        return np.append(-1, np.ravel_multi_index(within, grid))

    @cached_property
    def in_flight(self) -> Array:
        """By the number of each access: whether it is a load that may end after a flag, see `loads_in_flight`."""
        code = self.machine.code
        writes = {access.location for access in code.accesses if access.space == "global" and access.kind != "load"}
        locations = loads_in_flight(code.blocks, writes)
        return np.array([access.location in locations for access in code.accesses], bool)

    # The accesses.

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
        self.clocks.now += 1
        lanes = np.flatnonzero(chunk.lanes(chunk.root if mask is None else mask))
        blocks = self.block_numbers(chunk)[lanes // chunk.threads]
        if not lanes.size:
            return
        if region.base not in self.shadows:
            self.shadows[region.base] = BlockShadow(-(-region.size // self.width))
        access = entry.access
        start = broadcast(flat(entry.address, entry.offset - region.base), chunk.shape).reshape(-1)[lanes]
        owners = np.repeat(blocks, access.size // self.width) if access.size > self.width else blocks
        places = granules(start, access.size, self.width)
        touch = Touch(access, region, self.shadows[region.base], lanes, start, places, owners, entry.data)
        try:
            {"load": self.load, "store": self.store, "atomic": self.atomic}[access.kind](touch)
        except GaveUp as reason:
            self.give_up(reason, access.location)

    def give_up(self, reason: GaveUp, location: Location) -> None:
        """Search for no more races, and record since when."""
        self.enabled = False
        self.machine.hazards.unsearched(
            location,
            f"races between blocks were not looked for from line {location.line} on: {reason}: take a smaller problem",
        )

    def record(self, touch: Touch, kind: str, latest: bool = False) -> bool:
        """Record an access in the region's shadow, see `BlockShadow.record`."""
        number = touch.access.numbers["global"]
        return touch.shadow.record(kind, touch.granules, touch.owners, number, self.clocks.now, latest)

    def load(self, touch: Touch) -> None:
        """Report the races of a load, and record it."""
        access = touch.access
        if access.ordered:
            self.note_flag_readers(touch)
            self.clocks.read(touch.region.base, touch.granules, touch.owners, access.acquires)
            self.loaded.read(touch.region.base, touch.granules, touch.owners, True)
        unfenced = self.unfenced_stores(touch)
        bad = {} if access.ordered else self.unordered(touch)
        for signal, lanes in unfenced.items():
            self.missing_fence(touch, lanes, signal)
            for kind in bad:
                bad[kind] &= ~lanes
        if "store" in bad:
            early = self.ordered_by_fence(touch, bad["store"])
            self.missing_fence(touch, early, "")
            bad["store"] &= ~early
        for kind, lanes in bad.items():
            self.report(touch, lanes, kind)
        if access.ordered:
            self.record(touch, "flag read")
            return
        # For each granule, keep the last block that read it ("load") and the last other block before that one ("load
        # before").
        shadow, granules, owners = touch.shadow, touch.granules, touch.owners
        others = touch.others("load")
        if others.any():
            places = granules[others]
            shadow.kinds["load before"][:, places] = shadow.kinds["load"][:, places]
        if self.record(touch, "load", latest=True):
            replaced = touch.last("load") != owners
            number = access.numbers["global"]
            shadow.record("load before", granules[replaced], owners[replaced], number, self.clocks.now, latest=True)

    def note_flag_readers(self, touch: Touch) -> None:
        """Record in `clocks` which blocks read flags, and which other blocks wrote these flags."""
        for kind in ("store", "atomic"):
            times = touch.times(kind)
            others = touch.others(kind) & ((times < 0) | (kind == "atomic"))
            self.clocks.note_flag_writes(touch.owners[others], touch.last(kind)[others], np.abs(times[others]))

    def ordered_by_fence(self, touch: Touch, chosen: Array) -> Array:
        """Return for each granule whether its last store would be ordered before the read if the reader had a fence.

        chosen: the granules to examine; the result is False for the other granules.
        """
        ordered: Array = np.zeros(chosen.shape, bool)
        indices = np.flatnonzero(chosen)
        last, _, times = touch.shadow.kinds["store"][:, touch.granules[indices]]
        ordered[indices] = self.clocks.before(touch.owners[indices], last, np.abs(times), True)
        return ordered

    def store(self, touch: Touch) -> None:
        """Report the races of a store, and record it."""
        access, shadow, granules, owners = touch.access, touch.shadow, touch.granules, touch.owners
        hazards, accesses = self.machine.hazards, self.machine.code.accesses
        flags: Array = np.full(granules.shape, access.ordered)
        if self.machine.code.orders and not access.ordered and "atomic" in shadow.kinds:
            flags = touch.last("atomic") != 0
        plain = not flags.all()
        if plain:
            bad = self.unordered(touch)
            if bad:
                reportable = self.changes_value(touch) & ~flags
                for unfenced in self.unfenced_stores(touch).values():
                    # If a missing fence is already reported for all these earlier stores, report no race as well.
                    stores = different(shadow.kinds["store"][1][granules[unfenced & reportable]]).tolist()
                    if all(hazards.known("missing-fence", accesses[number].location) for number in stores):
                        reportable &= ~unfenced
                for kind, lanes in bad.items():
                    self.report(touch, lanes & reportable, kind)
        if flags.any():
            for clocks in (self.clocks, self.loaded):
                clocks.write(touch.region.base, shadow.granules, granules[flags], owners[flags])
        overlap = self.record(touch, "store")
        shadow.kinds["store"][2][granules[flags]] = -self.clocks.now
        if plain and self.machine.code.orders:
            if sum(stores.granules.size for stores in self.unfenced) > MOST_UNFENCED:
                self.synchronize()
            lanes = np.repeat(touch.chosen, granules.size // touch.chosen.size)
            stores = Unfenced(shadow, granules, owners, lanes, self.clocks.now).only(~flags, self.clocks.now)
            self.unfenced.append(stores)
            self.unsynchronized.append(stores)
        if access.ordered:
            self.clocks.now += 1
            self.announce(touch)
        if overlap and plain:
            self.report_written_twice(touch)

    def atomic(self, touch: Touch) -> None:
        """Report the races of an atomic, and record it."""
        access, base, owners = touch.access, touch.region.base, touch.owners
        for kind, lanes in self.unordered(touch).items():
            self.report(touch, lanes, kind)
        self.clocks.now += 1
        self.atomics[owners] = self.clocks.now
        self.fenced[owners] = self.clocks.fences[owners]
        if access.narrow and self.record(touch, "store"):  # for other blocks it is a plain access
            self.report_written_twice(touch)
        if not access.ordered:
            return
        self.note_flag_readers(touch)
        returns = access.target is not None and access.target in self.machine.code.read
        if returns and self.changes_nothing(touch):
            for clocks in (self.clocks, self.loaded):
                clocks.read(base, touch.granules, owners, True)
        else:
            for clocks in (self.clocks, self.loaded):
                clocks.update(base, touch.shadow.granules, touch.granules, owners, returns)
            self.record(touch, "atomic", latest=True)
            self.announce(touch)
        if returns:
            self.record(touch, "flag read")

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

    def unordered(self, touch: Touch) -> dict[str, Array]:
        """Return the races of an access: by the kind of the earlier access, a mask of the granules.

        A granule is in the mask if another block made the earlier access and nothing orders the two. Kinds without
        races are left out.
        """
        races: dict[str, Array] = {}
        against = self.against[touch.access.kind]
        for kind in (*against, "load before") if "load" in against else against:
            others = touch.others(kind)
            if not others.any():
                continue
            indices = np.flatnonzero(others)
            places, owners = touch.granules[indices], touch.owners[indices]
            last, numbers, times = touch.shadow.kinds[kind][:, places]
            ordered = self.clocks.before(owners, last, times, touch.access.kind != "load")
            if kind in ("load", "load before"):
                ordered |= self.loaded.before(owners, last, times, True) & ~self.in_flight[numbers]
            if kind == "atomic" and "flag read" in touch.shadow.kinds:
                readers = touch.shadow.kinds["flag read"][0][places]
                ordered |= (readers == owners) | (readers == MANY)
            if not self.machine.code.orders:
                ordered |= (times < self.atomics[owners]) & (times <= self.atomics[last])
            others[indices[ordered]] = False
            if kind == "load before" and "load" in races:
                others &= ~races["load"]  # one race of an access is enough
            if others.any():
                races[kind] = others
        return races

    def unfenced_stores(self, touch: Touch) -> dict[str, Array]:
        """Return masks of the granules that other blocks wrote and then announced without a fence in between.

        The keys are "an atomic" (the reading block has executed an atomic, so it may have waited for an atomic of the
        writer) and "a flag" (the reading block has read a flag that the writer wrote later). Empty masks are left out.
        """
        if "store" not in touch.shadow.kinds:
            return {}
        unfenced = {"an atomic": (self.atomics[touch.owners] > 0) & self.without_fence(touch)}
        if self.clocks.flag_times is not None:
            times = touch.times("store")
            later = self.clocks.flag_times[touch.owners, touch.last("store")] > times
            unfenced["a flag"] = touch.others("store") & (times > 0) & later & ~unfenced["an atomic"]
        unfenced = {signal: bad & ~self.ordered_by_fence(touch, bad) for signal, bad in unfenced.items() if bad.any()}
        return {signal: bad for signal, bad in unfenced.items() if bad.any()}

    def changes_value(self, touch: Touch) -> Array:
        """Return for each granule of a store whether the store changes the value of its element."""
        access, values = touch.access, self.stored_values(touch)
        place = (touch.start // access.width)[:, None] + np.arange(access.count)
        return self.by_granule(touch, touch.region.view(values.dtype)[place] != values)

    def by_granule(self, touch: Touch, elements: Array) -> Array:
        """Return an array of shape (lanes, elements) as a flat array with one element per granule."""
        return np.repeat(elements, touch.access.size // self.width // touch.access.count, axis=1).reshape(-1)

    def stored_values(self, touch: Touch) -> Array:
        """Return the bit patterns that the lanes store, an array of shape (lanes, elements)."""
        chunk = self.machine.chunk
        bits = np.dtype(f"u{touch.access.width}")
        columns = [broadcast(as_array(data, bits), chunk.shape).reshape(-1)[touch.chosen] for data in touch.data]
        return np.stack(columns, axis=1)

    def without_fence(self, touch: Touch) -> Array:
        """Return for each granule whether another block wrote it and then executed an atomic, with no fence between."""
        writers, times = touch.last("store"), np.abs(touch.times("store"))
        return touch.others("store") & (self.atomics[writers] > times) & (self.fenced[writers] <= times)

    def stored_by_others(self, touch: Touch, place: int) -> bool:
        """Return whether other blocks also store to a granule, earlier or by the same store.

        place: an index into the granules of `touch`.
        """
        together = touch.owners[touch.granules == touch.granules[place]] != touch.owners[place]
        return bool(together.any() or touch.others("store")[place])

    # Reports.

    def missing_fence(self, touch: Touch, bad: Array, signal: str) -> None:
        """Report the reads of granules between which and the write a fence is missing.

        bad: a bool per granule. signal: "an atomic" or "a flag" that the writer announces them by, without a fence
        before it; '' if only the reader lacks a fence.
        """
        if not bad.any():
            return
        place, line = int(np.argmax(bad)), touch.access.location.line
        block, thread, spot = self.message_names(touch, place)
        party, location = self.last_accessor(touch, place, "store")
        advice = f"Put __threadfence() between the write and the {signal.partition(' ')[2]}."
        if int(touch.shadow.kinds["store"][1][touch.granules[place]]) in self.alone:
            advice = (
                "The __threadfence() of another thread does not order this write, since no barrier stands between "
                "them: put __syncthreads() between the write and that __threadfence(), where all threads of the block "
                "come."
            )
        text = (
            f"{party} writes {spot} and then {signal}, without __threadfence() in between; thread {thread} of block "
            f"{block} reads it in line {line} and may get the old value. {advice}"
        )
        if not signal:
            text = (
                f"thread {thread} of block {block} reads {spot}, which {party} writes in line {location.line} and then "
                "announces by a flag. The thread has read the flag, but without __threadfence() before this read: it "
                "may get the old value."
            )
            location = touch.access.location
        count = different(touch.granules[bad]).size if signal else int(bad.sum())
        self.machine.hazards.add("missing-fence", location, count, block, thread, text)

    def flag_cure(self, touch: Touch, place: int, line: str) -> str:
        """Return the cure if the reader of a granule may have waited for its writer, but for a flag that does not
        announce the granule, else ''; `line`: the words for the writer's source line."""
        last, number, time = touch.shadow.kinds["store"][:, touch.granules[place]].tolist()
        times = self.clocks.flag_times
        early = times is not None and 0 < int(times[touch.owners[place], last]) < time
        if number in self.unannounced and (early or self.atomics[touch.owners[place]]):
            return (
                f"another thread announces it, and no barrier stands between {line} and its atomic or flag: put "
                "__syncthreads() there, where all threads of the block come"
            )
        if not early:
            return ""
        return f"the thread has read a flag that was written before {line}: write it after {line} and __threadfence()"

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
        last, number, _ = touch.shadow.kinds[kind][:, touch.granules[place]].tolist()
        return self.block_name(last), self.machine.code.accesses[number].location

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
        if hazards.known("race", access.location, BETWEEN_BLOCKS):
            hazards.add("race", access.location, count, None, None, "")
            return
        block, thread, spot = self.message_names(touch, place)
        line = "the same line" if location.line == access.location.line else f"line {location.line}"
        advice = cure(self, touch, place, kind, line, {access.location.ptx_line, location.ptx_line})
        text = (
            f"thread {thread} of block {block} {VERBS[access.kind]} {spot}, which {party} {VERBS[kind]} in {line}; "
            f"blocks run in any order: {advice}."
        )
        hazards.add("race", access.location, count, block, thread, text, BETWEEN_BLOCKS)
