"""What a simulated launch yields: frozen records without behaviour."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain
from operator import add, attrgetter
from typing import Any, Literal, NamedTuple, TypeVar

from cudabench.simulator.count.patterns import Pattern

Index = tuple[int, int, int]
Engine = Literal["numpy", "native"]
Record = TypeVar("Record", "PatternCount", "Access", "Hazard", "Branch", "Touch", "Footprint")


class PatternCount(NamedTuple):
    """A pattern of an access with what has it: requests, sectors or wavefronts, and the same at best.

    example: the addresses of one warp that has it, bytes from the start of the memory, None for inactive lanes.
    """

    pattern: Pattern
    requests: int
    pieces: int
    ideal: int
    example: tuple[int | None, ...]

    def plus(self, *others: PatternCount) -> PatternCount:
        """Return the sum, with the example of the first."""
        return added((self, *others), _PIECES)


class Access(NamedTuple):
    """Memory requests of one PTX instruction to one array, summed over the launch.

    bytes: per lane. requests: warp-level instructions with at least one active lane. sectors (global, local): distinct
    32-byte pieces touched, summed over requests; ideal_sectors: the same bytes packed. wavefronts (shared): turns
    over the 32 banks; (constant): addresses, one after the other; ideal_wavefronts: without conflicts. Pairs that do
    not apply are None.
    merged: requests of the PTX whose work these do too; they are in no other count.
    kernel, column, instruction: the PTX function, the column of the source, the line of the PTX. array: an argument, a
    shared or a module variable (several names where lanes went to several), or None; array_bytes: its size, 0 where
    that is not known; start: its offset in shared memory, or its address. patterns: what the lanes did, the most
    frequent first. first: the first address that thread 0 or a first warp went to; step: bytes to the next execution's,
    0 where that is not known. what: of an atomic its operation and type in PTX, 'add.f32'; reloads: of its wavefronts,
    those of the loads in the loop that the machine code makes of it. aggregated: whether the machine code adds up a
    warp's lanes first. inexact: why hardware may count otherwise, or None. by_data: whether lanes go anywhere, by what
    was read from memory.
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
    kernel: str = ""
    column: int = 0
    instruction: int = 0
    array: str | None = None
    array_bytes: int = 0
    start: int = 0
    patterns: tuple[PatternCount, ...] = ()
    first: int = 0
    step: int = 0
    what: str = ""
    reloads: int = 0
    aggregated: bool = False
    inexact: str | None = None
    by_data: bool = False

    @property
    def key(self) -> tuple[Any, ...]:
        """What tells it from other accesses, in the order of the source."""
        return (
            self.file, self.line, self.column, self.kernel, self.instruction, self.space, self.op, self.bytes,
            self.array or "",
        )  # fmt: skip

    def times(self, factor: float) -> Access:
        """Return the counts of so many times as many requests, rounded."""

        def grown(record: Record, names: Iterable[str]) -> Record:
            counts = ((name, getattr(record, name)) for name in names)
            more: dict[str, Any] = {name: round(count * factor) for name, count in counts if count is not None}
            return record._replace(**more)

        return grown(self, _COUNTS)._replace(patterns=tuple(grown(each, _PIECES) for each in self.patterns))

    def plus(self, *others: Access) -> Access:
        """Return the sum of several launches' accesses with one key."""
        patterns = by_pattern([pattern for one in (self, *others) for pattern in one.patterns])
        step = next((one.step for one in (self, *others) if one.step), 0)
        return added((self, *others), _COUNTS)._replace(patterns=patterns, step=step)


_PIECES = ("requests", "pieces", "ideal")
_COUNTS = ("requests", "sectors", "ideal_sectors", "wavefronts", "ideal_wavefronts", "merged", "reloads")


def by_pattern(counts: Sequence[PatternCount]) -> tuple[PatternCount, ...]:
    """Return one count for each pattern, the most frequent first."""
    found = collected(counts, attrgetter("pattern"))
    return tuple(sorted(found.values(), key=lambda each: -each.requests))


class Hazard(NamedTuple):
    """A fault of the kernel at a source line; block and thread are those of the first occurrence, x first.

    instruction: the line of the PTX, 0 where nobody asks for it. between_blocks: of a race, whether it is one. padding:
    of accesses out of bounds, whether all are in the padding behind allocations, where a card does not fault.
    """

    kind: str
    file: str
    line: int
    block: Index
    thread: Index
    count: int  # type: ignore[assignment]
    message: str
    instruction: int = 0
    between_blocks: bool = False
    padding: bool = False

    @property
    def key(self) -> tuple[str, int, str]:
        """What tells it from other hazards, in the order of the source."""
        return self.file, self.line, self.kind

    def plus(self, *others: Hazard) -> Hazard:
        """Return the first of several with the count of all."""
        return added((self, *others), ("count",))


class Executed(NamedTuple):
    """How often an instruction ran: warps with an active lane, their active lanes.

    Of a branch also: the lanes that took it, and the warps that diverged at it.
    """

    warps: int = 0
    lanes: int = 0
    taken: int = 0
    diverged: int = 0

    def plus(self, *counts: int, **named: int) -> Executed:
        """Return the sum."""
        return Executed(*map(add, self, Executed(*counts, **named)))


