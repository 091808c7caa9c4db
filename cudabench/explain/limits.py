"""The shortest time that each resource of a card allows a kernel: lower bounds, from counts and ceilings alone. Pure.

The counts are the simulator's, of the machine code that the card would run; the ceilings are a card's, measured or of
its datasheet (`cudabench.cards`). Nothing here is a time that was measured, and no limit knows of another: what a
kernel takes is at least the longest, and more where resources do not overlap.

* memory: the distinct sectors that a launch reads, each once, and those that it writes, but for what the L2 may still
  hold at the end; of later launches only what the L2 cannot have kept. With a hot L2, only what does not
  fit it.
* l2: sectors that a block had not had before (what it asks for again may lie in the L1), as if the blocks that share
  an SM shared all of them, and once where several blocks of a sample ask for it: requests of several SMs may reach the
  L2 as one (Nsight Compute calls that unit lrc, L2 Request Coalescer; with a product of matrices an H200's L2 was busy
  for half of what the blocks ask for). And every store's sectors. A slice of the L2 moves 64 bytes a clock, takes
  half a turn to exchange a sector with memory and a quarter more on average, since half of them lie in the other half
  of the L2 and pass a slice of either, and two turns to write a part of a sector, which it has to read first. (Nsight
  Compute's shares of the L2 on an H200 and an H100 are at least 0.97 of what these turns come to, but for products of
  matrices, whose blocks share more than those of a sample.)
* lsu: wavefronts of shared memory, turns of the L1 for requests to global memory (`simulator.count.footprint`), and
  shuffles.
* issue and pipes: warp instructions by what executes them (CUDA C++ Programming Guide, "Arithmetic Instructions").
  Conversions and special functions are of one unit, products of 64 bits take the FMA pipe twice, and VIADD is of that
  pipe: so Nsight Compute counts on an H200 and an H100, to 0.04% of the instructions in the median of 134 kernels.
* constant: requests for indexed constants, one a clock and SM, what each further address takes, and the lines of a
  table that the cache of constants cannot have had (`simulator.count.footprint`). local: wavefronts of local memory.
* atomic: the hits of the most used address, one request of a warp after the other.
* latency: the fewest clocks that a warp spends on its way through the code, waiting for what it loads where it needs it
  (in order, every load at its own latency), times the warps that must take turns: Little's law. From one block to the
  next in its place, also what that takes where blocks are empty.
* tail: the busiest SM has ceil(blocks / SMs) blocks, also where the others have fewer.
* blocks: how many blocks the card starts in a second where they do nothing.
* launch: the gaps between the launches of a kernel that has several. start: a launch that takes longer than all that
  it does.

What an empty launch takes alone between two events stands before each of them: nothing of what a kernel does can
happen in that time, so it adds to every limit, less a margin (`LAUNCHED`). Not with a hot L2, where a sample is many
launches back to back.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import ceil, prod, sqrt
from typing import TYPE_CHECKING, NamedTuple

from cudabench.cards.datasheets import L2_SLICE
from cudabench.cards.load import Card
from cudabench.cards.rates import SCHEDULERS, at_most
from cudabench.compile.sass import Function, Instruction
from cudabench.explain import executed
from cudabench.explain.machine_code import pipe
from cudabench.records.launch import Dim
from cudabench.records.results import Limit

if TYPE_CHECKING:
    from cudabench.simulator import Footprint, Report

SECTOR, LINE = 32, 128
CONSTANT = 4  # bytes of a constant's address, as the ceilings count them
L1_BYTES = 256 * 1024  # of the largest L1 of any SM
L2_KEPT = 0.5  # of the L2 may hold what a kernel wrote when its clock stops: its half; an H200 kept 24 MB of 60 MiB
# Of what an empty launch took on one card: another H200 transposed 256 x 256 floats in 4.35 us, of which 0.4 us are its
# own, where the first took 4.32 us for nothing.
LAUNCHED = 0.85
TURN = 64  # bytes that a slice of the L2 moves in a turn
# Half a turn for the exchange itself, and for the half of all sectors that lies in the other half of the L2, half a
# turn there: by Nsight Compute's share of the L2 1.29 turns a sector that is read cold on an H200, 1.47 on an H100.
MEMORY_TURN, PARTIAL_TURNS = 0.75, 2.0
TAIL = 1.05  # of the mean: an SM that has more blocks than so is worth a limit of its own
ENOUGH = " would do while memory is idle"  # said of loads under way, whose latency grows as memory gets busy
AGAIN, IN_L1 = 0.5, " are taken to come from the L1"  # of the loads: fewer are not worth a word
LEAST_S = 1e-9  # a limit under this is not worth a row
# What holds a kernel and does no work itself, so that a profiler of units has no name for it.
NO_UNITS = ("latency", "tail", "blocks", "launch", "start")
EXPLAINED = 0.6  # of a measured time: under this the longest limit does not explain it

_IMAD, _HALF = 64, 128  # lanes of an SM's pipe at most, of all capabilities
_FLOATS = ("float32", "float64", "tf32", "bf16", "fp16", "fp64")
_MUFU = ("MUFU", "POPC", "FLO", "BREV")

# Clocks from an instruction to the first that can use its result, at least: published microbenchmarks of Volta to
# Hopper (arXiv 1804.06826, 2402.13499). What loads take is the card's.
_CLOCKS = {"fp64": 8, "xu": 16, "tensor": 16}
_ARITHMETIC = 4


class Work(NamedTuple):
    """One kernel of a case with one grid and block: all its launches together.

    times: launches. report: the simulator's, of all of them, with the footprints added up. functions, ptx: its machine
    code (empty where nobody read it) and the lines of its PTX. blocks_per_sm: that fit.
    """

    entry: str
    grid: Dim
    block: Dim
    times: int
    report: Report
    functions: Sequence[Function]
    ptx: Sequence[str]
    blocks_per_sm: int

    @property
    def footprint(self) -> Footprint:
        """Which memory the launches touch."""
        assert self.report.footprint is not None
        return self.report.footprint

    @property
    def scale(self) -> float:
        """By what counts are to be multiplied where only some blocks ran: less where those differ so much that all
        blocks together may have done less than they tell (`sure`)."""
        whole = self.footprint.blocks / self.footprint.ran
        return whole if whole == 1 else max(1.0, whole * sure(self.footprint.parts))

    @property
    def blocks(self) -> int:
        """The blocks of one launch."""
        return prod(self.grid)

    @property
    def warps(self) -> int:
        """The warps of a block."""
        return -(-prod(self.block) // 32)


def sure(parts: Sequence[tuple[int, int]]) -> float:
    """Return what part of a sample's instructions a block all blocks have at least, of (blocks, instructions) in order.

    Two standard errors under the mean, where the error comes of the differences of neighbours (a work that grows along
    the grid is sampled well); and never under the run of blocks that did least.
    """
    each = [instructions / blocks for blocks, instructions in parts if blocks]
    mean = sum(instructions for _, instructions in parts) / max(1, sum(blocks for blocks, _ in parts))
    if len(each) < 2 or not mean:
        return 1.0
    squares = sum((a - b) ** 2 for a, b in pairwise(each)) / (2 * (len(each) - 1))
    return min(1.0, max(1 - 2 * sqrt(squares / len(each)) / mean, min(each) / mean))


@dataclass(frozen=True)
class Rates:
    """What a card does in a second at most, all of it together; None where nobody knows.

    clock: of the SMs, Hz. issue, and the values of pipes: warp instructions; lsu, constant: wavefronts. addresses: of
    constants, besides the first of a request. fetch: seconds of a line of constants that the cache lacks. tensor:
    operations by number format. memory, l2: bytes, of memory the most of any kind; read, written: of each alone.
    latencies in seconds. gap, alone: of empty launches, one after the other and by itself. turns: seconds that an empty
    block of one warp and of 32 keeps its place. blocks: that start.
    """

    sms: int
    clock: float
    issue: float
    lsu: float
    constant: float
    addresses: float
    fetch: float
    pipes: Mapping[str, float]
    tensor: Mapping[str, float]
    memory: float | None
    read: float | None
    written: float | None
    l2: float | None
    l2_turns: float | None
    l2_bytes: int
    atomic: float | None
    memory_latency: float | None
    l2_latency: float | None
    shared_latency: float | None
    gap: float | None
    alone: float
    turns: tuple[float, float]
    blocks: float | None

    @classmethod
    def of(cls, card: Card) -> Rates:
        """Return what a card's ceilings, and where it has none its units and clock, allow."""
        sms, clock = card.device.sm_count or 1, card.sm_hz
        lanes = at_most(card.device.compute_capability)

        def rate(name: str, each: float, derived: float) -> float:
            value = card.value(name)
            return derived if value is None else value / each

        def per_second(lanes_per_clock: float) -> float:
            return lanes_per_clock / 32 * sms * clock

        known = [card.ceilings[name] for name in ("memory-read", "memory-copy", "memory-write") if card.value(name)]
        measured = [one for one in known if one.source == "measured"]
        bandwidths = {one.name: one.value or 0.0 for one in measured or known}
        memory = max(bandwidths.values(), default=0) or card.device.peak_gbps
        read, written = (bandwidths.get(name) or memory for name in ("memory-read", "memory-write"))
        slices = (card.device.l2_bytes or 0) // L2_SLICE.get(card.device.compute_capability, 1 << 60)
        l2 = card.value("l2-read")
        return cls(
            sms=sms,
            clock=clock,
            issue=rate("issue", 1, SCHEDULERS * sms * clock),
            lsu=rate("shared-read", LINE / 1e9, sms * clock),
            constant=sms * clock,
            addresses=rate("constant-hit", CONSTANT / 1e9, sms * clock),
            fetch=max(0.0, CONSTANT / 1e9 * (1 / missed - 1 / hit))
            if (missed := card.value("constant-miss")) and (hit := card.value("constant-hit"))
            else 0.0,
            pipes={
                "fma": rate("fp32", 64, per_second(lanes.fp32)),
                "imad": rate("int32", 64, per_second(_IMAD)),
                "half": rate("half2", 128, per_second(_HALF)),
                "alu": per_second(lanes.alu),
                "fp64": rate("fp64", 64, per_second(lanes.fp64)),
                "xu": rate("xu", 32, per_second(lanes.xu)),
                "convert": per_second(lanes.convert),
            },
            tensor=_tensor_rates(card),
            memory=memory * 1e9 if memory else None,
            read=read * 1e9 if read else None,
            written=written * 1e9 if written else None,
            l2=l2 * 1e9 if l2 else None,
            l2_turns=slices * clock if slices else None,
            l2_bytes=card.device.l2_bytes or 0,
            atomic=card.value("global-atomic-same"),
            memory_latency=card.value("memory-latency"),
            l2_latency=card.value("l2-latency"),
            shared_latency=card.value("shared-latency"),
            gap=card.value("launch-gap"),
            alone=LAUNCHED * (card.value("launch-alone") or 0.0),
            turns=(card.value("block-turn") or 0.0, card.value("block-turn-full") or 0.0),
            blocks=card.value("block-rate"),
        )


