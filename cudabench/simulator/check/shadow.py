"""Who touched each granule of memory last, and which lanes have synchronised since."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from cudabench.simulator.check.grid_races import AGAINST
from cudabench.simulator.values import Array

if TYPE_CHECKING:
    from cudabench.simulator.check.races import LogEntry

NOBODY = np.int32(1 << 20)
ENGINE = np.int32(1 << 12)  # added to a thread's number for what its asynchronous copy is writing
TOGETHER = np.int32(1 << 13)  # and for what it writes by the same execution of one instruction


# The same of what threads of one block do, where a load that polls is told from others.
WITHIN = {**AGAINST, "store": (*AGAINST["store"], "poll"), "poll": ("store",)}


class WarpOrder:
    """When each lane last synchronised with each lane of its warp, and since when it knows of what all others did."""

    def __init__(self, rows: int, threads: int) -> None:
        self.shape = (rows, threads // 32, 32)
        self.all_lanes = 0
        self.pairs: Array | None = None
        self.acquired: Array | None = None  # by lane the time of its last poll, or of one that it was told of
        self.latest = 0  # of these
        self.fences: list[int] = [0]  # their numbers, and when they were
        self.fenced: list[int] = [0]

    def fence(self, time: int, number: int) -> None:
        """Note a fence of some thread."""
        self.fences.append(number)
        self.fenced.append(time)

    def acquire(self, time: int, mask: Array | None, fences: Array | None = None) -> None:
        """Note that the lanes of the mask have polled: all that was done before is ordered before what they do.

        fences: by lane the fence before which it has to have been done (blocks, threads).
        """
        rows, warps, _ = self.shape
        if self.acquired is None:
            self.acquired = np.zeros(self.shape, dtype=np.int32)
        lanes = True if mask is None else np.broadcast_to(mask, (rows, warps * 32)).reshape(self.shape)
        times: Any = np.int32(time)
        if fences is not None:
            if fences.shape[0] > rows:
                fences = fences.min(axis=0, keepdims=True)  # one block stands for all
            fences = np.broadcast_to(fences, (rows, warps * 32)).reshape(self.shape)
            times = np.array(self.fenced, np.int32)[np.searchsorted(self.fences, fences, "right") - 1]
            times = np.maximum(times, self.acquired)
        np.copyto(self.acquired, times, where=lanes)
        self.latest = max(self.latest, int(self.acquired.max()))

    def sync(self, time: int, mask: Array | None, named: Array | None) -> None:
        """Note that the lanes of the mask met those that they name (bits; None: the whole warp)."""
        rows, warps, _ = self.shape
        if mask is None and named is None:
            self.all_lanes, self.pairs = time, None
            if self.acquired is not None:
                self.acquired[:] = self.acquired.max(axis=2, keepdims=True)
            return
        if self.pairs is None:
            self.pairs = np.zeros((*self.shape, 32), dtype=np.int32)
        lanes: Array = np.ones(self.shape, dtype=bool)
        if mask is not None:
            lanes = np.broadcast_to(mask, (rows, warps * 32)).reshape(self.shape)
        met = lanes[..., :, None] & lanes[..., None, :]
        if named is not None:
            if named.shape[0] > rows:
                # One block stands for all: lanes met if they did in every block.
                named = np.bitwise_and.reduce(named, axis=0, keepdims=True)
            words = np.broadcast_to(named, (rows, warps * 32)).reshape(*self.shape, 1)
            met &= ((words >> np.arange(32, dtype=np.uint32)) & np.uint32(1)).astype(bool)
        self.pairs[met] = time
        if self.acquired is not None:
            told = np.where(met, self.acquired[..., None, :], 0).max(axis=3)
            np.maximum(self.acquired, told, out=self.acquired)

    def has_heard(self, lane: int) -> bool:
        """Return whether a lane (flat number) has polled."""
        return self.acquired is not None and bool(self.acquired.reshape(-1)[lane])

    def ordered(self, lanes: Array, when: Array, low: Array, high: Array) -> Array:
        """Return whether lanes (flat numbers) have met the threads low and high of their warp after the times."""
        found = when < self.all_lanes
        if self.pairs is not None:
            table = self.pairs.reshape(-1, 32)
            found = found | ((when < table[lanes, low & 31]) & (when < table[lanes, high & 31]))
        return found


def nobody(granules: int) -> tuple[Array, Array, Array, Array]:
    """Return what `Shadow` keeps of one kind of access: lowest and highest threads, times, accesses; none so far."""
    return (
        np.full(granules, NOBODY, dtype=np.int32), np.full(granules, -1, dtype=np.int32),
        np.zeros(granules, dtype=np.int32), np.zeros(granules, dtype=np.int32),
    )  # fmt: skip


@dataclass(slots=True)
class Event:
    """What the active lanes of a logged access do: one element for each of their granules, lanes ascending.

    granules: as a shadow numbers them; places: as their memory does. lanes: places in `WarpOrder`. time: when it was.
    number: of the access. value: names what is written if it is the same for all lanes, else it is unique; values:
    what each lane writes, None where that is not asked or all the same.
    """

    entry: LogEntry
    granules: Array
    places: Array
    threads: Array
    lanes: Array
    time: int
    number: int
    value: int
    values: Array | None

    @property
    def kind(self) -> str:
        """The kind of access, where a load that polls is told from others."""
        access = self.entry.access
        return "poll" if self.entry.role == "poll" or (access.polls and access.kind == "load") else access.kind


Found = tuple[Array, Array, Array]  # conflicting elements, the other threads, the numbers of the other accesses


class Shadow:
    """For each granule of memory who wrote, read and updated it last: threads as (lowest, highest), a time, an
    access."""

    def __init__(self, granules: int, order: WarpOrder) -> None:
        self.order = order
        self.kinds: dict[str, tuple[Array, Array, Array, Array]] = {}
        for kind in ("load", "store", "atomic"):
            self.kinds[kind] = nobody(granules)
        self.value = np.zeros(granules, dtype=np.int64)
        self.scratch = np.zeros(granules, dtype=np.int32)
        self.used: set[str] = set()  # kinds
        self.strong: set[int] = set()  # the strong stores, by the number of their access
        self.taking: set[int] = set()  # the atomics that wait for a value and replace it, likewise
        self.several: set[int] = set()  # the stores in which threads wrote one place at once, likewise

    def conflicts(self, event: Event, cuts: tuple[int, int] | None = None) -> Found | None:
        """Return what one access races with, or None; it is to be noted next.

        A copy sets out when its thread issues it, so it races with what that thread would race with by then; but while
        it flies it is nobody's, also not its own thread's. What polls and a strong store or an atomic are no race (PTX
        ISA, "Morally strong operations"). cuts: the times until which all is ordered before, within warps and within
        blocks, None for no such.
        """
        kind, access, granules, threads = event.kind, event.entry.access, event.granules, event.threads
        strong = access.strong and kind == "store"
        if strong:
            self.strong.add(event.number)
        takes = access.polls and kind == "atomic"
        if takes:
            self.taking.add(event.number)
        if kind == "poll" and "poll" not in self.kinds:
            self.kinds["poll"] = nobody(self.value.size)
        found: Found | None = None
        for past in WITHIN[kind]:
            if past not in self.used or event.entry.role == "done" or (strong and past == "poll"):
                continue
            low, high, when, who = self.kinds[past]
            low, high = low[granules], high[granules]
            conflict = (high >= 0) & ((low != threads) | (high != threads))
            if not conflict.any():
                continue
            when, who = when[granules], who[granules]
            conflict &= ~self.ordered(event, low, high, when, cuts)
            if past == "store" and (takes or kind == "poll"):
                conflict &= ~np.isin(who, [*self.strong])
            if past == "atomic" and strong and self.taking:
                conflict &= ~np.isin(who, [*self.taking])
            if past == "store" and kind == "store":
                conflict &= (self.value[granules] != event.value) | (high >= ENGINE)
            if conflict.any():
                # Of the two the one of another warp, which nothing has ordered, else the one that is not ordered.
                mine = threads >> 5
                known = (low == threads) | self.order.ordered(event.lanes, when, low, low)
                party = np.where(low >> 5 != mine, low, np.where((high >> 5 != mine) | known, high, low))
                found = _joined(found, conflict, party, who)
        self.scratch[granules[::-1]] = threads[::-1]
        first = self.scratch[granules]
        self.scratch[granules] = threads
        last = self.scratch[granules]
        self.ends = first, last
        if kind == "store" and (first != last).any():
            self.several.add(event.number)
            if event.values is not None:
                # Lanes of one instruction write the same place: harmless if they write the same.
                by_place = np.argsort(granules, kind="stable")
                same = granules[by_place][1:] == granules[by_place][:-1]
                differ = np.zeros(granules.size, dtype=bool)
                differ[by_place[1:]] = same & (event.values[by_place][1:] != event.values[by_place][:-1])
                if differ.any():
                    number = np.full(granules.size, event.number, dtype=np.int32)
                    found = _joined(found, differ, first + TOGETHER, number)
        return found

    def ordered(self, event: Event, low: Array, high: Array, when: Array, cuts: tuple[int, int] | None) -> Array:
        """Return whether what threads low to high did at some times is ordered before an access."""
        mine = event.threads >> 5
        found: Array = (low >> 5 == mine) & (high >> 5 == mine) & self.order.ordered(event.lanes, when, low, high)
        if cuts is not None:
            found |= _cut(cuts, when, low, high, event.threads)
        if self.order.acquired is not None:
            found |= when < self.order.acquired.reshape(-1)[event.lanes]
        return found

    def note(self, event: Event, cuts: tuple[int, int] = (0, 0)) -> None:
        """Note the access that was looked at last; cuts: as of `conflicts`."""
        kind, granules, threads = event.kind, event.granules, event.threads
        first, last = self.ends
        low, high, when, who = self.kinds[kind]
        if kind == "store":
            owner = ENGINE if event.entry.role == "copy" else np.int32(0)
            low[granules], high[granules] = first + owner, last + owner
            self.value[granules] = event.value
            for past in self.used - {"store"}:
                self.kinds[past][0][granules] = NOBODY
                self.kinds[past][1][granules] = -1
        else:
            if kind in self.used:
                lowest, highest = low[granules], high[granules]
                # Readers of the same warp before its last synchronisation need not be remembered.
                stale = (lowest >> 5 == threads >> 5) & (highest >> 5 == threads >> 5)
                stale &= self.order.ordered(event.lanes, when[granules], lowest, highest)
                if self.order.latest:
                    # A thread has polled since: for it those readers are done, and these are not.
                    stale |= when[granules] < self.order.latest
                if any(cuts):
                    stale |= _cut(cuts, when[granules], lowest, highest, threads)
                if stale.any():
                    low[granules[stale]], high[granules[stale]] = NOBODY, -1
                first = np.minimum(first, low[granules])
                last = np.maximum(last, high[granules])
            low[granules], high[granules] = first, last
        when[granules] = event.time
        who[granules] = event.number
        self.used.add(kind)


def _joined(found: Found | None, conflict: Array, threads: Array, numbers: Array) -> Found:
    """Return what was found with more conflicts, which tell of elements that had none."""
    if found is None:
        return conflict, threads, numbers
    new = conflict & ~found[0]
    return found[0] | conflict, np.where(new, threads, found[1]), np.where(new, numbers, found[2])


def _cut(cuts: tuple[int, int], when: Array, low: Array, high: Array, threads: Array) -> Array:
    """Return whether what threads low to high did is ordered before by barriers that are thought of."""
    mine = threads >> 5
    found: Array = (when <= cuts[1]) | ((when <= cuts[0]) & (low >> 5 == mine) & (high >> 5 == mine))
    return found