class Code(NamedTuple):
    """What a launch's machine code did where that itself ran: by the address of an instruction how often warps issued
    it, their lanes, how often a lane did it, and its sectors or wavefronts.

    unsettled: why hardware may count otherwise, or None.
    """

    counts: Mapping[int, tuple[int, int, int, int]]
    unsettled: str | None

    def plus(self, other: Code) -> Code:
        """Return the sum of two launches of one kernel."""
        sums = {address: tuple(map(add, mine, other.counts[address])) for address, mine in self.counts.items()}
        return Code(sums, self.unsettled or other.unsettled)


class Lines(dict[int, Executed]):
    """How often lines of the PTX ran, and what the machine code did, or why that did not run; None: nobody asked."""

    code: Code | str | None = None


class Branch(NamedTuple):
    """The conditional branches of one source line, summed over the launch.

    executions: warps that came to them. diverged: those whose lanes went different ways. lanes, taken: the lanes that
    came, and that took the branch as the compiler wrote it. instructions, threads: warp instructions of PTX that ran
    between a divergent branch and the place where all its ways meet, those of inner such branches left out, and
    their active lanes in all. loop: whether a divergent branch is one that lanes come back to. by_data: whether
    what was read from memory decides one.
    """

    file: str
    line: int
    executions: int
    diverged: int
    lanes: int
    taken: int
    instructions: int
    threads: int
    loop: bool = False
    by_data: bool = False

    @property
    def key(self) -> tuple[str, int]:
        """What tells it from other branches, in the order of the source."""
        return self[:2]

    def plus(self, *others: Branch) -> Branch:
        """Return the sum of several launches' records of one line."""
        every = (self, *others)
        loop, by_data = any(one.loop for one in every), any(one.by_data for one in every)
        return added(every, Branch._fields[2:8])._replace(loop=loop, by_data=by_data)


class Imbalance(NamedTuple):
    """A block that has more to do than the others of its launch, counted in warp instructions of PTX.

    blocks: of the grid. busiest: the block that executes most, x first; instructions: that many; mean: of all blocks
    that access memory.
    over: how many execute over one and a half times the mean; last: whether those are all in the last quarter of the
    grid, in the order of their numbers. file, line: where most of what the busiest executes beyond the mean stands;
    share: how much of that.
    """

    file: str
    line: int
    blocks: int
    busiest: Index
    instructions: int
    mean: float
    over: int
    last: bool
    share: float


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


class Touch(NamedTuple):
    """What one instruction does to the memory behind the L1 cache, summed over the launch.

    instruction: the line of the PTX. array: the slot of the address space that it goes to, the first of several.
    requests, sectors: of all blocks. turns: in the L1. fresh: sectors that the block had not touched before, of a store
    that it had not written; missing: requests that are the first with such a sector. partial: sectors of a store's
    requests that it does not fill. lines: of 128 bytes, each request's own.
    """

    instruction: int
    op: str
    array: str
    bytes: int
    requests: float
    sectors: float
    turns: float
    fresh: float
    missing: float
    partial: float
    lines: float

    def plus(self, *others: Touch) -> Touch:
        """Return the sum of several launches' records of one instruction and array."""
        return added((self, *others), Touch._fields[4:])


class Footprint(NamedTuple):
    """What a launch touches. read, written: distinct sectors by array; sizes: the arrays' own sectors.

    blocks: of the grid; ran: those simulated; followed: those that were followed one by one. parts: blocks and
    warp instructions of each run of neighbouring blocks, in order; of several launches those of the last. constants:
    lines of constants that had to be fetched.
    """

    touches: tuple[Touch, ...]
    read: dict[str, int]
    written: dict[str, int]
    sizes: dict[str, int]
    blocks: int
    ran: int
    followed: int
    parts: tuple[tuple[int, int], ...] = ()
    constants: float = 0.0

    def plus(self, *others: Footprint) -> Footprint:
        """Return the sums of several launches; what more than one touches counts for each, and arrays have their size
        once."""
        every = (self, *others)

        def sums(several: Iterable[dict[str, int]]) -> dict[str, int]:
            found: dict[str, int] = {}
            for name, count in chain.from_iterable(one.items() for one in several):
                found[name] = found.get(name, 0) + count
            return found

        touches = collected(chain.from_iterable(one.touches for one in every), lambda touch: touch[:4])
        return added(every, ("blocks", "ran", "followed", "constants"))._replace(
            touches=tuple(touches.values()),
            read=sums(one.read for one in every),
            written=sums(one.written for one in every),
            sizes=dict(chain.from_iterable(one.sizes.items() for one in every)),
            parts=next((one.parts for one in reversed(every) if one.parts), ()),
        )