def _tensor_rates(card: Card) -> dict[str, float]:
    """Return operations a second of the tensor cores, by what `tensor_operations` calls a format."""
    named = card.device.clocks.get("sm_mhz") or 0
    found = {
        # Tensor cores take so much power that the clock goes down in a while; a short launch ends before that.
        name.removeprefix("tensor-"): value * max(1.0, named / one.clock_mhz if one.clock_mhz else 1.0)
        for name, one in card.ceilings.items()
        if one.group == "tensor" and (value := card.value(name)) is not None
    }
    # Ceilings of float16 sum in float32, which GeForce boards do at half the rate that units and clock allow: their
    # theoretical value is that of sums in float16.
    short = card.ceilings.get("tensor-fp16")
    if short and "fp16" in found:
        found[SHORT_SUMS] = max(found["fp16"], short.theoretical or 0)
    return found


def roofs(card: Card) -> dict[str, float | str | bool | None]:
    """Return what a roofline is drawn of: the card, and whether nobody named it; GB/s of its memory, GFLOP/s by number
    format, and 10^9 warp instructions a second; None: unknown."""
    rates = Rates.of(card)
    formats = {"float32": rates.pipes["fma"] * 64, "float64": rates.pipes["fp64"] * 64, **rates.tensor}
    return {
        "card": card.title,
        "default": not card.named,
        "memory_gbps": rates.memory / 1e9 if rates.memory else None,
        "issue_ginstructions": rates.issue / 1e9,
        **{f"{name}_gflops": value / 1e9 for name, value in formats.items() if name in _FLOATS},
    }


