"""The records in the report of a simulated launch, and functions that add the records of several launches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import chain
from operator import add, attrgetter
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np

from cudabench.simulator.count.patterns import Pattern
from cudabench.simulator.values import Array

Index = tuple[int, int, int]
Engine = Literal["numpy", "native"]
Record = TypeVar("Record", "PatternCount", "Access", "Hazard", "Branch", "Touch", "Footprint")


class PatternCount(NamedTuple):
    """The number of requests of an access that have the same pattern, and their cost.

    `pieces`: the sectors or wavefronts of these requests. `ideal`: how many of these pieces the best pattern would
    need. `example`: the addresses in one such request, in bytes from the start of the memory; None for inactive lanes.
    """

    pattern: Pattern
    requests: int
    pieces: int
    ideal: int
    example: tuple[int | None, ...]

    def plus(self, *others: PatternCount) -> PatternCount:
        """Return the sum of this record and others, with the example of this record."""
        return added((self, *others), _PIECES)


class Access(NamedTuple):
    """The memory requests of one PTX instruction to one array, summed over the launch.

    `file`, `line`, `column`: the position in the source. `kernel`: the PTX function. `instruction`: the line of the
    instruction in the PTX. `bytes`: the bytes that a lane accesses. `requests`: how many warp-level instructions had an
    active lane. `sectors` (global, local): the distinct 32-byte pieces that a request touches, summed over requests;
    `ideal_sectors`: how many sectors there would be if the bytes were contiguous. `wavefronts`: for shared memory the
    passes over the 32 banks, for constants the distinct addresses of a request, which are served one after another;
    `ideal_wavefronts`: how many wavefronts there would be without conflicts. Counts that the memory does not have are
    None. `merged`: how many requests of other PTX instructions the machine code merges into these; the other counts
    exclude them. `array`: the name of an argument, a shared variable or a module variable, several names if lanes
    accessed several arrays, or None; `array_bytes`: the size of the array, 0 if unknown; `start`: the offset of the
    array in shared memory, or its address. `patterns`: the counts by access pattern, the most frequent first. `first`:
    the lowest address in an example of the requests; `step`: the distance in bytes between the addresses of two
    consecutive executions, 0 if unknown. `what`: the operation and type of an atomic in PTX, such as 'add.f32'.
    `reloads`: if the machine code executes the atomic as a loop, the wavefronts of the loop's loads; `wavefronts`
    includes them. `aggregated`: whether the machine code first adds the values of a warp's lanes. `inexact`: the reason
    why the counters of a GPU may differ, or None. `by_data`: whether addresses depend on values that were read from
    memory, without a regular pattern.
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
        """The fields that identify an access; sorted by this key, accesses are in source order."""
        return (
            self.file, self.line, self.column, self.kernel, self.instruction, self.space, self.op, self.bytes,
            self.array or "",
        )  # fmt: skip

    def times(self, factor: float) -> Access:
        """Return the record with all counts multiplied by `factor` and rounded."""

        def grown(record: Record, names: Iterable[str]) -> Record:
            counts = ((name, getattr(record, name)) for name in names)
            more: dict[str, Any] = {name: round(count * factor) for name, count in counts if count is not None}
            return record._replace(**more)

        return grown(self, _COUNTS)._replace(patterns=tuple(grown(each, _PIECES) for each in self.patterns))

    def plus(self, *others: Access) -> Access:
        """Return the sum of this record and others with the same key, such as those of other launches."""
        found = collected(chain.from_iterable(one.patterns for one in (self, *others)), attrgetter("pattern"))
        patterns = tuple(sorted(found.values(), key=lambda each: -each.requests))
        step = next((one.step for one in (self, *others) if one.step), 0)
        return added((self, *others), _COUNTS)._replace(patterns=patterns, step=step)


_PIECES = ("requests", "pieces", "ideal")
_COUNTS = ("requests", "sectors", "ideal_sectors", "wavefronts", "ideal_wavefronts", "merged", "reloads")


