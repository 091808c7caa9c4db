"""Ordinary stores to shared memory that the asynchronous proxy reads: wgmma and bulk copies, after fence.proxy.async.

PTX ISA, memory consistency model, proxies: what threads store is seen by wgmma and bulk copies only where a
fence.proxy.async stands between, of the thread that stored or of the one that starts the read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cudabench.simulator.program.ptx import Location
from cudabench.simulator.values import Array, Chunk, broadcast

if TYPE_CHECKING:
    from cudabench.simulator.machine import Machine

GRANULE = 16  # bytes: bulk copies and matrices move no less


class Proxies:
    """When each piece of the chunk's shared memory was stored to and by whom, and when each thread fenced."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.used = machine.code.proxies

    def start(self, chunk: Chunk) -> None:
        """Begin a chunk."""
        if self.used:
            pieces = -(-self.machine.shared_size // GRANULE)
            self.stored: Array = np.zeros((chunk.blocks, pieces), np.int64)
            self.writer: Array = np.zeros((chunk.blocks, pieces), np.int16)
            self.fenced: Array = np.zeros(chunk.shape, np.int64)
            self.time = 0

    def store(self, address: Array, mask: Array | None, size: int) -> None:
        """Note a store of the lanes of a mask to their own block's memory, which it is in."""
        self.time += 1
        chunk = self.machine.chunk
        lanes = chunk.real(mask)
        rows, threads = np.nonzero(lanes)
        pieces = broadcast(address, chunk.shape)[lanes] // GRANULE
        for step in range(max(1, size // GRANULE)):
            self.stored[rows, pieces + step] = self.time
            self.writer[rows, pieces + step] = threads

    def fence(self) -> None:
        """Note a fence of the active lanes."""
        if self.used:
            self.time += 1
            self.fenced[self.machine.lanes()] = self.time

    def read(self, location: Location, rows: Any, pieces: Array, readers: Any, what: str) -> None:
        """Look at what some blocks' threads read in pieces of 16 bytes; record what no fence stands before."""
        if not self.used:
            return
        blocks = np.atleast_1d(np.arange(len(self.stored))[rows])
        pieces = pieces.reshape(-1)
        stored = self.stored[blocks[:, None], pieces]
        own = self.fenced[blocks][:, readers].reshape(len(blocks), -1).max(axis=1, keepdims=True)
        writers = self.writer[blocks[:, None], pieces]
        bad = stored > np.maximum(own, self.fenced[blocks[:, None], writers])
        if not bad.any():
            return
        chunk = self.machine.chunk
        row, column = (int(part[0]) for part in np.nonzero(bad))
        block, thread = chunk.block_index(int(blocks[row])), chunk.thread_index(int(writers[row, column]))
        place = self.machine.hazards.places.shared(int(pieces[column]) * GRANULE, GRANULE)
        self.machine.hazards.add(
            "missing-fence", location, int(bad.sum()), block, thread,
            f"{what} reads {place} of block {block}, which thread {thread} has stored to with no fence.proxy.async "
            "between: put one after the stores, before the barrier.",
        )  # fmt: skip
