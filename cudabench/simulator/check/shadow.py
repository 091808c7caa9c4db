"""Who touched each granule of memory last, and which lanes have synchronised since."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from cudabench.simulator.check.grid_races import AGAINST
from cudabench.simulator.values import Array

if TYPE_CHECKING:
    from cudabench.simulator.check.races import LogEntry, Sync

NOBODY = np.int32(1 << 20)
ENGINE = np.int32(1 << 12)  # added to a thread's number for what its asynchronous copy is writing
TOGETHER = np.int32(1 << 13)  # and for what it writes by the same execution of one instruction


# The same of what threads of one block do, where a load that polls is told from others.
WITHIN = {**AGAINST, "store": (*AGAINST["store"], "poll"), "poll": ("store",)}


class WarpOrder:
    """When each lane last synchronised with each lane of its warp, and since when it knows of what all others did.

    Where there is one row and a `Sync` tells of more, one block stands for all: only what is so in every block counts.
    """

    def __init__(self, rows: int, threads: int) -> None:
        self.shape = (rows, threads // 32, 32)
        self.all_lanes = 0
        self.pairs: Array | None = None
        self.acquired: Array | None = None  # by lane the time of its last poll, or of one that it was told of
        self.latest = 0  # of these
        self.fences, self.fenced = [0], [0]  # their numbers, and when they were

    def note(self, time: int, sync: Sync) -> None:
        """Note what lanes did at a time."""
        getattr(self, sync.kind)(time, sync.mask, sync.what)

    def over(self, given: Array, least: np.ufunc) -> Array:
        """Return what is given by lane in the shape of the order; least: what several blocks come to."""
        rows, warps, lanes = self.shape
        if given.shape[0] > rows:
            given = least.reduce(given, axis=0, keepdims=True)
        return np.broadcast_to(given, (rows, warps * lanes)).reshape(self.shape)

    def fence(self, time: int, mask: Array | None, number: int) -> None:
        """Note a fence of some thread."""
        self.fences.append(number)
        self.fenced.append(time)

    def acquire(self, time: int, mask: Array | None, fences: Array | None) -> None:
        """Note that the lanes of the mask have polled."""
        if self.acquired is None:
            self.acquired = np.zeros(self.shape, dtype=np.int32)
        times: Any = np.int32(time)
        if fences is not None:
            place = np.searchsorted(self.fences, self.over(fences, np.minimum), "right") - 1
            times = np.maximum(np.array(self.fenced, np.int32)[place], self.acquired)
        np.copyto(self.acquired, times, where=True if mask is None else self.over(mask, np.logical_and))
        self.latest = max(self.latest, int(self.acquired.max()))

    def sync(self, time: int, mask: Array | None, named: Array | None) -> None:
        """Note that the lanes of the mask met those that they name."""
        if mask is None and named is None:
            self.all_lanes, self.pairs = time, None
            if self.acquired is not None:
                self.acquired[:] = self.acquired.max(axis=2, keepdims=True)
            return
        if self.pairs is None:
            self.pairs = np.zeros((*self.shape, 32), dtype=np.int32)
        lanes = np.ones(self.shape, bool) if mask is None else self.over(mask, np.logical_and)
        met = lanes[..., :, None] & lanes[..., None, :]
        if named is not None:
            words = self.over(named, np.bitwise_and)[..., None]
            met &= ((words >> np.arange(32, dtype=np.uint32)) & np.uint32(1)).astype(bool)
        self.pairs[met] = time
        if self.acquired is not None:
            told = np.where(met, self.acquired[..., None, :], 0).max(axis=3)
            np.maximum(self.acquired, told, out=self.acquired)

    def ordered(self, lanes: Array, when: Array, low: Array, high: Array) -> Array:
        """Return whether lanes (flat numbers) have met the threads low and high of their warp after the times."""
        found = when < self.all_lanes
        if self.pairs is not None:
            table = self.pairs.reshape(-1, 32)
            found = found | ((when < table[lanes, low & 31]) & (when < table[lanes, high & 31]))
        return found


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
        self.kinds: dict[str, tuple[Array, ...]] = defaultdict(
            lambda: tuple(np.full(granules, nobody, np.int32) for nobody in (NOBODY, -1, 0, 0))
        )
        self.value = np.zeros(granules, dtype=np.int64)
        self.scratch = np.zeros(granules, dtype=np.int32)
        self.strong: set[int] = set()  # the strong stores, by the number of their access
        self.taking: set[int] = set()  # the atomics that wait for a value and replace it, likewise
        self.several: set[int] = set()  # the stores in which threads wrote one place at once, likewise

    def conflicts(self, event: Event, cuts: tuple[int, int] = (0, 0)) -> Found | None:
        """Return what one access races with, or None; it is to be noted next.

        A copy sets out when its thread issues it, so it races with what that thread would race with by then; but while
        it flies no thread owns it, not even its own. What polls does not race with a strong store or an atomic (PTX
        ISA, "Morally strong operations"). cuts: the times until which all is ordered before, within warps and within
        blocks, 0 for no such.
        """
        kind, access, granules, threads = event.kind, event.entry.access, event.granules, event.threads
        strong, takes = access.strong and kind == "store", access.polls and kind == "atomic"
        if strong:
            self.strong.add(event.number)
        if takes:
            self.taking.add(event.number)
        found: Found | None = None
        for past in WITHIN[kind]:
            if past not in self.kinds or event.entry.role == "done" or (strong and past == "poll"):
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

    def ordered(self, event: Event, low: Array, high: Array, when: Array, cuts: tuple[int, int]) -> Array:
        """Return whether what threads low to high did at some times is ordered before an access."""
        mine = event.threads >> 5
        within: Array = (low >> 5 == mine) & (high >> 5 == mine)
        found = within & self.order.ordered(event.lanes, when, low, high)
        if any(cuts):
            found |= (when <= cuts[1]) | ((when <= cuts[0]) & within)
        if self.order.acquired is not None:
            found |= when < self.order.acquired.reshape(-1)[event.lanes]
        return found

    def note(self, event: Event, cuts: tuple[int, int] = (0, 0)) -> None:
        """Note the access that was looked at last; cuts: as of `conflicts`."""
        kind, granules = event.kind, event.granules
        first, last = self.ends
        again = kind in self.kinds
        low, high, when, who = self.kinds[kind]
        if kind == "store":
            owner = ENGINE if event.entry.role == "copy" else np.int32(0)
            low[granules], high[granules] = first + owner, last + owner
            self.value[granules] = event.value
            for past in self.kinds.keys() - {"store"}:
                self.kinds[past][0][granules] = NOBODY
                self.kinds[past][1][granules] = -1
        else:
            if again:
                # Readers of the same warp before its last synchronisation need not be remembered. Nor need those before
                # the last poll: for the thread that polled they are done, and these are not.
                times = when[granules]
                stale = self.ordered(event, low[granules], high[granules], times, cuts) | (times < self.order.latest)
                low[granules[stale]], high[granules[stale]] = NOBODY, -1
                first = np.minimum(first, low[granules])
                last = np.maximum(last, high[granules])
            low[granules], high[granules] = first, last
        when[granules] = event.time
        who[granules] = event.number


def _joined(found: Found | None, conflict: Array, threads: Array, numbers: Array) -> Found:
    """Return what was found with more conflicts, which tell of elements that had none."""
    if found is None:
        return conflict, threads, numbers
    new = conflict & ~found[0]
    return found[0] | conflict, np.where(new, threads, found[1]), np.where(new, numbers, found[2])
