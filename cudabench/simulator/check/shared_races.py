"""Races within a block over shared memory, and reads of shared memory that nobody has written."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from cudabench.simulator.check.dynamic_shared import same_memory
from cudabench.simulator.check.races import (
    LOG_BYTES,
    LOG_LENGTH,
    Conflict,
    Fence,
    LogEntry,
    Races,
    WarpSync,
    narrow_all,
    narrow_any,
    uniform,
    widest,
)
from cudabench.simulator.check.releases import WORD
from cudabench.simulator.check.shadow import Shadow, WarpOrder
from cudabench.simulator.memory import flat
from cudabench.simulator.values import INT64, Affine, Array, Chunk, Key, Value, broadcast, different

if TYPE_CHECKING:
    from cudabench.simulator.isa.access import MemoryOp
    from cudabench.simulator.machine import Machine

LONG_LOG = 1 << 16


class SharedRaces(Races):
    """Races and uninitialised reads in shared memory."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self.size = machine.shared_size
        self.width = min(machine.code.granule["shared"], 8)
        self.granules = -(-self.size // self.width) if self.size else 0
        self.plan = machine.plan
        self.shadow: Shadow | None = None
        self.synced: WarpOrder | None = None
        self.time = 0
        self.held = 0  # bytes of what the logged stores write
        self.told = True  # whether each entry can be looked up

    def start(self, chunk: Chunk) -> None:
        """Begin a chunk: nothing is initialised."""
        self.chunk = chunk
        self.entries.clear()
        self.bytes = self.held = 0
        self.told = True
        self.shadow = self.synced = None
        self.asynchronous = False
        self.flying: list[LogEntry] = []  # asynchronous copies that nobody has waited for yet
        self.state = self.intern(np.zeros((1, self.granules), dtype=bool))

    def intern(self, state: Array) -> Array:
        """Return the one array for states of equal content; one row stands for all blocks."""
        if state.shape[0] > 1:
            if not (state == state[0]).all():
                return state
            state = state[:1].copy()
        return self.plan.states.setdefault(state.tobytes(), state)

    def log(
        self,
        access: MemoryOp,
        address: Value,
        offset: int,
        mask: Array | None,
        data: Sequence[Value],
        name: bytes | None = None,
    ) -> None:
        """Log an access whose address is in bounds for all active lanes; name: an array of addresses as bytes."""
        if access.guess:
            return
        polls, heard = False, None
        if self.machine.releases is not None:
            each = -(-self.size >> WORD)
            polls, heard = self.note_strong(-1, each * self.chunk.blocks, access, address, offset, mask, data, each)
        if self.machine.locks is not None and access.kind != "atomic":
            mask = self.machine.locks.outside(mask)
            if not mask.any():
                return
        if type(address) is Affine:
            c = address.coefficients
            if c is not None and (c[3] or c[4] or c[5]):
                address, offset = address.array(self.chunk, INT64) + offset, 0
                place: Hashable = None
            else:
                place = (address.base + offset, c)
        elif address.shape[0] == 1:
            place = address.tobytes() if name is None else name
        else:
            place = None
        key: Key | None = None
        written: Any = None
        if access.kind != "store":
            data = ()
        else:
            written = uniform(data)
            for value in data:
                if type(value) is np.ndarray:
                    self.held += value.nbytes
        if place is not None:
            key = (access.number, place, None if mask is None else self.mask_key(mask), written)
            self.bytes += 64 if type(address) is Affine else address.nbytes
        else:
            self.bytes += address.nbytes
        if mask is not None:
            self.bytes += mask.nbytes
        entry = LogEntry(access, address, offset, mask, data, key)
        if self.machine.locks is not None:
            self.machine.locks.note(entry, access.numbers["shared"])
        self.entries.append(entry)
        if self.asynchronous:
            entry.role = "copy"
            self.flying.append(entry)
            entry.key = None if key is None else (*key, "copy")
            key = entry.key
        if polls:
            entry.role = "poll"
            key = entry.key = None if key is None else (*key, "poll")
            if heard is not None:
                self.bytes += heard.nbytes
                self.machine.acquire(mask, heard)
        if key is None:
            self.told = False
        self.bound()

    def append(self, entry: LogEntry, nbytes: int) -> None:
        """Log an access as one before it; nbytes: what its address and mask take."""
        self.entries.append(entry)
        self.bytes += nbytes
        self.bound()

    def stored(self, like: LogEntry, data: Sequence[Value]) -> LogEntry:
        """Return the entry of a store to the same places as another one."""
        assert like.key is not None
        for value in data:
            if type(value) is np.ndarray:
                self.held += value.nbytes
        return LogEntry(like.access, like.address, like.offset, like.mask, data, (*like.key[:3], uniform(data)))

    def bound(self) -> None:
        """Examine a log that is too long."""
        if self.bytes > LOG_BYTES or len(self.entries) > LOG_LENGTH:
            # A log of which each entry can be looked up is examined for one block, and may be longer.
            if self.bytes <= LOG_BYTES and self.told and self.held <= LOG_BYTES and len(self.entries) <= LONG_LOG:
                return
            self.flush(False)

    def mask_key(self, mask: Array | None) -> Hashable:
        """Return what a remembered examination has to know about an access's active threads."""
        if mask is None or mask is self.chunk.root:
            return None
        kept = self.chunk.masks
        if mask.shape[0] == 1:
            found = None if kept is None else kept.names.get(id(mask))
            return bytes(mask.tobytes()) if found is None else found
        return mask.any(axis=0).tobytes(), mask.all(axis=0).tobytes()

    def warp_sync(self, mask: Array | None, named: Array | None) -> None:
        """Log that lanes meet those of their warp that they name (bits; None: all)."""
        if self.entries or self.shadow is not None:
            self.entries.append(WarpSync(mask, named))

    def acquire(self, mask: Array | None, fences: Array | None = None) -> None:
        """Log that lanes have polled; fences: as of `Acquire`."""
        if self.entries or self.shadow is not None:
            self.note_acquire(self.entries, mask, fences)

    def fence(self, number: int) -> None:
        """Log a fence."""
        if self.entries or self.shadow is not None:
            self.entries.append(Fence(number))

    def commit(self, mask: Array | None) -> None:
        """Close the active threads' groups of the asynchronous copies begun so far."""
        new: Any = 1 if self.whole(mask) is None else mask
        for entry in self.flying:
            entry.groups = entry.groups + new

    def wait(self, count: int | None, mask: Array | None) -> None:
        """Complete all groups of the active threads but each thread's `count` latest; None: all copies."""
        if count is None:
            self.commit(mask)
            count = 0
        mask = self.whole(mask)
        flying, self.flying = self.flying, []
        for entry in flying:
            ended: Any = entry.groups > count
            if mask is not None:
                ended = mask & ended
            if type(ended) is bool:
                done, left = ended, not ended
            else:
                own: Any = np.True_ if entry.mask is None else entry.mask
                done, left = (own & ended).any(), (own & ~ended).any()
            if done:
                self.entries.append(self.part(entry, "done", ended if left else None))
            if left:
                self.flying.append(self.part(entry, "copy", ~ended) if done else entry)

    def part(self, entry: LogEntry, role: str, lanes: Array | None) -> LogEntry:
        """Return a copy's entry in a role, for some of its threads or (None) for all."""
        mask, key = entry.mask, entry.key
        if lanes is not None:
            mask = lanes if mask is None else mask & lanes
        found = LogEntry(entry.access, entry.address, entry.offset, mask, entry.data, None)
        found.role, found.groups = role, entry.groups
        found.key = None if key is None else (*key, role, None if lanes is None else self.mask_key(mask))
        return found

    def written(self, rows: Array, offsets: Array, size: int) -> None:
        """Note that places in the memory of some of the chunk's blocks were written from outside of them."""
        if not rows.size:
            return
        state = np.repeat(self.state, self.chunk.blocks, axis=0) if self.state.shape[0] == 1 else self.state.copy()
        steps = np.arange(max(1, size // self.width))
        state[rows[:, None], offsets[:, None] // self.width + steps] = True
        self.state = self.intern(state)

    def barrier(self) -> None:
        """End the interval."""
        if not self.entries and self.shadow is None:
            return
        self.flush(True)
        # Copies that nobody has waited for go on writing after the barrier.
        self.entries.extend(self.flying)

    def finish(self) -> None:
        """End the last interval of a chunk."""
        self.flying = []
        self.barrier()

    def flush(self, ends: bool) -> None:
        """Examine the log; `ends` forgets it, else its accesses stay to be raced with."""
        entries = self.entries
        logged, self.bytes = self.bytes, 0
        self.entries, self.held, self.told = [], 0, True
        if self.shadow is None and ends and entries:
            keys = tuple(entry.key for entry in entries)
            if None not in keys and self.state.shape[0] == 1:
                key = (id(self.state), keys)
                found = self.plan.clean_shared.get(key)
                if found is None and self.one_block(entries):
                    found = self.plan.clean_shared[key] = self.intern(self.after)
                    self.plan.remembered += logged
                if found is not None:
                    wide = self.chunk.blocks > 1 and any(
                        isinstance(e, LogEntry)
                        and e.access.kind != "load"
                        and e.mask is not None
                        and e.mask.shape[0] > 1
                        for e in entries
                    )
                    if not wide:
                        self.state = found
                        return
                    self.state = self.initialise(entries)
                    return
            if self.quiet(entries):
                self.state = self.initialise(entries)
                return
        if entries or self.shadow is not None:
            self.all_blocks(entries, ends)
        if ends:
            self.shadow = self.synced = None

    def quiet(self, entries: list[LogEntry | WarpSync]) -> bool:
        """Return whether the kinds of accesses alone exclude races, and all that is read is initialised."""
        kinds = {entry.access.kind for entry in entries if isinstance(entry, LogEntry)}
        if kinds - {"load"} and kinds - {"atomic"}:
            return False
        state = self.state.all(axis=0)
        for entry in entries:
            if isinstance(entry, WarpSync):
                continue
            address = flat(entry.address, entry.offset, self.chunk)
            mask = entry.mask
            if mask is not None:
                shape = np.broadcast_shapes(address.shape, mask.shape)
                address = broadcast(address, shape)[broadcast(mask, shape)]
            if not address.size:
                continue
            low, high = int(address.min()) // self.width, (int(address.max()) + entry.access.size - 1) // self.width
            if not state[low : high + 1].all():
                return False
        return True

    def initialise(self, entries: list[LogEntry | WarpSync]) -> Array:
        """Return the state after the stores and atomics of the log, exactly for each block."""
        state = self.state
        for entry in entries:
            if isinstance(entry, WarpSync) or entry.access.kind == "load":
                continue
            if state.all():
                break
            if state.shape[0] == 1:
                state = np.repeat(state, self.chunk.blocks, axis=0)
            elif state is self.state:
                state = state.copy()
            granules, _, _ = self.expand(entry, True)
            state.reshape(-1)[granules] = True
        return self.intern(state)

    def expand(self, entry: LogEntry, wide: bool, mask: Array | None = None) -> tuple[Array, Array, int]:
        """Return (granules, threads, granules per lane) of the active lanes, lanes ascending."""
        chunk = self.chunk
        address = flat(entry.address, entry.offset, chunk)
        if wide:
            shape = chunk.shape
            mask = entry.mask
        else:
            shape = (1, chunk.threads)
            if mask is None:
                mask = narrow_any(entry.mask)
        first = broadcast(address // self.width, shape)
        if wide:
            first = first + (np.arange(chunk.blocks, dtype=np.int64) * self.granules).reshape(-1, 1)
        threads = broadcast(np.arange(chunk.threads, dtype=np.int32), shape)
        if mask is None:
            mask = chunk.root
        if mask is None:
            places, who = first.reshape(-1), threads.reshape(-1)
        else:
            chosen = broadcast(mask, shape)
            places, who = first[chosen], threads[chosen]
        count = max(1, entry.access.size // self.width)
        if count > 1:
            places = (places[:, None] + np.arange(count, dtype=np.int64)).reshape(-1)
            who = np.repeat(who, count)
        return places, who, count

    def one_block(self, entries: list[LogEntry | WarpSync]) -> bool:
        """Examine the log as if all blocks did what any does; return whether that is clean."""
        shadow = Shadow(self.granules)
        state = self.state[0].copy()
        order = WarpOrder(1, self.chunk.threads)
        again: set[Key] = set()
        for time, entry in enumerate(entries, 1):
            if isinstance(entry, WarpSync):
                self.order_by(order, time, entry, narrow_all(entry.mask))
                again.clear()
                continue
            kind = entry.access.kind
            if entry.role or (kind == "store" and uniform(entry.data) is not None):
                again.clear()
            elif kind == "load" and entry.key is not None:
                # The same lanes read the same places again: who wrote there meanwhile has raced with the first time.
                # That is forgotten where the lanes write there themselves, but then that is what others race with,
                # unless they may write the same value; and a copy is nobody's, also not its own thread's.
                if entry.key in again:
                    continue
                again.add(entry.key)
            # A copy has ended for sure where it has in every block.
            mask = narrow_all(entry.mask) if entry.role == "done" else None
            granules, threads, _ = self.expand(entry, False, mask)
            if kind != "store" and not state[granules].all():
                return False
            values = None
            if kind == "store":
                values = self.lane_values(entry, self.chunk.shape)
                if values is not None and not self.places_differ(entry):
                    return False
            number = entry.access.numbers["shared"]
            value = self.value_name(entry.data)
            event = entry.access, granules, threads, threads, order
            if shadow.conflicts(*event, number, value, None, entry.role) is not None:
                return False
            shadow.note(*event, time, number, value, entry.role, (0, 0))
            if kind != "load":
                every = narrow_all(entry.mask)
                if every is not None and entry.mask is not None and entry.mask.shape[0] > 1:
                    if every.any():
                        granules, _, _ = self.expand(entry, False, every)
                        state[granules] = True
                else:
                    state[granules] = True
        self.after = state.reshape(1, -1)
        return True

    def places_differ(self, entry: LogEntry) -> bool:
        """Return whether each lane of a store writes to a place of its own."""
        granules, _, _ = self.expand(entry, False)
        return bool(different(granules).size == granules.size)

    def all_blocks(self, entries: list[LogEntry | WarpSync], ends: bool) -> None:
        """Examine the log exactly, block by block (in one go)."""
        fresh = self.shadow is None and ends
        while True:
            if self.shadow is None:
                self.shadow = Shadow(self.granules * self.chunk.blocks)
                self.synced = WarpOrder(self.chunk.blocks, self.chunk.threads)
                self.time = 0
                self.cuts.clear()
            state, found = self.run_through(entries, fresh)
            if not (fresh and self.cuts.news):
                break
            self.shadow = None  # what the barrier orders that was advised is not told
        self.state = self.intern(state)
        for record in found:
            record()

    def run_through(self, entries: list[LogEntry | WarpSync], stops: bool) -> tuple[Array, list[Callable[[], None]]]:
        """Apply the log to the shadow; return which granules are initialised then, and what records the faults.

        stops: end where a barrier is advised that was not known.
        """
        chunk, shadow, order = self.chunk, self.shadow, self.synced
        assert shadow is not None
        assert order is not None
        shadow.several, known = self.several, len(self.several)
        faults: list[Callable[[], None]] = []
        state = self.state
        state = np.repeat(state, chunk.blocks, axis=0) if state.shape[0] == 1 else state.copy()
        flags = state.reshape(-1)
        start = self.time + 1
        for index, entry in enumerate(entries):
            self.time += 1
            if isinstance(entry, WarpSync):
                self.order_by(order, self.time, entry, entry.mask)
                continue
            kind = entry.access.kind
            granules, threads, count = self.expand(entry, True)
            if not granules.size:
                continue
            blocks = granules // self.granules
            if kind != "store":
                unset = ~flags[granules]
                if unset.any():
                    faults.append(partial(self.uninitialised, entry, granules, threads, unset, count))
            values = None
            if kind == "store":
                values = self.lane_values(entry, chunk.shape)
                if values is not None:
                    mask = entry.mask if entry.mask is not None else chunk.root
                    values = values.reshape(-1) if mask is None else values[broadcast(mask, chunk.shape)]
                    values = np.repeat(values, count)
            number = entry.access.numbers["shared"]
            lanes_ = blocks * chunk.threads + threads
            event, value = (entry.access, granules, threads, lanes_, order), self.value_name(entry.data)
            found = shadow.conflicts(*event, number, value, values, entry.role, self.cuts.of(entry.access, self.time))
            if found is not None:
                bad, others, numbers = found
                place = widest(bad, threads, others)
                lanes = int(bad.reshape(-1, count).any(axis=1).sum())
                offset = int(granules[place] % self.granules) * self.width
                conflict = Conflict(
                    entry, lanes, int(threads[place]), offset, int(numbers[place]), int(others[place]),
                    order.has_heard(int(lanes_[place])),
                )  # fmt: skip
                faults.append(
                    self.judge(conflict, self.place(entry, offset), int(blocks[place]), index, entries, start)
                )
                if stops and self.cuts.news:
                    break
            shadow.note(*event, self.time, number, value, entry.role, self.cuts.times)
            if kind != "load":
                flags[granules] = True
        self.cuts.news |= len(self.several) > known
        return state, faults

    def aliased(self, conflict: Conflict) -> str:
        """Return what says that the arrays which a race is about are one memory, an empty text where they are not."""
        return same_memory(self.machine.code, conflict.granule)

    def place(self, entry: LogEntry, offset: int) -> str:
        """Return a place that an access touches, for a message."""
        return self.machine.hazards.places.shared(offset, entry.access.width, entry.access.location.line)

    def uninitialised(self, entry: LogEntry, granules: Array, threads: Array, unset: Array, count: int) -> None:
        """Record reads of shared memory that no thread has written."""
        place = int(np.argmax(unset))
        lanes = int(unset.reshape(-1, count).any(axis=1).sum())
        block = self.chunk.block_index(int(granules[place] // self.granules))
        thread = self.chunk.thread_index(int(threads[place]))
        name = self.place(entry, int(granules[place] % self.granules) * self.width)
        self.machine.hazards.add(
            "uninitialized-shared", entry.access.location, lanes, block, thread,
            f"thread {thread} of block {block} reads {name}, which no thread has written.",
        )  # fmt: skip
