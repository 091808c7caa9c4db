"""What a word announces: all that was done before the fence of the thread that wrote it last by a strong write.

That is a release pattern of the PTX memory model, and an atomic which waits for that word takes part in it (PTX ISA,
"Release and Acquire Patterns"). Fences are numbered as they come, of whichever thread. A word has the number of the
latest fence that its writer had come past by then: what anybody did before that counts as announced.
"""

from __future__ import annotations

import numpy as np

from cudabench.simulator.check.races import LogEntry, idles
from cudabench.simulator.memory import flat
from cudabench.simulator.values import Array, Chunk, as_array, broadcast

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

    def note(self, base: int, words: int, own: int, entry: LogEntry) -> tuple[bool, Array | None]:
        """Note a strong access; an atomic passes on what its word announced before.

        base: where its memory begins, of so many words; own: of how many of these a block has its own, 0 for none.
        Return whether it is an atomic that polls, and what the words announce to it, (blocks, threads), None where that
        is no news.
        """
        access = entry.access
        if not access.strong or access.kind == "load":
            return False, None
        chunk = self.chunk
        polls = access.polls and idles(access, [as_array(value, access.dtype, chunk) for value in entry.data])
        if not (base in self.words if polls else self.count):
            return polls, None
        lanes = np.nonzero(chunk.real(entry.mask))
        places = (broadcast(flat(entry.address, entry.offset - base, chunk), chunk.shape)[lanes] >> WORD) + lanes[
            0
        ] * own
        if polls:
            found: Array = np.zeros(chunk.shape, dtype=np.int32)
            found[lanes] = self.words[base][places]
            news = bool((found > self.known).any())
            np.maximum(self.known, found, out=self.known)
            return True, found if news else None
        kept = self.words.setdefault(base, np.zeros(words, np.int32))
        if access.kind == "atomic":
            np.maximum.at(kept, places, self.fenced[lanes])
        else:
            kept[places] = self.fenced[lanes]
        return False, None
