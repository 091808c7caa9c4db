"""Finds races within a block over shared memory, and reads of shared memory that nothing has written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from cudabench.simulator.check.locks import WORD
from cudabench.simulator.check.races import LOG_BYTES, LOG_LENGTH, Log, LogEntry, Races, Sync
from cudabench.simulator.check.shadow import Event, Shadow
from cudabench.simulator.values import Array, Chunk, Value

if TYPE_CHECKING:
    from cudabench.simulator.isa.access import MemoryOp
    from cudabench.simulator.machine import Machine


class SharedRaces(Races):
    """Finds races and uninitialised reads in shared memory.

    state: whether each granule is initialised, of shape (blocks, granules).
    """

    memory = "shared"

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self.size = machine.shared_size
        self.width = min(machine.code.granule["shared"], 8)
        self.span = -(-self.size // self.width) if self.size else 0

    def start(self, chunk: Chunk) -> None:
        """Begin a chunk of blocks; no granule is initialised."""
        self.chunk = chunk
        self.shadow: Shadow | None = None
        self.time = 0
        self.clear_log()
        self.asynchronous = False
        self.pending_copies: list[LogEntry] = []  # asynchronous copies that their threads have not yet waited for
        self.state: Array = np.zeros((chunk.blocks, self.span), dtype=bool)

    def clear_log(self) -> None:
        """Begin a new, empty log."""
        self.entries = []
        self.bytes = 0

    def log(self, access: MemoryOp, address: Array, mask: Array | None, data: Sequence[Value]) -> None:
        """Log an access whose address is in bounds for all active lanes."""
        if access.guess:
            return
        entry = LogEntry(access, address, 0, mask, data)
        if self.machine.local_pointers is not None:
            self.machine.local_pointers.log(self.machine, entry, 0, self.size, True, partial(self.name, entry))
        words = -(-self.size >> WORD)
        if self.append(self.entries, entry, 0, words * self.chunk.blocks, words) and self.asynchronous:
            entry.role = "copy"
            self.pending_copies.append(entry)
        if self.bytes > LOG_BYTES or len(self.entries) > LOG_LENGTH:
            self.flush(False)

    def logs(self) -> Iterable[Log]:
        """Return the log in a tuple, which is empty if nothing has been accessed since the last barrier."""
        return (self.entries,) if self.entries or self.shadow is not None else ()

    def commit(self, mask: Array | None) -> None:
        """Record that the threads of a mask commit their copies so far as a group (cp.async.commit_group)."""
        new: Any = 1 if self.none_if_full(mask) is None else mask
        for entry in self.pending_copies:
            entry.groups = entry.groups + new

    def wait(self, count: int | None, mask: Array | None) -> None:
        """Record that the threads of a mask wait for their copies, except for their latest `count` groups.

        count: None to wait for all copies (cp.async.wait_all).
        """
        if count is None:
            self.commit(mask)
            count = 0
        mask = self.none_if_full(mask)
        pending, self.pending_copies = self.pending_copies, []
        for entry in pending:
            ended: Any = np.asarray(entry.groups > count)
            if mask is not None:
                ended = mask & ended
            active: Any = np.True_ if entry.mask is None else entry.mask
            done, left = (active & ended).any(), (active & ~ended).any()
            if done:
                self.entries.append(self.restricted(entry, "done", ended if left else None))
            if left:
                entry.left = count, len(self.entries)
                self.pending_copies.append(self.restricted(entry, "copy", ~ended) if done else entry)

    def restricted(self, entry: LogEntry, role: str, lanes: Array | None) -> LogEntry:
        """Return the log entry of a copy with another role, restricted to `lanes` (None: all its lanes)."""
        mask = entry.mask
        if lanes is not None:
            mask = lanes if mask is None else mask & lanes
        return replace(entry, mask=mask, role=role, locked=None)

    def written(self, rows: Array, offsets: Array, size: int) -> None:
        """Mark as initialised the bytes that bulk copies, or other blocks of the cluster, write.

        rows, offsets: for each write, the index in the chunk of the block that owns the memory, and the first byte.
        size: the bytes of a write.
        """
        self.state[rows[:, None], offsets[:, None] // self.width + np.arange(max(1, size // self.width))] = True

    def barrier(self) -> None:
        """End the interval at a barrier of the block, and examine its log."""
        if self.entries or self.shadow is not None:
            self.flush(True)
            # Copies that no thread has waited for may still write after the barrier.
            for entry in self.pending_copies:
                entry.left = entry.left and (entry.left[0], 0)
            self.entries.extend(self.pending_copies)

    def finish(self) -> None:
        """End the last interval of a chunk."""
        self.pending_copies = []
        self.barrier()

    def flush(self, ends: bool) -> None:
        """Examine the log; `ends`: whether the interval ends here. If not, later accesses can still race with accesses
        of this log."""
        entries = self.entries
        self.clear_log()
        granules = self.span * self.chunk.blocks
        if self.shadow is None and ends:
            races = self.examine(granules, lambda: self.steps(entries, 1), entries)
        else:
            if self.shadow is None:
                self.shadow, self.time = self.new_shadow(granules), 0
            races = self.replay(self.shadow, self.steps(entries, self.time + 1), entries, self.time + 1, False)
            self.time += len(entries)
        self.state = self.after
        for record in (*self.unset, *races):
            record()
        if ends:
            self.shadow = None

    def name(self, entry: LogEntry, offset: int) -> str:
        """Return the name of the accessed element for messages; `offset`: in bytes."""
        return self.machine.hazards.places.shared(offset, entry.access.width, entry.access.location.line)

    def steps(self, entries: Log, start: int) -> Iterator[Sync | Event]:
        """Yield the events and synchronisations of a log whose first entry has the time `start`.

        Set `after`: whether each granule of all blocks is initialised after the log; and `unset`: for each
        uninitialised read, a function that reports the read when it is called.
        """
        self.after = self.state.copy()
        self.unset: list[Callable[[], None]] = []
        flags = self.after.reshape(-1)
        for time, entry in enumerate(entries, start):
            if isinstance(entry, Sync):
                yield entry
                continue
            event, access = self.event(entry, time), entry.access
            # An exchange whose result is not used counts as a write without a read.
            writes = access.update == "exch" and access.target not in self.machine.code.read
            unset: Any = False if access.kind == "store" or writes else ~flags[event.granules]
            if np.any(unset):
                lanes = np.zeros(self.chunk.shape, bool)
                lanes.reshape(-1)[event.lanes[unset]] = True
                place = self.name(entry, int(event.places[np.argmax(unset)] % self.span) * self.width)
                kind, text = "uninitialized-shared", f"reads {place}, which no thread has written"
                report = self.machine.hazards.report
                self.unset.append(partial(report, self.machine, kind, access.location, lanes, text))
            yield event
            if access.kind != "load":
                flags[event.granules] = True
