"""Races within a block over shared memory, and reads of shared memory that nobody has written."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from cudabench.simulator.check.dynamic_shared import same_memory
from cudabench.simulator.check.races import (
    LOG_BYTES,
    LOG_LENGTH,
    Conflict,
    LogEntry,
    Races,
    WarpSync,
    narrow_all,
    uniform,
)
from cudabench.simulator.check.releases import WORD
from cudabench.simulator.check.shadow import Event, Shadow, WarpOrder
from cudabench.simulator.memory import flat
from cudabench.simulator.values import INT64, Affine, Array, Chunk, Key, Value, broadcast

if TYPE_CHECKING:
    from cudabench.simulator.isa.access import MemoryOp
    from cudabench.simulator.machine import Machine

LONG_LOG = 1 << 16


class SharedRaces(Races):
    """Races and uninitialised reads in shared memory."""

    memory = "shared"

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self.size = machine.shared_size
        self.width = min(machine.code.granule["shared"], 8)
        self.granules = -(-self.size // self.width) if self.size else 0
        self.plan = machine.plan
        self.shadow: Shadow | None = None
        self.time = 0
        self.held = 0  # bytes of what the logged stores write
        self.told = True  # whether each entry can be looked up

    def start(self, chunk: Chunk) -> None:
        """Begin a chunk: nothing is initialised."""
        self.chunk = chunk
        self.entries.clear()
        self.bytes = self.held = 0
        self.told = True
        self.shadow = None
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
        self, access: MemoryOp, address: Value, offset: int, mask: Array | None, data: Sequence[Value],
        name: bytes | None = None,
    ) -> None:  # fmt: skip
        """Log an access whose address is in bounds for all active lanes; name: an array of addresses as bytes."""
        if access.guess:
            return
        each = -(-self.size >> WORD)
        polled = self.note_strong(-1, each * self.chunk.blocks, access, address, offset, mask, data, each)
        mask = self.unlocked(access, mask)
        if mask is False:
            return
        nbytes = 64
        place: Hashable = None
        if type(address) is Affine:
            c = address.coefficients
            if c is not None and (c[3] or c[4] or c[5]):
                address, offset = address.array(self.chunk, INT64) + offset, 0
                nbytes = address.nbytes
            else:
                place = (address.base + offset, c)
        else:
            nbytes = address.nbytes
            if address.shape[0] == 1:
                place = address.tobytes() if name is None else name
        written: Any = None
        if access.kind != "store":
            data = ()
        else:
            written = uniform(data)
            self.hold(data)
        key: Key | None = None
        if place is not None:
            key = (access.number, place, None if mask is None else self.mask_key(mask), written)
        entry = LogEntry(access, address, offset, mask, data, key)
        if self.asynchronous:
            entry.role = "copy"
            self.flying.append(entry)
            entry.key = None if key is None else (*key, "copy")
        self.enter(self.entries, entry, nbytes, polled)
        if entry.key is None:
            self.told = False
        self.bound()

    def hold(self, data: Sequence[Value]) -> None:
        """Count the bytes of what a store writes."""
        self.held += sum(value.nbytes for value in data if type(value) is np.ndarray)

    def append(self, entry: LogEntry, nbytes: int) -> None:
        """Log an access as one before it; nbytes: what its address and mask take."""
        self.entries.append(entry)
        self.bytes += nbytes
        self.bound()

    def stored(self, like: LogEntry, data: Sequence[Value]) -> LogEntry:
        """Return the entry of a store to the same places as another one."""
        assert like.key is not None
        self.hold(data)
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

    def logs(self) -> Iterable[list[LogEntry | WarpSync]]:
        """Return the log, unless nothing has been accessed."""
        return (self.entries,) if self.entries or self.shadow is not None else ()

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
        super().finish()

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
            self.shadow = None

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
            state.reshape(-1)[self.expand(entry, True)[0]] = True
        return self.intern(state)

    def places(self, granules: Array, blocks: Array) -> Array:
        """Return the places of granules in the memories of all blocks."""
        return granules + blocks * self.granules

    def offset(self, place: int) -> int:
        """Return the byte of a block's memory at which a place begins."""
        return int(place % self.granules) * self.width

    def name(self, entry: LogEntry, offset: int) -> str:
        """Return what messages call a place that an access touches."""
        return self.machine.hazards.places.shared(offset, entry.access.width, entry.access.location.line)

    def one_block(self, entries: list[LogEntry | WarpSync]) -> bool:
        """Examine the log as if all blocks did what any does; return whether that is clean."""
        shadow = Shadow(self.granules, WarpOrder(1, self.chunk.threads))
        state = self.state[0].copy()
        again: set[Key] = set()
        for time, entry in enumerate(entries, 1):
            if isinstance(entry, WarpSync):
                self.order_by(shadow.order, time, entry, False)
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
            event = self.event(entry, time, False, narrow_all(entry.mask) if entry.role == "done" else None)
            if kind != "store":
                if not state[event.granules].all():
                    return False
            elif self.lane_values(entry, self.chunk.shape) is not None and not self.places_differ(entry):
                return False
            if shadow.conflicts(event) is not None:
                return False
            shadow.note(event)
            if kind != "load":
                several = entry.mask is not None and entry.mask.shape[0] > 1
                state[self.expand(entry, False, narrow_all(entry.mask))[0] if several else event.granules] = True
        self.after = state.reshape(1, -1)
        return True

    def all_blocks(self, entries: list[LogEntry | WarpSync], ends: bool) -> None:
        """Examine the log exactly, block by block (in one go)."""
        fresh = self.shadow is None and ends
        while True:
            if self.shadow is None:
                order = WarpOrder(self.chunk.blocks, self.chunk.threads)
                self.shadow, self.time = Shadow(self.granules * self.chunk.blocks, order), 0
                self.cuts.clear()
            state, found = self.run_through(self.shadow, entries, fresh)
            if not (fresh and self.cuts.news):
                break
            self.shadow = None  # what the barrier orders that was advised is not told
        self.state = self.intern(state)
        for record in found:
            record()

    def run_through(
        self, shadow: Shadow, entries: list[LogEntry | WarpSync], stops: bool
    ) -> tuple[Array, list[Callable[[], None]]]:
        """Apply the log to the shadow; return which granules are initialised then, and what records the faults.

        stops: end where a barrier is advised that was not known.
        """
        shadow.several, known = self.several, len(self.several)
        faults: list[Callable[[], None]] = []
        state = self.state
        state = np.repeat(state, self.chunk.blocks, axis=0) if state.shape[0] == 1 else state.copy()
        flags = state.reshape(-1)
        start = self.time + 1
        for entry in entries:
            self.time += 1
            if isinstance(entry, WarpSync):
                self.order_by(shadow.order, self.time, entry, True)
                continue
            event = self.event(entry, self.time, True)
            if not event.granules.size:
                continue
            if entry.access.kind != "store":
                unset = ~flags[event.granules]
                if unset.any():
                    faults.append(partial(self.uninitialised, event, unset))
            found = shadow.conflicts(event, self.cuts.of(entry.access, self.time))
            if found is not None:
                faults.append(self.judge(event, found, shadow, entries, start))
                if stops and self.cuts.news:
                    break
            shadow.note(event, self.cuts.times)
            if entry.access.kind != "load":
                flags[event.granules] = True
        self.cuts.news |= len(self.several) > known
        return state, faults

    def aliased(self, conflict: Conflict) -> str:
        """Return what says that the arrays which a race is about are one memory, an empty text where they are not."""
        return same_memory(self.machine.code, conflict.offset)

    def uninitialised(self, event: Event, unset: Array) -> None:
        """Record reads of shared memory that no thread has written."""
        lanes = np.zeros(self.chunk.shape, bool)
        lanes.reshape(-1)[event.lanes[unset]] = True
        name = self.name(event.entry, self.offset(event.places[np.argmax(unset)]))
        self.machine.hazards.report(
            self.machine, "uninitialized-shared", event.entry.access.location, lanes,
            f"reads {name}, which no thread has written",
        )  # fmt: skip