@dataclass
class Report:
    """The outcome of a launch.

    instructions: warp-level PTX instructions executed. output: what printf wrote. trace: a `trace.Trace`, or None.
    suspicions: what is undefined and does harm only where it is used, which a wrong result says. executed: for each
    kernel, how often each line of the PTX ran that holds an instruction of it; the kernel's first one is the first.
    footprint: which memory one launch touches, where that was asked for; of several the sums. imbalance: of the launch
    whose busiest block is furthest beyond the mean; None where blocks are alike, or few. engine: which one ran it; of
    several launches "native" where it ran all. stack_bytes: what recursive calls of a thread take at least.
    """

    instructions: int
    accesses: tuple[Access, ...]
    hazards: tuple[Hazard, ...]
    output: str
    trace: Any
    suspicions: tuple[Hazard, ...]
    executed: Mapping[str, Mapping[int, Executed]]
    branches: tuple[Branch, ...]
    contended: tuple[Contended, ...]
    footprint: Footprint | None
    imbalance: Imbalance | None
    engine: Engine
    stack_bytes: int = 0

    @classmethod
    def later(cls, make: Callable[[], Report], **known: Any) -> Report:
        """Return a report of which only some fields are known so far: who asks for another one has it made."""
        report = cls.__new__(cls)
        vars(report).update(known, _make=make)
        return report

    def __getattr__(self, name: str) -> Any:
        make = vars(self).pop("_make", None)
        if make is None:
            raise AttributeError(name)
        vars(self).update(vars(make()))
        return getattr(self, name)


def scaled(lines: Mapping[int, Executed], scale: float) -> Lines:
    """Return how often lines, and their machine code, run so many times over."""
    found = Lines({line: Executed(*(round(count * scale) for count in times)) for line, times in lines.items()})
    found.code = lines.code if isinstance(lines, Lines) else None
    if isinstance(found.code, Code):
        rows = found.code.counts.items()
        counts = {
            at: (round(a * scale), round(b * scale), round(c * scale), round(d * scale)) for at, (a, b, c, d) in rows
        }
        found.code = found.code._replace(counts=counts)
    return found


def summed(several: Sequence[Mapping[int, Executed]]) -> Mapping[int, Executed]:
    """Return how often lines ran in several launches of one kernel."""
    if len(several) == 1:
        return several[0]
    sums = Lines()
    known: dict[tuple[int, ...], Executed] = {}  # the lines of a basic block ran alike
    never = Executed()
    for line in dict.fromkeys(chain.from_iterable(several)):
        times = [launch.get(line, never) for launch in several]
        own = tuple(map(id, times))
        found = known.get(own)
        if found is None:
            found = known[own] = Executed(*map(sum, zip(*times, strict=True)))
        sums[line] = found
    codes = [one.code if isinstance(one, Lines) else None for one in several]
    whole = [code for code in codes if isinstance(code, Code)]
    why = next((code for code in codes if not isinstance(code, Code)), None)
    sums.code = why if len(whole) < len(codes) else reduce(Code.plus, whole)
    return sums


def merge(reports: Iterable[Report]) -> Report:
    """Return one report for several launches: counts are summed, the first trace is kept."""
    reports = [*reports]
    if len(reports) == 1:
        return reports[0]
    kernels = dict.fromkeys(chain.from_iterable(report.executed for report in reports))
    footprints = [report.footprint for report in reports if report.footprint is not None]
    imbalances = (report.imbalance for report in reports if report.imbalance is not None)
    return Report(
        sum(report.instructions for report in reports),
        together(report.accesses for report in reports),
        together(report.hazards for report in reports),
        "".join(report.output for report in reports),
        next((report.trace for report in reports if report.trace is not None), None),
        together(report.suspicions for report in reports),
        {name: summed([report.executed[name] for report in reports if name in report.executed]) for name in kernels},
        together(report.branches for report in reports),
        tuple(chain.from_iterable(report.contended for report in reports)),
        footprints[0].plus(*footprints[1:]) if footprints else None,
        max(imbalances, key=lambda each: each.instructions - each.mean, default=None),
        "native" if reports and all(report.engine == "native" for report in reports) else "numpy",
        max((report.stack_bytes for report in reports), default=0),
    )


def together(several: Iterable[Iterable[Record]]) -> tuple[Record, ...]:
    """Return one record for all with the same key, in the order of the keys."""
    found = collected(chain.from_iterable(several), attrgetter("key"))
    return tuple(found[key] for key in sorted(found))


def collected(records: Iterable[Record], key: Callable[[Record], Any]) -> dict[Any, Record]:
    """Return the sum of the records with one key, by the keys, as they first come."""
    found: dict[Any, list[Any]] = {}
    for record in records:
        found.setdefault(key(record), []).append(record)
    return {own: first.plus(*others) if others else first for own, (first, *others) in found.items()}


def added(records: Sequence[Record], names: Iterable[str]) -> Record:
    """Return the first record with the sums of some fields; of None nothing is known."""
    several = {name: [getattr(one, name) for one in records] for name in names}
    sums: dict[str, Any] = {name: None if None in each else reduce(add, each) for name, each in several.items()}
    return records[0]._replace(**sums)
