"""What a word announces: all that was done before the fence of the thread that wrote it last by a strong write.

That is a release pattern of the PTX memory model, and an atomic which waits for that word takes part in it (PTX ISA,
"Release and Acquire Patterns"). Fences are numbered as they come, of whichever thread. A word has the number of the
latest fence that its writer had come past by then: what anybody did before that counts as announced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cudabench.simulator.memory import flat
from cudabench.simulator.values import Array, Chunk, Value, broadcast

if TYPE_CHECKING:
    from cudabench.simulator.isa.access import MemoryOp

WORD = 2  # bits of an address within a word


class Releases:
    """The fences of a chunk's lanes, and what words announce; kept for kernels with an atomic that polls."""

    def __init__(self, chunk: Chunk) -> None:
        self.chunk = chunk
        self.count = 0
        self.fenced: Array = np.zeros(chunk.shape, dtype=np.int32)
        self.known: Array = np.zeros(chunk.shape, dtype=np.int32)  # the latest fence that each lane has heard of
        self.words: dict[int, Array] = {}

    def fence(self, lanes: Array) -> int:
        """Number a fence of some lanes (blocks, threads)."""
        self.count += 1
        self.fenced[lanes] = self.count
        return self.count

    def write(
        self, memory: int, words: int, access: MemoryOp, address: Value, offset: int, mask: Array | None, own: int
    ) -> None:
        """Note a strong store, or an atomic, which passes on what the word announced before, by lanes of a mask.

        memory: where it is, of so many words; own: of how many of these a block has its own, 0 for none.
        """
        if not self.count:
            return
        places, lanes = self.places(address, offset, mask, own)
        kept = self.words.setdefault(memory, np.zeros(words, np.int32))
        if access.kind == "atomic":
            np.maximum.at(kept, places, self.fenced[lanes])
        else:
            kept[places] = self.fenced[lanes]

    def heard(self, memory: int, address: Value, offset: int, mask: Array | None, own: int) -> Array | None:
        """Return what the words announce that lanes of a mask look at, (blocks, threads); None if that is no news."""
        if memory not in self.words:
            return None
        places, lanes = self.places(address, offset, mask, own)
        found: Array = np.zeros(self.chunk.shape, dtype=np.int32)
        found[lanes] = self.words[memory][places]
        if (found <= self.known).all():
            return None
        np.maximum(self.known, found, out=self.known)
        return found

    def places(self, address: Value, offset: int, mask: Array | None, own: int) -> tuple[Array, tuple[Array, Array]]:
        """Return the words of the active lanes and which lanes these are."""
        chunk = self.chunk
        every = broadcast(flat(address, offset, chunk), chunk.shape)
        rows, threads = np.nonzero(chunk.real(mask))
        return (every[rows, threads] >> WORD) + rows * own, (rows, threads)
