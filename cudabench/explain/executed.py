"""Counts how often each block of machine code ran, from the counts of its PTX lines.

Nobody executes the machine code here. What is known: the lanes and warps that executed each PTX line (the simulator
counts them), the PTX line that each machine instruction came from, and that lanes are conserved: as many leave a basic
block as came in. These are linear equations in the lanes that enter each block and follow each edge. They are solved
one unknown at a time, the surest first:

1. the lanes that start, and conservation;
2. instructions that ptxas neither moves across branches nor drops: stores, atomics, barriers, shuffles. All copies of
   one together run as often as its PTX line, also where ptxas unrolled a loop or copied its tail; an atomic that is a
   loop of the machine code as often as lanes that meet have to wait;
3. branches that are there once: one of a loop that ptxas unrolled is there for each body. How many lanes take one, the
   simulator counted; which of the two ways of the machine code that is, the PTX lines tell that are there;
4. loads, like stores, although one may have been moved out of a loop or behind a branch;
5. a loop that ptxas unrolled further than the PTX: the body of several trips comes first and as often as it fits, then
   those of fewer trips. The trips of a lane are the lanes of the body over those that enter the loop; where they
   differ from lane to lane, they are taken to differ by one at most. Of a loop without loads and stores the copies of
   a multiplication or an addition tell its bodies, and its branch, where it is there once, tells nothing;
6. for a block that is left, what most of its lines say; and without any line, the way straight on.

The subroutine that a division, a reciprocal or a root of floats calls for operands out of the ordinary is entered by as
many lanes as the simulator found to call it. Inside it goes the way of a zero, or of a number that is very large or
small (`_ROUTES`); denormals, infinities and NaN are not told apart from those, and take some instructions more or less.

An instruction that only its guard keeps from running counts: the hardware issues it. So where a PTX branch became
predication, a guarded instruction tells nothing of its block and is left out of the equations.
"""

from __future__ import annotations

import re
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import ceil
from typing import NamedTuple, TypeVar

from cudabench.compile.sass import Block, Function, Instruction
from cudabench.explain import ptx_text, unrolled_loops
from cudabench.explain.code_copies import Copies, Executions
from cudabench.explain.lane_equations import RANKS, Key, System
from cudabench.simulator.report import Code, Executed, Lines

_T = TypeVar("_T")


class Count(NamedTuple):
    """The executions of a block: warps that entered it, and their active lanes. `sure`: by equations.

    again: how often its last instruction is issued besides: a jump by table (BRX) once for each place that lanes go to.
    more_lanes: their lanes, where they were counted.
    """

    warps: float
    lanes: float
    sure: bool
    again: float = 0
    more_lanes: float | None = None

    @property
    def again_lanes(self) -> float:
        """Their lanes, estimated: what is left of a warp when others have gone is half of it on average."""
        if self.more_lanes is not None:
            return self.more_lanes
        return self.again * self.lanes / self.warps / 2 if self.warps else 0


MOST_COUNTED = 64  # kernels of a run whose counts are cached
_SLOW = "$__internal_"  # prefix of ptxas' own subroutines
# The blocks that a subroutine executes, by the end of its name: for zero, and for too large or small numbers.
_ROUTES = {
    "div_rn_f64_full": ((0, 4, 5, 6, 7, 10, 11), (0, 1, 10, 11)),
    "div_rn_noftz_f32_slowpath": ((0, 1, 2, 3, 4, 17, 20, 21), (0, 7, 13, 14, 15, 20, 21)),
    "rcp_rn_f32_slowpath": ((0, 1, 5, 6), (0, 2, 3, 5, 6)),
    "dblrcp_rn_slowpath_v3": ((0, 1, 6, 7), (0, 1, 2, 3, 6, 7)),
    "sqrt_rn_f32_slowpath": ((0, 4), (0, 1, 2, 3, 4)),
    "dsqrt_rn_f64_mediumpath_v1": ((0, 2, 6, 7, 8), (0, 2, 3, 4, 5, 7, 8)),
    "drsqrt_f64_slowpath_v2": ((0, 6, 7, 8), (0, 1, 2, 3, 4, 7, 8)),
}
_DRIVERS = {"malloc": "malloc", "free": "free", "vprintf": "printf", "__assertfail": "assert"}  # by their PTX names

