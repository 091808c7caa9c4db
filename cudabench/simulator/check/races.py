"""The log of accesses between two barriers, which the race checks of shared and global memory examine.

Two accesses of different threads to the same bytes race if at least one writes, not both are atomic, and nothing orders
them: a barrier of the block, or within a warp a warp-wide synchronisation (CUDA C++ Programming Guide, "Independent
Thread Scheduling"). The log is examined when the interval ends.

Most intervals look the same in every block and in every turn of a loop: an interval is then examined once for one
block, and its outcome remembered by what was logged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from cudabench.simulator.check.cures import BLOCK, CURES, GRID, WARP, Cuts, cut_at, find_gap
from cudabench.simulator.check.cures import place as place_of
from cudabench.simulator.check.hazards import VERBS
from cudabench.simulator.check.places import Gap
from cudabench.simulator.check.shadow import ENGINE, TOGETHER, Event, Found, Shadow, WarpOrder
from cudabench.simulator.memory import flat
from cudabench.simulator.program.ptx import Location
from cudabench.simulator.values import Affine, Array, Chunk, Key, Value, as_array, broadcast, different

if TYPE_CHECKING:
    from cudabench.simulator.isa.access import MemoryOp
    from cudabench.simulator.machine import Machine


UPDATE = "threads update one element: use an atomic, such as atomicAdd() or atomicMax(), or let one thread do it"
LOG_BYTES = 1 << 25
LOG_LENGTH = 4096


@dataclass(slots=True, eq=False)
class LogEntry:
    """One logged access; its address is in bounds for all lanes of the mask.

    data: what a store writes. key: what tells it from others where a log is looked up, None where nothing does. role:
    'copy' where an asynchronous copy sets out, 'done' at its end, from where on the thread owns the data. groups: of a
    copy, how many groups its thread has committed since, for each thread where they differ. locked: the lanes that hold
    a lock which they took without a fence, None for none.
    """

    access: MemoryOp
    address: Affine | Array
    offset: int
    mask: Array | None
    data: Sequence[Value]
    key: Key | None
    role: str = ""
    locked: Array | None = None
    groups: int | Array = 0


class WarpSync:
    """A logged synchronisation: the lanes of the mask met those of their warp that they name (bits; None: all)."""

    __slots__ = ("key", "mask", "named")

    def __init__(self, mask: Array | None, named: Array | None) -> None:
        self.mask, self.named = mask, named
        every = narrow_all(mask)
        self.key: Key = (
            "sync", None if every is None else every.tobytes(), None if named is None else named.tobytes()
        )  # fmt: skip


class Acquire(WarpSync):
    """A logged end of a poll: what anybody did before is ordered before what the lanes of the mask do next.

    fences: by lane (blocks, threads) the number of the fence before which it has to have been done; None: before now.
    """

    __slots__ = ("fences",)

    def __init__(self, mask: Array | None, fences: Array | None = None) -> None:
        super().__init__(mask, None)
        self.key = ("acquire", *self.key, None if fences is None else fences.tobytes())
        self.fences = fences


class Fence(WarpSync):
    """A logged fence, by its number."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        super().__init__(None, None)
        self.number = number
        self.key = ("fence", number)


def idles(access: MemoryOp, operands: Sequence[Array]) -> bool:
    """Return whether an atomic leaves what it finds as it is: a maximum with 0, too, since flags are not negative."""
    name = access.update
    if name == "cas":
        return bool((operands[0] == operands[1]).all())
    if name == "and":
        return bool((operands[0].view(f"i{access.width}") == -1).all())
    return name in ("add", "or", "xor", "max") and not operands[0].any()


class Conflict(NamedTuple):
    """A race found in a log: the later access, its first lane that races, where, and the other one.

    lanes: how many race. offset: in the memory of its block, or in its region. told: whether the lane heard of a flag.
    """

    entry: LogEntry
    lanes: int
    block: int
    lane: int
    offset: int
    other_access: int
    other_thread: int
    told: bool


