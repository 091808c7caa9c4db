"""The order that atomics and fences give: of accesses under a lock, and after a word that lanes have waited for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cudabench.simulator.check.races import LogEntry, idles
from cudabench.simulator.memory import flat
from cudabench.simulator.values import Array, Chunk, as_array, broadcast

if TYPE_CHECKING:
    from cudabench.simulator.machine import Machine

FREE, SWAPPED, HOLDS, LEAVES = range(4)
WORD = 2  # bits of an address within a word


class Locks:
    """The state of each lane of a chunk in taking or releasing a lock.

    A lane takes a lock by an atomic compare-and-swap or exchange and a fence after it, and releases it by a fence and
    an atomic after that. Locks are not distinguished: every reported race is real, but not every race is found.
    """

    def __init__(self, chunk: Chunk) -> None:
        self.state: Array = np.zeros(chunk.shape, dtype=np.int8)
        self.taken: Array = np.zeros(chunk.shape, dtype=bool)  # lanes whose swap in a loop has ended that loop
        self.under: set[int] = set()  # numbers of accesses by lanes that have taken a lock so

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
        """Return the lanes of a mask (None: all) that hold no lock, (blocks, threads)."""
        free = self.state < HOLDS
        return free if mask is None else free & mask

    def swapped(self, lanes: Array, won: Array, polls: bool) -> None:
        """Note the result of a swap by lanes (blocks, threads); won: the lanes whose swap changed the value."""
        self.taken[lanes] = won if polls else False

    def note(self, entry: LogEntry, number: int) -> None:
        """Note which lanes of an access hold a lock, by the number that the access has in its memory."""
        if self.taken.any():
            entry.locked = self.taken & (self.state < HOLDS)
            self.under.add(number)


class Releases:
    """The fences of a chunk's lanes, and those that words announce; kept for kernels with an atomic that polls.

    A word announces all accesses before the fence of the thread that last wrote the word by a strong write. That is a
    release pattern of the PTX memory model, and an atomic which waits for that word takes part in it (PTX ISA, "Release
    and Acquire Patterns"). The fences of all threads are numbered as they are executed. A word has the number of its
    writer's latest fence: accesses of all threads before that fence count as announced.
    """

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

        base: the start of its memory; words: its size in words; own: how many words each block has of its own, 0 for
        none. Return whether it is an atomic that polls, and the fences that the words announce to it, (blocks,
        threads), None if these are not new.
        """
        access = entry.access
        if not access.strong or access.kind == "load":
            return False, None
        chunk = self.chunk
        polls = access.polls and idles(access, [as_array(value, access.dtype, chunk) for value in entry.data])
        if not (base in self.words if polls else self.count):
            return polls, None
        lanes = rows, _ = np.nonzero(chunk.real(entry.mask))
        places = broadcast(flat(entry.address, entry.offset - base, chunk), chunk.shape)[lanes] >> WORD
        places = places + rows * own
        if polls:
            announced: Array = np.zeros(chunk.shape, dtype=np.int32)
            announced[lanes] = self.words[base][places]
            news = bool((announced > self.known).any())
            np.maximum(self.known, announced, out=self.known)
            return True, announced if news else None
        fences = self.words.setdefault(base, np.zeros(words, np.int32))
        if access.kind == "atomic":
            np.maximum.at(fences, places, self.fenced[lanes])
        else:
            fences[places] = self.fenced[lanes]
        return False, None