@dataclass
class _Spent:
    """Seconds by resource with the clauses that say how they come about; of several kinds of launches the sums."""

    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    figures: dict[str, dict[str, float]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(float)))
    longest: dict[str, tuple[float, str]] = field(default_factory=dict)

    def add(self, resource: str, seconds: float, **figures: float) -> None:
        self.seconds[resource] += seconds
        for name, figure in figures.items():
            self.figures[resource][name] += figure

    def said(self, resource: str, seconds: float, text: str) -> None:
        """Add what only a text can say; that of the launches that take longest stays."""
        self.seconds[resource] += seconds
        if seconds > self.longest.get(resource, (0.0, ""))[0]:
            self.longest[resource] = seconds, text


def limits(work: Sequence[Work], card: Card, *, cache: str = "cold", moved: int | None = None) -> tuple[Limit, ...]:
    """Return the shortest time that each resource of a card allows some launches, one after the other; longest first.

    work: in the order of the launches. cache: whether the L2 is "cold" or "hot" before them. moved: the bytes that must
    move between memory and the chip where they are known; they stand in for the distinct sectors where only a sample
    of the blocks was simulated.
    """
    rates = Rates.of(card)
    spent = _Spent()
    _memory(spent, work, rates, cache, moved)
    for place, one in enumerate(work):
        per_sm: dict[str, float] = {}
        _l2(spent, one, rates, cold=place == 0 and cache == "cold")
        code = _Code.read(one, rates)
        per_sm["lsu"] = _lsu(spent, one, code, rates)
        per_sm |= _pipes(spent, one, code, rates)
        _atomics(spent, one, rates)
        _latency(spent, one, code, rates)
        _blocks(spent, one, rates)
        _tail(spent, one, per_sm, rates)
    launches, longest = sum(one.times for one in work), max(spent.seconds.values(), default=0.0)
    if rates.gap and launches > 1:
        spent.add("launch", (launches - 1) * rates.gap, launches=launches)
    alone = rates.alone if cache == "cold" else 0.0
    if launches == 1 and alone > longest:
        spent.add("start", longest)
    note = (f"; {alone * 1e6:.3g} µs of it to launch" if alone else "") + _sampled(work)
    found = [
        Limit(resource, alone + seconds, _detail(resource, spent, rates) + note)
        for resource, seconds in spent.seconds.items()
        if seconds >= LEAST_S
    ]
    return tuple(sorted(found, key=lambda limit: (-limit.time_s, limit.resource != "start")))


def launch_of(card: Card, cache: str) -> float | None:
    """Return what of each limit on a card is the launch itself; None where nobody measured that."""
    if card.value("launch-alone") is None:
        return None
    return Rates.of(card).alone if cache == "cold" else 0.0


def _sampled(work: Sequence[Work]) -> str:
    ran, blocks = sum(one.footprint.ran for one in work), sum(one.footprint.blocks for one in work)
    return f"; counted on {ran} of {blocks} blocks" if ran < blocks else ""