# Cached counts, by the identity of their inputs: several readers need them after one run.
_counted: OrderedDict[tuple[int, int], tuple[Sequence[Function], Executions, list[list[Count]]]] = OrderedDict()


def count(functions: Sequence[Function], executions: Executions, ptx: Sequence[str]) -> list[list[Count]]:
    """Return the counts of the blocks of a kernel and of its subroutines, in order; callers must not change them.

    functions: the kernel first. executions: warps and lanes of each PTX line, the kernel's first line first. ptx: the
    lines of the PTX, from which instructions are told apart.
    """
    key = id(functions), id(executions)
    if key not in _counted:
        # Keeps the inputs alive, so that their identities stay unique.
        code = executions.code if isinstance(executions, Lines) else None
        counts = _from_code(functions, code) if isinstance(code, Code) else _count(functions, executions, ptx)
        _counted[key] = functions, executions, counts
        if len(_counted) > MOST_COUNTED:
            _counted.popitem(last=False)
    return _counted[key][2]


def _from_code(functions: Sequence[Function], code: Code) -> list[list[Count]]:
    """Return the counts of blocks whose instructions were counted themselves."""

    def of(block: Block) -> Count:
        rows = [code.counts[one.address] for one in block.instructions]
        (warps, lanes, *_), number = rows[0], len(rows)
        again, more = (sum(row[part] for row in rows) - rows[0][part] * number for part in (0, 1))
        return Count(warps, lanes, True, again, more)

    return [[of(block) for block in function.blocks] for function in functions]


def counted(functions: Sequence[Function], counts: Sequence[Sequence[Count]] | None) -> Iterator[tuple[Block, Count]]:
    """Yield each block of a kernel and its subroutines with its count; without counts they ran 0 times."""
    for place, function in enumerate(functions):
        for block in function.blocks:
            yield block, counts[place][block.number] if counts else Count(0, 0, False)


def _count(functions: Sequence[Function], executions: Executions, ptx: Sequence[str]) -> list[list[Count]]:
    if not executions:
        return [[Count(0, 0, True)] * len(function.blocks) for function in functions]
    start = next(iter(executions.values()))
    calls = defaultdict(lambda: Count(0, 0, True), {functions[0].name: Count(start.warps, start.lanes, True)})
    zeros: dict[str, tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))  # of a subroutine: warps, lanes
    copies = Copies(functions, executions, ptx)
    found = []
    for place, function in enumerate(functions):
        # Calls by pointer and recursive calls do not name a function.
        outside = place and not function.name.startswith(_SLOW)
        begin = _entered(function, copies) if outside else calls[function.name]
        counts = _routed(function, begin, zeros[function.name]) or _Counting(function, begin, copies).counts()
        for block, counted in zip(function.blocks, counts, strict=True):
            if block.calls:
                before = calls[block.calls]
                calls[block.calls] = Count(before.warps + counted.warps, before.lanes + counted.lanes, True)
                times = executions.get(block.instructions[-1].ptx_line)
                if times and times.taken:
                    warps, lanes = zeros[block.calls]
                    part = counted.lanes / times.taken
                    zeros[block.calls] = (warps + times.zero_warps * part, lanes + times.zero_lanes * part)
        found.append(counts)
    return found


def _entered(function: Function, copies: Copies) -> Count:
    """Return how often a function of the source was called: as often as the first line of its PTX ran."""
    lines = (i.ptx_line for i in function.instructions if 0 < i.ptx_line <= len(copies.text.ptx))
    first, end = _most(Counter(map(copies.text.around, lines))) or copies.text.around(0)
    times = next((copies.executions[line] for line in copies.ran if first < line < end), Executed())
    return Count(times.warps, times.lanes, True)


