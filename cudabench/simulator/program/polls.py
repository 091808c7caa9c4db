"""Which reads poll: those that go round a loop until another thread has written what they wait for.

A strong read (volatile, relaxed or acquire) polls where a loop reads one place again and again and goes on or ends by
what it read. Once such a loop has ended, what others did before is ordered before what the thread does next, where they
and it used fences (PTX ISA, "Causality Order"); whether they did is not looked for, so that no right kernel is accused.

An atomic that returns what it finds polls likewise. Whether it changes that shows when it runs: one that adds 0, or
swaps a value for itself, only waits, and what the writer of the place announced by a fence is ordered before what the
thread does next (`check.locks`).

A read ahead of the loop, of the same place, by which the loop is entered or left out, polls as well: compilers turn
`while (flag == 0) work();` into `if (flag == 0) do work(); while (flag == 0);`. A loop with a barrier of the block in
it does not poll: there threads wait for each other at the barrier.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from cudabench.simulator.program.code import Block, Op, Run
from cudabench.simulator.program.flow import Slot, closure
from cudabench.simulator.program.order import DEEPEST, reachable, strongly_connected, ways

if TYPE_CHECKING:
    from cudabench.simulator.isa.access import MemoryOp
    from cudabench.simulator.machine import Machine


StrongLoad = tuple[Op, "MemoryOp"]


class Places:
    """What ops read and write: registers, and where code without optimisation keeps its variables.

    There a place in local memory, by its first byte, is as good as a register (-2 - place), and all of local memory
    that is reached through pointers is one more (-1).
    """

    def __init__(self, slots: Sequence[Slot], pointed: Collection[int]) -> None:
        self.slots = {id(slot.op): slot for slot in slots}
        self.pointed = pointed

    def of(self, op: Op) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return (what an op reads, what it writes)."""
        slot = self.slots.get(id(op))
        if slot is not None:
            place = (-2 - slot.place,)
            return ((*place, -1), op.defs) if op.opcode == "ld" else (op.uses, place)
        if id(op) in self.pointed:
            return ((*op.uses, -1), op.defs) if op.opcode == "ld" else (op.uses, (*op.defs, -1))
        return op.uses, op.defs


def mark_polls(blocks: Sequence[Block], loads: Sequence[StrongLoad], places: Places) -> bool:
    """Mark the loads that poll, and let them say when they have read; mark atomics, and return whether there are some.

    loads: the strong ones of shared and global memory, and the atomics that return what they find.
    """
    if not loads:
        return False
    strong = {id(op): access for op, access in loads}
    found: dict[int, Op] = {}
    for members, head in loops(blocks):
        ends = [blocks[number].terminator for number in members]
        if any(end is not None and end.kind == "barrier" for end in ends):
            continue
        mine = [op for number in members for op in blocks[number].ops if id(op) in strong]
        if mine:
            loop = Loop(blocks, members, head, places, strong.keys())
            polling = [op for op in mine if op.address not in loop.changing]
            if polling:
                decisive = loop.decisive()
                polling = [op for op in polling if not decisive.isdisjoint(op.defs)]
            ahead = [op for op in _ahead(blocks, members, polling) if id(op) in strong]
            found.update((id(op), op) for op in (*polling, *ahead))
    for op in found.values():
        strong[id(op)].polls = True
        assert op.run is not None
        if strong[id(op)].kind == "load":
            op.run = partial(_polled, op.run)
    return any(strong[one].kind == "atomic" for one in found)


def may_wait(blocks: Sequence[Block], places: Places) -> bool:
    """Return whether a thread may go round a loop until another one has done something, in a kernel without strong
    reads and atomics that return what they find: also by plain reads of one place, which no compiler has to repeat."""
    every = [op for block in blocks for op in block.ops]
    if any(op.kind != "plain" or op.opcode in _WAITING for op in every):
        return True
    if len(every) > MOST_LOOKED_AT:
        return any(True for _ in loops(blocks))
    for members, head in loops(blocks):
        mine = [op for number in members for op in blocks[number].ops]
        reads = [op for op in mine if op.opcode in ("ld", "ldu") and op.address >= 0 and id(op) not in places.slots]
        if reads and not {op.address for op in reads} <= Loop(blocks, members, head, places, ()).changing:
            return True
    return False


MOST_LOOKED_AT = 4096  # ops of a kernel
_WAITING = frozenset(("activemask", "barrier", "call", "fence", "griddepcontrol", "mbarrier", "membar", "nanosleep"))


