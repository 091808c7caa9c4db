"""Finds counts that depend on the order in which threads run: the simulator runs them in one order, a GPU in others.

Three things are examined: registers that get the result of an atomic, or of a load that waits for another thread;
registers that are computed from these registers; and branches that depend on such registers.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from cudabench.simulator.program.code import Block, Code, Op
from cudabench.simulator.program.flow import closure

TRIES = "how often a lane tries again depends on the order in which atomics execute"
PLACES = "the addresses are results of an atomic, which depend on the order in which atomics execute"
BRANCHES = "which lanes execute this depends on the results of an atomic, so on the order in which atomics execute"
WAITS = "how often a lane polls depends on when another thread writes the value that it waits for"
RETRIES = "the loop repeats more often if other warps store to the word between its load and its store"
REPEATED = (TRIES, BRANCHES, WAITS, RETRIES)  # reasons that change how often instructions run, not only their addresses


class ControlFlow:
    """The paths through a kernel's code, and the data on which the choice of a path depends. Each property is computed
    on first use.

    An inlined function may have several copies with the same PTX lines. `first`: for each PTX line, the number of the
    first basic block that contains it; `again`: (line, block number) for each further block that contains it.
    """

    def __init__(self, code: Code) -> None:
        self.code, self.blocks = code, code.blocks
        self.ops = [op for block in code.blocks for op in block.every]
        self.first: dict[int, int] = {}
        places = [(line, block.number) for block in code.blocks for line in block.lines]
        self.again = [(line, number) for line, number in places if self.first.setdefault(line, number) != number]
        self._between: dict[int, frozenset[int]] = {}

    @cached_property
    def conditional_blocks(self) -> tuple[tuple[Block, tuple[str, int]], ...]:
        """The blocks that end in a conditional branch, each with the (file, line) of the branch."""
        ends = ((block, block.terminator) for block in self.blocks if len(block.successors) > 1)
        return tuple(
            (block, (self.code.files.get(end.line.file, ""), end.line.line))
            for block, end in ends
            if end is not None and end.kind in ("branch", "table")
        )

    @cached_property
    def post_dominators(self) -> list[int]:
        """For each block, the set of blocks that are on every path from this block to the end (bit k for block k).

        A block is in its own set.
        """
        everything = (1 << len(self.blocks)) - 1
        dominators = [everything if block.successors else 1 << block.number for block in self.blocks]
        before: list[int] = []
        while dominators != before:
            before = [*dominators]
            for block in reversed(self.blocks):
                common = everything if block.successors else 0
                for number in block.successors:
                    common &= dominators[number]
                dominators[block.number] = common | 1 << block.number
        return dominators

    def between(self, start: Block) -> frozenset[int]:
        """Return the numbers of the blocks between the branch that ends block `start` and its reconvergence."""
        if start.number not in self._between:
            reconvergence = self.post_dominators[start.number] & ~(1 << start.number)
            inside: set[int] = set()
            ahead = list(start.successors)
            while ahead:
                number = ahead.pop()
                if number not in inside and not reconvergence >> number & 1:
                    inside.add(number)
                    ahead.extend(self.blocks[number].successors)
            self._between[start.number] = frozenset(inside)
        return self._between[start.number]

    def computed_from(self, sources: Iterable[Op]) -> set[int]:
        """Return the set of registers with results of the given ops, or with values computed from these results."""
        results = (index for op in sources for index in op.defs)
        return closure(results, [((*op.uses, op.guard), op.defs) for op in self.ops])

    def branches_on(self, registers: set[int]) -> list[Block]:
        """Return the blocks that end in a branch or exit which depends on one of the registers."""
        ends = ((block, block.terminator) for block in self.blocks)
        choices = ((block, end) for block, end in ends if end is not None and end.kind in ("branch", "table", "exit"))
        return [block for block, end in choices if not registers.isdisjoint((end.guard, end.selector))]

    @cached_property
    def _read(self) -> set[int]:
        """The registers with values read from global or shared memory, or with values computed from such values.

        Values read from constant or local memory do not count: they are tables, such as those of sinf and cosf, and
        values that the thread itself has stored.
        """
        lines = {access.location.ptx_line for access in self.code.accesses if access.space in ("global", "shared")}
        return self.computed_from(op for op in self.ops if op.line.ptx_line in lines)

    @cached_property
    def data_dependent_addresses(self) -> frozenset[int]:
        """The PTX lines of memory instructions whose address depends on values read from memory."""
        return frozenset(op.line.ptx_line for op in self.ops if op.address in self._read)

    @cached_property
    def data_dependent_branches(self) -> frozenset[int]:
        """The numbers of the blocks whose branch or exit depends on values read from memory."""
        return frozenset(block.number for block in self.branches_on(self._read))

    @cached_property
    def order_dependent(self) -> dict[int, str]:
        """The PTX lines whose counts depend on the order of atomics or on waiting threads: a dict of line: reason."""
        reasons = dict[int, str]()
        polled = self.computed_from(op for n in self.code.polling for op in self.blocks[n].ops if op.opcode == "ld")
        for block in self.branches_on(polled):
            inside = self.between(block)
            if block.number in inside:
                reasons |= {op.line.ptx_line: WAITS for number in inside for op in self.blocks[number].ops}
        results = self.computed_from(
            op for op in self.ops if op.opcode == "atom" and not self.code.read.isdisjoint(op.defs)
        )
        reasons |= {op.line.ptx_line: PLACES for op in self.ops if op.address in results}
        for block in self.branches_on(results):
            inside = self.between(block)
            reason = TRIES if block.number in inside else BRANCHES
            for op in (op for number in inside for op in self.blocks[number].ops):
                if reason == TRIES or op.line.ptx_line not in reasons:
                    reasons[op.line.ptx_line] = reason
        return reasons


def control_flow_of(code: Code) -> ControlFlow:
    """Return the `ControlFlow` of a kernel's code; it is created once for each code."""
    flow: ControlFlow | None = code.encoded.get(ControlFlow)
    if flow is None:
        flow = code.encoded[ControlFlow] = ControlFlow(code)
    return flow
