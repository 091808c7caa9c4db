"""What a word announces: all that was done before the fence of the thread that wrote it last by a strong write.

That is a release pattern of the PTX memory model, and an atomic which waits for that word takes part in it (PTX ISA,
"Release and Acquire Patterns"). Fences are numbered as they come, of whichever thread. A word has the number of the
latest fence that its writer had come past by then: what anybody did before that counts as announced.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from cudabench.simulator.check.races import idles
from cudabench.simulator.memory import flat
from cudabench.simulator.values import Array, Chunk, Value, as_array, broadcast

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

    def note(
        self, memory: int, words: int, own: int, access: MemoryOp, address: Value, offset: int, mask: Array | None,
        data: Sequence[Value],
    ) -> tuple[bool, Array | None]:  # fmt: skip
        """Note a strong access by lanes of a mask; an atomic passes on what its word announced before.

        memory: where it is, of so many words; own: of how many of these a block has its own, 0 for none. Return whether
        it is an atomic that polls, and what the words announce to it, (blocks, threads), None where that is no news.
        """
        if not access.strong or access.kind == "load":
            return False, None
        chunk = self.chunk
        polls = access.polls and idles(access, [as_array(value, access.dtype, chunk) for value in data])
        if not (memory in self.words if polls else self.count):
            return polls, None
        lanes = np.nonzero(chunk.real(mask))
        places = (broadcast(flat(address, offset, chunk), chunk.shape)[lanes] >> WORD) + lanes[0] * own
        if polls:
            found: Array = np.zeros(chunk.shape, dtype=np.int32)
            found[lanes] = self.words[memory][places]
            news = bool((found > self.known).any())
            np.maximum(self.known, found, out=self.known)
            return True, found if news else None
        kept = self.words.setdefault(memory, np.zeros(words, np.int32))
        if access.kind == "atomic":
            np.maximum.at(kept, places, self.fenced[lanes])
        else:
            kept[places] = self.fenced[lanes]
        return False, None
