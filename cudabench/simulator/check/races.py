"""The log of the accesses between two barriers, and its examination for races within a block.

Two accesses of different threads to the same bytes race if at least one of them writes, not both are atomic, and
nothing orders the two accesses. A barrier of the block orders accesses; within a warp, so does a warp-wide
synchronisation (CUDA C++ Programming Guide, "Independent Thread Scheduling"). The time between two barriers of the
block is called an interval; the log of an interval is examined when the interval ends.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeGuard

import numpy as np

from cudabench.simulator.check.block_cures import SWAP, Lane, swap_partner
from cudabench.simulator.check.cures import BLOCK, CURES, GRID, WARP, AdvisedBarriers, find_gap
from cudabench.simulator.check.cures import place as place_of
from cudabench.simulator.check.hazards import VERBS
from cudabench.simulator.check.places import Gap, in_region, same_memory
from cudabench.simulator.check.shadow import ASYNC_COPY, SAME_INSTRUCTION, Conflicts, Event, Shadow, WarpOrder
from cudabench.simulator.memory import SLOT_BITS, flat, granules
from cudabench.simulator.program.code import FREE
from cudabench.simulator.program.order import following_blocks, reachable
from cudabench.simulator.values import UNSIGNED, Array, Chunk, Index3, Value, as_array, broadcast, different

if TYPE_CHECKING:
    from cudabench.simulator.isa.access import MemoryOp
    from cudabench.simulator.machine import Machine
    from cudabench.simulator.program.code import Block


RELEASE = (
    "write the word that a loop waits for by an atomic, such as atomicExch(), after a __threadfence(), or through a "
    "volatile pointer"
)
WRITE = "let one thread write, or use an atomic"
UPDATE = f"{WRITE}, such as atomicAdd(), atomicMax() or atomicExch(), since threads update one element"
OVERLAP = (
    "if both lines write one array, put {} between line {} and line {}; if they write two arrays, these overlap in the "
    "dynamic shared memory: compare their offsets and sizes"
)
NOT_NAMED = (
    "although both threads execute a _sync function in between",
    "its mask does not name both threads: let it name all lanes that exchange data, such as 0xffffffff",
)
LOG_BYTES = 1 << 25
LOG_LENGTH = 4096


@dataclass(slots=True, eq=False)
class LogEntry:
    """One logged access; its address is in bounds for all lanes of the mask.

    data: the values that a store writes. role: 'copy' for the start of an asynchronous copy, 'done' for the end of the
    copy, when the copying thread may use the data; 'poll' for an atomic that polls. groups: how many groups of copies
    the thread has committed since it started the copy; an array with an element for each thread if the threads differ.
    left: for a copy that a wait left pending, (how many groups the wait left pending, the length of the log then), else
    None. locked: the lanes that hold a lock that they took without a fence, None for none. released: the lanes that
    have given back a lock since the last barrier, None for none.
    """

    access: MemoryOp
    address: Array
    offset: int
    mask: Array | None
    data: Sequence[Value]
    role: str = ""
    locked: Array | None = None
    released: Array | None = None
    groups: int | Array = 0
    left: tuple[int, int] | None = None


class Sync(NamedTuple):
    """A logged synchronisation by the lanes of a mask (None: all lanes).

    kind 'sync': the lanes synchronised with lanes of their warp; what: these lanes as bits (None: the whole warp). kind
    'acquire': the lanes have polled, so earlier accesses of all threads are ordered before their next accesses; what:
    None for all accesses until now, or an array (blocks, threads) of fence numbers: only the accesses before that fence
    are ordered. kind 'fence': a fence; what: the number of the fence.
    """

    kind: Literal["sync", "acquire", "fence"]
    mask: Array | None
    what: Any


Log = list[LogEntry | Sync]


class Races:
    """The log of accesses to a memory, and its examination; base class for shared and for global memory.

    memory: the state space. width: the bytes of a granule. span: the difference between the numbers of the same granule
    in two consecutive blocks.
    """

    memory: str
    width: int
    span: int

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.chunk: Chunk = None  # type: ignore[assignment]
        self.serial = 0
        self.advised = AdvisedBarriers(machine.code)
        self.several: set[int] = set()  # the numbers of the stores by which several threads write a granule at once
        self.polling: set[int] = set()  # the numbers of the accesses that poll
        self.base = 0  # the start address of the examined memory

    # The log.

    def start(self, chunk: Chunk) -> None:
        """Begin a chunk of blocks."""
        self.chunk = chunk
        self.clear()

    def clear(self) -> None:
        """Forget all logs."""
        self.logs: dict[int, Log] = {}  # by the address of the memory, 0 for shared memory
        self.writes: set[int] = set()  # the memories that are written
        self.bytes = self.count = 0

    def barrier(self) -> None:
        """End the interval at a barrier of the block."""
        if self.logs:
            self.flush(True)

    def flush(self, ends: bool) -> None:
        """Examine and empty the logs; `ends`: whether the interval ends here."""
        raise NotImplementedError

    def sync(self, kind: Literal["sync", "acquire", "fence"], mask: Array | None, what: Any) -> None:
        """Append a `Sync` to each log; consecutive polls are merged, because their order does not matter."""
        mask = self.none_if_full(mask)
        for entries in self.logs.values():
            lanes, last = mask, entries[-1] if entries else None
            if isinstance(last, Sync) and last.kind == kind == "acquire" and what is None and last.what is None:
                entries.pop()
                lanes = None if mask is None or last.mask is None else mask | last.mask
            entries.append(Sync(kind, lanes, what))

    def append(self, entry: LogEntry, base: int, words: int, own: int) -> bool:
        """Append an access to the log of its memory, restricted to the lanes that hold no lock; return whether such
        lanes are left.

        base, words, own: see `Releases.note`.
        """
        machine, access, heard = self.machine, entry.access, None
        entries = self.logs.setdefault(base, [])
        if machine.releases is not None:
            counts = access.target in machine.code.read and access.update not in ("cas", "exch")
            polls, heard = machine.releases.note(base, words, own, entry, counts)
            entry.role = "poll" if polls else entry.role
        number = access.numbers[self.memory]
        if machine.locks is not None:
            if access.kind != "atomic":
                entry.mask = machine.locks.unlocked(entry.mask)
                if not entry.mask.any():
                    return False
            machine.locks.note(entry, number)
        self.bytes += sum(part.nbytes for part in (entry.address, entry.mask, heard) if isinstance(part, np.ndarray))
        entries.append(entry)
        if access.polls:
            self.polling.add(number)
        if access.kind != "store":
            entry.data = ()
        if heard is not None:
            machine.order("acquire", entry.mask, heard)
        if access.kind != "load":
            self.writes.add(base)
        self.count += 1
        if self.bytes > LOG_BYTES or self.count > LOG_LENGTH:
            self.flush(False)
        return True

    def none_if_full(self, mask: Array | None) -> Array | None:
        """Return the mask, but None if it contains all threads of the blocks."""
        return None if mask is self.chunk.root else mask

    def lane_values(self, event: Event) -> Array:
        """Return for each element of a store's event a number; lanes that store equal data have equal numbers."""
        total: Any = np.uint64(0)
        for value in event.entry.data:
            bits = as_array(value, np.dtype(f"u{event.entry.access.width}")).astype(np.uint64)
            total = total * np.uint64(1000003) + bits
        return broadcast(total, self.chunk.shape).reshape(-1)[event.lanes]

    def name(self, entry: LogEntry, offset: int) -> str:
        """Return the name of the accessed element for messages; `offset`: in bytes from the memory's start."""
        width, space, places = entry.access.width, self.machine.space, self.machine.hazards.places
        if self.memory == "shared":
            return places.shared(offset, width, entry.access.location.line)
        return in_region(space.slots[self.base >> SLOT_BITS], offset, width)

    def event(self, entry: LogEntry, time: int) -> Event:
        """Return the event for a log entry that has this time."""
        chunk, mask = self.chunk, self.chunk.root if entry.mask is None else entry.mask
        lanes = np.flatnonzero(chunk.lanes(mask))
        address = broadcast(flat(entry.address, entry.offset - self.base), chunk.shape).reshape(-1)[lanes]
        places = granules(address, entry.access.size, self.width)
        lanes = np.repeat(lanes, places.size // max(1, lanes.size))
        blocks = lanes // chunk.threads
        places, threads = places + blocks * self.span, lanes - blocks * chunk.threads
        value = entry.data[0] if len(entry.data) == 1 else None
        if value is not None and value.size == 1:  # all lanes write the same value
            name = int(as_array(value, UNSIGNED[8 * value.dtype.itemsize]).flat[0]) & 0x7FFFFFFF
        else:
            self.serial += 1
            name = -self.serial
        number = entry.access.numbers[self.memory]
        return Event(entry, places, places, threads.astype(np.int32), lanes, time, number, name)

    def steps(self, entries: Log, start: int) -> Iterator[Sync | Event]:
        """Yield the log with its accesses as events; the first entry has the time `start`."""
        for time, entry in enumerate(entries, start):
            yield entry if isinstance(entry, Sync) else self.event(entry, time)

    # The examination.

    def new_shadow(self, granules: int) -> Shadow:
        """Return a shadow without accesses."""
        self.advised.clear()
        return Shadow(granules, WarpOrder(*self.chunk.shape), self.lane_values)

    def examine(
        self, granules: int, steps: Callable[[], Iterable[Sync | Event]], entries: Log
    ) -> list[Callable[[], None]]:
        """Examine the log of a whole interval; return the result of `replay`.

        The log is examined again after each new cure, to leave out the races that this cure removes. granules: how many
        numbers the granules have; steps: a function that returns the log with its accesses as events.
        """
        while True:
            faults = self.replay(self.new_shadow(granules), steps(), entries, 1, True)
            if not self.advised.news:
                return faults

    def replay(
        self, shadow: Shadow, steps: Iterable[Sync | Event], entries: Log, start: int, stops: bool
    ) -> list[Callable[[], None]]:
        """Apply a log to a shadow, and return a list of functions; each records one race when it is called.

        steps: the log with its accesses as events; entries: the log itself. start: the time of the first entry. stops:
        whether to stop as soon as a new barrier is advised.
        """
        shadow.several, known = self.several, len(self.several)
        faults: list[Callable[[], None]] = []
        for time, step in enumerate(steps, start):
            if isinstance(step, Sync):
                shadow.order.note(time, step)
                continue
            conflicts = shadow.conflicts(step, self.advised.of(step.entry.access, time))
            if conflicts is not None:
                faults.append(self.race_recorder(step, conflicts, shadow, entries, start))
                if stops and self.advised.news:
                    break
            shadow.note(step, self.advised.times)
        self.advised.news |= len(self.several) > known
        return faults

    def race_recorder(
        self, event: Event, conflicts: Conflicts, shadow: Shadow, entries: Log, start: int
    ) -> Callable[[], None]:
        """Return a function that records the race of an event when it is called.

        conflicts: the result of `Shadow.conflicts`. entries: the log; its first entry has the time `start`. From now
        on, other races that the advised barrier removes are not reported.
        """
        machine, chunk, entry, access = self.machine, self.chunk, event.entry, event.entry.access
        bad, others, numbers = conflicts
        # Races between two warps; the message names one of these if there are any.
        apart = bad & (event.threads >> 5 != (others & 1023) >> 5)
        first = int(np.argmax(apart if apart.any() else bad))
        lanes = int(bad.reshape(-1, max(1, access.size // self.width)).any(axis=1).sum())
        lane, number, party = int(event.lanes[first]), int(numbers[first]), int(others[first])
        block, thread = divmod(lane, chunk.threads)
        other_thread, before = party & 1023, entries[: event.time - start]
        offset = int(event.places[first] % self.span) * self.width
        location, past = machine.code.accesses[number].location, machine.code.accesses[number].kind
        scope = WARP if thread // 32 == other_thread // 32 else BLOCK
        subject, other = f"thread {chunk.thread_index(thread)}", f"thread {chunk.thread_index(other_thread)}"
        verb, past_verb = (self.verb(one) for one in (access.numbers[self.memory], number))
        lack, advice, gap, reach = f"without {CURES[scope]} in between", "", None, scope
        if aliased := same_memory(machine.code, offset) if self.memory == "shared" else "":
            scope, lack = GRID, aliased.removesuffix(".")
        elif cure := self.pair_cure(entry, number, (block, thread), (block, other_thread), offset, before):
            scope, (lack, advice) = GRID, cure
        elif (
            "store" in (access.kind, past)
            and not self.several.isdisjoint((number, *access.numbers.values()))
            and {access.location.ptx_line, location.ptx_line} <= self.updated
        ):
            lack, advice = "at the same time", UPDATE
        elif party & SAME_INSTRUCTION:
            lack, advice = "at the same time", self.index_advice(event, thread, other_thread)
            if self.memory == "shared":
                array = machine.hazards.places.row_length(offset, access.location.line)
                advice = self.row_advice(chunk.thread_index(thread), chunk.thread_index(other_thread), *array) or advice
        elif party & ASYNC_COPY:
            other = "its own asynchronous copy" if other_thread == thread else f"{other}'s asynchronous copy"
            when = "the next" if access.location.line == location.line else f"line {access.location.line}"
            lack = "before the copy is waited for"
            advice = self.copy_advice(before, number, (block, other_thread)) or (
                f"let the copying thread wait for its copies before {when} (__pipeline_wait_prior() or "
                "cp.async.wait_group)"
            )
            advice += "" if other_thread == thread else f", and put {CURES[scope]} after the wait"
        elif shadow.order.acquired is not None and shadow.order.acquired.flat[lane]:
            advice = f"put __threadfence() after line {location.line}, before the flag is set"
        elif (
            self.memory == "shared"
            and machine.code.dynamic
            and offset >= machine.code.static_shared
            and VERBS["store"] == verb == past_verb
            and location.line != access.location.line
        ):
            advice = OVERLAP.format(CURES[scope], *sorted((location.line, access.location.line)))
        elif scope == WARP and self.synchronized(number, (block, other_thread), (block, thread), before):
            scope, (lack, advice) = GRID, NOT_NAMED
        else:
            reach, gap = self.advise_barrier(access, number, (block, other_thread), scope, before, start)
            own = self.last_access_of(number, (block, other_thread), offset, before)
            if own != number:
                location = machine.code.accesses[own].location
                upper, lower = sorted((location, access.location))
                gap = find_gap(machine, upper, lower, scope)
        if entry.role == "copy":
            subject += "'s asynchronous copy"
        lines = "the same line" if location.line == access.location.line else f"line {location.line}"
        at, place = chunk.block_index(block), self.name(entry, offset)
        text = f"{subject} {verb} {place}, which {other} {past_verb} in {lines}, {lack} (block {at})"
        copied = _last(before, number, (block, other_thread), "done") >= 0

        def record() -> None:
            machine.hazards.cures[access.location.file, access.location.line].add(advice, gap, reach, copied)
            machine.hazards.add("race", access.location, lanes, at, chunk.thread_index(thread), text, scope)

        return record

    def synchronized(self, number: int, party: Lane, own: Lane, before: Log) -> bool:
        """Return whether two threads of a warp have executed a warp-wide synchronisation with a mask since an access.

        number, party: the access and its lane; own: the other lane; before: the log up to the other access.
        """
        for entry in before[_last(before, number, party) + 1 :]:
            if isinstance(entry, Sync) and entry.kind == "sync" and entry.what is not None:
                lanes = self.chunk.lanes(entry.mask)
                if lanes[party] and lanes[own]:
                    return True
        return False

    def verb(self, number: int) -> str:
        """Return the verb of an access in messages; `number`: the number of the access."""
        access = self.machine.code.accesses[number]
        return VERBS[FREE if access.what == FREE else access.kind]

    def row_advice(self, thread: Index3, other: Index3, name: str, row: int) -> str:
        """Return the cure if two threads access one element because the rows of an array are shorter than the block is
        wide, else ''.

        name, row: the array, and the length of its rows in elements, 0 without rows.
        """
        x, y = thread[0] - other[0], thread[1] - other[1]
        width = self.machine.block[0]
        if not row or not y or x + row * y or row >= width:
            return ""
        return f"a row of {name} has {row} elements, and the block is {width} threads wide: make the rows longer"

    def copy_advice(self, before: Log, number: int, party: Lane) -> str:
        """Return the cure if a thread waited for its copies but this wait left one copy pending, else ''.

        before: the log up to the race. number, party: the access that copies, and its lane.
        """
        at = _last(before, number, party, "copy")
        copy = before[at] if at >= 0 else None
        if not isinstance(copy, LogEntry) or copy.left is None or copy.left[1] > len(before):
            return ""
        line = f"line {copy.access.location.line}"
        if not np.broadcast_to(copy.groups, self.chunk.shape)[party]:
            return (
                f"the wait does not include this copy, which no group contains: put __pipeline_commit() (or "
                f"cp.async.commit_group) after {line}, before the wait"
            )
        newest = "newest group" if copy.left[0] == 1 else f"{copy.left[0]} newest groups"
        if not copy.left[0]:
            return ""
        return (
            f"the wait leaves the {newest} pending, with the copy of {line}: after the last copy wait for all groups, "
            "by __pipeline_wait_prior(0) or cp.async.wait_group 0"
        )

    def index_advice(self, event: Event, thread: int, other: int) -> str:
        """Return the cure if two threads write one element by the same instruction, from what they have in common."""
        (x, y, z), (other_x, other_y, other_z) = map(self.chunk.thread_index, (thread, other))
        several = different(event.places).size
        if (x, z) == (other_x, other_z) and 1 < several <= self.machine.block[0]:
            same, own = "for all threadIdx.y", "add threadIdx.y * blockDim.x to it"
        elif y == other_y and (x - other_x) % 32 == 0 and several == 32:
            same, own = "in all warps", "compute it from threadIdx.x, not from the lane"
        elif several == 1 and self.memory == "shared":
            return f"if each thread needs its own value, declare it without __shared__; else {WRITE}"
        else:
            return WRITE
        return f"the index is the same {same}: if each thread has its own element, {own}; else {WRITE}"

    def last_access_of(self, number: int, party: tuple[int, int], offset: int, before: Log) -> int:
        """Return the number of the access by which a thread last accessed a byte of the examined memory.

        A shadow keeps only the number of the last access by any thread: this is `number`, the default. party: (block in
        the chunk, thread). offset: the byte. before: the log up to the race.
        """
        if _last(before, number, party) >= 0:
            return number
        kind = self.machine.code.accesses[number].kind
        for entry in reversed(before):
            if not isinstance(entry, LogEntry) or entry.access.kind != kind:
                continue
            own_number = entry.access.numbers.get(self.memory)
            if own_number is None or not _matches(entry, own_number, party):
                continue
            start = int(broadcast(flat(entry.address, entry.offset), self.chunk.shape)[party]) - self.base
            if start <= offset < start + entry.access.size:
                return int(own_number)
        return number

    def pair_cure(
        self, entry: LogEntry, number: int, own: Lane, party: Lane, offset: int, before: Log
    ) -> tuple[str, str] | None:  # fmt: skip
        """Return (what the accesses lack, the cure) if a race is due to a lock, or if two threads may swap elements;
        else None.

        entry, own: the later access and its lane. number, party: the earlier access and its lane. offset: the byte.
        before: the log up to the later access.
        """
        locks, line = self.machine.locks, entry.access.location.line
        if locks is not None:
            numbers = number, entry.access.numbers[self.memory]
            kinds = {self.machine.code.accesses[one].kind: one for one in numbers}
            if (kinds.get("atomic", -1) in self.polling) and kinds.get("store", -1) in locks.unfenced:
                return "without an atomic", RELEASE
            if entry.locked is not None and entry.locked[own] and number in locks.unfenced:
                cure = "put __threadfence() after taking the lock and before giving it back"
                return "under a lock without fences", cure
            if entry.released is not None and entry.released[own] and entry.released[party]:
                return "after the lock was given back", f"put line {line} before the lock is given back"
        stores = self.verb(entry.access.numbers[self.memory]) == VERBS["store"]
        if stores and swap_partner(before, offset + self.base, own, self.chunk):
            return "at the same time", SWAP
        return None

    def advise_barrier(
        self, access: MemoryOp, number: int, party: tuple[int, int], scope: int, before: Log, start: int
    ) -> tuple[int, Gap]:
        """Return (scope, place) of the barrier that removes a race, and add this barrier to `advised`.

        access: the later access. number, party: the earlier access, and its (block in the chunk, thread). before: the
        log up to the later access; start: the time of its first entry.
        """
        earlier, later = self.machine.code.accesses[number], access.location
        stop = _last(before, number, party)
        scope = self.advised.reach((later.file, later.line), scope)
        gap = find_gap(self.machine, earlier.location, later, scope)
        if gap.kind == "same" and (
            access.kind == "load"
            or earlier.kind != "load"
            or any(
                isinstance(past, LogEntry) and past.access.kind == "store" and past.access.location.line == later.line
                for past in before[stop + 1 :]
            )
        ):
            # The earlier access belongs to another iteration, or to another statement in the same line.
            gap = gap.in_loop or gap._replace(kind="between")
        scope = self.advised.reach(place_of(gap), scope)
        # The index of the last logged access that is before the barrier.
        at = len(before) - 1
        while at > stop and (
            isinstance(one := before[at], Sync) or gap.span[0] <= one.access.location.line <= gap.span[1]
        ):
            at -= 1
        self.advised.stand(later, gap)
        self.advised.add(scope, start + at)
        nearest = before[at] if at >= 0 else None
        if gap.kind == "between" and isinstance(nearest, LogEntry):
            nearer = find_gap(self.machine, nearest.access.location, later, scope)
            if nearer.kind == "between" and nearer.before == gap.before and nearer.after > gap.after:
                gap = nearer._replace(around=tuple(dict.fromkeys((*gap.around, *nearer.around))))
        return scope, gap

    @cached_property
    def updated(self) -> set[int]:
        """The PTX lines of updates without an atomic, such as `x[i] += 1`: the line of the load and the line of the
        store.

        The store uses the same address register as the load, and some path leads from the load to it.
        """
        blocks = self.machine.code.blocks
        kinds = {access.location.ptx_line: access.kind for access in self.machine.code.accesses}
        # Keyed by the register and the offset of an address: (basic block, PTX line) of its loads and of its stores.
        places: dict[tuple[int, int], dict[str, list[tuple[Block, int]]]] = defaultdict(lambda: defaultdict(list))
        for block in blocks:
            for op in block.ops:
                if op.address >= 0:
                    kind = kinds.get(op.line.ptx_line, "")
                    places[op.address, op.offset][kind].append((block, op.line.ptx_line))
        lines = set()
        for made in places.values():
            for start, load in made["load"] if made["store"] else ():
                after = reachable(blocks, following_blocks(start), range(len(blocks)))
                for block, store in made["store"]:
                    if block.number in after or (block is start and load < store):
                        lines |= {load, store}
        return lines


def _matches(entry: LogEntry | Sync, number: int, lane: Lane) -> TypeGuard[LogEntry]:
    """Return whether a log entry is the access with this number, and a lane (block, thread) takes part in it."""
    if not isinstance(entry, LogEntry) or number not in entry.access.numbers.values():
        return False
    mask = entry.mask
    return mask is None or bool(mask[lane[0] if mask.shape[0] > 1 else 0, lane[1] if mask.shape[1] > 1 else 0])


def _last(log: Log, number: int, lane: Lane, role: str = "") -> int:
    """Return the index of the last entry of a log that `_matches`, with this role if one is given; -1 for none."""
    for at in reversed(range(len(log))):
        entry = log[at]
        if _matches(entry, number, lane) and role in ("", entry.role):
            return at
    return -1
