"""Finds races within a block over shared memory, and reads of shared memory that nothing has written."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from cudabench.simulator.check.locks import WORD
from cudabench.simulator.check.races import LogEntry, Races, Sync
from cudabench.simulator.check.shadow import Event, Shadow
from cudabench.simulator.check.unwritten import note_bytes
from cudabench.simulator.values import Array, Chunk, Value

if TYPE_CHECKING:
    from cudabench.simulator.isa.access import MemoryOp
    from cudabench.simulator.machine import Machine

MOST_HASHED = 1 << 18  # an interval is remembered if the arrays in its log have at most this many bytes


class SharedRaces(Races):
    """Finds races and uninitialised reads in shared memory.

    marks: a uint8 for each byte of the memory of each block, 0 for a byte that was never written.
    """

    memory = "shared"

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self.size = machine.shared_size
        self.width = min(machine.code.granule["shared"], 8)
        self.span = -(-self.size // self.width) if self.size else 0

    def start(self, chunk: Chunk) -> None:
        """Begin a chunk of blocks; no byte is initialised."""
        super().start(chunk)
        self.shadow: Shadow | None = None
        self.time = 0
        self.clean: set[bytes] = set()  # the hashes of logs without races
        self.compared = False
        self.asynchronous = False
        self.pending_copies: list[LogEntry] = []  # asynchronous copies that their threads have not yet waited for
        self.marks: Array = np.zeros((chunk.blocks, -(-self.size // 16) * 16), np.uint8)

    def log(self, access: MemoryOp, address: Array, mask: Array | None, data: Sequence[Value]) -> None:
        """Log an access whose address is in bounds for all active lanes."""
        mask = access.concerned(self.machine, mask)
        if access.guess or (mask is not None and not mask.any()):
            return
        entry, chunk, size = LogEntry(access, address, 0, mask, data), self.chunk, self.marks.shape[1]
        index = (address + np.arange(chunk.blocks).reshape(-1, 1) * size) // access.width
        name = partial(self.name, entry)
        note_bytes(
            self.machine, access, self.marks.reshape(-1), index, chunk.real(mask), lambda byte: name(byte % size),
            "uninitialized-shared",
        )  # fmt: skip
        if self.machine.local_pointers is not None:
            self.machine.local_pointers.log(self.machine, entry, 0, self.size, True, name)
        entry.role = "copy" if self.asynchronous else ""
        words = -(-self.size >> WORD)
        if self.append(entry, 0, words * self.chunk.blocks, words) and self.asynchronous:
            self.pending_copies.append(entry)

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
        if not self.pending_copies:
            return
        log = self.logs.setdefault(0, [])
        pending, self.pending_copies = self.pending_copies, []
        for entry in pending:
            active: Any = np.True_ if entry.mask is None else entry.mask
            ended: Any = np.asarray(entry.groups > count) & (np.True_ if mask is None else mask)
            done, left = np.atleast_2d(active & ended), np.atleast_2d(active & ~ended)
            if done.any():
                log.append(replace(entry, mask=done, role="done", locked=None))
            if left.any():
                entry.left = count, len(log)
                self.pending_copies.append(replace(entry, mask=left, locked=None) if done.any() else entry)

    def written(self, rows: Array, offsets: Array, size: int) -> None:
        """Mark as initialised the bytes that bulk copies, or other blocks of the cluster, write.

        rows, offsets: for each write, the index in the chunk of the block that owns the memory, and the first byte.
        size: the bytes of a write.
        """
        self.marks[rows[:, None], offsets[:, None] + np.arange(size)] = 0xFF

    def barrier(self) -> None:
        """End the interval; copies that no thread has waited for may still write after the barrier."""
        super().barrier()
        for entry in self.pending_copies:
            entry.left = entry.left and (entry.left[0], 0)
        if self.pending_copies:
            self.logs[0] = [*self.pending_copies]

    def finish(self) -> None:
        """End the last interval of a chunk."""
        self.pending_copies = []
        self.barrier()

    def digest_of(self, entries: list[LogEntry | Sync]) -> bytes | None:
        """Return a hash of the log of an interval, or None if it is not worth it.

        Logs with equal hashes have the same races, except for races that depend on the result of `lane_values`.
        """
        parts: list[Any] = [self.chunk.shape]
        for entry in entries:
            if isinstance(entry, LogEntry):
                access, one = entry.access, len(entry.data) == 1 and entry.data[0].size == 1
                parts += access.numbers["shared"], access.size, entry.role, entry.offset, entry.address, entry.mask
                parts.append(entry.data[0] if one else None)
            elif entry.kind == "acquire":
                return None
            elif entry.kind == "sync":  # a fence alone orders nothing
                parts += entry
        if sum(part.nbytes for part in parts if isinstance(part, np.ndarray)) > MOST_HASHED:
            return None
        digest = hashlib.sha256()
        for part in parts:
            array = isinstance(part, np.ndarray)
            digest.update(f"{(part.dtype.str, part.shape) if array else part!r};".encode())
            digest.update(part.tobytes() if array else b"")
        return digest.digest()

    def lane_values(self, event: Event) -> Array:
        """Return the numbers of `Races.lane_values`, and note that the result of this interval depends on them."""
        self.compared = True
        return super().lane_values(event)

    def flush(self, ends: bool) -> None:
        """Examine the log. If the interval does not end here, later accesses can still race with accesses of this
        log."""
        entries = self.logs[0]
        self.clear()
        granules = self.span * self.chunk.blocks
        if self.shadow is None and all(isinstance(one, Sync) or one.access.kind == "load" for one in entries):
            return  # a race needs a write
        if self.shadow is None and ends:
            digest = self.digest_of(entries)
            if digest in self.clean:
                return
            self.compared = False
            races = self.examine(granules, lambda: self.steps(entries, 1), entries)
            if not races and not self.compared and digest is not None:
                self.clean.add(digest)
        else:
            if self.shadow is None:
                self.shadow, self.time = self.new_shadow(granules), 0
            races = self.replay(self.shadow, self.steps(entries, self.time + 1), entries, self.time + 1, False)
            self.time += len(entries)
        for record in races:
            record()
        if ends:
            self.shadow = None
        else:
            self.logs[0] = []