def narrow_all(mask: Array | None) -> Array | None:
    """Return the threads that are active in all blocks."""
    return mask if mask is None or mask.shape[0] == 1 else mask.all(axis=0, keepdims=True)


def uniform(data: Sequence[Value]) -> int | None:
    """Return the first value that a store writes where it is the same for all lanes, else None."""
    value = data[0]
    return value.base if type(value) is Affine and value.coefficients is None else None


class Races:
    """The log and its examination; the memories differ in how addresses become granules.

    memory: its state space. width: bytes of a granule.
    """

    memory: str
    width: int

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.entries: list[LogEntry | WarpSync] = []
        self.bytes = 0
        self.chunk: Chunk = None  # type: ignore[assignment]
        self.serial = 0
        self.cuts = Cuts(machine.code)
        self.several: set[int] = set()  # the stores in which threads write one place at once, by their numbers
        self.base = 0  # the address at which the memory in hand begins

    # The log.

    def logs(self) -> Iterable[list[LogEntry | WarpSync]]:
        """Return the logs that have accesses."""
        raise NotImplementedError

    def barrier(self) -> None:
        """End the interval."""
        raise NotImplementedError

    def finish(self) -> None:
        """End the last interval of a chunk."""
        self.barrier()

    def warp_sync(self, mask: Array | None, named: Array | None) -> None:
        """Log that lanes meet those of their warp that they name (bits; None: all)."""
        for entries in self.logs():
            entries.append(WarpSync(mask, named))

    def acquire(self, mask: Array | None, fences: Array | None = None) -> None:
        """Log that lanes have polled; fences: as of `Acquire`."""
        for entries in self.logs():
            self.note_acquire(entries, mask, fences)

    def fence(self, number: int) -> None:
        """Log a fence."""
        for entries in self.logs():
            entries.append(Fence(number))

    def unlocked(self, access: MemoryOp, mask: Array | None) -> Array | Literal[False] | None:
        """Return those lanes of a mask whose access is logged, for they hold no lock; False for none."""
        if self.machine.locks is None or access.kind == "atomic":
            return mask
        mask = self.machine.locks.outside(mask)
        return mask if mask.any() else False

    def enter(
        self, entries: list[LogEntry | WarpSync], entry: LogEntry, nbytes: int, polled: tuple[bool, Array | None]
    ) -> None:
        """Log an access whose address takes so many bytes; polled: as of `note_strong`."""
        polls, heard = polled
        self.bytes += nbytes + (0 if entry.mask is None else entry.mask.nbytes)
        if self.machine.locks is not None:
            self.machine.locks.note(entry, entry.access.numbers[self.memory])
        entries.append(entry)
        if polls:
            entry.role = "poll"
            entry.key = None if entry.key is None else (*entry.key[:-1], "poll")
            if heard is not None:
                self.bytes += heard.nbytes
                self.machine.acquire(entry.mask, heard)

    def whole(self, mask: Array | None) -> Array | None:
        """Return None for a mask of all threads of the block, also where the last warp is not full."""
        return None if mask is self.chunk.root else mask

    def note_acquire(self, entries: list[LogEntry | WarpSync], mask: Array | None, fences: Array | None = None) -> None:
        """Log that the lanes of a mask have polled; nobody cares in which order lanes did with nothing in between."""
        mask = self.whole(mask)
        if fences is not None:
            entries.append(Acquire(mask, fences))
            return
        if entries and isinstance(entries[-1], Acquire) and entries[-1].fences is None:
            before = entries[-1].mask
            if before is None or before is mask:
                return
            entries[-1] = Acquire(None if mask is None else mask | before)
            return
        entries.append(Acquire(mask))

    def order_by(self, order: WarpOrder, time: int, entry: WarpSync, exact: bool) -> None:
        """Apply a logged synchronisation."""
        mask = self.whole(entry.mask if exact else narrow_all(entry.mask))
        if isinstance(entry, Fence):
            order.fence(time, entry.number)
        elif isinstance(entry, Acquire):
            order.acquire(time, mask, entry.fences)
        else:
            order.sync(time, mask, entry.named)

    def note_strong(
        self, memory: int, words: int, access: MemoryOp, address: Value, offset: int, mask: Array | None,
        data: Sequence[Value], own: int = 0,
    ) -> tuple[bool, Array | None]:  # fmt: skip
        """Note a strong access; return whether it is an atomic that polls, and what that hears, None for no news.

        Which memory it is, how many words it has and how many of these a block has of its own: see `Releases`.
        """
        releases = self.machine.releases
        if releases is None or not access.strong or access.kind == "load":
            return False, None
        if access.polls and idles(access, [as_array(value, access.dtype, self.chunk) for value in data]):
            return True, releases.heard(memory, address, offset, mask, own)
        releases.write(memory, words, access, address, offset, mask, own)
        return False, None

    def value_name(self, data: Sequence[Value]) -> int:
        """Return a number for the value that an access writes: equal for equal uniform values."""
        if len(data) == 1 and type(data[0]) is Affine and data[0].coefficients is None:
            return int(data[0].base) & 0x7FFFFFFF
        self.serial += 1
        return -self.serial

    def lane_values(self, entry: LogEntry, shape: tuple[int, int]) -> Array | None:
        """Return what each lane writes as one comparable number, broadcast to the shape; None if all write the same."""
        data = entry.data
        if not data:
            return None
        total: Any = None
        for value in data:
            if type(value) is bool or (type(value) is Affine and value.coefficients is None):
                continue
            width = entry.access.width
            bits = as_array(value, np.dtype(f"u{width}"), self.chunk).astype(np.uint64)
            total = bits if total is None else total * np.uint64(1000003) + bits
        if total is None:
            return None
        if total.shape[0] > shape[0]:
            # One block stands for all: any difference between neighbours in any block counts.
            return None
        return broadcast(total, shape)

    def places(self, granules: Array, blocks: Array) -> Array:
        """Return numbers for the granules of blocks' memories, or of a memory that blocks share."""
        raise NotImplementedError

    def offset(self, place: int) -> int:
        """Return the byte at which a granule begins, by its number."""
        raise NotImplementedError

    def name(self, entry: LogEntry, offset: int) -> str:
        """Return what messages call a place that an access touches."""
        raise NotImplementedError

    def expand(self, entry: LogEntry, exact: bool, mask: Array | None = None) -> tuple[Array, Array, Array]:
        """Return (places, blocks, threads), one element for each active lane and granule, lanes ascending.

        exact: of all blocks; else one stands for all, with the lanes that are active in any. mask: in place of that.
        """
        chunk = self.chunk
        shape = chunk.shape if exact else (1, chunk.threads)
        if mask is None:
            mask = entry.mask
            if not exact and mask is not None:
                mask = mask.any(axis=0, keepdims=True)
        if mask is None:
            mask = chunk.root
        chosen: Array = np.ones(shape, bool) if mask is None else broadcast(mask, shape)
        address = flat(entry.address, entry.offset, chunk)
        granules = (broadcast(address[: shape[0]], shape)[chosen] - self.base) // self.width
        blocks, threads = np.nonzero(chosen)
        count = max(1, entry.access.size // self.width)
        if count > 1:
            granules = (granules[:, None] + np.arange(count)).reshape(-1)
            blocks, threads = np.repeat(blocks, count), np.repeat(threads, count)
        return self.places(granules, blocks), blocks, threads.astype(np.int32)

    def event(self, entry: LogEntry, time: int, exact: bool, mask: Array | None = None) -> Event:
        """Return what an access did at a time; exact, mask: as of `expand`."""
        places, blocks, threads = self.expand(entry, exact, mask)
        values = None
        if exact and entry.access.kind == "store":
            values = self.lane_values(entry, self.chunk.shape)
            values = None if values is None else values[blocks, threads]
        lanes = blocks * self.chunk.threads + threads if exact else threads
        number, value = entry.access.numbers[self.memory], self.value_name(entry.data)
        return Event(entry, places, places, threads, lanes, time, number, value, values)

    def places_differ(self, entry: LogEntry) -> bool:
        """Return whether each lane of a store writes to a place of its own."""
        places, _, _ = self.expand(entry, False)
        return bool(different(places).size == places.size)

    def judge(
        self, event: Event, found: Found, shadow: Shadow, entries: Sequence[LogEntry | WarpSync], start: int
    ) -> Callable[[], None]:
        """Return what records a race.

        entries: the log, of which the first has the time `start`. What the barrier orders that mends the race is not
        told from then on.
        """
        machine, chunk, entry = self.machine, self.chunk, event.entry
        bad, others, numbers = found
        first = widest(bad, event.threads, others)
        lanes = bad.reshape(-1, max(1, entry.access.size // self.width)).any(axis=1)
        flat_lane, index, offset = int(event.lanes[first]), event.time - start, self.offset(event.places[first])
        block = flat_lane // chunk.threads
        conflict = Conflict(
            entry, int(lanes.sum()), block, int(event.threads[first]), offset, int(numbers[first]), int(others[first]),
            shadow.order.has_heard(flat_lane),
        )  # fmt: skip
        place = self.name(entry, offset)
        location, _, op, *_ = machine.code.accesses[conflict.other_access]
        mine, party = conflict.lane, conflict.other_thread & 1023
        scope = WARP if mine // 32 == party // 32 else BLOCK
        subject, other = f"thread {chunk.thread_index(mine)}", f"thread {chunk.thread_index(party)}"
        lack, what, gap, reach = f"without {CURES[scope]} in between", "", None, scope
        if aliased := self.aliased(conflict):
            scope, lack = GRID, aliased.removesuffix(".")
        elif machine.locks is not None and machine.locks.covers(entry, conflict.other_access, (block, mine)):
            scope, lack = GRID, "under a lock without fences"
            what = "put __threadfence() behind taking the lock and before giving it back"
        elif self.updates(location, entry, conflict.other_access):
            lack, what = "at the same time", UPDATE
        elif conflict.other_thread & TOGETHER:
            lack, what = "at the same time", "let one of them write, or use an atomic"
        elif conflict.other_thread & ENGINE:
            other = "its own asynchronous copy" if party == mine else f"{other}'s asynchronous copy"
            lack, what = "before the copy is waited for", _wait_before(entry.access.location, location)
            what += "" if party == mine else f", and put {CURES[scope]} behind the wait"
        elif conflict.told:
            what = f"put __threadfence() behind line {location.line}, before the flag is raised"
        else:
            reach, gap = self.cut(conflict, location, scope, index, entries, start)
        if entry.role == "copy":
            subject += "'s asynchronous copy"
        lines = "the same line" if location.line == entry.access.location.line else f"line {location.line}"
        at = chunk.block_index(block)
        text = (
            f"{subject} {VERBS[entry.access.kind]} {place}, which {other} {VERBS[op]} in {lines}, {lack} (block {at})"
        )

        copied = any(
            isinstance(one, LogEntry) and one.role == "done" and _did(one, conflict.other_access, (block, party))
            for one in entries[:index]
        )

        def record() -> None:
            machine.hazards.cure(entry.access.location).add(what, gap, reach, copied)
            machine.hazards.add(
                "race", entry.access.location, conflict.lanes, at, chunk.thread_index(mine), text, scope
            )

        return record

    def aliased(self, conflict: Conflict) -> str:
        """Return what says that the arrays which a race is about are one memory, an empty text where they are not."""
        return ""

    def cut(
        self, conflict: Conflict, earlier: Location, scope: int, index: int,
        entries: Sequence[LogEntry | WarpSync], start: int,
    ) -> tuple[int, Gap]:  # fmt: skip
        """Return how far the barrier of a cure reaches and where it stands, and let it order what is told of other
        lines."""
        access, later = conflict.entry.access, conflict.entry.access.location
        party = conflict.block, conflict.other_thread & 1023
        stop = index - 1
        while stop >= 0 and not _did(entries[stop], conflict.other_access, party):
            stop -= 1
        scope = self.cuts.reach((later.file, later.line), scope)
        gap = find_gap(self.machine, earlier, later, scope)
        if gap.kind == "same":
            meanwhile = (entry for entry in entries[stop + 1 : index] if isinstance(entry, LogEntry))
            reads = self.machine.code.accesses[conflict.other_access].kind == "load"
            if (
                access.kind == "load"
                or not reads
                or any(entry.access.kind == "store" and entry.access.location.line == later.line for entry in meanwhile)
            ):
                # What was accessed in another turn, or by another statement in the line.
                gap = gap.turn or gap._replace(kind="between")
        scope = self.cuts.reach(place_of(gap), scope)
        at = cut_at(entries, index, stop, gap.span)
        self.cuts.stand(later, gap)
        self.cuts.add(scope, start + at)
        nearest = entries[at] if at >= 0 else None
        if gap.kind == "between" and isinstance(nearest, LogEntry):
            nearer = find_gap(self.machine, nearest.access.location, later, scope)
            if nearer.kind == "between" and nearer.before == gap.before and nearer.after > gap.after:
                gap = nearer._replace(around=tuple(dict.fromkeys((*gap.around, *nearer.around))))
        return scope, gap

    def updates(self, location: Location, entry: LogEntry, other: int) -> bool:
        """Return whether two accesses are of an update that threads make of one element."""
        access, (_, _, op, *_) = entry.access, self.machine.code.accesses[other]
        if "store" not in (access.kind, op):
            return False
        if self.several.isdisjoint((other, *access.numbers.values())):
            return False
        return {access.location.ptx_line, location.ptx_line} <= self.updated

    @cached_property
    def updated(self) -> set[int]:
        """The lines of the PTX that load or store an element which is both loaded and stored by its one address."""
        found: dict[tuple[int, int], dict[str, set[int]]] = {}
        kinds = {access.location.ptx_line: access.kind for access in self.machine.code.accesses}
        for block in self.machine.code.blocks:
            for op in block.ops:
                if op.address >= 0 and op.line.ptx_line in kinds:
                    lines = found.setdefault((op.address, op.offset), {})
                    lines.setdefault(kinds[op.line.ptx_line], set()).add(op.line.ptx_line)
        return {
            line for one in found.values() if one.keys() >= {"load", "store"} for each in one.values() for line in each
        }


def _wait_before(later: Location, copy: Location) -> str:
    """Return what is to be done before what a copy writes is accessed."""
    before = "before the next" if later.line == copy.line else f"before line {later.line}"
    return f"let the copying thread wait for its copies {before} (__pipeline_wait_prior() or cp.async.wait_group)"


def _did(entry: LogEntry | WarpSync, number: int, lane: tuple[int, int]) -> bool:
    """Return whether a logged access is the one of a number, of a lane (block, thread) among others."""
    if not isinstance(entry, LogEntry) or number not in entry.access.numbers.values():
        return False
    mask = entry.mask
    return mask is None or bool(mask[lane[0] if mask.shape[0] > 1 else 0, lane[1] if mask.shape[1] > 1 else 0])


def widest(bad: Array, threads: Array, others: Array) -> int:
    """Return the place of a conflict between warps where there is one, else of the first."""
    apart = bad & (threads >> 5 != (others & 1023) >> 5)
    return int(np.argmax(apart if apart.any() else bad))
