"""Finds the machine instructions of each PTX line: ptxas unrolls loops, and copies their tails."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from cudabench.compile.sass import Block, Function, Instruction
from cudabench.explain import ptx_text
from cudabench.explain.lane_equations import Key
from cudabench.explain.ptx_text import Flow, Line, Loop
from cudabench.simulator.report import Executed

Executions = Mapping[int, Executed]  # how often each PTX line ran
_Copies = dict[int, Counter[tuple[str, int]]]  # by PTX line: its machine instructions in each block of a function

# PTX instructions that become one machine instruction and stay in place.
_FIXED = {
    "st": ("ST", "STG", "STS", "STL"),
    "red": ("RED", "REDG", "REDS", "ATOMS", "ATOMG", "ATOM"),
    "atom": ("ATOM", "ATOMG", "ATOMS", "RED", "REDG", "REDS"),
    "bar": ("BAR",),
    "barrier": ("BAR",),
    "shfl": ("SHFL",),
    "cp": ("LDGSTS",),
    "ldmatrix": ("LDSM",),
    "stmatrix": ("STSM",),
}
_LOADS = {"ld": ("LD", "LDG", "LDS", "LDL"), "ldu": ("LDG",), "tex": ("TEX", "TLD"), "tld4": ("TLD4",)}
# PTX instructions that become one machine instruction.
_PLAIN = {"fma": ("FFMA", "DFMA"), "add": ("FADD", "DADD"), "mul": ("FMUL", "DMUL", "IMAD"), "mad": ("IMAD",)}


class Copies:
    """The places of a kernel's PTX lines, by their use for counting.

    fixed: instructions that stay. loads, branches. exits: branches that became exits. turning: atomics that are loops.
    bodies: copies without a guard while others have one. arithmetic: of loops without other useful instructions.
    unrolled: the branches of loops that ptxas unrolled. ran: the PTX lines that ran, ascending.
    """

    def __init__(self, functions: Sequence[Function], executions: Executions, ptx: Sequence[str]) -> None:
        self.executions = executions
        self.text = ptx_text.read(ptx)
        self.ran = sorted(executions)
        self.fixed, self.loads, self.branches, self.exits, self.bodies, self.turning, self.plain = (
            defaultdict[int, Counter[tuple[str, int]]](Counter) for _ in range(7)
        )
        self._taken: dict[int, int | None] = {}
        self._ends = {block.instructions[-1].ptx_line for function in functions for block in function.blocks}
        spoiled = set()  # lines with a copy that only its guard disables
        blocks = ((function.name, block) for function in functions for block in function.blocks)
        for place, instruction in (((name, block.number), one) for name, block in blocks for one in block.instructions):
            line = instruction.ptx_line
            row = self.text[line]
            group = self._group(instruction, row) if line in executions else None
            if group is None:
                continue
            group[line][place] += 1
            if group is self.fixed or group is self.loads:
                if not instruction.guard:
                    self.bodies[line][place] += 1
                elif not row.guard:
                    spoiled.add(line)
        for line in spoiled:
            self.fixed.pop(line, None)
            self.loads.pop(line, None)
        self.bodies = defaultdict(Counter, {line: self.bodies[line] for line in spoiled if line in self.bodies})
        self.arithmetic: _Copies = {}
        self.unrolled: set[int] = set()
        for loop in self.text.loops:
            first = self.ran[at] if (at := bisect_left(self.ran, loop.first)) < len(self.ran) else loop.last + 1
            if first > loop.last or any(
                other != loop and loop.first <= other.first <= other.last <= loop.last for other in self.text.loops
            ):
                continue  # of another kernel, or around another loop
            if any(loop.first <= line <= loop.last for group in (self.fixed, self.loads) for line in group):
                if self._several_trips(loop):
                    self.unrolled.update(loop.back)
                continue
            lines = [line for line in self.plain if loop.first <= line <= loop.last]
            # ptxas may omit a copy, but does not add copies.
            most = max(lines, key=lambda line: sum(self.plain[line].values()), default=0)
            if most and max(self.plain[most].values()) > 1:
                self.arithmetic[most] = self.plain[most]
                self.unrolled.update(loop.back)

    def _group(self, instruction: Instruction, row: Line) -> _Copies | None:
        """Return the copies that a machine instruction of a PTX line belongs to, or None if it is not useful."""
        opcode, guarded, bra = instruction.opcode, bool(instruction.guard), row.op == "bra"
        groups = (
            (opcode == "ATOMS" and "CAST" in instruction.modifiers, self.turning),
            (opcode in _FIXED.get(row.op, ()), self.fixed),
            (opcode in _LOADS.get(row.op, ()), self.loads),
            # A branch to the end of the kernel became an exit of the lanes that take it.
            (bra and opcode == "EXIT" and guarded and self.text.leaves(instruction.ptx_line), self.exits),
            # ptxas added an unconditional branch, unless the PTX's branch is unconditional too.
            (bra and opcode == "BRA" and guarded == bool(row.guard), self.branches),
            (opcode in _PLAIN.get(row.op, ()) and not guarded, self.plain),
        )
        return next((group for holds, group in groups if holds), None)

    def _several_trips(self, loop: Loop) -> bool:
        """Whether the block with a loop's only back branch does several trips: it has copies of all instructions that
        are not dropped, and of most arithmetic. If ptxas knows the number of trips, it removes other branches."""
        places = {place for line in loop.back for place in self.branches.get(line, {})}
        if len(places) != 1:
            return False
        (place,) = places

        def copies(*groups: _Copies) -> list[int]:
            lines = range(loop.first, loop.last + 1)
            return [group[line][place] for group in groups for line in lines if line in group and group[line][place]]

        kept, most = copies(self.fixed, self.loads), Counter(copies(self.plain)).most_common(1)
        return bool(kept) and min(kept) > 1 and (not most or most[0][0] > 1)

    def taken(self, function: Function, block: Block, entering: Mapping[int, Sequence[Key]]) -> int | None:
        """Return the block that lanes go to if they take the PTX branch at a block's end; None if unclear.

        The PTX lines in a block that only this branch leads to show it, if only one of its ways reaches them.
        """
        line = block.instructions[-1].ptx_line
        if line not in self._taken:
            self._taken[line] = self._to(line, function, block, entering)
        return self._taken[line]

    def _to(self, line: int, function: Function, block: Block, entering: Mapping[int, Sequence[Key]]) -> int | None:
        flow = self.text.flow(line)
        ways = flow.ways(line)
        if ways is None or any(self._absorbed(flow, way, other) for way, other in (ways, ways[::-1])):
            return None
        taken, past = flow.alone(line)
        votes: Counter[int] = Counter()
        for number in (successor for successor in block.successors if len(entering[successor]) == 1):
            here = {i.ptx_line for i in function.blocks[number].instructions} - flow.jumps
            only = [flow.block.get(each, -1) for each in here]
            votes[number] += sum(each in taken for each in only) - sum(each in past for each in only)
        first, second = sorted(block.successors, key=lambda number: -votes[number])
        return first if votes[first] > votes[second] else None

    def _absorbed(self, flow: Flow, way: int, other: int) -> bool:
        """Whether one branch of the machine code may replace two: the next branch is missing and may have the same
        target, as in `a && b`."""
        line = flow.branches.get(way)
        return line is not None and line not in self._ends and other in flow.after[way]

    def multiplicity(self, function: str, block: Block) -> dict[int, int]:
        """Return how many copies each line has in a block, if it is known."""
        return {
            line: group[line][function, block.number]
            for group in (self.fixed, self.loads)
            for line in {instruction.ptx_line for instruction in block.instructions}
            if line in group and group[line][function, block.number]
        }
