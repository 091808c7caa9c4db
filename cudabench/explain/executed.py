"""How often each block of machine code ran, from how often each line of its PTX did.

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
from bisect import bisect_left, bisect_right
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from math import ceil, inf
from typing import NamedTuple, Protocol

from cudabench.compile.sass import Block, Function
from cudabench.explain.flow import Flow, flow_around, heads_of


class Times(Protocol):
    """How often a PTX line ran."""

    @property
    def warps(self) -> int:
        """Warps with an active lane."""

    @property
    def lanes(self) -> int:
        """Active lanes of those."""

    @property
    def taken(self) -> int:
        """Of a branch: lanes that took it. Of a division or root: those that call the subroutine, here and below."""

    @property
    def parted(self) -> int:
        """Of a branch: warps of which some lanes took it and some did not."""

    @property
    def taking(self) -> int:
        """Of a branch: warps of which any lane took it."""

    @property
    def zero_warps(self) -> int:
        """Of a division or root: warps with a lane that calls the subroutine with zero."""

    @property
    def zero_lanes(self) -> int:
        """Of a division or root: the lanes that do."""

    @property
    def turns(self) -> int:
        """Of an atomic that is a loop in the machine code: how often warps go through it."""

    @property
    def waiting(self) -> int:
        """Of such an atomic: the lanes that do."""


Executions = Mapping[int, Times]


class Count(NamedTuple):
    """How often a block of a function ran: warps that entered it, and their active lanes. `sure`: by equations.

    again: how often its last instruction is issued besides: a jump by table (BRX) once for each place that lanes go to.
    """

    warps: float
    lanes: float
    sure: bool
    again: float = 0

    @property
    def again_lanes(self) -> float:
        """Their lanes, estimated: what is left of a warp when others have gone is half of it on average."""
        return self.again * self.lanes / self.warps / 2 if self.warps else 0


# What comes of a PTX instruction of the group as one machine instruction, that cannot leave its place.
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
MOST_COUNTED = 64  # kernels of a run whose counts are remembered
_NARROWINGS = 100  # rounds at most
_RANKS = 4  # structure, what stays, branches, loads
# What ptxas makes one instruction of.
_PLAIN = {"fma": ("FFMA", "DFMA"), "add": ("FADD", "DADD"), "mul": ("FMUL", "DMUL", "IMAD"), "mad": ("IMAD",)}
_SLOW = "$__internal_"  # how ptxas' own subroutines are called
# The blocks that a subroutine goes through, by the end of its name: with zero, and with what is too large or small.
_ROUTES = {
    "div_rn_f64_full": ((0, 4, 5, 6, 7, 10, 11), (0, 1, 10, 11)),
    "div_rn_noftz_f32_slowpath": ((0, 1, 2, 3, 4, 17, 20, 21), (0, 7, 13, 14, 15, 20, 21)),
    "rcp_rn_f32_slowpath": ((0, 1, 5, 6), (0, 2, 3, 5, 6)),
    "dblrcp_rn_slowpath_v3": ((0, 1, 6, 7), (0, 1, 2, 3, 6, 7)),
    "sqrt_rn_f32_slowpath": ((0, 4), (0, 1, 2, 3, 4)),
    "dsqrt_rn_f64_mediumpath_v1": ((0, 2, 6, 7, 8), (0, 2, 3, 4, 5, 7, 8)),
    "drsqrt_f64_slowpath_v2": ((0, 6, 7, 8), (0, 1, 2, 3, 4, 7, 8)),
}
_OPCODE = re.compile(r"\s*(?:@!?[\w$%]+\s+)?([a-z]\w*)")

_Key = tuple[str, int, int]  # ("in", block, -1), ("edge", from, to), ("end", block, -1)


@dataclass
class _Equation:
    """Sum of coefficient times unknown = constant; unknowns leave as they become known."""

    terms: dict[_Key, int]
    constant: float
    rank: int
    told: bool = False  # whether it has said all that it can as it is


@dataclass
class _System:
    """Equations over lanes, solved by substitution of what is known."""

    known: dict[_Key, float] = field(default_factory=dict)
    equations: list[list[_Equation]] = field(default_factory=lambda: [[] for _ in range(_RANKS)])  # by rank
    uses: dict[_Key, list[_Equation]] = field(default_factory=lambda: defaultdict(list))
    warps: dict[int, float] = field(default_factory=dict)  # of blocks whose warps are known besides
    entering: Mapping[int, Sequence[_Key]] = field(default_factory=dict)  # the edges that lead to each block
    limits: dict[_Key, tuple[float, float]] = field(default_factory=dict)  # least and most, of what is not known
    changed: dict[int, _Equation] = field(default_factory=dict)  # of which something became known since `narrow`

    def add(self, terms: Mapping[_Key, int], constant: float, rank: int) -> _Equation:
        left = {key: value for key, value in terms.items() if key not in self.known}
        constant -= sum(value * self.known[key] for key, value in terms.items() if key in self.known)
        equation = _Equation(left, constant, rank)
        self.equations[rank].append(equation)
        for key in left:
            self.uses[key].append(equation)
        self.changed[id(equation)] = equation
        return equation

    def solve(self, rank: int) -> None:
        """Use the equations up to a rank until they yield nothing more."""
        going = True
        while going:
            going = False
            for level in range(rank + 1):
                for equation in self.equations[level]:
                    if not equation.told and equation.terms and self.step(equation):
                        going = True
                if going:
                    break

    def step(self, equation: _Equation) -> bool:
        """Learn what one equation tells alone; whether it told anything."""
        terms, constant = equation.terms, equation.constant
        equation.told = True
        if len(terms) == 1:
            ((key, coefficient),) = terms.items()
            value = constant / coefficient
            before = self.entering.get(key[1], ()) if key[0] == "in" else ()
            if value < sum(self.known.get(edge, 0) for edge in before) or value != int(value) or value < 0:
                equation.terms = {}  # contradicts what is surer
                return False
            self.set(key, value)
            return True
        if constant == 0 and (all(c > 0 for c in terms.values()) or all(c < 0 for c in terms.values())):
            for key in list(terms):
                self.set(key, 0)
            return True
        return False

    def set(self, key: _Key, value: float) -> None:
        """Put a value into all equations."""
        if key in self.known:
            return
        self.known[key] = value
        for equation in self.uses[key]:
            coefficient = equation.terms.pop(key, 0)
            equation.constant -= coefficient * value
            equation.told = False
            self.changed[id(equation)] = equation

    def narrow(self) -> bool:
        """Narrow what unknowns can be, by what is as sure as what stays in its place; whether that told one.

        An unknown is what the others of an equation leave, and none is negative: where two edges that are not known
        bring 512 lanes together, neither brings more.
        """
        told = False
        for _ in range(_NARROWINGS):
            waiting, self.changed = self.changed, {}
            for equation in waiting.values():
                for key in self._narrowed(equation) if equation.rank <= 1 else ():
                    self.changed.update({id(other): other for other in self.uses[key]})
                    least, most = self.limits[key]
                    if least == most and key not in self.known:
                        self.set(key, least)
                        told = True
            if not self.changed:
                break
        return told

    def _narrowed(self, equation: _Equation) -> list[_Key]:
        """Narrow the unknowns of one equation; return those for which that changed something."""
        spans = {
            key: sorted(coefficient * limit for limit in self.limits.get(key, (0.0, inf)))
            for key, coefficient in equation.terms.items()
        }
        changed = []
        for key, coefficient in equation.terms.items():
            rest = [
                equation.constant - sum(span[end] for other, span in spans.items() if other != key) for end in (0, 1)
            ]
            least, most = sorted(each / coefficient for each in rest)
            before = self.limits.get(key, (0.0, inf))
            after = max(before[0], least), min(before[1], most)
            if before != after and after[0] <= after[1]:
                self.limits[key] = after
                changed.append(key)
        return changed


# What was counted last, by the identity of what it was counted from: several readers ask for it after one run.
_counted: OrderedDict[tuple[int, int], tuple[Sequence[Function], Executions, list[list[Count]]]] = OrderedDict()


def count(functions: Sequence[Function], executions: Executions, ptx: Sequence[str]) -> list[list[Count]]:
    """Return the counts of the blocks of a kernel and of its subroutines, in their order; nobody may change them.

    functions: the kernel first. executions: warps and lanes of each PTX line, the kernel's first line first. ptx: the
    lines of the PTX, from which instructions are told apart.
    """
    key = id(functions), id(executions)
    found = _counted.get(key)
    if found is None:
        # With what it was counted from, so that none of the identities becomes another's.
        found = _counted[key] = functions, executions, _count(functions, executions, ptx)
        if len(_counted) > MOST_COUNTED:
            _counted.popitem(last=False)
    return found[2]


def _count(functions: Sequence[Function], executions: Executions, ptx: Sequence[str]) -> list[list[Count]]:
    if not executions:
        return [[Count(0, 0, True)] * len(function.blocks) for function in functions]
    calls: dict[str, Count] = {}
    zeros: dict[str, tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))  # of a subroutine: warps, lanes
    start = next(iter(executions.values()))
    copies = _Copies(functions, executions, ptx)
    found = []
    for place, function in enumerate(functions):
        begin = Count(start.warps, start.lanes, True) if place == 0 else calls.get(function.name, Count(0, 0, True))
        if place and not function.name.startswith(_SLOW):
            begin = _entered(function, executions, ptx)  # calls by pointer or of itself name nobody
        counts = _routed(function, begin, zeros[function.name]) or _count_function(function, begin, copies)
        for block, counted in zip(function.blocks, counts, strict=True):
            if block.calls:
                before = calls.get(block.calls, Count(0, 0, True))
                calls[block.calls] = Count(before.warps + counted.warps, before.lanes + counted.lanes, True)
                times = executions.get(block.instructions[-1].ptx_line)
                if times and times.taken:
                    warps, lanes = zeros[block.calls]
                    part = counted.lanes / times.taken
                    zeros[block.calls] = (warps + times.zero_warps * part, lanes + times.zero_lanes * part)
        found.append(counts)
    return found


def _entered(function: Function, executions: Executions, ptx: Sequence[str]) -> Count:
    """Return how often a function of the source was called: as often as the first line of its PTX ran."""
    lines = Counter(i.ptx_line for i in function.instructions if 0 < i.ptx_line <= len(ptx))
    starts: Counter[int] = Counter()
    heads = heads_of(tuple(ptx))
    for line, times in lines.items():
        before = bisect_right(heads, line)
        starts[heads[before - 1] if before else 0] += times
    first = starts.most_common(1)[0][0] if starts else 0
    behind = bisect_right(heads, first)
    end = heads[behind] if behind < len(heads) else len(ptx) + 1
    ran = min((line for line in executions if first < line < end), default=0)
    return Count(executions[ran].warps, executions[ran].lanes, True) if ran else Count(0, 0, True)


def _routed(function: Function, begin: Count, zeros: tuple[float, float]) -> list[Count] | None:
    """Return the counts of a subroutine whose ways are known; None for others, and where its blocks are not those.

    begin: the warps and lanes that enter it; zeros: of those the ones that bring zero.
    """
    routes = next((found for end, found in _ROUTES.items() if function.name.endswith(end)), None)
    if routes is None:
        return None
    blocks = function.blocks
    for route in routes:
        follows = all(then in blocks[now].successors for now, then in pairwise(route) if now < len(blocks))
        if route[-1] != len(blocks) - 1 or not follows:
            return None
    early, late = (set(route) for route in routes)
    warps = (min(zeros[0], begin.warps), begin.warps - zeros[0] if begin.lanes > zeros[1] else 0)
    lanes = (zeros[1], begin.lanes - zeros[1])
    counts = []
    for block in blocks:
        goes = (block.number in early, block.number in late)
        both = begin.warps if all(goes) else sum(of for of, here in zip(warps, goes, strict=True) if here)
        counts.append(Count(both, sum(of for of, here in zip(lanes, goes, strict=True) if here), True))
    return counts


_CALL = re.compile(r"\s*(?:@!?[\w$%]+\s+)?call\b")
_DRIVERS = ("malloc", "free", "vprintf", "__assertfail")


def beyond(functions: Sequence[Function], executions: Executions, ptx: Sequence[str]) -> tuple[str, ...]:
    """Return why more runs on hardware than `count` says; arguments as there."""
    found = []
    texts = (" ".join(ptx[line - 1 : line + 1]) for line in executions if 0 < line <= len(ptx))
    called = {name for text in texts if _CALL.match(text) for name in re.findall(r"\w+", text)}
    if theirs := [name for name in _DRIVERS if name in called]:
        own = {"vprintf": "printf", "__assertfail": "assert"}
        *others, last = [own.get(name, name) for name in theirs]
        said = f"{', '.join(others)} and {last} do" if others else f"{last} does"
        found.append(f"what {said} is the driver's own code: its instructions and accesses to memory are not counted")
    if any(block.calls == function.name for function in functions for block in function.blocks):
        found.append("which lanes of a warp come back together from a function that calls itself is not followed")
    return tuple(found)


class _Loop(NamedTuple):
    """A loop of the PTX: from the line of its label to the last branch back to it; `back` are all of those."""

    first: int
    last: int
    back: tuple[int, ...]


_LABEL = re.compile(r"\s*([$\w]+):")
_BRANCH = re.compile(r"\s*(?:@!?[\w$%]+\s+)?bra(?:\.uni)?\s+([$\w]+)\s*;")


@lru_cache(maxsize=8)
def _loops(ptx: tuple[str, ...]) -> list[_Loop]:
    """Return the loops of all functions of a PTX text, whose labels are its own by NVIDIA's naming."""
    labels: dict[str, int] = {}
    back: dict[str, list[int]] = defaultdict(list)
    for number, text in enumerate(ptx, 1):
        if match := _LABEL.match(text):
            labels[match[1]] = number
        elif (match := _BRANCH.match(text)) and match[1] in labels:
            back[match[1]].append(number)
    return [_Loop(labels[label], max(lines), tuple(lines)) for label, lines in back.items()]