# Memory and L2 -------------------------------------------------------------------------------------------------------


def distinct(one: Work) -> tuple[float, float]:
    """Return the distinct sectors that a launch reads and writes, on average over its launches.

    Of a sample of blocks they are estimated: as many as all blocks together ask for where the sample's blocks share as
    little as they do, and no more than the arrays have.
    """
    footprint = one.footprint
    found = []
    for own, ops in ((footprint.read, ("load", "atomic")), (footprint.written, ("store", "atomic"))):
        total = 0.0
        for array, seen in own.items():
            sectors = float(seen)
            if one.scale > 1:
                fresh = sum(t.fresh for t in footprint.touches if t.array == array and t.op in ops)
                shared = min(1.0, sectors / fresh) if fresh else 1.0
                sectors = min(footprint.sizes[array] * one.times, max(sectors, fresh * shared * one.scale))
            total += sectors
        found.append(total / one.times)
    return found[0], found[1]


def _memory(spent: _Spent, work: Sequence[Work], rates: Rates, cache: str, moved: int | None) -> None:
    if rates.memory is None or rates.read is None or rates.written is None:
        return
    read = written = stored = 0.0
    sampled = any(one.scale > 1 for one in work)
    for place, one in enumerate(work):
        reads, writes = (SECTOR * sectors for sectors in distinct(one))
        if sampled and moved and place == 0 and reads + writes:
            share = moved / (reads + writes)
            reads, writes = reads * share, writes * share
        first = place == 0 and cache == "cold"
        read += reads if first else max(0.0, reads - rates.l2_bytes)
        read += (one.times - 1) * max(0.0, reads - rates.l2_bytes)
        written += one.times * max(0.0, writes - L2_KEPT * rates.l2_bytes)
        stored += one.times * writes
    seconds = read / rates.read + written / rates.written
    spent.add("memory", seconds, read=read, written=written, stored=stored)


def _l2(spent: _Spent, one: Work, rates: Rates, *, cold: bool) -> None:
    footprint = one.footprint
    together = max(1, min(one.blocks_per_sm, ceil(one.blocks / rates.sms)))
    loads = stores = partial = asked = 0.0
    fresh: dict[str, float] = defaultdict(float)
    for touch in footprint.touches:
        if touch.op == "load":
            asked += touch.sectors * one.scale
            fresh[touch.array] += touch.fresh * one.scale
        else:
            stores += touch.sectors * one.scale
            partial += touch.partial * one.scale
    for array, sectors in fresh.items():
        shared = footprint.read.get(array, 0) * one.scale  # what blocks of a sample share, once
        least = min(shared, float(footprint.sizes[array]) * one.times, sectors)
        loads += max(least, min(shared, sectors / together, sectors * _refetched(one, array, sectors, rates)))
    reads, writes = distinct(one)
    exchanged = reads if cold else 0.0  # what a launch writes may stay, what a cold L2 is asked for first may not
    if not rates.l2_bytes or _streams(one, rates):
        exchanged = (reads + writes) * one.times
    seconds = (loads + stores) * SECTOR / rates.l2 if rates.l2 else 0.0
    if rates.l2_turns:
        turns = (loads + stores - partial) * SECTOR / TURN + partial * PARTIAL_TURNS + exchanged * MEMORY_TURN
        seconds = max(seconds, turns / rates.l2_turns)
    if seconds:
        again = max(0.0, asked - sum(fresh.values()))
        spent.add("l2", seconds, loads=loads, stores=stores, partial=partial, again=again)


def _refetched(one: Work, array: str, fresh: float, rates: Rates) -> float:
    """Return the share of what is new to blocks that is new to their SM too: less than all of an array that the L1
    holds from one block to the next."""
    own = min(one.footprint.read.get(array, 0) * one.scale / one.times, float(one.footprint.sizes.get(array, 0)))
    if not fresh or own * SECTOR > L1_BYTES:
        return 1.0
    return min(1.0, own * rates.sms * one.times / fresh)


def _streams(one: Work, rates: Rates) -> bool:
    """Whether what a launch touches does not fit the L2, so that all of it is exchanged with memory."""
    return sum(distinct(one)) * SECTOR > rates.l2_bytes


# What an SM executes -------------------------------------------------------------------------------------------------