class Hazard(NamedTuple):
    """A fault of the kernel at a source line.

    `kind`: such as "race" or "out-of-bounds". `block`, `thread`: the indices of the first occurrence, x first. `count`:
    how often it occurred. `instruction`: the line of the instruction in the PTX, 0 if not recorded. `between_blocks`:
    whether it is a race between threads of different blocks. `padding`: whether the accesses out of bounds are all in
    the padding after allocations, where a GPU reports no fault.
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
        """The fields that identify a hazard; sorted by this key, hazards are in source order."""
        return self.file, self.line, self.kind

    def plus(self, *others: Hazard) -> Hazard:
        """Return this record with the sum of the counts of all records."""
        return added((self, *others), ("count",))


class Executed(NamedTuple):
    """How often an instruction ran.

    `warps`: how often a warp executed it. `lanes`: the active lanes of these executions. Only for a branch: `taken`:
    the lanes that took it; `diverged`: the executions in which the warp's lanes diverged.
    """

    warps: int = 0
    lanes: int = 0
    taken: int = 0
    diverged: int = 0

    def plus(self, *counts: int, **named: int) -> Executed:
        """Return the sum of this record and the counts given as arguments, in the order of the fields or by name."""
        return Executed(*map(add, self, Executed(*counts, **named)))


class Clocks(NamedTuple):
    """A lower bound of the clocks that blocks take, from the schedules of their instructions. A block takes as long as
    its slowest warp.

    `total` and `longest` are tuples: the clocks without loads, then for each kind of load how many loads the warp waits
    for. The kinds: loads that the L1 or shared memory serves; first loads from an array that the L1 may still hold from
    an earlier block; first loads from an array that blocks share; first loads from memory. `total`: the sum over the
    blocks. `longest`: the clocks of the block that takes longest; for several launches, the sum over the launches.
    `blocks`: the number of blocks.
    """

    total: tuple[int, ...]
    longest: tuple[int, ...]
    blocks: int


class Code(NamedTuple):
    """The counts of a launch whose machine code was simulated.

    `addresses`: the addresses of the instructions. `table`: for each instruction (how often warps issued it, the lanes
    of these warps, how often a lane executed it, its sectors or wavefronts), int64, of shape (instructions, 4).
    `unsettled`: the reason why the counters of a GPU may differ, or None. `clocks`: the clocks of the launch's blocks.
    """

    addresses: tuple[int, ...]
    table: Array
    unsettled: str | None
    clocks: Clocks

    @property
    def counts(self) -> dict[int, list[int]]:
        """The rows of `table`, keyed by address."""
        return dict(zip(self.addresses, self.table.tolist(), strict=True))

    def times(self, scale: float) -> Code:
        """Return the record with all counts multiplied by `scale` and rounded."""
        total, longest, blocks = self.clocks
        clocks = Clocks(tuple(round(part * scale) for part in total), longest, round(blocks * scale))
        return self._replace(table=np.rint(self.table * scale).astype(np.int64), clocks=clocks)

    def plus(self, other: Code) -> Code:
        """Return the sum of the counts of two launches of the same kernel."""
        total, longest = (tuple(map(add, a, b)) for a, b in zip(self.clocks[:2], other.clocks[:2], strict=True))
        clocks = Clocks(total, longest, self.clocks.blocks + other.clocks.blocks)
        return Code(self.addresses, self.table + other.table, self.unsettled or other.unsettled, clocks)


def summed_codes(codes: Sequence[Code | str | None]) -> Code | str | None:
    """Return the sum of the counts of launches of the same kernel, or what the first launch without counts has."""
    counted = [code for code in codes if isinstance(code, Code)]
    if len(counted) < len(codes):
        return next(code for code in codes if not isinstance(code, Code))
    return reduce(Code.plus, counted)


class Lines(dict[int, Executed]):
    """Maps each line of the PTX to how often the line ran.

    `code`: the counts of the machine code; or the reason why the machine code was not simulated; or None if it was not
    wanted.
    """

    code: Code | str | None = None


class Branch(NamedTuple):
    """The conditional branches of one source line, summed over the launch.

    `executions`: how often a warp executed such a branch. `diverged`: in how many executions the lanes of the warp took
    different paths. `lanes`: how often a lane executed such a branch; `taken`: how often the lane took the PTX branch,
    whose condition may be the opposite of the one in the source. `instructions`: the warp instructions of PTX that ran
    between a divergent branch and the point where its paths join again, except those within an inner divergent branch.
    `threads`: the active lanes of these instructions, summed. `loop`: whether a divergent branch is in a loop that
    leads back to it. `by_data`: whether a divergent branch depends on values that were read from memory.
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
        """The fields that identify the line; sorted by this key, branches are in source order."""
        return self[:2]

    def plus(self, *others: Branch) -> Branch:
        """Return the sum of this record and the records of other launches for the same line."""
        every = (self, *others)
        loop, by_data = any(one.loop for one in every), any(one.by_data for one in every)
        return added(every, Branch._fields[2:8])._replace(loop=loop, by_data=by_data)


