"""Finds ordinary stores to shared memory that wgmma or a bulk copy reads without a fence.proxy.async in between.

PTX ISA, memory consistency model, proxies: wgmma and bulk copies read memory by the asynchronous proxy. They see the
stores of a thread only after a fence.proxy.async, executed by that thread or by the thread that starts the read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cudabench.simulator.program.ptx import Location
from cudabench.simulator.values import Array, Chunk, broadcast

if TYPE_CHECKING:
    from cudabench.simulator.machine import Machine

GRANULE = 16  # bytes of one piece of shared memory; no bulk copy or matrix operation accesses a smaller piece


class Proxies:
    """For each 16-byte piece of the chunk's shared memory, the time and thread of the last store; and the last fences.

    stored, writer: arrays of shape (blocks, pieces). fenced: the time of each thread's last fence, (blocks, threads).
    used: whether the kernel has reads by the asynchronous proxy; if not, nothing is recorded.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.used = machine.code.proxies

    def start(self, chunk: Chunk) -> None:
        """Begin a chunk of blocks."""
        if self.used:
            pieces = -(-self.machine.shared_size // GRANULE)
            self.stored: Array = np.zeros((chunk.blocks, pieces), np.int64)
            self.writer: Array = np.zeros((chunk.blocks, pieces), np.int16)
            self.fenced: Array = np.zeros(chunk.shape, np.int64)
            self.time = 0

    def store(self, address: Array, mask: Array | None, size: int) -> None:
        """Record a store by the lanes of a mask to their own block's shared memory; the addresses are in bounds."""
        self.time += 1
        chunk = self.machine.chunk
        lanes = chunk.real(mask)
        rows, threads = np.nonzero(lanes)
        pieces = broadcast(address, chunk.shape)[lanes] // GRANULE
        for step in range(max(1, size // GRANULE)):
            self.stored[rows, pieces + step] = self.time
            self.writer[rows, pieces + step] = threads

    def fence(self) -> None:
        """Record a fence.proxy.async of the active lanes."""
        if self.used:
            self.time += 1
            self.fenced[self.machine.lanes()] = self.time

    def read(self, location: Location, rows: Any, pieces: Array, readers: Any, what: str) -> None:
        """Report the stores to pieces that the asynchronous proxy now reads, if there was no fence in between.

        rows: an index of the reading blocks in the chunk. pieces: the numbers of the pieces. readers: an index of the
        threads that start the read. what: the name of the read in the message.
        """
        if not self.used:
            return
        blocks = np.atleast_1d(np.arange(len(self.stored))[rows])
        pieces = pieces.reshape(-1)
        stored = self.stored[blocks[:, None], pieces]
        fenced = self.fenced[blocks][:, readers].reshape(len(blocks), -1).max(axis=1, keepdims=True)
        writers = self.writer[blocks[:, None], pieces]
        bad = stored > np.maximum(fenced, self.fenced[blocks[:, None], writers])
        if not bad.any():
            return
        chunk = self.machine.chunk
        row, column = (int(indices[0]) for indices in np.nonzero(bad))
        block, thread = chunk.block_index(int(blocks[row])), chunk.thread_index(int(writers[row, column]))
        place = self.machine.hazards.places.shared(int(pieces[column]) * GRANULE, GRANULE)
        self.machine.hazards.add(
            "missing-fence", location, int(bad.sum()), block, thread,
            f"{what} reads {place} of block {block}, which thread {thread} has stored to without a "
            "fence.proxy.async in between: put one after the stores, before the barrier.",
        )  # fmt: skip