class _Code(NamedTuple):
    """What the machine code of some launches executed: warp instructions by pipe, tensor operations by format.

    clocks: of all warps together, on their way through the code; warps: how many those are; waits: of the clocks, those
    for memory.
    """

    instructions: float
    pipes: Mapping[str, float]
    tensor: Mapping[str, float]
    shuffles: float
    clocks: float
    waits: float
    warps: float

    @classmethod
    def read(cls, one: Work, rates: Rates) -> _Code | None:
        """Return it, or None where nobody read the machine code."""
        executions = one.report.executed.get(one.entry)
        if not one.functions or not executions:
            return None
        counts = executed.count(one.functions, executions, one.ptx)
        pipes: dict[str, float] = defaultdict(float)
        tensor: dict[str, float] = defaultdict(float)
        total = shuffles = clocks = waits = 0.0
        loads = _load_clocks(one, rates)
        ran: dict[int, float] = defaultdict(float)
        for function, times in zip(one.functions, counts, strict=True):
            for block, count in zip(function.blocks, times, strict=True):
                for instruction in block.instructions:
                    if instruction.opcode in _LOADS:
                        ran[instruction.ptx_line] += count.warps
        for touch in one.footprint.touches:
            # A guard that holds for most warps: where one is kept from its load, it does not wait for it.
            if touch.instruction in loads and ran[touch.instruction]:
                loads[touch.instruction] *= min(1.0, touch.requests / ran[touch.instruction])
        for function, times in zip(one.functions, counts, strict=True):
            ways = paths(function, [count.warps for count in times], loads)
            for block, count, way in zip(function.blocks, times, ways, strict=True):
                if not count.warps:
                    continue
                warps = count.warps * one.scale
                total += warps * len(block.instructions) + count.again * one.scale
                for instruction in block.instructions:
                    for name, weight in _uses(instruction):
                        pipes[name] += warps * weight
                    if (product := tensor_operations(instruction)) is not None:
                        tensor[product[0]] += warps * product[1]
                    shuffles += warps * (instruction.opcode == "SHFL")
                clocks += warps * way.clocks
                waits += warps * way.waits
        start = next(iter(executions.values()))
        return cls(total, pipes, tensor, shuffles, clocks, waits, start.warps * one.scale)


def _uses(instruction: Instruction) -> list[tuple[str, float]]:
    """Return the pipes that an instruction occupies, and how many turns it takes there."""
    opcode, name = instruction.opcode, pipe(instruction)
    if name == "fma":
        if opcode.startswith("H"):
            return [("half", 1)]
        if opcode in ("IMAD", "IMUL", "IDP", "IDP4A"):
            # A move or a shift written as a multiplication may take either half of the pipe; 64 bits take it twice.
            words = set(instruction.modifiers)
            turns = 2 if {"WIDE", "HI"} & words else 1
            return [("fma", 1)] if {"MOV", "SHL", "IADD"} & words else [("fma", turns), ("imad", 1)]
        return [("fma", 2 if opcode.endswith("2") else 1)]
    if name == "xu":
        return [("xu", 1)] if opcode in _MUFU else [("convert", 1)]
    return [(name, 1)] if name in ("alu", "fp64") else []


def _pipes(spent: _Spent, one: Work, code: _Code | None, rates: Rates) -> dict[str, float]:
    """Add issue slots and pipes, and return the seconds of each."""
    found: dict[str, float] = {}
    if code is None:
        found["issue"] = one.report.instructions * one.scale / rates.issue
        spent.add("issue", found["issue"], instructions=one.report.instructions * one.scale)
    else:
        found["issue"] = code.instructions / rates.issue
        spent.add("issue", found["issue"], instructions=code.instructions)
        for resource, names in (
            ("fma", ("fma", "imad", "half")),
            ("alu", ("alu",)),
            ("fp64", ("fp64",)),
        ):
            seconds, name = max((code.pipes.get(name, 0.0) / rates.pipes[name], name) for name in names)
            if seconds:
                found[resource] = seconds
                spent.add(resource, seconds, **{name: code.pipes[name]})
        # One unit does both, one after the other, where conversions are no faster than special functions.
        each = {name: code.pipes.get(name, 0.0) / rates.pipes[name] for name in ("xu", "convert")}
        together = rates.pipes["convert"] <= 1.1 * rates.pipes["xu"]
        seconds = sum(each.values()) if together else max(each.values())
        if seconds:
            found["xu"] = seconds
            spent.add("xu", seconds, **{name: code.pipes[name] for name in each if code.pipes.get(name)})
        seconds = sum(count / rates.tensor[name] for name, count in code.tensor.items() if name in rates.tensor)
        if seconds:
            found["tensor"] = seconds
            spent.add("tensor", seconds, **code.tensor)
    rows = [row for row in one.report.accesses if row.space == "constant"]
    asked = sum(row.requests for row in rows) * one.scale
    if asked:
        more = sum(row.wavefronts or 0 for row in rows) * one.scale - asked
        fetched = one.footprint.constants * one.scale
        found["constant"] = asked / rates.constant + more / rates.addresses + fetched * rates.fetch
        spent.add("constant", found["constant"], requests=asked, more=more, fetched=fetched)
    local = sum(row.sectors or 0 for row in one.report.accesses if row.space == "local") * one.scale * SECTOR / LINE
    if local:
        found["local"] = local / rates.lsu
        spent.add("local", found["local"], wavefronts=local)
    return found


def _lsu(spent: _Spent, one: Work, code: _Code | None, rates: Rates) -> float:
    shared = sum(row.wavefronts or 0 for row in one.report.accesses if row.space == "shared") * one.scale
    ideal = sum(row.ideal_wavefronts or 0 for row in one.report.accesses if row.space == "shared") * one.scale
    turns = sum(touch.turns for touch in one.footprint.touches) * one.scale
    shuffles = code.shuffles if code else 0.0
    seconds = (shared + turns + shuffles) / rates.lsu
    if seconds:
        spent.add("lsu", seconds, shared=shared, ideal=ideal, turns=turns, shuffles=shuffles)
    return seconds