def _routed(function: Function, begin: Count, zeros: tuple[float, float]) -> list[Count] | None:
    """Return the counts of a subroutine with known ways; None for others, and if its blocks are different.

    begin: the warps and lanes that enter it; zeros: those of them with zero as operand.
    """
    routes = next((found for end, found in _ROUTES.items() if function.name.endswith(end)), None)
    blocks = function.blocks
    if routes is None or any(
        route[-1] != len(blocks) - 1 or any(then not in blocks[now].successors for now, then in pairwise(route))
        for route in routes
    ):
        return None
    early, late = map(set, routes)
    warps = (min(zeros[0], begin.warps), begin.warps - zeros[0] if begin.lanes > zeros[1] else 0)
    lanes = (zeros[1], begin.lanes - zeros[1])
    counts = []
    for block in blocks:
        goes = (block.number in early, block.number in late)
        both = begin.warps if all(goes) else sum(of for of, here in zip(warps, goes, strict=True) if here)
        counts.append(Count(both, sum(of for of, here in zip(lanes, goes, strict=True) if here), True))
    return counts


def beyond(functions: Sequence[Function], executions: Executions, ptx: Sequence[str]) -> tuple[str, ...]:
    """Return why more runs on hardware than `count` says; arguments as there."""
    found, text = [], ptx_text.read(ptx)
    calls = " ".join(" ".join(ptx[line - 1 : line + 1]) for line in executions if text[line].op == "call")
    if theirs := [name for ptx_name, name in _DRIVERS.items() if re.search(rf"\b{ptx_name}\b", calls)]:
        *others, last = theirs
        said = f"{', '.join(others)} and {last} do" if others else f"{last} does"
        found.append(f"what {said} is the driver's own code: its instructions and accesses to memory are not counted")
    if any(block.calls == function.name for function in functions for block in function.blocks):
        found.append("which lanes of a warp come back together from a function that calls itself is not followed")
    return tuple(found)


def _most(votes: Counter[_T]) -> _T | None:
    """Return the value with the most votes, the first of equals; None without votes."""
    return max(votes, key=lambda each: votes[each], default=None)