class Imbalance(NamedTuple):
    """A block that has more work than the other blocks of its launch, measured in warp instructions of PTX.

    `blocks`: the number of blocks of the grid. `busiest`: the index of the block that executes the most instructions, x
    first; `instructions`: how many this block executes. `mean`: the mean number over all blocks that access memory.
    `over`: how many blocks execute more than one and a half times the mean; `last`: whether these blocks are all in the
    last quarter of the grid, in the order of block numbers. `file`, `line`: the source line with the largest part of
    the instructions that the busiest block executes beyond the mean; `share`: this part, from 0 to 1.
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
    """The contention of one atomic instruction on global memory.

    `instruction`: the line of the PTX. `returns`: whether the kernel uses the atomic's result. `hottest`: how often
    lanes accessed the most used address; `blocks`: how many blocks these lanes belong to. `hottest` and `blocks` are
    None if there were too many addresses to count.
    """

    file: str
    line: int
    instruction: int
    returns: bool
    hottest: int | None
    blocks: int | None


class Touch(NamedTuple):
    """The traffic of one instruction on global memory, summed over all blocks of the launch.

    `instruction`: the line of the PTX. `array`: the slot of the address space that the instruction accesses, the first
    slot if there are several. `requests`, `sectors`: how many requests and sectors the instruction has. `cycles`: the
    passes through the L1. `fresh`: the sectors that the block had not touched before (for a store: not written before);
    `missing`: the requests that are the first to touch such a sector. `partial`: the sectors of which a store's request
    fills only a part. `lines`: the distinct lines of 128 bytes in each request, summed over requests.
    """

    instruction: int
    op: str
    array: str
    bytes: int
    requests: float
    sectors: float
    cycles: float
    fresh: float
    missing: float
    partial: float
    lines: float

    def plus(self, *others: Touch) -> Touch:
        """Return the sum of this record and the records of other launches for the same instruction and array."""
        return added((self, *others), Touch._fields[4:])


class Footprint(NamedTuple):
    """The memory that a launch touches.

    `touches`: the traffic of each instruction. `read`, `written`: by array, how many distinct sectors are read or
    written; `sizes`: by array, how many sectors it has. `blocks`: the number of blocks of the grid; `ran`: how many
    blocks were simulated; `followed`: how many blocks were examined one by one, see `count.footprint`. `parts`:
    (blocks, warp instructions) of each run of neighbouring blocks, in order; for several launches, those of the last
    launch. `constants`: how many lines of constants were fetched into a cache.
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
        """Return the sum of this record and the records of other launches. A sector that several launches touch is
        counted once for each launch; the size of an array is counted once."""
        every = (self, *others)

        def sums(several: Iterable[dict[str, int]]) -> dict[str, int]:
            found: Counter[str] = Counter()
            for one in several:
                found.update(one)
            return dict(found)

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
    """The outcome of one launch, or the sum of several (see `merge`).

    `instructions`: the number of warp-level PTX instructions executed. `accesses`, `hazards`, `branches`, `contended`:
    the records of these types. `output`: the text that printf wrote. `trace`: a `trace.Trace` of single accesses, or
    None. `suspicions`: hazards such as undefined values, which are a fault only if a result depends on them.
    `executed`: for each kernel, how often each PTX line with one of the kernel's instructions ran; the line of the
    kernel's first instruction comes first.
    `footprint`: the memory that the launches touch, None if this was not requested. `imbalance`: for several launches,
    the record of the launch whose busiest block exceeds the mean the most; None if the blocks have similar work or are
    few. `engine`: the engine that ran the launch; for several launches "native" only if the native engine ran all
    launches. `stack_bytes`: a lower bound of the stack that the recursive calls of a thread need. `blocks_alike`:
    whether it is known that all blocks of the launch execute the same instructions and no lanes diverge. `finished`:
    the counts of launches on the native engine, a `native.outcome.Finished`, which `merge` adds before it makes
    records of them; otherwise None.
    """

    instructions: int
    accesses: tuple[Access, ...]
    hazards: tuple[Hazard, ...]
    output: str
    trace: Any
    suspicions: tuple[Hazard, ...]
    executed: Mapping[str, Lines]
    branches: tuple[Branch, ...]
    contended: tuple[Contended, ...]
    footprint: Footprint | None
    imbalance: Imbalance | None
    engine: Engine
    # A plain default would be an attribute of the class, which `lazy` must not have.
    stack_bytes: int = field(default_factory=int)
    blocks_alike: bool = field(default_factory=bool)
    finished: Any = field(default=None, compare=False, repr=False)

    @classmethod
    def lazy(cls, parts: Mapping[str, Callable[[], Any]], **known: Any) -> Report:
        """Return a report with the fields in `known`.

        parts: functions that are called at the first use of a field: each returns the value of the field that is its
        key; the one with the key "" returns the complete report.
        """
        report = cls.__new__(cls)
        vars(report).update(known, _parts=parts)
        return report

    def __getattr__(self, name: str) -> Any:
        parts = vars(self).get("_parts", {})
        if name in parts:
            vars(self)[name] = parts[name]()
        elif name in self.__dataclass_fields__ and parts:
            made = vars(parts[""]())
            vars(self).update({own: value for own, value in made.items() if own not in parts and own != "finished"})
        else:
            raise AttributeError(name)
        return vars(self)[name]


