"""The order that atomics and fences give to the accesses of a lane: while the lane holds a lock, and after it has
waited for a word."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from cudabench.simulator.check.grid_races import keeps_value
from cudabench.simulator.check.races import LogEntry
from cudabench.simulator.memory import flat
from cudabench.simulator.values import Array, Chunk, as_array, broadcast

if TYPE_CHECKING:
    from cudabench.simulator.isa.access import MemoryOp
    from cudabench.simulator.machine import Machine
    from cudabench.simulator.program.ptx import Location

FREE, SWAPPED, HOLDING, RELEASING = range(4)
WORD = 2  # `address >> WORD` is the number of a 4-byte word


class Locks:
    """Records for each lane of a chunk whether it holds a lock, is taking a lock or is releasing a lock.

    A lane takes a lock by an atomic compare-and-swap or exchange, followed by a fence. It releases the lock by a fence,
    followed by an atomic. All locks are treated as one lock: so every reported race is real, but not every race is
    found.
    """

    def __init__(self, chunk: Chunk) -> None:
        self.state: Array = np.zeros(chunk.shape, dtype=np.int8)
        # Lanes whose last swap was in a polling loop and succeeded.
        self.taken: Array = np.zeros(chunk.shape, dtype=bool)
        self.unfenced: set[int] = set()  # numbers of the accesses under a lock that was taken without a fence
        self.released: Array = np.zeros(chunk.shape, dtype=bool)  # lanes that gave back a lock since the last barrier
        # For each lane whose last swap failed: the address of that word in this process, else 0; the value with which
        # the lane would give back the lock; and the line of the swap.
        self.lost: Array = np.zeros(chunk.shape, dtype=np.int64)
        self.free: Array = np.zeros(chunk.shape, dtype=np.int64)
        self.lines: Array = np.zeros(chunk.shape, dtype=np.int32)
        self.locations: dict[int, Location] = {}
        self.given_back: set[int] = set()  # words that a lane with a lock has swapped back

    def atomic(self, machine: Machine, swaps: bool) -> None:
        """Record an atomic of the active lanes; `swaps`: whether it is a compare-and-swap or an exchange."""
        lanes = machine.lanes()
        held = lanes & (self.state >= HOLDING) if swaps else lanes & (self.state == RELEASING)
        if swaps:
            self.state[lanes & ~held] = SWAPPED
        self.state[held] = FREE
        self.released |= held

    def fence(self, machine: Machine) -> None:
        """Record a fence of the active lanes."""
        lanes = machine.lanes()
        self.state[lanes & (self.state == HOLDING)] = RELEASING
        self.state[lanes & (self.state == SWAPPED)] = HOLDING

    def unlocked(self, mask: Array | None) -> Array:
        """Return the lanes of a mask (None: all lanes) that hold no lock, as a mask of shape (blocks, threads)."""
        free = self.state < HOLDING
        return free if mask is None else free & mask

    def record_swap(
        self, machine: Machine, access: MemoryOp, lanes: Array, won: Array, words: Array, operands: Sequence[Array]
    ) -> None:
        """Record the result of a swap, and report lanes that give back a lock that they did not get.

        lanes: a mask of shape (blocks, threads). The other arrays have an element for each of these lanes. won: whether
        its swap changed the value. words: the address of the word in this process. operands: the operands of the swap.
        """
        tests = access.update == "cas"
        if not access.polls:
            self.released[lanes] |= self.taken[lanes]
        self.taken[lanes] = won if access.polls else False
        released = (self.lost[lanes] == words) & (operands[-1] == self.free[lanes])
        if not tests and released.any():
            wrong: Array = np.zeros(lanes.shape, bool)
            wrong[lanes] = released
            line = int(self.lines[wrong][0])
            machine.hazards.report(
                machine, "race", access.location, wrong, "gives back the lock that it did not get in line "
                f"{line}: another thread may hold it. Give the lock back only in the threads that got it",
            )  # fmt: skip
        if not tests:
            self.given_back.update(words[self.lost[lanes] != words].tolist())
        failed = ~won if tests else np.zeros(won.shape, bool)
        self.lost[lanes] = np.where(failed, words, 0)
        self.free[lanes] = operands[0]
        self.lines[lanes] = access.location.line
        self.locations[access.location.line] = access.location

    def synchronize(self, mask: Array | None) -> None:
        """Record that the lanes of a mask (None: all lanes) have synchronised: they may agree on which of them gives
        back a lock."""
        if mask is None:
            self.released[:] = False
        self.lost[... if mask is None else broadcast(mask, self.lost.shape)] = 0

    def finish(self, machine: Machine) -> None:
        """Record, as a suspicion, the lanes that did not get a lock, at the end of a chunk."""
        missed = (self.lost != 0) & np.isin(self.lost, [*self.given_back])
        for line in np.unique(self.lines[missed]).tolist():
            machine.hazards.report(
                machine, "lock-missed", self.locations[line], missed & (self.lines == line), "did not get the lock, "
                "because another thread held it, and does not try again: it skips what the threads with the lock do. "
                "If each thread has work to do there, put the atomicCAS() into a loop that ends when the thread has "
                "done its work", suspected=True,
            )  # fmt: skip

    def note(self, entry: LogEntry, number: int) -> None:
        """Set in a log entry which lanes hold a lock that they took without a fence, and which have given back a lock;
        `number`: the number of the access."""
        if self.released.any():
            entry.released = self.released.copy()
        if self.taken.any():
            entry.locked = self.taken & (self.state < HOLDING)
            self.unfenced.add(number)


class Releases:
    """The fences of a chunk's lanes, and the fences that words announce; recorded only for kernels with fences or an
    atomic that polls.

    A thread executes a fence and then a strong write of a word: the word announces the thread's accesses before the
    fence. This is a release pattern of the PTX memory model, and an atomic that waits for the word takes part in it
    (PTX ISA, "Release and Acquire Patterns"). The fences of all threads are numbered in the order of execution. Each
    word keeps the number of its writer's latest fence. The accesses of all threads before that fence count as
    announced.
    """

    def __init__(self, chunk: Chunk) -> None:
        self.chunk = chunk
        self.count = 0
        self.fenced: Array = np.zeros(chunk.shape, dtype=np.int32)
        # For each lane: the latest fence that a word announced to it.
        self.known: Array = np.zeros(chunk.shape, dtype=np.int32)
        self.words: dict[int, Array] = {}

    def fence(self, lanes: Array) -> int:
        """Record a fence and return its number; `lanes`: a mask of shape (blocks, threads)."""
        self.count += 1
        self.fenced[lanes] = self.count
        return self.count

    def note(self, base: int, words: int, own: int, entry: LogEntry, counts: bool) -> tuple[bool, Array | None]:
        """Record a strong access. After an atomic, its word still announces the fences that it announced before.

        counts: whether an atomic counts, as an atomicAdd whose result is used: then the word announces its fences to
        the lane, so that the last of several threads that count knows of the accesses of the others.

        base: the address of the memory; words: the size of the memory in words; own: for shared memory, the words of
        each block, else 0. Return (whether it is an atomic that polls, the fences that the words announce to it). The
        fences are an array of shape (blocks, threads), or None if they are not new.
        """
        access = entry.access
        if not access.strong or access.kind == "load":
            return False, None
        chunk = self.chunk
        polls = access.polls and keeps_value(access, [as_array(value, access.dtype) for value in entry.data])
        if not (base in self.words if polls else self.count):
            return polls, None
        lanes = rows, _ = np.nonzero(chunk.real(entry.mask))
        places = broadcast(flat(entry.address, entry.offset - base), chunk.shape)[lanes] >> WORD
        places = places + rows * own
        fences, own_fences = self.words.setdefault(base, np.zeros(words, np.int32)), self.fenced[lanes]
        heard = fences[places] if polls else None
        if access.kind != "atomic":
            fences[places] = own_fences
        elif not polls:
            heard = self.earlier_fences(fences, places, own_fences) if counts else None
            np.maximum.at(fences, places, own_fences)
        if heard is None:
            return False, None
        announced: Array = np.zeros(chunk.shape, dtype=np.int32)
        announced[lanes] = heard
        news = bool((announced > self.known).any())
        np.maximum(self.known, announced, out=self.known)
        return polls, announced if news else None

    @staticmethod
    def earlier_fences(fences: Array, places: Array, own: Array) -> Array:
        """Return for each lane of an atomic the latest fence that its word announces when the lane's turn comes.

        fences: what the words announce before the atomic. places, own: with an element for each lane, in the order of
        execution, the lane's word and its own latest fence.
        """
        order = np.argsort(places, kind="stable")
        first = np.append(True, np.diff(places[order]) != 0)
        # Numbers that grow from word to word keep the maximum of one word from reaching the next.
        steps = (np.cumsum(first) - 1) * (int(own.max(initial=0)) + 1)
        before = np.maximum.accumulate(own[order] + steps) - steps
        before = np.where(first, 0, np.append(0, before[:-1]))
        result = np.empty_like(own)
        result[order] = before
        return np.maximum(result, fences[places])