_SHAPE = re.compile(r"^(?:64x(\d+)x(\d+)|(\d+))$")
# m, n, k as the digits of SASS write them.
_SHAPES = {
    "1688": (16, 8, 8), "16816": (16, 8, 16), "1684": (16, 8, 4), "884": (8, 8, 4), "8816": (8, 8, 16),
    "16832": (16, 8, 32), "8832": (8, 8, 32), "16864": (16, 8, 64), "16168": (16, 16, 8), "161616": (16, 16, 16),
    "848": (8, 4, 8),
}  # fmt: skip


WGMMA = "wgmma-"
SHORT_SUMS = "fp16 summed in fp16"


def tensor_operations(instruction: Instruction) -> tuple[str, int] | None:
    """Return the format of a tensor instruction's operands, as its ceiling is called, and its operations a warp, two a
    product; None for others.

    A warpgroup's instruction (HGMMA.64x128x16) is of four warps, and of other ceilings: 'wgmma-bf16'. Formats of 8 bits
    and less have names that no ceiling has; of sparse operands nobody knows the rate.
    """
    if pipe(instruction) != "tensor":
        return None
    shape = None
    for modifier in instruction.modifiers:
        match = _SHAPE.match(modifier)
        if match is not None and match[1]:
            shape = (16, int(match[1]), int(match[2]))
        elif match is not None and match[3] in _SHAPES:
            shape = _SHAPES[match[3]]
    if shape is None:
        return None
    words = set(instruction.modifiers)
    if "SP" in words:
        return None
    kind = instruction.opcode.removesuffix("GMMA").removesuffix("MMA")
    if kind == "I":
        name = "int4" if {"S4", "U4"} & words else "int8"
    elif kind == "H":
        name = "tf32" if "TF32" in words else "bf16" if "BF16" in words else "fp16"
    else:
        name = {"D": "fp64", "Q": "fp8", "B": "b1", "O": "fp4"}.get(kind, kind)
    if instruction.opcode.endswith("GMMA"):
        name = WGMMA + name
    elif name == "fp16" and "F32" not in words:
        name = SHORT_SUMS
    return name, 2 * prod(shape)


# Latency -------------------------------------------------------------------------------------------------------------


# By register: the clocks until its value is there, and whether it is one that was loaded.
_Ready = Mapping[str, tuple[float, bool]]


class Path(NamedTuple):
    """Clocks of a warp through a basic block, and those of them in which it waits for memory.

    left: what is still under way behind it.
    """

    clocks: float
    waits: float
    left: _Ready


_REGISTER = re.compile(r"(?<![\w.])(U?R)(\d+)((?:\.\w+)*)")
_PREDICATE = re.compile(r"(?<![\w])U?P\d+")
_LOADS = ("LD", "LDG", "ATOM", "ATOMG")
_STORES = ("ST", "STG", "STS", "STL", "RED", "REDG", "STSM")


def path(instructions: Sequence[Instruction], loads: Mapping[int, float], before: _Ready | None = None) -> Path:
    """Return the fewest clocks that a warp needs from the first instruction of a basic block to behind its last.

    A warp issues in order, one instruction a clock at best, and each when its operands are there. loads: by PTX line,
    the clocks from a load to its value. before: what is under way as it comes in.
    """
    ready = dict(before or {})
    now, waits = -1.0, 0.0
    for instruction in instructions:
        reads, writes = operands(instruction)
        start = now + 1
        for name in reads:
            when, load = ready.get(name, (0.0, False))
            if when > start:
                waits += (when - start) * load
                start = when
        now = start
        clocks, load = _result_clocks(instruction, loads)
        for name in writes:
            ready[name] = (start + clocks, load)
    end = now + 1
    return Path(end, waits, {name: (when - end, load) for name, (when, load) in ready.items() if when > end})


def paths(function: Function, ran: Sequence[float], loads: Mapping[int, float]) -> list[Path]:
    """Return the path of each block of a function, in order, each with what is under way as a warp comes in.

    That is what is under way behind all blocks before it that ran, by the shortest of them; where one of those stands
    behind it, as at the head of a loop, nothing.
    """
    before: dict[int, list[int]] = defaultdict(list)
    for block in function.blocks:
        for following in block.successors:
            if ran[block.number]:
                before[following].append(block.number)
    found: list[Path] = []
    for block in function.blocks:
        ways = [found[number].left for number in before[block.number] if number < block.number]
        ready: dict[str, tuple[float, bool]] = {}
        if ways and len(ways) == len(before[block.number]):
            for name in set(ways[0]).intersection(*ways[1:]):
                ready[name] = min(way[name] for way in ways)
        found.append(path(block.instructions, loads, ready))
    return found


def _result_clocks(instruction: Instruction, loads: Mapping[int, float]) -> tuple[float, bool]:
    opcode = instruction.opcode
    if opcode in _LOADS:
        return loads.get(instruction.ptx_line, float(_ARITHMETIC)), True
    if opcode in ("LDS", "LDSM", "LDL", "ATOMS"):
        return float(_ARITHMETIC) if instruction.guard else loads.get(0, float(_ARITHMETIC)), True
    return float(_CLOCKS.get(pipe(instruction), _ARITHMETIC)), False


