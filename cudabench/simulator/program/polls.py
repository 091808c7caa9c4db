"""Reads that poll: a loop repeats them until another thread has written the value that the loop waits for.

A strong read (volatile, relaxed or acquire) polls if a loop reads one address again and again, and the value decides
whether the loop continues. After such a loop, earlier accesses of other threads are ordered before the thread's next
accesses, if both used fences (PTX ISA, "Causality Order"). The fences are not checked here: they are taken for granted,
so no correct kernel is reported.

An atomic that returns the old value can poll in the same way. Whether the atomic changes the value is known only when
it runs. An atomic that adds 0, or replaces a value by the same value, only waits. Then the accesses that the writer of
this value made before its fence are ordered before the next accesses of the waiting thread (`check.locks`).

A read of the same address before the loop, which decides whether the loop is entered, polls, too: compilers turn
`while (flag == 0) work();` into `if (flag == 0) do work(); while (flag == 0);`. A loop that contains a barrier of the
thread block does not poll: in such a loop, threads wait for each other at the barrier.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from cudabench.simulator.program.code import Block, Op, Run
from cudabench.simulator.program.flow import Slot, closure
from cudabench.simulator.program.order import DEEPEST, following_blocks, reachable, strongly_connected

if TYPE_CHECKING:
    from cudabench.simulator.isa.access import MemoryOp
    from cudabench.simulator.machine import Machine


StrongLoad = tuple[Op, "MemoryOp"]


class Places:
    """Tells what an op reads and writes: registers, and places in local memory where unoptimised code keeps variables.

    A place that begins at byte n of local memory has the register number -2 - n. All local memory that is reached
    through pointers has the register number -1. slots: the loads and stores at fixed places of local memory. pointed:
    the ids of the loads and stores through pointers.
    """

    def __init__(self, slots: Sequence[Slot], pointed: Collection[int]) -> None:
        self.slots = {id(slot.op): slot for slot in slots}
        self.pointed = pointed

    def of(self, op: Op) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return (the registers that an op reads, the registers that it writes); places have register numbers, too."""
        slot = self.slots.get(id(op))
        if slot is not None:
            place = (-2 - slot.place,)
            return ((*place, -1), op.defs) if op.opcode == "ld" else (op.uses, place)
        if id(op) in self.pointed:
            return ((*op.uses, -1), op.defs) if op.opcode == "ld" else (op.uses, (*op.defs, -1))
        return op.uses, op.defs


def mark_polls(blocks: Sequence[Block], loads: Sequence[StrongLoad], places: Places) -> bool:
    """Mark the loads and atomics that poll, and return whether an atomic polls.

    When a marked load runs, later accesses of its lanes are ordered after the writes whose values the load reads.
    loads: the strong loads of shared and global memory, and the atomics that return the old value.
    """
    if not loads:
        return False
    strong = {id(op): access for op, access in loads}
    marked: dict[int, Op] = {}
    for members, head in loops(blocks):
        ends = [blocks[number].terminator for number in members]
        if any(end is not None and end.kind == "barrier" for end in ends):
            continue
        candidates = [op for number in members for op in blocks[number].ops if id(op) in strong]
        if candidates:
            polling = Loop(blocks, members, head, places, strong.keys()).polling(candidates)
            ahead = [op for op in _ahead(blocks, members, polling) if id(op) in strong]
            marked.update((id(op), op) for op in (*polling, *ahead))
    for op in marked.values():
        strong[id(op)].polls = True
        assert op.run is not None
        if strong[id(op)].kind == "load":
            op.run = partial(_polled, op.run)
    return any(strong[key].kind == "atomic" for key in marked)


def may_wait(blocks: Sequence[Block], places: Places) -> bool:
    """Return whether a thread may loop until another thread acts.

    This is for kernels without strong reads and without atomics that return the old value. A loop that repeats a plain
    read of one address is taken for a wait, although a compiler may read the address only once.
    """
    ops = [op for block in blocks for op in block.ops]
    if any(op.kind != "plain" or op.opcode in _WAITING for op in ops):
        return True
    if len(ops) > MOST_OPS:
        return any(True for _ in loops(blocks))
    for members, head in loops(blocks):
        inside = [op for number in members for op in blocks[number].ops]
        reads = [op for op in inside if op.opcode in ("ld", "ldu") and op.address >= 0 and id(op) not in places.slots]
        if reads and not {op.address for op in reads} <= Loop(blocks, members, head, places, ()).changing:
            return True
    return False


