"""The shortest time that each resource of a card allows a kernel: lower bounds, from counts and ceilings alone. Pure.

The counts are the simulator's, of the machine code that the card would run; the ceilings are a card's, measured or of
its datasheet (`cudabench.cards`). No time here is measured, and limits are independent: a kernel's time is
at least the longest limit, and more if resources do not overlap.

* memory: the distinct sectors that a launch reads, each once, and those that it writes, but for what the L2 may still
  hold at the end; of later launches only what the L2 cannot have kept. With a hot L2, only what does not
  fit it. Sectors that stores leave incomplete are read too, where the L2 cannot keep them.
* l2: sectors that a block had not had before (what it asks for again may lie in the L1), as if the blocks that share
  an SM shared all of them, and once where several blocks of a sample ask for it: requests of several SMs may reach the
  L2 as one (Nsight Compute calls that unit lrc, L2 Request Coalescer; with a product of matrices an H200's L2 was busy
  for half of what the blocks ask for). And every store's sectors. A slice of the L2 moves 64 bytes a clock, takes
  half a turn to exchange a sector with memory and a quarter more on average, since half of them lie in the other half
  of the L2 and pass a slice of either. (Nsight Compute's shares of the L2 on an H200 and an H100 are at least 0.97 of
  what these turns come to, but for products of matrices, whose blocks share more than those of a sample.) And it takes
  in a sector a clock of what is stored, and a clock more for each line with parts of sectors; those that the stores of
  an SM complete soon may come as one (`_stored`). Stores to local memory go through to the L2.
* lsu: wavefronts of shared memory, turns of the L1 for requests to global memory (`simulator.count.footprint`), and
  shuffles.
* issue and pipes: warp instructions by what executes them (CUDA C++ Programming Guide, "Arithmetic Instructions").
  Conversions and special functions are of one unit, products of 64 bits take the FMA pipe twice, and VIADD is of that
  pipe: so Nsight Compute counts on an H200 and an H100, to 0.04% of the instructions in the median of 134 kernels.
* constant: requests for indexed constants, one a clock and SM, what each further address takes, and the lines of a
  table that the cache of constants cannot have had (`simulator.count.footprint`). local: wavefronts of local memory.
* atomic: the hits of the most used address, one lane after the other; or the sectors of an array, a clock each, in the
  slices that have it: 512 neighbouring bytes lie in one.
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

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import ceil, prod, sqrt
from typing import TYPE_CHECKING, NamedTuple

from cudabench.cards.load import Card
from cudabench.compile.sass import Function
from cudabench.explain import executed
from cudabench.explain.bound_texts import ENOUGH, NAMES, clause, number, size
from cudabench.explain.card_rates import Rates, tensor_operations, uses
from cudabench.explain.warp_latency import LOADS, paths
from cudabench.records.launch import Dim
from cudabench.records.results import Limit

if TYPE_CHECKING:
    from cudabench.simulator.api import Access, Footprint, Report

SECTOR, LINE = 32, 128
L1_BYTES = 256 * 1024  # of the largest L1 of any SM
L2_KEPT = 0.5  # of the L2 may hold what a kernel wrote when its clock stops: its half; an H200 kept 24 MB of 60 MiB
TURN = 64  # bytes that a slice of the L2 moves in a turn
# Half a turn for the exchange itself, and for the half of all sectors that lies in the other half of the L2, half a
# turn there: by Nsight Compute's share of the L2 1.29 turns a sector that is read cold on an H200, 1.47 on an H100.
MEMORY_TURN = 0.75
# Of an H100 (benchmarks/results/bounds_h100.md), in clocks of the L2. A slice takes in a sector a clock, and one clock
# more for each line of a store with a part of a sector. Half of the lines are looked up in both halves of the L2, and
# those of atomics that return something once more for that.
LOOKED_UP, RETURNED = 1.5, 0.5
LINES_OF_PARTS = 0.25  # of the sectors of local memory, at least: four are in a line
# Stores whose requests have few lines may complete a sector before it leaves the SM: all that have up to so many, of
# more the fourth power of the share.
TOGETHER_LINES = 7
CHUNK = 512  # neighbouring bytes that lie in one slice
FLOAT_ADDS = 2.4  # turns of an addition of floats to the word of the one before, where integers take one
TAIL = 1.05  # of the mean: an SM that has more blocks than so is worth a limit of its own
LEAST_S = 1e-9  # a limit under this is not worth a row


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
    def fresh(self) -> Mapping[str, float]:
        """Of each array the sectors that loads bring blocks which these had not had before."""
        found: dict[str, float] = defaultdict(float)
        for touch in (each for each in self.footprint.touches if each.op == "load"):
            found[touch.array] += touch.fresh
        return found

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


# A resource, seconds, and how they come about: by figures, or in words.
_Part = tuple[str, float, Mapping[str, float] | str]


def lower_bounds(
    work: Sequence[Work], card: Card, *, cache: str = "cold", moved: int | None = None
) -> tuple[Limit, ...]:
    """Return the shortest time that each resource of a card allows some launches, one after the other; longest first.

    work: in the order of the launches. cache: whether the L2 is "cold" or "hot" before them. moved: the bytes that must
    move between memory and the chip where they are known; they stand in for the distinct sectors where only a sample
    of the blocks was simulated.
    """
    rates = Rates.of(card)
    parts = list(_memory(work, rates, cache, moved))
    for place, one in enumerate(work):
        code = _code(one, rates)
        units = [unit for unit in _units(one, code, rates) if unit[1]]
        parts += _l2(one, rates, cold=place == 0 and cache == "cold")
        parts += [*units, *_atomics(one, rates), *_latency(one, code, rates)]
        if rates.blocks:
            blocks = float(one.blocks * one.times)
            parts.append(("blocks", blocks / rates.blocks, {"blocks": blocks}))
        parts += _tail(one, units, rates)
    launches, alone = sum(one.times for one in work), rates.alone if cache == "cold" else 0.0
    longest = max(_seconds(parts).values(), default=0.0)
    if rates.gap and launches > 1:
        parts.append(("launch", (launches - 1) * rates.gap, {"launches": launches}))
    if launches == 1 and alone > longest:
        parts.append(("start", longest, {}))
    ran, blocks = sum(one.footprint.ran for one in work), sum(one.footprint.blocks for one in work)
    note = f"; {alone * 1e6:.3g} µs of it to launch" if alone else ""
    note += f"; counted on {ran} of {blocks} blocks" if ran < blocks else ""
    found = [
        Limit(resource, alone + seconds, _told([part for part in parts if part[0] == resource], rates) + note)
        for resource, seconds in _seconds(parts).items()
        if seconds >= LEAST_S
    ]
    return tuple(sorted(found, key=lambda limit: (-limit.time_s, limit.resource != "start")))


def _seconds(parts: Iterable[_Part]) -> Mapping[str, float]:
    total: dict[str, float] = defaultdict(float)
    for resource, seconds, _ in parts:
        total[resource] += seconds
    return total


def _told(parts: Sequence[_Part], rates: Rates) -> str:
    """Return how the time of one resource comes about: by the sums of its figures, or as of the longest part."""
    resource, _, longest = max(parts, key=lambda part: part[1])
    if isinstance(longest, str):
        return longest
    figures: Counter[str] = Counter()
    for _, _, more in parts:
        figures.update(more)
    return clause(resource, figures, rates)


# Memory and L2 -------------------------------------------------------------------------------------------------------


def distinct(one: Work) -> tuple[float, float]:
    """Return the distinct sectors that a launch reads and writes, on average over its launches."""
    reads, writes = _distinct(one)
    return sum(reads.values()), sum(writes.values())


def _distinct(one: Work) -> tuple[dict[str, float], dict[str, float]]:
    """Return the same by array.

    Of a sample of blocks they are estimated: as many as all blocks together ask for where the sample's blocks share as
    little as they do, and no more than the arrays have.
    """
    footprint = one.footprint
    found = []
    for own, ops in ((footprint.read, ("load", "atomic")), (footprint.written, ("store", "atomic"))):
        each = {}
        for array, seen in own.items():
            sectors = float(seen)
            if one.scale > 1:
                fresh = sum(t.fresh for t in footprint.touches if t.array == array and t.op in ops)
                shared = min(1.0, sectors / fresh) if fresh else 1.0
                sectors = min(footprint.sizes[array] * one.times, max(sectors, fresh * shared * one.scale))
            each[array] = sectors / one.times
        found.append(each)
    return found[0], found[1]


def _memory(work: Sequence[Work], rates: Rates, cache: str, moved: int | None) -> Iterator[_Part]:
    if rates.memory is None or rates.read is None or rates.written is None:
        return
    read = written = stored = 0.0
    sampled = any(one.scale > 1 for one in work)
    for place, one in enumerate(work):
        reads, writes = (SECTOR * sectors for sectors in distinct(one))
        filled = SECTOR * _incomplete(one) * max(0.0, 1 - L2_KEPT * rates.l2_bytes / writes) if writes else 0.0
        if sampled and moved and place == 0 and reads + writes:
            share = moved / (reads + writes)
            reads, writes = reads * share, writes * share
        first = place == 0 and cache == "cold"
        read += reads if first else max(0.0, reads - rates.l2_bytes)
        read += (one.times - 1) * max(0.0, reads - rates.l2_bytes) + one.times * filled
        written += one.times * max(0.0, writes - L2_KEPT * rates.l2_bytes)
        stored += one.times * writes
    yield "memory", read / rates.read + written / rates.written, {"read": read, "written": written, "stored": stored}


def _incomplete(one: Work) -> float:
    """Return the sectors that the stores of a launch leave incomplete at least, of those that nobody read. They are
    read before they are written to memory.

    All lanes together fill no more than they write; and what no store fills takes two that fill parts of it.
    """
    reads, writes = _distinct(one)
    lanes: dict[str, float] = defaultdict(float)
    full: dict[str, float] = defaultdict(float)
    parts: dict[str, float] = defaultdict(float)
    for touch in (touch for touch in one.footprint.touches if touch.op == "store"):
        lanes[touch.array] += touch.requests * touch.bytes * one.scale / one.times
        full[touch.array] += (touch.sectors - touch.partial) * one.scale / one.times
        parts[touch.array] += touch.partial * one.scale / one.times
    left = 0.0
    for array in lanes:
        stored = writes.get(array, 0.0)
        least = max(stored - lanes[array], 2 * (stored - full[array]) - parts[array])
        left += max(0.0, min(stored, least) - reads.get(array, 0.0))
    return left


def _l2(one: Work, rates: Rates, *, cold: bool) -> Iterator[_Part]:
    footprint = one.footprint
    together = max(1, min(one.blocks_per_sm, ceil(one.blocks / rates.sms)))
    asked = sum(touch.sectors * one.scale for touch in footprint.touches if touch.op == "load")
    stores = sum(touch.sectors * one.scale for touch in footprint.touches if touch.op != "load")
    partial = sum(touch.partial * one.scale for touch in footprint.touches if touch.op != "load")
    fresh = {array: sectors * one.scale for array, sectors in one.fresh.items()}
    loads = 0.0
    for array, sectors in fresh.items():
        shared = footprint.read.get(array, 0) * one.scale  # what blocks of a sample share, once
        least = min(shared, float(footprint.sizes[array]) * one.times, sectors)
        loads += max(least, min(shared, sectors / together, sectors * _refetched(one, array, sectors, rates)))
    reads, writes = distinct(one)
    exchanged = reads if cold else 0.0  # what a launch writes may stay, what a cold L2 is asked for first may not
    if not rates.l2_bytes or _streams(one, rates):
        exchanged = (reads + writes) * one.times
    local = more = 0.0  # a store to local memory goes through to the L2
    for row in (row for row in one.report.accesses if row.space == "local" and row.op == "store"):
        local += (row.sectors or 0) * one.scale
        more += (row.sectors or 0) * one.scale * LINES_OF_PARTS * ((row.sectors or 0) > (row.ideal_sectors or 0))
    stored = _stored(one)
    seconds = (loads + stored.sectors) * SECTOR / rates.l2 if rates.l2 else 0.0
    if rates.l2_turns and rates.l2_slices:
        turns = (loads + stored.sectors + local) * SECTOR / TURN + exchanged * MEMORY_TURN
        clocks = max(stored.clocks + local + more, stored.lines) / rates.l2_slices
        seconds = max(seconds, turns / rates.l2_turns, clocks / rates.l2_clock)
    if seconds:
        again = max(0.0, asked - sum(fresh.values()))
        yield "l2", seconds, {"loads": loads, "stores": stores, "partial": partial, "again": again, "local": local}


class _Stored(NamedTuple):
    """What reaches the L2 of stores and atomics: sectors, the clocks in which the slices take them in, and those in
    which they look up the lines."""

    sectors: float
    clocks: float
    lines: float


def _stored(one: Work) -> _Stored:
    sectors = clocks = lines = fresh = 0.0
    returned = {atomic.instruction for atomic in one.report.contended if atomic.returns}
    for touch in one.footprint.touches:
        if touch.op == "load" or not touch.requests:
            continue
        parts = touch.partial / touch.sectors if touch.sectors else 0.0
        each = touch.lines / touch.requests
        left = 1 - min(1.0, (TOGETHER_LINES / each) ** 4) if touch.op == "store" else 1.0
        sectors += touch.sectors - touch.partial * (1 - left)
        clocks += touch.sectors - touch.partial + (touch.partial + touch.lines * parts) * left
        looked_up = LOOKED_UP + RETURNED * (touch.instruction in returned)
        lines += touch.lines * (1 - parts + parts * left) * looked_up
        fresh += touch.fresh if touch.op == "store" else touch.sectors
    return _Stored(max(sectors, fresh) * one.scale, max(clocks, fresh) * one.scale, lines * one.scale)


def _refetched(one: Work, array: str, fresh: float, rates: Rates) -> float:
    """Return the share of what is new to blocks that is new to their SM too: less than all of an array that the L1
    holds from one block to the next."""
    own = min(one.footprint.read.get(array, 0) * one.scale / one.times, float(one.footprint.sizes.get(array, 0)))
    return 1.0 if not fresh or own * SECTOR > L1_BYTES else min(1.0, own * rates.sms * one.times / fresh)


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


def _code(one: Work, rates: Rates) -> _Code | None:
    """Return what machine code was executed, None where nobody read it."""
    executions = one.report.executed.get(one.entry)
    if not one.functions or not executions:
        return None
    counts = executed.count(one.functions, executions)
    pipes: dict[str, float] = defaultdict(float)
    tensor: dict[str, float] = defaultdict(float)
    total = shuffles = clocks = waits = 0.0
    loads = _load_clocks(one, rates)
    ran: dict[int, float] = defaultdict(float)
    for block, count in executed.counted(one.functions, counts):
        for instruction in block.instructions:
            if instruction.opcode in LOADS:
                ran[instruction.ptx_line] += count.warps
    for touch in one.footprint.touches:
        # A guard that holds for most warps: where one is kept from its load, it does not wait for it.
        if touch.instruction in loads and ran[touch.instruction]:
            loads[touch.instruction] *= min(1.0, touch.requests / ran[touch.instruction])
    ways = (
        way
        for function, times in zip(one.functions, counts, strict=True)
        for way in paths(function, [count.warps for count in times], loads)
    )
    for (block, count), way in zip(executed.counted(one.functions, counts), ways, strict=True):
        warps = count.warps * one.scale
        total += warps * len(block.instructions) + count.again * one.scale
        for instruction in block.instructions if warps else ():
            for name, weight in uses(instruction):
                pipes[name] += warps * weight
            if (product := tensor_operations(instruction)) is not None:
                tensor[product[0]] += warps * product[1]
            shuffles += warps * (instruction.opcode == "SHFL")
        clocks += warps * way.clocks
        waits += warps * way.waits
    start = next(iter(executions.values()))
    return _Code(total, pipes, tensor, shuffles, clocks, waits, start.warps * one.scale)


def _units(one: Work, code: _Code | None, rates: Rates) -> Iterator[_Part]:
    """Yield what the units of the SMs have to do: the resource, seconds, and the figures of those."""
    totals: dict[str, Counter[str]] = defaultdict(Counter)
    for row in one.report.accesses:
        totals[row.space] += Counter(requests=row.requests, wavefronts=row.wavefronts or 0, sectors=row.sectors or 0)
        totals[row.space]["loops"] += (row.wavefronts or 0) * (row.reloads > 0)
    shared = totals["shared"]["wavefronts"] * one.scale
    turns = sum(touch.turns for touch in one.footprint.touches) * one.scale
    shuffles = code.shuffles if code else 0.0
    figures = {"shared": shared, "turns": turns, "shuffles": shuffles}
    # A warp that comes between another's load and its store sends it round again: with w warps (w + 1) / 2 times.
    again = (one.warps - 1) / 2 * totals["shared"]["loops"] * one.scale
    yield "lsu", (shared + turns + shuffles) / rates.lsu, {**figures, "again": again}
    instructions = code.instructions if code else one.report.instructions * one.scale
    yield "issue", instructions / rates.issue, {"instructions": instructions}
    if code:
        each = {name: code.pipes.get(name, 0.0) / rate for name, rate in rates.pipes.items()}
        for resource, names in (("fma", ("fma", "imad", "half")), ("alu", ("alu",)), ("fp64", ("fp64",))):
            seconds, name = max((each[name], name) for name in names)
            yield resource, seconds, {name: code.pipes.get(name, 0.0)}
        # One unit does both, one after the other, where conversions are not faster than special functions.
        both = each["xu"], each["convert"]
        together = rates.pipes["convert"] <= 1.1 * rates.pipes["xu"]
        figures = {name: code.pipes[name] for name in ("xu", "convert") if code.pipes.get(name)}
        yield "xu", sum(both) if together else max(both), figures
        seconds = sum(count / rates.tensor[name] for name, count in code.tensor.items() if name in rates.tensor)
        yield "tensor", seconds, dict(code.tensor)
    asked = totals["constant"]["requests"] * one.scale
    if asked:
        more = totals["constant"]["wavefronts"] * one.scale - asked
        fetched = one.footprint.constants * one.scale
        seconds = asked / rates.constant + more / rates.addresses + fetched * rates.fetch
        yield "constant", seconds, {"requests": asked, "more": more, "fetched": fetched}
    local = totals["local"]["sectors"] * one.scale * SECTOR / LINE
    yield "local", local / rates.lsu, {"wavefronts": local}


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
    clocks: dict[int, float] = defaultdict(float)
    requests: dict[int, float] = defaultdict(float)
    news = one.fresh
    for touch in one.footprint.touches:
        if touch.op == "store" or not touch.requests:
            continue
        fresh = news.get(touch.array, 0)
        new = min(1.0, one.footprint.read.get(touch.array, 0) / fresh) if fresh else 0.0
        missing = min(1.0, touch.missing / touch.requests) * _refetched(one, touch.array, fresh * one.scale, rates)
        if touch.op == "atomic":
            missing, new = 1.0, 0.0
        mean = missing * (new * far + (1 - new) * middle) + (1 - missing) * near
        clocks[touch.instruction] += mean * touch.requests
        requests[touch.instruction] += touch.requests
    return {0: near, **{line: total / requests[line] for line, total in clocks.items()}}


def _latency(one: Work, code: _Code | None, rates: Rates) -> Iterator[_Part]:
    if code is None or not code.warps or rates.memory_latency is None:
        return
    each = code.clocks / code.warps
    resident = min(one.blocks_per_sm * one.warps * rates.sms, one.blocks * one.warps)
    turns = max(1.0, code.warps / one.times / max(resident, 1))
    # A block's own time is that of one warp at least, and grows with its warps at least as that of a full block.
    turn = max(rates.turns[0], rates.turns[1] * one.warps / 32)
    seconds = one.times * (each * turns / rates.clock + (turns - 1) * turn)
    taken = f", {number(turns)} one after the other" if turns > 1 else ""
    yield (
        "latency",
        seconds,
        f"a warp takes {number(each)} clocks at least, {code.waits / code.clocks:.0%} of them for memory; an SM holds "
        f"{number(resident / rates.sms)} at a time{taken}{_in_flight(one, code, rates, resident)}",
    )


def _in_flight(one: Work, code: _Code, rates: Rates, resident: float) -> str:
    """Return the bytes that an SM's loads keep under way on average, and those that memory's speed takes."""
    loaded = sum(one.fresh.values()) * one.scale * SECTOR
    if not loaded or not code.clocks or rates.memory is None or rates.memory_latency is None:
        return ""
    have = loaded / code.clocks * rates.memory_latency * rates.clock * resident / rates.sms
    need = rates.memory * rates.memory_latency / rates.sms
    if have < need:
        return f"; {size(have)} in flight an SM where {size(need)} are needed"
    return f"; {size(have)} in flight an SM where {size(need)}{ENOUGH}" if have < 100 * need else ""


def _tail(one: Work, units: Sequence[_Part], rates: Rates) -> Iterator[_Part]:
    busiest = ceil(one.blocks / rates.sms)
    resource, seconds, _ = max(units, key=lambda unit: unit[1], default=("", 0.0, ""))
    if busiest * rates.sms < TAIL * one.blocks or not seconds:
        return
    waves = one.blocks / (rates.sms * max(one.blocks_per_sm, 1))
    yield (
        "tail",
        seconds * busiest * rates.sms / one.blocks,
        f"the busiest of {rates.sms} SMs has {busiest} of {one.blocks} blocks ({number(waves)} waves): "
        f"{NAMES[resource]}",
    )


def _atomics(one: Work, rates: Rates) -> Iterator[_Part]:
    """Yield what waits longest: atomics on one word, or on the part of the L2 that has the words of an array."""
    rows: dict[int, list[Access]] = defaultdict(list)
    for row in one.report.accesses:
        if row.space == "global" and row.op in ("atomic", "reduction"):
            rows[row.instruction].append(row)
    found: list[_Part] = []
    for atomic in one.report.contended:
        its = rows[atomic.instruction]
        # Lanes at one word follow one another, but where the machine code adds up those of a warp.
        lanes = max((count.pattern.lanes for row in its if row.aggregated for count in row.patterns), default=1)
        hits = one.scale * (atomic.hottest or 0) / max(lanes, 1)
        floats = any(row.what.rpartition(".")[2] in ("f32", "f64") for row in its)
        if hits and rates.atomic is not None:
            seconds = hits * (FLOAT_ADDS if floats else 1.0) / rates.atomic
            found.append(("atomic", seconds, {"hits": hits}))
    if rates.l2_slices:
        sectors: dict[str, float] = defaultdict(float)
        for touch in one.footprint.touches:
            sectors[touch.array] += touch.sectors * one.scale * (touch.op == "atomic")
        for array, asked in sectors.items():
            chunks = one.footprint.sizes.get(array, 0) * SECTOR / CHUNK
            slices = max(1, min(rates.l2_slices, one.footprint.written.get(array, 0) * one.scale, ceil(chunks)))
            detail = (
                f"{number(asked)} sectors of {array} for atomics in {slices:.0f} of {rates.l2_slices} slices of the L2"
            )
            found.append(("atomic", asked / slices / rates.l2_clock, detail))
    if found:
        yield max(found, key=lambda part: part[1])