def operands(instruction: Instruction) -> tuple[list[str], list[str]]:
    """Return the registers that an instruction reads and writes; of a wide result all, of a wide operand the first two.

    Where it is not sure, rather too few: a dependency that is missed makes the bound weaker, never wrong.
    """
    stores = instruction.opcode in _STORES or instruction.opcode in ("BRA", "EXIT", "BAR", "LDGSTS")
    reads: list[str] = [instruction.guard.lstrip("!")] if instruction.guard else []
    writes: list[str] = []
    for place, text in enumerate(instruction.operands):
        predicates = [name for name in _PREDICATE.findall(text) if not name.endswith("T")]
        registers = [(match[1] + match[2], match[3]) for match in _REGISTER.finditer(text)]
        into = not stores and "[" not in text and (place == 0 or (place == 1 and bool(predicates) and bool(writes)))
        if into:
            writes += predicates
            for name, _ in registers:
                prefix, number = re.match(r"(U?R)(\d+)", name).groups()  # type: ignore[union-attr]
                writes += [f"{prefix}{int(number) + more}" for more in range(_width(instruction))]
        else:
            reads += predicates
            for name, modifiers in registers:
                reads.append(name)
                if ".64" in modifiers:
                    prefix, number = re.match(r"(U?R)(\d+)", name).groups()  # type: ignore[union-attr]
                    reads.append(f"{prefix}{int(number) + 1}")
    return reads, writes


def _width(instruction: Instruction) -> int:
    """Return how many registers an instruction's result takes."""
    words = instruction.modifiers
    if "128" in words or pipe(instruction) == "tensor":
        return 4
    if "64" in words or "WIDE" in words or pipe(instruction) == "fp64":
        return 2
    return 4 if instruction.opcode == "LDSM" and "4" in words else 1


