"""Records the last accesses to each granule of memory (a few bytes), and when lanes synchronised."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from cudabench.simulator.check.block_shadow import AGAINST
from cudabench.simulator.values import Array

if TYPE_CHECKING:
    from cudabench.simulator.check.races import LogEntry, Sync

NO_THREAD = np.int32(1 << 20)
ASYNC_COPY = np.int32(1 << 12)  # added to a thread's number if an asynchronous copy of the thread writes
# Added to the number of the other thread if both write by the same execution of one instruction.
SAME_INSTRUCTION = np.int32(1 << 13)


# For each kind of access: the kinds of earlier accesses of the same block that it races with; 'poll' is a load that
# polls.
WITHIN_BLOCK = {**AGAINST, "store": (*AGAINST["store"], "poll"), "poll": ("store",)}


class WarpOrder:
    """Records when each lane last synchronised with each lane of its warp, and when it last acquired the accesses of
    all threads.
    """

    def __init__(self, blocks: int, threads: int) -> None:
        self.shape = (blocks, threads // 32, 32)
        self.all_lanes = 0
        self.pairs: Array | None = None
        # For each lane: the time of its last poll, or of another lane's poll before a synchronisation with this lane.
        self.acquired: Array | None = None
        self.latest = 0  # the maximum of `acquired`
        self.fences, self.fenced = [0], [0]  # the numbers and the times of all fences

    def note(self, time: int, sync: Sync) -> None:
        """Record a synchronisation at a time: call the method named like its kind."""
        getattr(self, sync.kind)(time, sync.mask, sync.what)

    def by_warp(self, values: Array) -> Array:
        """Return an array with a value for each lane in the shape `self.shape`."""
        return np.broadcast_to(values, (self.shape[0], self.shape[1] * 32)).reshape(self.shape)

    def fence(self, time: int, mask: Array | None, number: int) -> None:
        """Record a fence of any thread; `number`: its number."""
        self.fences.append(number)
        self.fenced.append(time)

    def acquire(self, time: int, mask: Array | None, fences: Array | None) -> None:
        """Record that the lanes of the mask have polled; `fences`: `Sync.what`."""
        if self.acquired is None:
            self.acquired = np.zeros(self.shape, dtype=np.int32)
        times: Any = np.int32(time)
        if fences is not None:
            place = np.searchsorted(self.fences, self.by_warp(fences), "right") - 1
            times = np.maximum(np.array(self.fenced, np.int32)[place], self.acquired)
        np.copyto(self.acquired, times, where=True if mask is None else self.by_warp(mask))
        self.latest = max(self.latest, int(self.acquired.max()))

    def sync(self, time: int, mask: Array | None, named: Array | None) -> None:
        """Record that the lanes of the mask synchronised with the lanes in `named` (bits; None: the whole warp)."""
        if mask is None and named is None:
            self.all_lanes, self.pairs = time, None
            if self.acquired is not None:
                self.acquired[:] = self.acquired.max(axis=2, keepdims=True)
            return
        if self.pairs is None:
            self.pairs = np.zeros((*self.shape, 32), dtype=np.int32)
        lanes = np.ones(self.shape, bool) if mask is None else self.by_warp(mask)
        pairs = lanes[..., :, None] & lanes[..., None, :]
        if named is not None:
            words = self.by_warp(named)[..., None]
            pairs &= ((words >> np.arange(32, dtype=np.uint32)) & np.uint32(1)).astype(bool)
        self.pairs[pairs] = time
        if self.acquired is not None:
            acquired = np.where(pairs, self.acquired[..., None, :], 0).max(axis=3)
            np.maximum(self.acquired, acquired, out=self.acquired)

    def ordered(self, lanes: Array, when: Array, low: Array, high: Array) -> Array:
        """Return for each lane whether it synchronised with two threads of its warp after the time `when`.

        lanes: indices in all rows; low, high: the threads. The arrays have one element for each lane.
        """
        ordered = when < self.all_lanes
        if self.pairs is not None:
            table = self.pairs.reshape(-1, 32)
            ordered = ordered | ((when < table[lanes, low & 31]) & (when < table[lanes, high & 31]))
        return ordered


@dataclass(slots=True)
class Event:
    """A logged access; the arrays have an element for each granule of each active lane, in lane order.

    granules: the granules' numbers in the shadow; places: their numbers in the memory (see `Races.expand`). threads:
    the thread in its block; lanes: the index in the rows of `WarpOrder`. time: the time of the access; number: the
    access's number. value: a number for the written data; equal for two accesses only if all their lanes write the same
    data.
    """

    entry: LogEntry
    granules: Array
    places: Array
    threads: Array
    lanes: Array
    time: int
    number: int
    value: int

    @property
    def kind(self) -> str:
        """The kind of the access; 'poll' for a load that polls, and for an atomic that only waits."""
        access = self.entry.access
        return "poll" if self.entry.role == "poll" or (access.polls and access.kind == "load") else access.kind


# The races of an event. For each element: (whether it races, the other thread, the number of the other access).
Conflicts = tuple[Array, Array, Array]


class Shadow:
    """The last accesses to each granule of memory, by kind of access.

    kinds: by kind, arrays (lowest thread, highest thread, time, number of the access) with an element per granule.
    values: a function that returns for each element of a store's event a number, equal for equal data.
    """

    def __init__(self, granules: int, order: WarpOrder, values: Callable[[Event], Array]) -> None:
        self.order, self.values = order, values
        self.kinds: dict[str, tuple[Array, ...]] = defaultdict(
            lambda: tuple(np.full(granules, initial, np.int32) for initial in (NO_THREAD, -1, 0, 0))
        )
        self.value = np.zeros(granules, dtype=np.int64)
        self.scratch = np.zeros(granules, dtype=np.int32)
        # Sets of the numbers of accesses: strong ones, those that poll, and stores by which several threads wrote
        # the same granule at once.
        self.strong: set[int] = set()
        self.polls: set[int] = set()
        self.several: set[int] = set()

    def conflicts(self, event: Event, advised: tuple[int, int] = (0, 0)) -> Conflicts | None:
        """Return the races of an access with earlier accesses, or None; the caller must call `note` for the access
        next.

        An asynchronous copy races like an access of its thread at the time when the thread starts it. Until the copy
        ends, no thread may access the copied data, not even the copying thread. An access that polls does not race with
        a strong store or an atomic, and a strong load does not race with an atomic (PTX ISA, "Morally strong
        operations"). advised: the times (within warps and within blocks) until which advised barriers order accesses, 0
        for none.
        """
        kind, granules, threads = event.kind, event.granules, event.threads
        conflicts: Conflicts | None = None
        if event.entry.access.strong:
            self.strong.add(event.number)
        if event.entry.access.polls:
            self.polls.add(event.number)
        for past in WITHIN_BLOCK[kind]:
            if past not in self.kinds or event.entry.role == "done":
                continue
            low, high, when, numbers = self.kinds[past]
            low, high = low[granules], high[granules]
            conflict = (high >= 0) & ((low != threads) | (high != threads))
            if not conflict.any():
                continue
            when, numbers = when[granules], numbers[granules]
            conflict &= ~self.ordered(event, low, high, when, advised)
            conflict &= ~self.morally_strong(event, past, numbers)
            if past == "store" and kind == "store":
                conflict &= (self.value[granules] != event.value) | (high >= ASYNC_COPY)
            if conflict.any():
                # The message names one of the two threads `low` and `high`: preferably one in another warp, since a
                # synchronisation of this warp does not order accesses of another warp. If both threads are in this
                # warp, the message names the thread whose access is not ordered.
                warps = threads >> 5
                known = (low == threads) | self.order.ordered(event.lanes, when, low, low)
                party = np.where(low >> 5 != warps, low, np.where((high >> 5 != warps) | known, high, low))
                conflicts = _with_conflicts(conflicts, conflict, party, numbers)
        self.scratch[granules[::-1]] = threads[::-1]
        first = self.scratch[granules]
        self.scratch[granules] = threads
        last = self.scratch[granules]
        self.ends = first, last
        if kind == "store" and (first != last).any():
            self.several.add(event.number)
            # If several lanes of one instruction write the same granule, this is harmless only if they write the same
            # value.
            by_place, values = np.argsort(granules, kind="stable"), self.values(event)
            same = granules[by_place][1:] == granules[by_place][:-1]
            differ = np.zeros(granules.size, dtype=bool)
            differ[by_place[1:]] = same & (values[by_place][1:] != values[by_place][:-1])
            if differ.any():
                number = np.full(granules.size, event.number, dtype=np.int32)
                conflicts = _with_conflicts(conflicts, differ, first + SAME_INSTRUCTION, number)
        return conflicts

    def morally_strong(self, event: Event, past: str, numbers: Array) -> Array:
        """Return for each element whether the event and the earlier access are morally strong, and cannot race.

        past: the kind of the earlier accesses; numbers: their numbers.
        """
        kind, access = event.kind, event.entry.access
        waits = kind == "poll" or (kind == "atomic" and access.polls)
        if (past == "store" and waits) or (past == "load" and kind == "atomic"):
            return np.isin(numbers, [*self.strong])
        if (past, kind) == ("atomic", "store") and access.strong:
            return np.isin(numbers, [*self.polls])
        return np.full(numbers.shape, access.strong and (past, kind) in (("poll", "store"), ("atomic", "load")))

    def ordered(self, event: Event, low: Array, high: Array, when: Array, advised: tuple[int, int]) -> Array:
        """Return for each element of an event whether the earlier accesses to its granule are ordered before it.

        low, high, when: the lowest and the highest thread of the earlier accesses, and their time. advised: see
        `conflicts`.
        """
        warps = event.threads >> 5
        within: Array = (low >> 5 == warps) & (high >> 5 == warps)
        ordered = within & self.order.ordered(event.lanes, when, low, high)
        if any(advised):
            ordered |= (when <= advised[1]) | ((when <= advised[0]) & within)
        if self.order.acquired is not None:
            ordered |= when < self.order.acquired.reshape(-1)[event.lanes]
        return ordered

    def note(self, event: Event, advised: tuple[int, int] = (0, 0)) -> None:
        """Record the access for which `conflicts` was called last; `advised`: see there."""
        kind, granules = event.kind, event.granules
        first, last = self.ends
        again = kind in self.kinds
        low, high, when, numbers = self.kinds[kind]
        if kind == "store":
            owner = ASYNC_COPY if event.entry.role == "copy" else np.int32(0)
            low[granules], high[granules] = first + owner, last + owner
            self.value[granules] = event.value
            for past in self.kinds.keys() - {"store"}:
                self.kinds[past][0][granules] = NO_THREAD
                self.kinds[past][1][granules] = -1
        else:
            if again:
                # Forget the earlier readers that are ordered before this access, such as readers of the same warp
                # before the warp's last synchronisation. Forget also the readers before the last poll: they are ordered
                # for the thread that polled, but the new readers are not, and an entry has one time for all its
                # readers.
                times = when[granules]
                stale = self.ordered(event, low[granules], high[granules], times, advised) | (times < self.order.latest)
                low[granules[stale]], high[granules[stale]] = NO_THREAD, -1
                first = np.minimum(first, low[granules])
                last = np.maximum(last, high[granules])
            low[granules], high[granules] = first, last
        when[granules] = event.time
        numbers[granules] = event.number


def _with_conflicts(known: Conflicts | None, conflict: Array, threads: Array, numbers: Array) -> Conflicts:
    """Add new races to the known ones; an element that already has a race keeps it."""
    if known is None:
        return conflict, threads, numbers
    new = conflict & ~known[0]
    return known[0] | conflict, np.where(new, threads, known[1]), np.where(new, numbers, known[2])