def plain_polls(blocks: Sequence[Block]) -> set[int]:
    """Return the PTX lines of the plain loads that poll, in optimised code."""
    lines = set()
    for members, head in loops(blocks):
        inside = [op for number in members for op in blocks[number].ops]
        loads = [op for op in inside if op.opcode in ("ld", "ldu") and op.address >= 0]
        lines |= {op.line.ptx_line for op in Loop(blocks, members, head, Places((), ()), ()).polling(loads)}
    return lines


MOST_OPS = 4096  # a kernel with more ops is not examined: any loop in such a kernel is taken for a wait
_WAITING = frozenset(("activemask", "barrier", "call", "fence", "griddepcontrol", "mbarrier", "membar", "nanosleep"))


def _polled(run: Run, machine: Machine) -> None:
    """Run a load that polls, and record an acquire of its lanes."""
    run(machine)
    machine.order("acquire", machine.mask)


def loops(blocks: Sequence[Block]) -> Iterator[tuple[frozenset[int], int]]:
    """Yield each loop as (the numbers of its blocks, the number of its head), outer loops first."""
    successors = [following_blocks(block) for block in blocks]
    before: list[list[int]] = [[] for _ in blocks]
    for number, following in enumerate(successors):
        for successor in following:
            before[successor].append(number)
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
    """A loop and its ops; `changing`: the registers whose values may differ between two iterations."""

    def __init__(
        self, blocks: Sequence[Block], members: frozenset[int], head: int, places: Places, strong: Collection[int]
    ) -> None:
        self.blocks, self.members, self.head = blocks, members, head
        self.places = places
        self.ops: list[tuple[Op, int, tuple[int, ...], tuple[int, ...]]] = []  # (op, its block, reads, writes)
        for number in sorted(members):
            self.ops += [(op, number, *places.of(op)) for op in blocks[number].every]
        self.changing = changing(self.ops, strong)

    def polling(self, ops: Sequence[Op]) -> list[Op]:
        """Return those of the ops that read one address in all iterations and decide whether the loop continues."""
        same = [op for op in ops if op.address not in self.changing]
        decisive = self.decisive() if same else set()
        return [op for op in same if not decisive.isdisjoint(op.defs)]

    def decisive(self) -> set[int]:
        """Return the registers that decide whether the loop continues."""
        direct: set[int] = set()
        rest = self.members - {self.head}
        # Keyed by block: the registers that decide whether an iteration runs this block.
        guards: dict[int, set[int]] = {}
        for op, number, _, _ in self.ops:
            decides = {index for index in (op.guard, op.selector) if index >= 0}
            if op.kind not in _WAYS or not decides:
                continue
            successors = self.blocks[number].successors
            if op.kind in ("exit", "return") or not self.members.issuperset(successors):
                direct |= decides
                continue
            reached = [reachable(self.blocks, (successor,), rest) for successor in successors]
            for block in frozenset.union(*reached) - frozenset.intersection(*reached):
                guards.setdefault(block, set()).update(decides)
        return closure(direct, [(written, (*read, *guards.get(key, ()))) for _, key, read, written in self.ops[::-1]])


_WAYS = ("branch", "table", "exit", "return")


def changing(ops: Sequence[tuple[Op, int, tuple[int, ...], tuple[int, ...]]], strong: Collection[int]) -> set[int]:
    """Return the registers whose values may differ between two iterations of a loop.

    These are all registers that the loop sets, except registers with a single assignment from registers that do not
    differ. The result of a plain load from an unchanged address does not differ: a plain load need not see what other
    threads write.
    """
    setters = Counter(index for *_, written in ops for index in written)
    steps = [
        ([index for index in read if index != -1], [index for index in written if setters[index] == 1])
        for op, _, read, written in ops
        if op.kind == "plain" and op.guard < 0 and op.opcode not in _CHANGING and id(op) not in strong
    ]
    differing, before = set(setters), -1
    while len(differing) != before:
        before = len(differing)
        for read, written in steps:
            if differing.isdisjoint(read):
                differing.difference_update(written)
    return differing


_CHANGING = frozenset(("activemask", "atom", "call", "clock"))


def _ahead(blocks: Sequence[Block], members: frozenset[int], polling: Sequence[Op]) -> Iterator[Op]:
    """Yield the loads before a loop that read an address polled by the loop and decide whether the loop is entered."""
    places = {(op.address, op.offset) for op in polling}
    if not places:
        return
    entries = set(members)
    for block in blocks:
        end = block.terminator
        plain = end is None or (end.kind == "branch" and end.guard < 0)
        if block.number not in members and plain and not members.isdisjoint(block.successors):
            entries.add(block.number)  # this block leads only into the loop
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
            if (op.address, op.offset) in places:
                yield op