def _load_clocks(one: Work, rates: Rates) -> dict[int, float]:
    """Return by PTX line the mean clocks from a load of global memory to its value; at 0 those of shared memory.

    A request waits for its farthest sector. Of those that have a sector new to their block, the share goes to memory
    that is new to the launch; the others find it in the L2, and what a block has had is in the L1, which takes no less
    than shared memory.
    """
    if rates.shared_latency is None or rates.memory_latency is None or rates.l2_latency is None:
        return {}
    near, middle, far = (
        latency * rates.clock for latency in (rates.shared_latency, rates.l2_latency, rates.memory_latency)
    )
    footprint = one.footprint
    fresh: dict[str, float] = defaultdict(float)
    for touch in footprint.touches:
        if touch.op == "load":
            fresh[touch.array] += touch.fresh
    found: dict[int, float] = {0: near}
    sums: dict[int, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for touch in footprint.touches:
        if touch.op == "store" or not touch.requests:
            continue
        new = min(1.0, footprint.read.get(touch.array, 0) / fresh[touch.array]) if fresh[touch.array] else 0.0
        there = _refetched(one, touch.array, fresh[touch.array] * one.scale, rates)
        missing = min(1.0, touch.missing / touch.requests) * there
        if touch.op == "atomic":
            missing, new = 1.0, 0.0
        mean = missing * (new * far + (1 - new) * middle) + (1 - missing) * near
        sums[touch.instruction][0] += mean * touch.requests
        sums[touch.instruction][1] += touch.requests
    return found | {line: total / requests for line, (total, requests) in sums.items()}


def _latency(spent: _Spent, one: Work, code: _Code | None, rates: Rates) -> None:
    if code is None or not code.warps or rates.memory_latency is None:
        return
    each = code.clocks / code.warps
    resident = min(one.blocks_per_sm * one.warps * rates.sms, one.blocks * one.warps)
    turns = max(1.0, code.warps / one.times / max(resident, 1))
    # A block's own time is that of one warp at least, and grows with its warps at least as that of a full block.
    turn = max(rates.turns[0], rates.turns[1] * one.warps / 32)
    seconds = one.times * (each * turns / rates.clock + (turns - 1) * turn)
    flight = _in_flight(one, code, rates, resident)
    taken = f", {_number(turns)} one after the other" if turns > 1 else ""
    text = (
        f"a warp takes {_number(each)} clocks at least, {code.waits / code.clocks:.0%} of them for memory; an SM holds "
        f"{_number(resident / rates.sms)} at a time{taken}{flight}"
    )
    spent.said("latency", seconds, text)


def _blocks(spent: _Spent, one: Work, rates: Rates) -> None:
    if rates.blocks:
        blocks = float(one.blocks * one.times)
        spent.add("blocks", blocks / rates.blocks, blocks=blocks)


def _in_flight(one: Work, code: _Code, rates: Rates, resident: float) -> str:
    """Return the bytes that an SM's loads keep under way on average, and those that memory's speed takes."""
    if not code.clocks or rates.memory is None or rates.memory_latency is None:
        return ""
    loaded = sum(t.fresh for t in one.footprint.touches if t.op == "load") * one.scale * SECTOR
    if not loaded:
        return ""
    have = loaded / code.clocks * rates.memory_latency * rates.clock * resident / rates.sms
    need = rates.memory * rates.memory_latency / rates.sms
    if have < need:
        return f"; {_bytes(have)} in flight an SM where {_bytes(need)} are needed"
    return f"; {_bytes(have)} in flight an SM where {_bytes(need)}{ENOUGH}" if have < 100 * need else ""


def _tail(spent: _Spent, one: Work, per_sm: Mapping[str, float], rates: Rates) -> None:
    busiest = ceil(one.blocks / rates.sms)
    resource, seconds = max(per_sm.items(), key=lambda item: item[1])
    if busiest * rates.sms < TAIL * one.blocks or not seconds:
        return
    waves = one.blocks / (rates.sms * max(one.blocks_per_sm, 1))
    text = (
        f"the busiest of {rates.sms} SMs has {busiest} of {one.blocks} blocks ({_number(waves)} waves): "
        f"{NAMES[resource]}"
    )
    spent.said("tail", seconds * busiest * rates.sms / one.blocks, text)


def _atomics(spent: _Spent, one: Work, rates: Rates) -> None:
    if rates.atomic is None:
        return
    most = 0.0
    for atomic in one.report.contended:
        rows = [r for r in one.report.accesses if r.instruction == atomic.instruction and r.space == "global"]
        lanes = max((count.pattern.lanes for row in rows for count in row.patterns), default=32)
        most = max(most, (atomic.hottest or 0) / max(lanes, 1))
    if most:
        spent.add("atomic", one.scale * most / rates.atomic, hits=one.scale * most)


# Words ---------------------------------------------------------------------------------------------------------------

NAMES = {
    "memory": "memory",
    "l2": "L2",
    "lsu": "load/store unit",
    "issue": "issue",
    "fma": "FMA pipe",
    "alu": "ALU pipe",
    "fp64": "FP64 pipe",
    "xu": "special functions",
    "tensor": "tensor cores",
    "constant": "constants",
    "local": "local memory",
    "atomic": "atomics",
    "latency": "latency",
    "tail": "tail",
    "blocks": "block starts",
    "launch": "launches",
    "start": "the launch",
}


def _number(value: float) -> str:
    for least, unit, suffix in ((1e12, 1e12, " T"), (1e9, 1e9, " G"), (1e6, 1e6, " M"), (1e4, 1e3, " k")):
        if value >= least:
            return f"{value / unit:.3g}{suffix}"
    return f"{value:.3g}" if value < 999.5 else f"{value:.0f}"


def _bytes(value: float) -> str:
    for least, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if value >= least:
            return f"{value / least:.3g} {unit}"
    return f"{value:.0f} bytes"


def _detail(resource: str, spent: _Spent, rates: Rates) -> str:
    """Return the arithmetic of a limit in one clause."""
    if resource in spent.longest:
        return spent.longest[resource][1]
    figures = spent.figures[resource]
    if resource == "memory":
        assert rates.read is not None
        assert rates.written is not None
        kept = f" of {_bytes(figures['stored'])}" if figures["written"] < figures["stored"] else ""
        why = " (the L2 may keep the rest)" if kept else ""
        return (
            f"{_bytes(figures['read'])} must be read at {rates.read / 1e9:.0f} GB/s and {_bytes(figures['written'])}"
            f"{kept} written{why} at {rates.written / 1e9:.0f} GB/s"
        )
    if resource == "l2":
        part = f", {_number(figures['partial'])} of them parts of a sector" if figures["partial"] else ""
        asked, wrote = _number(figures["loads"]), _number(figures["stores"])
        again = f"; {_number(figures['again'])} asked for again{IN_L1}"
        kept = again if figures["again"] > AGAIN * figures["loads"] else ""
        return f"{asked} sectors that blocks ask for and {wrote} that they write{part}{kept}"
    if resource == "lsu":
        pieces = [
            f"{_number(figures[name])} {text}"
            for name, text in (
                ("shared", "wavefronts of shared memory"),
                ("turns", "turns of the L1"),
                ("shuffles", "shuffles"),
            )
            if figures[name]
        ]
        return f"{' and '.join(pieces)}, {_number(rates.lsu)} a second"
    if resource == "issue":
        return f"{_number(figures['instructions'])} warp instructions, {_number(rates.issue)} a second"
    if resource == "tensor":
        return " and ".join(f"{_number(count)} operations in {name}" for name, count in figures.items())
    if resource == "atomic":
        return f"{_number(figures['hits'])} requests to one address, {_number(rates.atomic or 0)} a second"
    if resource == "blocks":
        return f"{_number(figures['blocks'])} blocks to start, {_number(rates.blocks or 0)} a second"
    if resource == "start":
        return "an empty launch takes longer than all that this one does"
    if resource == "launch":
        return f"{figures['launches']:.0f} launches, {(rates.gap or 0) * 1e6:.3g} µs from one to the next"
    if resource == "constant":
        pieces = [
            f"{_number(figures[name])} {text}"
            for name, text in (
                ("requests", "requests for constants"),
                ("more", "more addresses"),
                ("fetched", "lines that the cache of constants lacks"),
            )
            if figures[name]
        ]
        return ", ".join(pieces)
    if resource == "local":
        return f"{_number(figures['wavefronts'])} wavefronts"
    if resource == "xu" and len(figures) > 1:
        return f"{_number(figures['xu'])} special functions and {_number(figures['convert'])} conversions of one unit"
    name, count = max(figures.items(), key=lambda item: item[1])
    kind = {"imad": "integer multiplications", "half": "instructions of halves", "convert": "conversions"}.get(
        name, "warp instructions"
    )
    return f"{_number(count)} {kind}, {_number(rates.pipes[name])} a second"
