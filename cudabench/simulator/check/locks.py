"""Which lanes hold a lock, so that what they do under it is no race.

A lane takes a lock by an atomic compare-and-swap or exchange and a fence behind it, and gives it back by a fence and
an atomic behind that. Which lock it is does not count: what is reported is a race, and not every race is found.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cudabench.simulator.values import Array, Chunk

if TYPE_CHECKING:
    from cudabench.simulator.check.races import LogEntry
    from cudabench.simulator.machine import Machine

FREE, SWAPPED, HOLDS, LEAVES = range(4)


class Locks:
    """How far each lane of a chunk is in taking a lock or giving it back."""

    def __init__(self, chunk: Chunk) -> None:
        self.state: Array = np.zeros(chunk.shape, dtype=np.int8)
        self.taken: Array = np.zeros(chunk.shape, dtype=bool)  # lanes whose swap in a loop has ended that loop
        self.under: set[int] = set()  # accesses, by number, some lanes of which have taken a lock so

    def atomic(self, machine: Machine, swaps: bool) -> None:
        """Note an atomic of the active lanes; swaps: it may take a lock."""
        lanes = machine.lanes()
        held = lanes & (self.state >= HOLDS) if swaps else lanes & (self.state == LEAVES)
        if swaps:
            self.state[lanes & ~held] = SWAPPED
        self.state[held] = FREE

    def fence(self, machine: Machine) -> None:
        """Note a fence of the active lanes."""
        lanes = machine.lanes()
        self.state[lanes & (self.state == HOLDS)] = LEAVES
        self.state[lanes & (self.state == SWAPPED)] = HOLDS

    def outside(self, mask: Array | None) -> Array:
        """Return those lanes of a mask (None: all) that hold no lock, (blocks, threads)."""
        free = self.state < HOLDS
        return free if mask is None else free & mask

    def swapped(self, lanes: Array, won: Array, polls: bool) -> None:
        """Note what lanes (blocks, threads) got by a swap; won: of them those that have changed what lay there."""
        self.taken[lanes] = won if polls else False

    def note(self, entry: LogEntry, number: int) -> None:
        """Note which lanes of an access hold a lock, by the number that the access has in its memory."""
        if self.taken.any():
            entry.locked = self.taken & (self.state < HOLDS)
            self.under.add(number)
