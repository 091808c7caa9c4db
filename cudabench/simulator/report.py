"""What a simulated launch yields: frozen records without behaviour."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

Index = tuple[int, int, int]


class Access(NamedTuple):
    """Memory requests of one source line, space, operation and width, summed over the launch.

    bytes: per lane. requests: warp-level instructions with at least one active lane. sectors (global, local): distinct
    32-byte pieces touched, summed over requests; ideal_sectors: the same bytes packed. wavefronts (shared): turns
    over the 32 banks; (constant): addresses, one after the other; ideal_wavefronts: without conflicts. Pairs that do
    not apply are None.
    merged: requests of the PTX whose work these do too; they are in no other count.
    """

    file: str
    line: int
    space: str
    op: str
    bytes: int
    requests: int
    sectors: int | None
    ideal_sectors: int | None
    wavefronts: int | None
    ideal_wavefronts: int | None
    merged: int = 0


class Hazard(NamedTuple):
    """A fault of the kernel at a source line; block and thread are those of the first occurrence, x first."""

    kind: str
    file: str
    line: int
    block: Index
    thread: Index
    count: int  # type: ignore[assignment]
    message: str


class Executed(NamedTuple):
    """How often an instruction ran: warps with an active lane, their active lanes.

    Of a branch also: the lanes that took it, and the warps that it parted.
    """

    warps: int = 0
    lanes: int = 0
    taken: int = 0
    parted: int = 0

    def plus(self, warps: int = 0, lanes: int = 0, taken: int = 0, parted: int = 0) -> Executed:
        """Return the sum."""
        return Executed(self.warps + warps, self.lanes + lanes, self.taken + taken, self.parted + parted)


class Branch(NamedTuple):
    """The conditional branches of one source line, summed over the launch.

    executions: warps that came to them. parted: those whose lanes went different ways. lanes, taken: the lanes that
    came, and that took the branch as the compiler wrote it. instructions, threads: warp instructions of PTX that ran
    between a branch that parts warps and the place where all its ways meet, those of inner such branches left out, and
    their active lanes in all.
    """

    file: str
    line: int
    executions: int
    parted: int
    lanes: int
    taken: int
    instructions: int
    threads: int

    def plus(self, other: Branch) -> Branch:
        """Return the sum of two launches' records of one line."""
        return Branch(self.file, self.line, *(x + y for x, y in zip(self[2:], other[2:], strict=True)))


class Contended(NamedTuple):
    """One atomic instruction on global memory: hits of its most used address and the blocks that they come from.

    returns: whether the kernel uses what the atomic returns. None: too many addresses to tell.
    """

    file: str
    line: int
    instruction: int
    returns: bool
    hottest: int | None
    blocks: int | None


class Report(NamedTuple):
    """The outcome of a launch.

    instructions: warp-level PTX instructions executed. output: what printf wrote. trace: a `trace.Trace`, or None.
    suspicions: what is undefined and does harm only where it is used, which a wrong result says. executed: for each
    kernel, how often each line of the PTX ran that holds an instruction of it; the kernel's first one is the first.
    """

    instructions: int
    accesses: tuple[Access, ...]
    hazards: tuple[Hazard, ...]
    output: str
    trace: Any = None
    suspicions: tuple[Hazard, ...] = ()
    executed: Mapping[str, Mapping[int, Executed]] = {}
    branches: tuple[Branch, ...] = ()
    contended: tuple[Contended, ...] = ()


def merge(reports: Iterable[Report]) -> Report:
    """Return one report for several launches: counts are summed, the first trace is kept."""
    instructions, output, trace = 0, [], None
    accesses: dict[tuple[Any, ...], list[int | None]] = {}
    hazards: list[Hazard] = []
    suspicions: list[Hazard] = []
    executed: dict[str, dict[int, Executed]] = {}
    branches: dict[tuple[str, int], Branch] = {}
    contended: list[Contended] = []
    for report in reports:
        instructions += report.instructions
        output.append(report.output)
        trace = report.trace if trace is None else trace
        for access in report.accesses:
            key = access[:5]
            counts = accesses.get(key)
            if counts is None:
                accesses[key] = list(access[5:])
            else:
                for place, value in enumerate(access[5:]):
                    if value is not None:
                        counts[place] = (counts[place] or 0) + value
        hazards += report.hazards
        suspicions += report.suspicions
        contended += report.contended
        for branch in report.branches:
            known = branches.get(branch[:2])
            branches[branch[:2]] = branch if known is None else branch.plus(known)
        for kernel, lines in report.executed.items():
            sums = executed.setdefault(kernel, {})
            for line, times in lines.items():
                sums[line] = sums.get(line, Executed()).plus(*times)
    return Report(
        instructions,
        tuple(Access(*key, *counts) for key, counts in sorted(accesses.items(), key=lambda item: item[0])),
        _by_line(hazards),
        "".join(output),
        trace,
        _by_line(suspicions),
        executed,
        tuple(branches[key] for key in sorted(branches)),
        tuple(contended),
    )


def _by_line(hazards: Iterable[Hazard]) -> tuple[Hazard, ...]:
    """Return one hazard for each kind and line, the first with the counts of all, in the order of the lines."""
    found: dict[tuple[str, int, str], Hazard] = {}
    for hazard in hazards:
        key = (hazard.file, hazard.line, hazard.kind)
        first = found.get(key)
        found[key] = hazard if first is None else first._replace(count=first.count + hazard.count)
    return tuple(found[key] for key in sorted(found))