def _polled(run: Run, machine: Machine) -> None:
    """Run a load that polls, and note which lanes did."""
    run(machine)
    machine.order("acquire", machine.mask)


def loops(blocks: Sequence[Block]) -> Iterator[tuple[frozenset[int], int]]:
    """Yield each loop, outer ones first: its blocks and its head."""
    successors = [ways(block) for block in blocks]
    before: list[list[int]] = [[] for _ in blocks]
    for number, following in enumerate(successors):
        for one in following:
            before[one].append(number)
    work = [(frozenset(range(len(blocks))), DEEPEST)]
    while work:
        inside, left = work.pop()
        for piece in strongly_connected(sorted(inside), successors, inside):
            members = frozenset(piece)
            if len(piece) == 1 and piece[0] not in successors[piece[0]]:
                continue
            head = min((number for number in piece if not members.issuperset(before[number])), default=piece[0])
            yield members, head
            if left and len(piece) > 1:
                work.append((members - {head}, left - 1))


class Loop:
    """A loop and what its ops do; changing: the registers that may differ from one of its turns to the next."""

    def __init__(
        self, blocks: Sequence[Block], members: frozenset[int], head: int, places: Places, strong: Collection[int]
    ) -> None:
        self.blocks, self.members, self.head = blocks, members, head
        self.places = places
        self.ops: list[tuple[Op, int, tuple[int, ...], tuple[int, ...]]] = []  # with block, what is read and written
        for number in sorted(members):
            self.ops += [(op, number, *places.of(op)) for op in blocks[number].every]
        self.changing = changing(self.ops, strong)

    def decisive(self) -> set[int]:
        """Return the registers on which it depends whether the loop goes on."""
        found: set[int] = set()
        turn = self.members - {self.head}
        guards: dict[int, set[int]] = {}  # by block: the registers that decide within a turn whether it runs
        for op, number, _, _ in self.ops:
            decides = {index for index in (op.guard, op.selector) if index >= 0}
            if op.kind not in _WAYS or not decides:
                continue
            successors = self.blocks[number].successors
            if op.kind in ("exit", "return") or not self.members.issuperset(successors):
                found |= decides
                continue
            reached = [reachable(self.blocks, (one,), turn) for one in successors]
            for one in frozenset.union(*reached) - frozenset.intersection(*reached):
                guards.setdefault(one, set()).update(decides)
        return closure(found, [(written, (*read, *guards.get(at, ()))) for _, at, read, written in self.ops[::-1]])


_WAYS = ("branch", "table", "exit", "return")


def changing(ops: Sequence[tuple[Op, int, tuple[int, ...], tuple[int, ...]]], strong: Collection[int]) -> set[int]:
    """Return the registers that may differ from one turn of a loop to the next: all that are set in it but once, from
    such as do not differ.

    A plain load at an address that is the same does not differ: what another thread changes there is not meant to be
    seen.
    """
    setters = Counter(index for *_, written in ops for index in written)
    steps = [
        ([index for index in read if index != -1], [index for index in written if setters[index] == 1])
        for op, _, read, written in ops
        if op.kind == "plain" and op.guard < 0 and op.opcode not in _CHANGING and id(op) not in strong
    ]
    found, before = set(setters), -1
    while len(found) != before:
        before = len(found)
        for read, written in steps:
            if found.isdisjoint(read):
                found.difference_update(written)
    return found


_CHANGING = frozenset(("activemask", "atom", "call", "clock"))


def _ahead(blocks: Sequence[Block], members: frozenset[int], polling: Sequence[Op]) -> Iterator[Op]:
    """Yield the loads ahead of a loop, from the place where it polls, whose block decides whether it is entered."""
    where = {(op.address, op.offset) for op in polling}
    if not where:
        return
    entries = set(members)
    for block in blocks:
        end = block.terminator
        plain = end is None or (end.kind == "branch" and end.guard < 0)
        if block.number not in members and plain and not members.isdisjoint(block.successors):
            entries.add(block.number)  # all that it does is to lead into the loop
    for block in blocks:
        end = block.terminator
        if block.number in members or end is None or end.kind != "branch" or end.guard < 0:
            continue
        if entries.isdisjoint(block.successors):
            continue
        known: set[int] = {end.guard}
        for op in reversed(block.ops):
            if known.isdisjoint(op.defs):
                continue
            known.update(op.uses)
            if (op.address, op.offset) in where:
                yield op
