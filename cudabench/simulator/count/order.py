"""Which counts depend on the order in which threads come: here one order of many, on hardware another each time.

By the registers alone: what an atomic or a load that waits for another thread returns, what is computed from it, where
that says whither a lane goes.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from cudabench.simulator.program.code import Block, Code, Op
from cudabench.simulator.program.flow import closure

TRIES = "how often a lane tries again depends on the order in which atomics come"
PLACES = "where lanes go is what an atomic gave them, and depends on the order in which they come"
BRANCHES = "which lanes come here is what an atomic told them, and depends on the order in which they come"
WAITS = "how often a lane looks depends on when another thread writes what it waits for"
TURNS = "other warps that store to the word between a load and its store make the loop go round more often"
REPEATED = (TRIES, BRANCHES, WAITS, TURNS)  # those that change how often instructions run, and not only where they go


class Ways:
    """What the code of a kernel says of where lanes go, each found when it is first asked for.

    first: of each line of the PTX the block in which it is first; again: (line, block) of the others. The copies of an
    inlined function have the same lines.
    """

    def __init__(self, code: Code) -> None:
        self.code, self.blocks = code, code.blocks
        self.ops = [op for block in code.blocks for op in block.every]
        self.first: dict[int, int] = {}
        places = [(line, block.number) for block in code.blocks for line in block.lines]
        self.again = [(line, number) for line, number in places if self.first.setdefault(line, number) != number]
        self._between: dict[int, frozenset[int]] = {}

    @cached_property
    def ends(self) -> tuple[tuple[Block, tuple[str, int]], ...]:
        """The blocks that end in a branch with a choice, with its file and line."""
        ends = ((block, block.terminator) for block in self.blocks if len(block.successors) > 1)
        return tuple(
            (block, (self.code.files.get(end.line.file, ""), end.line.line))
            for block, end in ends
            if end is not None and end.kind in ("branch", "table")
        )

    @cached_property
    def post_dominators(self) -> list[int]:
        """For each block, as bits, the blocks that every way from it to the end passes, itself among them."""
        everything = (1 << len(self.blocks)) - 1
        found = [everything if block.successors else 1 << block.number for block in self.blocks]
        before: list[int] = []
        while found != before:
            before = [*found]
            for block in reversed(self.blocks):
                every = everything if block.successors else 0
                for number in block.successors:
                    every &= found[number]
                found[block.number] = every | 1 << block.number
        return found

    def between(self, start: Block) -> frozenset[int]:
        """Return the blocks on the ways from a branch to where all of them meet."""
        if start.number not in self._between:
            meeting = self.post_dominators[start.number] & ~(1 << start.number)
            inside: set[int] = set()
            ahead = list(start.successors)
            while ahead:
                number = ahead.pop()
                if number not in inside and not meeting >> number & 1:
                    inside.add(number)
                    ahead.extend(self.blocks[number].successors)
            self._between[start.number] = frozenset(inside)
        return self._between[start.number]

    def grown(self, registers: Iterable[int]) -> set[int]:
        """Return registers, and those that hold something computed from them."""
        return closure(registers, [((*op.uses, op.guard), op.defs) for op in self.ops])

    def computed(self, sources: Iterable[Op]) -> set[int]:
        """Return the registers that hold what some ops returned, or something computed from it."""
        return self.grown(index for op in sources for index in op.defs)

    def decided(self, given: set[int]) -> list[Block]:
        """Return the blocks after which some registers say where lanes go."""
        ends = ((block, block.terminator) for block in self.blocks)
        choices = ((block, end) for block, end in ends if end is not None and end.kind in ("branch", "table", "exit"))
        return [block for block, end in choices if not given.isdisjoint((end.guard, end.selector))]

    @cached_property
    def _read(self) -> set[int]:
        """The registers that hold what was read from memory, or something computed from it.

        Constant and local memory do not count: there lie the tables of sinf and cosf, and what a thread put there.
        """
        lines = {one.location.ptx_line for one in self.code.accesses if one.space in ("global", "shared")}
        return self.computed(op for op in self.ops if op.line.ptx_line in lines)

    @cached_property
    def led_by_data(self) -> frozenset[int]:
        """The lines of the PTX whose address comes from what was read from memory."""
        return frozenset(op.line.ptx_line for op in self.ops if op.address in self._read)

    @cached_property
    def decided_by_data(self) -> frozenset[int]:
        """The numbers of the blocks after which what was read from memory says where lanes go."""
        return frozenset(block.number for block in self.decided(self._read))

    @cached_property
    def undecided(self) -> dict[int, str]:
        """The lines of the PTX whose counts depend on the order of atomics or on who waits for whom, and by what."""
        found = dict[int, str]()
        polled = self.computed(op for n in self.code.polling for op in self.blocks[n].ops if op.opcode == "ld")
        for block in self.decided(polled):
            inside = self.between(block)
            if block.number in inside:
                found |= {op.line.ptx_line: WAITS for number in inside for op in self.blocks[number].ops}
        given = self.computed(op for op in self.ops if op.opcode == "atom" and not self.code.read.isdisjoint(op.defs))
        found |= {op.line.ptx_line: PLACES for op in self.ops if op.address in given}
        for block in self.decided(given):
            inside = self.between(block)
            reason = TRIES if block.number in inside else BRANCHES
            for op in (op for number in inside for op in self.blocks[number].ops):
                if reason == TRIES or op.line.ptx_line not in found:
                    found[op.line.ptx_line] = reason
        return found


def ways_of(code: Code) -> Ways:
    """Return what a kernel's code says, made once."""
    found: Ways | None = code.encoded.get(Ways)
    if found is None:
        found = code.encoded[Ways] = Ways(code)
    return found