class _Counting:
    """The counts of one function: equations over its lanes, and what tells warps.

    begin: the warps and lanes that enter it.
    """

    def __init__(self, function: Function, begin: Count, copies: Copies) -> None:
        self.function, self.blocks, self.begin = function, function.blocks, begin
        self.copies, self.executions = copies, copies.executions
        self.leaving: list[list[Key]] = [
            [("edge", block.number, following) for following in block.successors] for block in self.blocks
        ]
        self.entering: dict[int, list[Key]] = defaultdict(list)
        for edge in (each for edges in self.leaving for each in edges):
            self.entering[edge[2]].append(edge)
        self.system = System(self.entering)

    def counts(self) -> list[Count]:
        """Return how often each block ran."""
        system = self.system
        self._conserve()
        self._place_subroutines()
        self._place_copies()
        for rank in range(RANKS):
            system.solve(rank)
            for line, places in self.copies.exits.items():
                (name, number), times = next(iter(places)), self.executions[line]
                # Where ptxas made one exit of several branches, other lanes come to it than to the branch.
                if len(places) == 1 and name == self.function.name and system.lanes(number) == times.lanes:
                    system.set(("end", number, -1), times.taken)
            system.solve(rank)
            while rank >= 2 and self._take():
                system.solve(rank)
        unrolled_loops.tell(self.function, self.copies, system)
        system.settle()
        sure = [system.lanes(block.number) is not None for block in self.blocks]
        while left := [block for block in self.blocks if system.lanes(block.number) is None]:
            (weight, lanes), number = max(((self._vote(block), block.number) for block in left), key=lambda b: b[0][0])
            if weight:
                system.enter(number, lanes)
            elif not self._straight_on():
                system.enter(left[0].number, 0)
            system.settle()
        entered = [system.known["in", block.number, -1] for block in self.blocks]
        warps = self._warps(entered)
        counts = [Count(system.warps.get(at, warps[at]), lanes, sure[at]) for at, lanes in enumerate(entered)]
        for block in self.blocks:
            if block.instructions[-1].opcode == "BRX":
                reached = sum(
                    min(counts[edge[2]].warps, system.known.get(edge, 0)) for edge in {*self.leaving[block.number]}
                )
                of = counts[block.number]
                counts[block.number] = of._replace(again=max(reached - of.warps, 0))
        for meeting, arrivals in self._arrivals(counts).items():
            counts[meeting] = counts[meeting]._replace(warps=arrivals)
        return counts

    # Lanes.

    def _conserve(self) -> None:
        """Add the equations that as many lanes leave a block as enter it."""
        for block in self.blocks:
            own: Key = ("in", block.number, -1)
            first = 0 if block.number else self.begin.lanes
            self.system.add({own: 1, **dict.fromkeys(self.entering[block.number], -1)}, first, 0)
            ends: list[Key] = [("end", block.number, -1)] if block.exits else []
            self.system.add({own: 1, **dict.fromkeys([*self.leaving[block.number], *ends], -1)}, 0, 0)
            last = block.instructions[-1]
            if last.opcode == "BRA" and "DIV" in last.modifiers:
                # Where the lanes of a warp are apart at a shuffle: a warp that came together does not go there.
                self._go_on(block, *ends)

    def _place_subroutines(self) -> None:
        """Set the lanes that call ptxas' subroutines."""
        called: dict[int, list[Block]] = defaultdict(list)
        for block in self.blocks:
            if block.calls.startswith(_SLOW):
                called[block.instructions[-1].ptx_line].append(block)
        for line, calling in called.items():
            times = self.executions.get(line, Executed())
            for place, block in enumerate(calling):
                for key in self.entering[block.number]:
                    before = self.blocks[key[1]]
                    # A branch of the PTX's own has another line than the division behind it, and counts.
                    if len(before.successors) > 1 and before.instructions[-1].ptx_line == line:
                        each, more = divmod(times.taken, len(calling))
                        self.system.set(key, each + (place < more))
                        if line in self.executions and len(calling) == 1:
                            self.system.warps[block.number] = times.taking

    def _place_copies(self) -> None:
        """Add the equations that all copies of an instruction together run as often as its PTX line."""
        copies = self.copies
        for rank, group in enumerate((copies.fixed, copies.branches, copies.loads), 1):
            for line, places in group.items():
                if rank == 2 and (sum(places.values()) > 1 or line in copies.unrolled):
                    continue  # of an unrolled loop, or copied
                if all(name == self.function.name for name, _ in places):
                    terms: dict[Key, int] = {("in", number, -1): times for (_, number), times in places.items()}
                    self.system.add(terms, self.executions[line].lanes, rank)
        for line, places in copies.turning.items():
            for name, number in places:
                if name == self.function.name and number in self.blocks[number].successors:
                    times = self.executions[line]
                    self.system.enter(number, times.waiting / len(places))
                    self.system.set(("edge", number, number), (times.waiting - times.lanes) / len(places))
                    self.system.warps[number] = times.turns / len(places)

    def _take(self) -> bool:
        """Set the edges of a single-copy branch by the lanes that take it; return whether there was such a branch."""
        known = self.system.known
        for block in self.blocks:
            last = block.instructions[-1]
            times = self.executions.get(last.ptx_line)
            edges = self.leaving[block.number]
            if last.opcode != "BRA" or times is None or len(edges) != 2 or all(edge in known for edge in edges):
                continue
            alone = self.copies.branches.get(last.ptx_line) == {(self.function.name, block.number): 1}
            if not alone or last.ptx_line in self.copies.unrolled or self.system.lanes(block.number) != times.lanes:
                continue
            taken = self.copies.taken(self.function, block, self.entering)
            if taken is not None:
                for edge in edges:
                    self.system.set(edge, times.taken if edge[2] == taken else times.lanes - times.taken)
                return True
        return False

    def _go_on(self, block: Block, *ends: Key) -> None:
        """Let all lanes of a block go to the next block, and not along other edges or to ends."""
        for edge in (*self.leaving[block.number], *ends):
            if edge[2] != block.number + 1:
                self.system.set(edge, 0)

    def _executed(self, block: Block) -> Iterator[tuple[Instruction, Executed, int]]:
        """Yield the instructions of a block whose line ran, how often that did, and how many copies the block has."""
        several = self.copies.multiplicity(self.function.name, block)
        usual = _most(Counter(several.values())) or 1
        for instruction in block.instructions:
            times = self.executions.get(instruction.ptx_line)
            if times is not None:
                yield instruction, times, several.get(instruction.ptx_line, usual)

    def _vote(self, block: Block) -> tuple[float, float]:
        """Return (weight, lanes) of the count of lanes, within limits, that most lines of a block speak for."""
        votes: Counter[float] = Counter()
        least, most = self.system.limits["in", block.number, -1]
        for instruction, times, copies in self._executed(block):
            if least <= times.lanes / copies <= most:
                votes[times.lanes / copies] += 1 if instruction.guard else 2
        lanes = _most(votes)
        return (0, 0) if lanes is None else (votes[lanes] / sum(votes.values()) + votes[lanes] / 1000, lanes)

    def _straight_on(self) -> bool:
        """Let the lanes of a block with unknown edges go to the next block; return whether there was such a block."""
        for block in self.blocks:
            edges = self.leaving[block.number]
            if (
                self.system.lanes(block.number) is not None
                and len(edges) > 1
                and not {*edges} & self.system.known.keys()
            ):
                self._go_on(block)
                return True
        return False

    # Warps.

    def _warps(self, entered: Sequence[float]) -> list[float]:
        """Return the warps that enter each block, in so many lanes: by most of its lines that ran in as many, by the
        one branch that leads to it, or as in another block of as many lanes."""
        told: list[float | None] = []
        for block, lanes in zip(self.blocks, entered, strict=True):
            ran = ((times, copies) for _, times, copies in self._executed(block) if times.lanes / copies == lanes)
            told.append(_most(Counter(-(-times.warps // copies) for times, copies in ran)) if lanes else 0)
        for block in self.blocks:
            if told[block.number] is None and len(self.entering[block.number]) == 1:
                before = self.entering[block.number][0][1]
                told[block.number] = self._behind_branch(self.blocks[before], entered[before], entered[block.number])
        alike = {lanes: warps for lanes, warps in zip(entered, told, strict=True) if warps is not None}
        return [
            warps if warps is not None else alike.get(lanes, ceil(lanes * self._filling(block)))
            for block, lanes, warps in zip(self.blocks, entered, told, strict=True)
        ]

    def _behind_branch(self, before: Block, came: float, lanes: float) -> float | None:
        """Return the warps of a block that a branch alone leads to: each part of a warp that it parts comes by itself.

        None where it is not the PTX's branch alone, or where which of its ways this is cannot be told.
        """
        last = before.instructions[-1]
        times = self.executions.get(last.ptx_line)
        if last.opcode != "BRA" or times is None or times.lanes != came or 2 * times.taken == times.lanes:
            return None
        past = times.warps - times.taking + times.parted
        ways: dict[float, float] = {times.lanes - times.taken: past, times.taken: times.taking}
        return ways.get(lanes)

    def _filling(self, block: Block) -> float:
        """Return the warps a lane that most of a block's lines ran in: each body of an unrolled loop has the loop's."""
        ran = (times for _, times, _ in self._executed(block) if times.lanes)
        warps, lanes = _most(Counter((times.warps, times.lanes) for times in ran)) or self.begin[:2]
        return warps / lanes if lanes else 0

    def _arrivals(self, counts: Sequence[Count]) -> dict[int, float]:
        """Return how often the blocks run at which lanes that parted meet again (BSYNC).

        Each part of a warp arrives by itself: as often as warps went in, and once more for every time that one parted.
        """
        arrivals = {}
        regions = self._regions()
        for first, meeting, inside in regions:
            inner = {number for _, _, part in regions if part < inside for number in part}  # those meet in between
            ends = (self.blocks[number] for number in inside - inner if len(self.blocks[number].successors) > 1)
            # ptxas names branches of its own after those of the PTX: where all lanes go one way nothing parts.
            known = self.system.known
            parting = (end for end in ends if all(known.get(edge, 1) for edge in self.leaving[end.number]))
            parted: float = self._parted(parting)
            parted += sum(self._parting(self.blocks[number], counts) for number in inside - inner)
            parted += sum(counts[number].again for number in inside - inner)
            arrivals[meeting] = counts[first].warps + parted if counts[meeting].lanes else 0
        # Behind a loop where nothing lets lanes meet again, each part comes to the end of the kernel by itself.
        within = {number for _, _, part in regions for number in part}
        for block in self.blocks:
            last = block.instructions[-1]
            leaves = last.opcode == "EXIT" and not last.guard
            if block.number in within or not (leaves or block.instructions[0].opcode == "WARPSYNC"):
                continue
            loops = (o for o in self.blocks if block.number in o.successors and min(o.successors) <= o.number)
            parted = self._parted(o for o in loops if o.number not in within)
            if parted and counts[block.number].lanes:
                arrivals[block.number] = min(counts[block.number].warps + parted, counts[block.number].lanes)
        return arrivals

    def _regions(self) -> list[tuple[int, int, set[int]]]:
        """Return (block of the BSSY, block of its BSYNC, blocks between) of all places where lanes part and meet."""
        regions: list[tuple[int, int, set[int]]] = []
        starts = ((block, one) for block in self.blocks for one in block.instructions if one.opcode == "BSSY")
        for block, start in starts:
            lasts = ((other.number, other.instructions[-1]) for other in self.blocks[block.number + 1 :])
            meetings = {at for at, last in lasts if last.opcode == "BSYNC" and last.operands[:1] == start.operands[:1]}
            # Lanes may leave a region for where one around it meets.
            around = {meeting for _, meeting, part in regions if block.number in part}
            inside: set[int] = set()
            waiting = [block.number]
            while waiting:
                number = waiting.pop()
                if number not in inside | meetings | around:
                    inside.add(number)
                    waiting += self.blocks[number].successors
            reached = {following for number in inside for following in self.blocks[number].successors}
            regions += ((block.number, meeting, inside) for meeting in sorted(meetings & reached))
        return regions

    def _parted(self, blocks: Iterator[Block]) -> int:
        """Return how many warps the PTX's branches at the ends of blocks part, each line counted once."""
        lines = {block.instructions[-1].ptx_line for block in blocks if block.instructions[-1].opcode == "BRA"}
        return sum(self.executions[line].parted for line in lines if line in self.executions)

    def _parting(self, block: Block, counts: Sequence[Count]) -> float:
        """Return how many warps part at a branch that is named after no branch of the PTX: those that go both ways.

        Of a way that joins another one at once, as few warps as its lanes fill.
        """
        last = block.instructions[-1]
        line = self.executions.get(last.ptx_line)
        if last.opcode != "BRA" or not last.guard or len(set(block.successors)) != 2 or (line and line.taken):
            return 0
        alone = [to for to in set(block.successors) if sum(to in other.successors for other in self.blocks) == 1]
        ways = sum(counts[to].warps for to in alone)
        if len(alone) == 1:
            ways += ceil((counts[block.number].lanes - counts[alone[0]].lanes) / 32)
        return max(ways - counts[block.number].warps, 0) if alone else 0