def _leaves(text: str, ptx: Sequence[str], line: int) -> bool:
    """Whether a branch of the PTX goes to where nothing but the end is."""
    match = _BRANCH.match(text)
    for number in range(line, len(ptx)) if match else ():
        label = _LABEL.match(ptx[number])
        if label and match and label[1] == match[1]:
            after = (row.strip() for row in ptx[number + 1 :])
            return next((row for row in after if row and not row.startswith(("//", "."))), "") == "ret;"
    return False


class _Trips(NamedTuple):
    """Trips through a loop that differ by one at most.

    lanes: (trips, lanes that have as many); warps: (trips of the lanes of a warp, such warps), empty where not known.
    """

    lanes: tuple[tuple[int, int], ...]
    warps: tuple[tuple[tuple[int, ...], int], ...]

    def runs(self, size: int) -> float:
        """Return in how many lanes a body of `size` trips runs."""
        return sum(left // size * lanes for left, lanes in self.lanes)

    def again(self, size: int) -> float:
        """Return in how many lanes a body of `size` trips follows itself."""
        return sum(max(left // size - 1, 0) * lanes for left, lanes in self.lanes)

    def issued(self, size: int) -> float | None:
        """Return in how many warps a body of `size` trips runs."""
        return sum(max(left) // size * warps for left, warps in self.warps) if self.warps else None

    def after(self, size: int) -> _Trips:
        """Return what is left behind a body of `size` trips."""
        return _Trips(
            tuple((left % size, lanes) for left, lanes in self.lanes),
            tuple((tuple(one % size for one in left), warps) for left, warps in self.warps),
        )


class _Copies:
    """Where the machine instructions of each PTX line are."""

    def __init__(self, functions: Sequence[Function], executions: Executions, ptx: Sequence[str]) -> None:
        self.executions = executions
        self.ptx = ptx
        self._flows: list[Flow] = []
        self._taken: dict[int, int | None] = {}
        self.ends = {block.instructions[-1].ptx_line for function in functions for block in function.blocks}
        self.fixed: dict[int, Counter[tuple[str, int]]] = defaultdict(Counter)
        self.loads: dict[int, Counter[tuple[str, int]]] = defaultdict(Counter)
        self.branches: dict[int, Counter[tuple[str, int]]] = defaultdict(Counter)
        self.exits: dict[int, Counter[tuple[str, int]]] = defaultdict(Counter)  # branches that became exits
        self.bodies: dict[int, Counter[tuple[str, int]]] = defaultdict(Counter)  # copies without a guard
        self.turning: dict[int, Counter[tuple[str, int]]] = defaultdict(Counter)  # loops of one atomic
        plain: dict[int, Counter[tuple[str, int]]] = defaultdict(Counter)
        spoiled = set()  # lines with a copy that only its guard keeps from running
        for function in functions:
            for block in function.blocks:
                for instruction in block.instructions:
                    line = instruction.ptx_line
                    if line not in executions or line > len(ptx):
                        continue
                    text = ptx[line - 1]
                    match = _OPCODE.match(text)
                    opcode = match[1] if match else ""
                    if instruction.opcode == "ATOMS" and "CAST" in instruction.modifiers:
                        self.turning[line][function.name, block.number] += 1
                        continue
                    if instruction.opcode in _FIXED.get(opcode, ()):
                        group = self.fixed
                    elif instruction.opcode in _LOADS.get(opcode, ()):
                        group = self.loads
                    elif opcode == "bra" and instruction.opcode == "EXIT" and instruction.guard:
                        # A branch to the end of the kernel became an exit of the lanes that take it.
                        if _leaves(text, ptx, line):
                            self.exits[line][function.name, block.number] += 1
                        continue
                    elif opcode == "bra" and instruction.opcode == "BRA":
                        # A branch that is always taken is one that ptxas added, unless the PTX's is too.
                        if bool(instruction.guard) == text.lstrip().startswith("@"):
                            self.branches[line][function.name, block.number] += 1
                        continue
                    elif instruction.opcode in _PLAIN.get(opcode, ()) and not instruction.guard:
                        plain[line][function.name, block.number] += 1
                        continue
                    else:
                        continue
                    if instruction.guard and not text.lstrip().startswith("@"):
                        spoiled.add(line)
                    elif not instruction.guard:
                        self.bodies[line][function.name, block.number] += 1
                    group[line][function.name, block.number] += 1
        for line in spoiled:
            self.fixed.pop(line, None)
            self.loads.pop(line, None)
        self.bodies = {line: self.bodies[line] for line in spoiled if line in self.bodies}
        self.loops = _loops(tuple(ptx))
        self._ran = sorted(executions)
        self._trips: dict[int, _Trips | None] = {}
        self.arithmetic: dict[int, Counter[tuple[str, int]]] = {}
        self.unrolled: set[int] = set()  # the branches of the loops of which those lines are
        for loop in self.loops:
            first = bisect_left(self._ran, loop.first)
            if first == len(self._ran) or self._ran[first] > loop.last:
                continue  # of another kernel
            inner = any(other != loop and loop.first <= other.first <= other.last <= loop.last for other in self.loops)
            told = any(loop.first <= line <= loop.last for group in (self.fixed, self.loads) for line in group)
            lines = [line for line in plain if loop.first <= line <= loop.last]
            # ptxas may leave a copy out, and makes none besides.
            most = max(lines, key=lambda line: sum(plain[line].values()), default=0)
            if not inner and not told and most and max(plain[most].values()) > 1:
                self.arithmetic[most] = plain[most]
                self.unrolled.update(loop.back)
            elif not inner and told and self.several_trips(loop, plain):
                self.unrolled.update(loop.back)

    def several_trips(self, loop: _Loop, plain: Mapping[int, Counter[tuple[str, int]]]) -> bool:
        """Whether the block with a loop's only branch back does several trips: it has copies of all that is not
        dropped, and of most arithmetic. Where ptxas knows how many trips there are, it leaves no other branch."""
        places = {place for line in loop.back for place in self.branches.get(line, {})}
        if len(places) != 1:
            return False
        (place,) = places

        def copies(*groups: Mapping[int, Counter[tuple[str, int]]]) -> list[int]:
            lines = range(loop.first, loop.last + 1)
            return [group[line][place] for group in groups for line in lines if line in group and group[line][place]]

        kept, most = copies(self.fixed, self.loads), Counter(copies(plain)).most_common(1)
        return bool(kept) and min(kept) > 1 and (not most or most[0][0] > 1)

    def taken(self, function: Function, block: Block, entering: Mapping[int, Sequence[_Key]]) -> int | None:
        """Return to which block the lanes go that take the PTX branch of a block's end; None where that is not clear.

        What stands in a block that the branch alone leads to tells it: PTX lines that only one of its ways comes to.
        """
        line = block.instructions[-1].ptx_line
        if line not in self._taken:
            self._taken[line] = self._to(line, function, block, entering)
        return self._taken[line]

    def _to(self, line: int, function: Function, block: Block, entering: Mapping[int, Sequence[_Key]]) -> int | None:
        flow = self.flow(line)
        ways = flow.ways(line)
        if ways is None or any(self.absorbed(flow, way, other) for way, other in (ways, ways[::-1])):
            return None
        taken, past = flow.alone(line)
        votes: Counter[int] = Counter()
        for number in block.successors:
            if len(entering[number]) == 1:
                here = {i.ptx_line for i in function.blocks[number].instructions} - flow.jumps
                only = [flow.block.get(each, -1) for each in here]
                votes[number] += sum(each in taken for each in only) - sum(each in past for each in only)
        first, second = block.successors
        sure = votes[first] - votes[second]
        return None if not sure else first if sure > 0 else second

    def absorbed(self, flow: Flow, way: int, other: int) -> bool:
        """Whether one branch of the machine code may stand for two: that behind it is not there, and may go where it
        goes, as in `a && b`."""
        line = flow.branches.get(way)
        return line is not None and line not in self.ends and other in flow.after[way]

    def flow(self, line: int) -> Flow:
        """Return the control flow of the PTX function around a line."""
        found = next((flow for flow in self._flows if line in flow.rows), None)
        if found is None:
            found = flow_around(self.ptx, line)
            self._flows.append(found)
        return found

    def trips(self, line: int) -> _Trips | None:
        """Return how often lanes and warps go through the innermost loop around a PTX line; None outside of loops."""
        if line not in self._trips:
            self._trips[line] = self._around(line)
        return self._trips[line]

    def _around(self, line: int) -> _Trips | None:
        around = [loop for loop in self.loops if loop.first <= line <= loop.last]
        if not around:
            return None
        loop = min(around, key=lambda loop: loop.last - loop.first)
        place = bisect_left(self._ran, loop.first)
        first = self._ran[place] if place < len(self._ran) else 0
        back = [self.executions[number] for number in loop.back if number in self.executions]
        entered = self.executions[first].lanes - sum(branch.taken for branch in back) if first else 0
        if not entered:
            return None
        ran = self.executions[line]
        least = ran.lanes // entered
        more = ran.lanes - least * entered
        lanes = ((least, entered - more), (least + 1, more))
        # A warp has as many trips as the lane with most. Those with lanes of both kinds part once, at the loop's end.
        before = self._ran[place - 1] if place else 0
        if not before or self.executions[before].lanes != entered:
            return _Trips(lanes, ())
        warps, both = self.executions[before].warps, sum(branch.parted for branch in back)
        longer = ran.warps - least * warps
        if not 0 <= both <= longer <= warps:
            return _Trips(lanes, ())
        return _Trips(lanes, (((least,), warps - longer), ((least, least + 1), both), ((least + 1,), longer - both)))

    def multiplicity(self, function: str, block: Block) -> dict[int, int]:
        """Return how many copies of itself each line has in a block, where that can be told."""
        return {
            line: group[line][function, block.number]
            for group in (self.fixed, self.loads)
            for line in {instruction.ptx_line for instruction in block.instructions}
            if line in group and group[line][function, block.number]
        }


def _count_function(function: Function, begin: Count, copies: _Copies) -> list[Count]:
    blocks, executions, start = function.blocks, copies.executions, begin.lanes
    system = _System()
    called: dict[int, list[Block]] = defaultdict(list)  # calls of ptxas' subroutines, by PTX line
    entering: dict[int, list[_Key]] = defaultdict(list)
    for block in blocks:
        for following in block.successors:
            entering[following].append(("edge", block.number, following))
    system.entering = entering
    for block in blocks:
        own: _Key = ("in", block.number, -1)
        first = start if block.number == 0 else 0
        system.add({own: 1, **dict.fromkeys(entering[block.number], -1)}, first, 0)
        leaving: list[_Key] = [("edge", block.number, following) for following in block.successors]
        if block.exits:
            leaving.append(("end", block.number, -1))
        system.add({own: 1, **dict.fromkeys(leaving, -1)}, 0, 0)
        last = block.instructions[-1]
        if last.opcode == "BRA" and "DIV" in last.modifiers:
            # Where the lanes of a warp are apart at a shuffle: a warp that came together does not go there.
            for key in leaving:
                if key[2] != block.number + 1:
                    system.set(key, 0)
        if block.calls.startswith(_SLOW):
            called[last.ptx_line].append(block)
    for line, calling in called.items():
        for place, block in enumerate(calling):
            for key in entering[block.number]:
                before = blocks[key[1]]
                # A branch of the PTX's own has another line than the division behind it, and counts.
                if len(before.successors) > 1 and before.instructions[-1].ptx_line == line:
                    times = executions.get(line)
                    of_all = times.taken if times else 0
                    system.set(key, of_all // len(calling) + (place < of_all % len(calling)))
                    if times and len(calling) == 1:
                        system.warps[block.number] = times.taking
    for rank, group in enumerate((copies.fixed, copies.branches, copies.loads), 1):
        for line, places in group.items():
            if rank == 2 and (sum(places.values()) > 1 or line in copies.unrolled):
                continue  # of an unrolled loop, or copied
            if all(name == function.name for name, _ in places):
                terms: dict[_Key, int] = {("in", number, -1): times for (_, number), times in places.items()}
                system.add(terms, executions[line].lanes, rank)
    for line, places in copies.turning.items():
        for (name, number), _ in places.items():
            if name == function.name and number in blocks[number].successors:
                times = executions[line]
                system.set(("in", number, -1), times.waiting / len(places))
                system.set(("edge", number, number), (times.waiting - times.lanes) / len(places))
                system.warps[number] = times.turns / len(places)
    for rank in range(_RANKS):
        system.solve(rank)
        for line, places in copies.exits.items():
            (name, number), times = next(iter(places)), executions[line]
            # Where ptxas made one exit of several branches, other lanes come to it than to the branch.
            if len(places) == 1 and name == function.name and system.known.get(("in", number, -1)) == times.lanes:
                system.set(("end", number, -1), times.taken)
        system.solve(rank)
        while rank >= 2 and _take(function, copies, entering, system):
            system.solve(rank)
    _unroll(function, copies, system)
    while system.narrow():
        system.solve(_RANKS - 1)
    sure = {block.number for block in blocks if ("in", block.number, -1) in system.known}
    while left := [block for block in blocks if ("in", block.number, -1) not in system.known]:
        limits = {block.number: system.limits.get(("in", block.number, -1), (0.0, inf)) for block in left}
        ballots = [(_vote(block, limits[block.number], function, copies), block.number) for block in left]
        (weight, lanes), number = max(ballots, key=lambda ballot: ballot[0][0])
        if weight:
            system.set(("in", number, -1), lanes)
        elif not _straight_on(blocks, system):
            system.set(("in", left[0].number, -1), 0)
        system.solve(_RANKS - 1)
        while system.narrow():
            system.solve(_RANKS - 1)
    counts = []
    entered = [system.known["in", block.number, -1] for block in blocks]
    told = [_warps(block, lanes, function, copies) for block, lanes in zip(blocks, entered, strict=True)]
    _behind_branches(blocks, told, entering, system, executions)
    # Where as many lanes are as in another block, they are in as many warps.
    alike = {lanes: warps for lanes, warps in zip(entered, told, strict=True) if warps is not None}
    usual = begin.warps / begin.lanes if begin.lanes else 0
    for block, lanes, warps in zip(blocks, entered, told, strict=True):
        if warps is None:
            warps = alike.get(lanes, ceil(lanes * _filling(block, executions, usual)))
        filled = system.warps.get(block.number, warps)
        counts.append(Count(filled, lanes, block.number in sure))
    for block in blocks:
        if block.instructions[-1].opcode == "BRX":
            reached = sum(
                min(counts[to].warps, system.known.get(("edge", block.number, to), 0)) for to in set(block.successors)
            )
            of = counts[block.number]
            counts[block.number] = of._replace(again=max(reached - of.warps, 0))
    for meeting, arrivals in _arrivals(blocks, counts, executions, system).items():
        counts[meeting] = counts[meeting]._replace(warps=arrivals)
    return counts


def _take(function: Function, copies: _Copies, entering: Mapping[int, Sequence[_Key]], system: _System) -> bool:
    """Tell the ways of a branch that is there once by the lanes that take it; whether there was one to tell."""
    for block in function.blocks:
        last = block.instructions[-1]
        times = copies.executions.get(last.ptx_line)
        edges: list[_Key] = [("edge", block.number, following) for following in block.successors]
        if last.opcode != "BRA" or times is None or len(edges) != 2 or all(edge in system.known for edge in edges):
            continue
        if copies.branches.get(last.ptx_line, {}) != {(function.name, block.number): 1}:
            continue
        if last.ptx_line in copies.unrolled or system.known.get(("in", block.number, -1)) != times.lanes:
            continue
        taken = copies.taken(function, block, entering)
        if taken is not None:
            for edge in edges:
                system.set(edge, times.taken if edge[2] == taken else times.lanes - times.taken)
            return True
    return False


def _behind_branches(
    blocks: Sequence[Block],
    told: list[float | None],
    entering: Mapping[int, Sequence[_Key]],
    system: _System,
    executions: Executions,
) -> None:
    """Tell the warps of blocks that one branch alone leads to: each part of a warp that it parts comes by itself."""
    for block in blocks:
        if told[block.number] is not None or len(entering[block.number]) != 1:
            continue
        _, number, _ = entering[block.number][0]
        times = executions.get(blocks[number].instructions[-1].ptx_line)
        if blocks[number].instructions[-1].opcode != "BRA" or times is None:
            continue
        if times.lanes != system.known["in", number, -1] or 2 * times.taken == times.lanes:
            continue  # not the PTX's branch alone, or which of its ways this is cannot be told
        lanes = system.known["in", block.number, -1]
        if lanes == times.taken:
            told[block.number] = times.taking
        elif lanes == times.lanes - times.taken:
            told[block.number] = times.warps - times.taking + times.parted


def _filling(block: Block, executions: Executions, usual: float) -> float:
    """Return the warps a lane that most of a block's lines ran in: each body of an unrolled loop has the loop's."""
    votes: Counter[tuple[int, int]] = Counter()
    for instruction in block.instructions:
        times = executions.get(instruction.ptx_line)
        if times is not None and times.lanes:
            votes[times.warps, times.lanes] += 1
    if not votes:
        return usual
    warps, lanes = votes.most_common(1)[0][0]
    return warps / lanes


def _arrivals(
    blocks: Sequence[Block], counts: Sequence[Count], executions: Executions, system: _System
) -> dict[int, float]:
    """Return how often the blocks run at which lanes that parted meet again (BSYNC).

    Each part of a warp arrives by itself: as often as warps went in, and once more for every time that one parted.
    """
    regions: list[tuple[int, int, set[int]]] = []  # (block of the BSSY, block of its BSYNC, blocks between)
    for block in blocks:
        for instruction in block.instructions:
            if instruction.opcode != "BSSY":
                continue
            meetings = {
                other.number
                for other in blocks
                if other.instructions[-1].opcode == "BSYNC"
                and other.instructions[-1].operands[:1] == instruction.operands[:1]
                and other.number > block.number
            }
            # Lanes may leave a region for where one around it meets.
            around = {meeting for _, meeting, part in regions if block.number in part}
            inside: set[int] = set()
            waiting = [block.number]
            while waiting:
                number = waiting.pop()
                if number not in inside | meetings | around:
                    inside.add(number)
                    waiting += blocks[number].successors
            reached = {following for number in inside for following in blocks[number].successors}
            regions += ((block.number, meeting, inside) for meeting in sorted(meetings & reached))
    arrivals = {}
    for first, meeting, inside in regions:
        inner = {number for _, _, part in regions if part < inside for number in part}  # those meet in between
        ends = (blocks[number] for number in inside - inner if len(blocks[number].successors) > 1)
        # ptxas names branches of its own after those of the PTX: where all lanes go one way nothing parts.
        parting = (end for end in ends if all(system.known.get(("edge", end.number, to), 1) for to in end.successors))
        lines = {end.instructions[-1].ptx_line for end in parting if end.instructions[-1].opcode == "BRA"}
        parted: float = sum(executions[line].parted for line in lines if line in executions)
        parted += sum(_parting(blocks[number], blocks, counts, executions) for number in inside - inner)
        parted += sum(counts[number].again for number in inside - inner)
        arrivals[meeting] = counts[first].warps + parted if counts[meeting].lanes else 0
    # Behind a loop where nothing lets lanes meet again, each part comes to the end of the kernel by itself.
    within = {number for _, _, part in regions for number in part}
    for block in blocks:
        last = block.instructions[-1]
        leaves = last.opcode == "EXIT" and not last.guard
        if block.number in within or not (leaves or block.instructions[0].opcode == "WARPSYNC"):
            continue
        loops = (o for o in blocks if block.number in o.successors and min(o.successors) <= o.number)
        ways = (o.instructions[-1] for o in loops if o.number not in within)
        before = {way.ptx_line for way in ways if way.opcode == "BRA"}
        parted = sum(executions[line].parted for line in before if line in executions)
        if parted and counts[block.number].lanes:
            arrivals[block.number] = min(counts[block.number].warps + parted, counts[block.number].lanes)
    return arrivals


def _parting(block: Block, blocks: Sequence[Block], counts: Sequence[Count], executions: Executions) -> float:
    """Return how many warps part at a branch that is named after no branch of the PTX: those that go both ways.

    Of a way that joins another one at once, as few warps as its lanes fill.
    """
    last = block.instructions[-1]
    line = executions.get(last.ptx_line)
    if last.opcode != "BRA" or not last.guard or len(set(block.successors)) != 2 or (line and line.taken):
        return 0
    alone = [to for to in set(block.successors) if sum(to in other.successors for other in blocks) == 1]
    ways = sum(counts[to].warps for to in alone)
    if len(alone) == 1:
        ways += ceil((counts[block.number].lanes - counts[alone[0]].lanes) / 32)
    return max(ways - counts[block.number].warps, 0) if alone else 0


def _unroll(function: Function, copies: _Copies, system: _System) -> None:
    """Tell the bodies of loops that ptxas unrolled from their rests."""
    for line, places in copies.bodies.items():
        # The rest's copies are guarded in blocks that all lanes pass: those of the body that repeats itself are left.
        repeated = {
            number: times
            for (name, number), times in places.items()
            if name == function.name and times > 1 and number in function.blocks[number].successors
        }
        trips = copies.trips(line)
        if trips and len(repeated) == 1:
            ((number, size),) = repeated.items()
            _ran(number, size, trips, function, system)
            system.solve(_RANKS - 1)
    for group in (copies.fixed, copies.loads, copies.arithmetic):
        for line, places in group.items():
            bodies = {
                number: times
                for (name, number), times in places.items()
                if name == function.name and ("in", number, -1) not in system.known
            }
            trips = copies.trips(line)
            if trips is None or len(bodies) < (1 if group is copies.arithmetic else 2):
                continue
            ones = [number for number, size in bodies.items() if size == 1]
            largest = max(bodies, key=lambda number: bodies[number])
            if len(ones) == 2 and ones[0] < largest < ones[1]:
                # The first is for lanes that come in with the loop's condition false: a `while` or `for` has none.
                system.set(("in", ones[0], -1), 0)
                del bodies[ones[0]]
            sizes = list(bodies.values())
            for number, size in sorted(bodies.items(), key=lambda body: -body[1]):
                if sizes.count(size) > 1 and any(left and lanes for left, lanes in trips.lanes):
                    break  # which of the two runs is not to be told
                _ran(number, size, trips, function, system)
                trips = trips.after(size)
            system.solve(_RANKS - 1)


def _ran(number: int, size: int, trips: _Trips, function: Function, system: _System) -> None:
    """Note how often a body of `size` trips runs, of the trips that are left for it."""
    system.set(("in", number, -1), trips.runs(size))
    if number in function.blocks[number].successors:
        system.set(("edge", number, number), trips.again(size))
    issued = trips.issued(size)
    if issued is not None:
        system.warps[number] = issued


def _vote(block: Block, limits: tuple[float, float], function: Function, copies: _Copies) -> tuple[float, float]:
    """Return (weight, lanes) of the count of lanes, within limits, that most lines of a block speak for."""
    votes: Counter[float] = Counter()
    several = copies.multiplicity(function.name, block)
    usual = Counter(several.values()).most_common(1)[0][0] if several else 1
    for instruction in block.instructions:
        if instruction.ptx_line in copies.executions:
            active = copies.executions[instruction.ptx_line].lanes
            lanes = active / several.get(instruction.ptx_line, usual)
            if limits[0] <= lanes <= limits[1]:
                votes[lanes] += 1 if instruction.guard else 2
    if not votes:
        return 0, 0
    lanes, weight = votes.most_common(1)[0]
    return weight / sum(votes.values()) + weight / 1000, lanes


def _straight_on(blocks: Sequence[Block], system: _System) -> bool:
    """Let the lanes of a block whose ways on are all unknown go on to the next; whether there was such a block."""
    for block in blocks:
        edges: list[_Key] = [("edge", block.number, following) for following in block.successors]
        if ("in", block.number, -1) in system.known and len(edges) > 1 and not any(e in system.known for e in edges):
            for edge in edges:
                if edge[2] != block.number + 1:
                    system.set(edge, 0)
            return True
    return False


def _warps(block: Block, lanes: float, function: Function, copies: _Copies) -> float | None:
    """Return the warps that entered a block, by most of its lines that ran in as many lanes; None without any."""
    if not lanes:
        return 0
    several = copies.multiplicity(function.name, block)
    usual = Counter(several.values()).most_common(1)[0][0] if several else 1
    votes: Counter[float] = Counter()
    for instruction in block.instructions:
        times = copies.executions.get(instruction.ptx_line)
        copied = several.get(instruction.ptx_line, usual)
        if times is not None and times.lanes / copied == lanes:
            votes[-(-times.warps // copied)] += 1
    return votes.most_common(1)[0][0] if votes else None
