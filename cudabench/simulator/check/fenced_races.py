"""Races between blocks over global memory, in kernels that have fences or accesses with a memory order.

For each access to a granule, `check.vector_clocks` tells whether fences and flags order the last accesses of other
blocks before this access. Accesses that are flags do not race: volatile accesses, accesses with a memory order, and two
atomics. A plain store over a value that an atomic has updated is treated as a flag, too, because it releases a lock.

A load whose value the thread has used is over. So a flag that the block writes after its next barrier orders the load
before the stores of the blocks that read the flag, even without a fence: Thrust's in-place `unique` relies on it.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cudabench.simulator.check.block_cures import MANY
from cudabench.simulator.check.grid_races import BlockShadow, GridRaces, Touch
from cudabench.simulator.check.vector_clocks import VectorClocks
from cudabench.simulator.program.flow import loads_in_flight
from cudabench.simulator.values import Array, Chunk, different

if TYPE_CHECKING:
    from cudabench.simulator.machine import Machine

# For each kind of access: the kinds of earlier accesses that it races with. An atomic after a plain read is not
# reported, because the read does not need the value that the atomic writes.
AGAINST = {"load": ("store", "atomic"), "store": ("store", "load", "load before"), "atomic": ("store",)}
MOST_UNFENCED = 1 << 20  # `FencedRaces.unfenced` is emptied if it has more granules than this


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


class FencedRaces(GridRaces):
    """Looks for races between the blocks of one launch of a kernel with fences."""

    def __init__(self, machine: Machine, width: int) -> None:
        super().__init__(machine, width)
        # The order of the loads that are over, in which a barrier of the block counts as a fence.
        self.loaded = VectorClocks(self.clocks.blocks)
        self.unfenced: list[Unfenced] = []
        self.unfenced_granules = 0  # the number of granules in `unfenced`; each store compares it with a limit
        self.alone: set[int] = set()  # numbers of stores after which only other threads executed a fence
        self.unsynchronized: list[Unfenced] = []  # all stores since the last barrier
        self.unannounced: set[int] = set()  # numbers of stores that only other threads announced, without a barrier

    def fence(self, chunk: Chunk, mask: Array | None) -> None:
        """Record a fence that the lanes of `mask` execute.

        The fence does not order the stores that other threads of the block have made since their last barrier: these
        stores get a time after the fence.
        """
        super().fence(chunk, mask)
        if self.unfenced:
            fencing = np.flatnonzero(chunk.lanes(mask))
            self.unfenced = self.delayed(self.unfenced, fencing, self.block_numbers(chunk), self.alone)
            self.unfenced_granules = sum(stores.granules.size for stores in self.unfenced)

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
            last, accesses, _, times = stores.shadow.kinds["store"]
            late &= (last[stores.granules] == stores.owners) & (times[stores.granules] == stores.time)
            times[stores.granules[late]] = self.clocks.now
            found.update(different(accesses[stores.granules[late]]).tolist())
            later += [stores.only(late, self.clocks.now), stores.only(others & ~concerned[stores.owners], stores.time)]
        return [stores for stores in later if stores.granules.size]

    def barrier(self) -> None:
        """Record that every block passes a barrier (of the block)."""
        super().barrier()
        self.loaded.fences[:] = self.clocks.now
        self.loaded.next_clock[:] = 0

    @cached_property
    def in_flight(self) -> Array:
        """By the number of each access: whether it is a load that may end after a flag, see `loads_in_flight`."""
        code = self.machine.code
        writes = {access.location for access in code.accesses if access.space == "global" and access.kind != "load"}
        locations = loads_in_flight(code.blocks, writes)
        return np.array([access.location in locations for access in code.accesses], bool)

    def synchronize(self) -> None:
        """Record that threads of a block may have synchronized: a later fence of one orders the stores of all."""
        self.unfenced, self.unsynchronized = [], []
        self.unfenced_granules = 0

    def fence_cure(self, touch: Touch, place: int, signal: str) -> str:
        """Return where to put a fence after the last store to a granule; `signal`: "atomic" or "flag"."""
        if int(touch.shadow.kinds["store"][1][touch.granules[place]]) not in self.alone:
            return super().fence_cure(touch, place, signal)
        return (
            "The __threadfence() of another thread does not order this write, since no barrier stands between them: "
            "put __syncthreads() between the write and that __threadfence(), where all threads of the block come."
        )

    def search(self, touch: Touch) -> None:
        """Report the races of an access with earlier accesses, and record it, before it is executed."""
        if not touch.start.size:
            return
        {"load": self.load, "store": self.store, "atomic": self.atomic}[touch.access.kind](touch)
        if self.clocks.gave_up and not self.reported:
            self.reported = True
            location = touch.access.location
            self.machine.hazards.unsearched(
                location,
                f"races between blocks were not looked for from line {location.line} on: {self.clocks.gave_up}: "
                "take a smaller problem",
            )

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
            bad["store"] &= ~self.report_early_reads(touch, bad["store"])
        for kind, lanes in bad.items():
            self.report(touch, lanes, kind)
        if access.ordered:
            self.record(touch, "flag read")
            return
        # For each granule, keep the last block that read it ("load") and the last other block before that one ("load
        # before").
        shadow, granules, owners = touch.shadow, touch.granules, touch.owners
        others = touch.others("load")
        if others is not None and others.any():
            places = granules[others]
            shadow.kinds["load before"][:, places] = shadow.kinds["load"][:, places]
        if self.record(touch, "load", latest=True):
            replaced = touch.last("load") != owners
            number = access.numbers["global"]
            shadow.record(
                "load before", granules[replaced], owners[replaced], number, self.passed, self.clocks.now, latest=True
            )

    def note_flag_readers(self, touch: Touch) -> None:
        """Record in `clocks` which blocks read flags, and which other blocks wrote these flags."""
        for kind in ("store", "atomic"):
            others = touch.others(kind)
            if others is not None:
                times = touch.times(kind)
                others &= (times < 0) | (kind == "atomic")
                self.clocks.note_flag_writes(touch.owners[others], touch.last(kind)[others], np.abs(times[others]))

    def report_early_reads(self, touch: Touch, bad: Array) -> Array:
        """Report reads after the right flag but without a fence of the reading thread; return which reads these are.

        bad: whether each granule's read races with a store; the result has the same shape.
        """
        early = self.ordered_by_fence(touch, bad)
        if early.any():
            place = int(np.argmax(early))
            block, thread, spot = self.message_names(touch, place)
            party, location = self.last_accessor(touch, place, "store")
            self.machine.hazards.add(
                "missing-fence", touch.access.location, int(early.sum()), block, thread,
                f"thread {thread} of block {block} reads {spot}, which {party} writes in line {location.line} and then "
                "announces by a flag. The thread has read the flag, but without __threadfence() before this read: it "
                "may get the old value.",
            )  # fmt: skip
        return early

    def ordered_by_fence(self, touch: Touch, chosen: Array) -> Array:
        """Return for each granule whether its last store would be ordered before the read if the reader had a fence.

        chosen: the granules to examine; the result is False for the other granules.
        """
        ordered: Array = np.zeros(chosen.shape, bool)
        indices = np.flatnonzero(chosen)
        last, _, _, times = touch.shadow.kinds["store"][:, touch.granules[indices]]
        ordered[indices] = self.clocks.before(touch.owners[indices], last, np.abs(times), True)
        return ordered

    def flag_cure(self, touch: Touch, place: int, line: str) -> str:
        """Return the cure if the reader of a granule may have waited for its writer, but for a flag that does not
        announce the granule, else ''; `line`: the words for the writer's source line."""
        last, number, _, time = touch.shadow.kinds["store"][:, touch.granules[place]].tolist()
        times = self.clocks.flag_times
        early = times is not None and last != MANY and 0 < int(times[touch.owners[place], last]) < time
        if number in self.unannounced and (early or self.waited[touch.owners[place]]):
            return (
                f"another thread announces it, and no barrier stands between {line} and its atomic or flag: put "
                "__syncthreads() there, where all threads of the block come"
            )
        if not early:
            return ""
        return f"the thread has read a flag that was written before {line}: write it after {line} and __threadfence()"

    def store(self, touch: Touch) -> None:
        """Report the races of a store, and record it."""
        access, shadow, granules, owners = touch.access, touch.shadow, touch.granules, touch.owners
        hazards, accesses = self.machine.hazards, self.machine.code.accesses
        flags: Array = np.full(granules.shape, access.ordered)
        if not access.ordered and "atomic" in shadow.kinds:
            flags = touch.last("atomic") != 0
        plain = not flags.all()
        if plain:
            bad = self.unordered(touch)
            if self.clocks.gave_up and "store" in shadow.kinds:
                bad = {"store": self.without_signal(touch)}
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
            self.write_flags(touch, flags)
        overlap = self.record(touch, "store")
        shadow.kinds["store"][3][granules[flags]] = -self.clocks.now
        if plain:
            if self.unfenced_granules > MOST_UNFENCED:
                self.synchronize()
            lanes = np.repeat(touch.chosen, granules.size // touch.chosen.size)
            stores = Unfenced(shadow, granules, owners, lanes, self.clocks.now).only(~flags, self.clocks.now)
            self.unfenced.append(stores)
            self.unsynchronized.append(stores)
            self.unfenced_granules += stores.granules.size
        if access.ordered:
            self.clocks.now += 1
            self.signals[owners] = self.clocks.now
            self.announce(touch)
        if overlap and plain:
            self.report_written_twice(touch)

    def write_flags(self, touch: Touch, flags: Array) -> None:
        """Record in the clocks that a store writes flags; `flags`: a bool for each granule."""
        for clocks in (self.clocks, self.loaded):
            clocks.write(touch.region.base, touch.shadow.granules, touch.granules[flags], touch.owners[flags])

    def atomic(self, touch: Touch) -> None:
        """Report the races of an atomic, and record it."""
        access, base, owners = touch.access, touch.region.base, touch.owners
        self.note_atomic(owners)
        for kind, lanes in self.unordered(touch).items():
            self.report(touch, lanes, kind)
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

    def unordered(self, touch: Touch) -> dict[str, Array]:
        """Return the races of an access: by the kind of the earlier access, a mask of the granules.

        A granule is in the mask if another block made the earlier access and nothing orders the two. Kinds without
        races are left out.
        """
        races: dict[str, Array] = {}
        for kind in AGAINST[touch.access.kind]:
            others = touch.others(kind)
            if others is None or not others.any():
                continue
            indices = np.flatnonzero(others)
            places, owners = touch.granules[indices], touch.owners[indices]
            last, numbers, _, times = touch.shadow.kinds[kind][:, places]
            ordered = self.clocks.before(owners, last, times, touch.access.kind != "load")
            if kind in ("load", "load before"):
                ordered |= self.loaded.before(owners, last, times, True) & ~self.in_flight[numbers]
            ordered |= self.before_cluster_barrier(touch.shadow, kind, places, owners)
            if kind == "atomic" and "flag read" in touch.shadow.kinds:
                readers = touch.shadow.kinds["flag read"][0][places]
                ordered |= (readers == owners) | (readers == MANY)
            others[indices[ordered]] = False
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
        unfenced: dict[str, Array] = {}
        if self.any_waited:
            unfenced["an atomic"] = self.waited[touch.owners] & self.without_fence(touch)
        others = touch.others("store")
        if others is not None and self.clocks.flag_times is not None:
            times = touch.times("store")
            unfenced["a flag"] = (
                others & (times > 0) & (self.clocks.flag_times[touch.owners, touch.last("store")] > times)
            )
            if self.any_waited:
                unfenced["a flag"] &= ~unfenced["an atomic"]
        if not self.clocks.gave_up:
            unfenced = {signal: bad & ~self.ordered_by_fence(touch, bad) for signal, bad in unfenced.items()}
        return {signal: bad for signal, bad in unfenced.items() if bad.any()}