def scaled(lines: Lines, scale: float) -> Lines:
    """Return the counts of lines, and the counts of the machine code, multiplied by `scale` and rounded."""
    found = Lines({line: Executed(*(round(count * scale) for count in times)) for line, times in lines.items()})
    found.code = lines.code.times(scale) if isinstance(lines.code, Code) else lines.code
    return found


def summed(several: Sequence[Lines]) -> Lines:
    """Return the sum of the counts of lines over several launches of the same kernel."""
    if len(several) == 1:
        return several[0]
    sums = Lines()
    # Sums keyed by the ids of the summed objects. All lines of a basic block have the same objects, so each sum is
    # computed once.
    known: dict[tuple[int, ...], Executed] = {}
    never = Executed()
    for line in dict.fromkeys(chain.from_iterable(several)):
        times = [launch.get(line, never) for launch in several]
        own = tuple(map(id, times))
        found = known.get(own)
        if found is None:
            found = known[own] = Executed(*map(sum, zip(*times, strict=True)))
        sums[line] = found
    sums.code = summed_codes([one.code for one in several])
    return sums


def merge(reports: Iterable[Report]) -> Report:
    """Return one report for several launches: the sums of their counts, and the first trace."""
    reports = _added([*reports])
    if len(reports) == 1:
        return reports[0]
    kernels = dict.fromkeys(chain.from_iterable(report.executed for report in reports))
    footprints = [report.footprint for report in reports if report.footprint is not None]
    return Report(
        sum(report.instructions for report in reports),
        summed_by_key(report.accesses for report in reports),
        summed_by_key(report.hazards for report in reports),
        "".join(report.output for report in reports),
        next((report.trace for report in reports if report.trace is not None), None),
        summed_by_key(report.suspicions for report in reports),
        {name: summed([report.executed[name] for report in reports if name in report.executed]) for name in kernels},
        summed_by_key(report.branches for report in reports),
        tuple(chain.from_iterable(report.contended for report in reports)),
        footprints[0].plus(*footprints[1:]) if footprints else None,
        greatest(report.imbalance for report in reports),
        "native" if reports and all(report.engine == "native" for report in reports) else "numpy",
        max((report.stack_bytes for report in reports), default=0),
    )


def _added(reports: Sequence[Report]) -> list[Report]:
    """Return fewer reports with the same sums: the reports of launches whose counts can be added become one."""
    groups: dict[Any, list[Report]] = {}
    for number, report in enumerate(reports):
        key = report.finished and report.finished.key
        groups.setdefault(number if key is None else key, []).append(report)
    return [
        first.finished.plus([other.finished for other in others]).report() if others else first
        for first, *others in groups.values()
    ]


def greatest(imbalances: Iterable[Imbalance | None]) -> Imbalance | None:
    """Return the imbalance whose busiest block exceeds the mean the most; None if there is none."""
    known = (imbalance for imbalance in imbalances if imbalance is not None)
    return max(known, key=lambda each: each.instructions - each.mean, default=None)


def summed_by_key(several: Iterable[Iterable[Record]]) -> tuple[Record, ...]:
    """Return the sum of the records that have the same key, one for each key, sorted by key."""
    found = collected(chain.from_iterable(several), attrgetter("key"))
    return tuple(found[key] for key in sorted(found))


def collected(records: Iterable[Record], key: Callable[[Record], Any]) -> dict[Any, Record]:
    """Return a dict from each key to the sum of the records with this key, in the order of first occurrence."""
    found: dict[Any, list[Any]] = {}
    for record in records:
        found.setdefault(key(record), []).append(record)
    return {own: first.plus(*others) if others else first for own, (first, *others) in found.items()}


def added(records: Sequence[Record], names: Iterable[str]) -> Record:
    """Return the first record with the fields in `names` summed over all records; a sum is None if any of its values
    is."""
    several = {name: [getattr(one, name) for one in records] for name in names}
    sums: dict[str, Any] = {name: None if None in each else reduce(add, each) for name, each in several.items()}
    return records[0]._replace(**sums)
