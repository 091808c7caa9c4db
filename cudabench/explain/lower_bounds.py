"""Computes lower bounds (limits): the shortest time that each resource of a card allows a kernel.

The counts are the simulator's counts for the machine code that the card would run. The ceilings are the card's highest
rates, measured or from its datasheet (`cudabench.cards`). No time is measured here. A kernel takes at least the longest
limit; it takes longer if it uses several resources one after another. Each limit is computed from:

* memory: the distinct sectors that a launch reads and writes, without written sectors that the L2 may still hold when
  the launch ends. Later launches, and launches with a hot L2, read only the sectors that do not fit into the L2. Memory
  also reads the sectors that stores fill only in part, if the L2 cannot keep these sectors.
* l2: the loaded sectors that are new to a block (a sector that the block loads again may be in the L1), and the sectors
  of every store. The model assumes that the blocks on an SM share as many loaded sectors as possible. A sector that
  several blocks of a sample load is counted once, because the L2 may receive the requests of several SMs as one request
  (by the unit lrc of Nsight Compute, L2 Request Coalescer; for a matrix product an H200's L2 was busy for half of the
  blocks' requests). A slice of the L2 moves 64 bytes in a turn, and has one turn per clock. The exchange of a sector
  with memory takes half a turn if the sector is in the near half of the L2, else a turn (it passes a slice of each
  half): 0.75 turns on average. (The L2 utilization in Nsight Compute on an H200 and an H100 is at least 0.97 of these
  turns, except for matrix products, whose blocks share more sectors than the blocks of a sample.) A slice also receives
  one stored sector per clock, and needs one more clock for each cache line with partly filled sectors; partly filled
  sectors that an SM soon completes may arrive as one (`_l2_stores`). Stores to local memory reach the L2.
* lsu: the wavefronts of shared memory, the turns of the L1 for requests to global memory (`simulator.count.footprint`),
  and shuffles.
* issue and pipes: warp instructions by the executing unit (CUDA C++ Programming Guide, "Arithmetic Instructions").
  Conversions and special functions use the same unit, 64-bit products pass the FMA pipe twice, and VIADD uses the FMA
  pipe. For 134 kernels on an H200 and an H100 the median difference from Nsight Compute's counts is 0.04%.
* constant: requests for indexed constants (one per clock on each SM), the time of each further address, and the time
  to fetch the lines of a table that are not in the constant cache (`simulator.count.footprint`). local: the wavefronts
  of local memory.
* atomic: the atomics on the most used address, one after another; or, if that takes longer, the sectors of an array,
  one per clock in each L2 slice with a part of the array (512 neighbouring bytes are in one slice).
* latency: the fewest clocks that a warp needs for its machine code, from the code's schedule and the latency of each
  load, times the number of warps that must run one after another (Little's law); plus the time of an empty block for
  each change of blocks in a slot of an SM. If the machine code was executed, a block takes as long as its longest
  warp, with the path that this warp really took, and a launch takes at least as long as its longest block.
* tail: the busiest SM has ceil(blocks / SMs) blocks.
* blocks: the starts of blocks, at the rate at which the card starts empty blocks.
* launch: the gaps between the launches of a case. start: the launch itself, if every other limit is shorter.

Every measured time includes the time of an empty launch. So this time, reduced by `LAUNCH_SHARE`, is added to every
limit; it is not added with a hot L2, where a sample is many launches in a row.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import ceil, prod, sqrt
from operator import mul
from typing import TYPE_CHECKING, NamedTuple

from cudabench.cards.load import Card
from cudabench.compile.sass import Function
from cudabench.compile.schedule import GLOBAL_LOADS, prefetches
from cudabench.explain import block_counts
from cudabench.explain.bound_texts import ENOUGH_TEXT, NAMES, clause, number, size
from cudabench.explain.card_rates import Rates, pipe_passes, tensor_operations
from cudabench.explain.warp_latency import paths
from cudabench.records.launch import Dim
from cudabench.records.results import Limit
from cudabench.simulator.machine_code.layout import L1_BYTES
from cudabench.simulator.report import Code, Lines

if TYPE_CHECKING:
    from cudabench.simulator.api import Access, Footprint, Report

SECTOR, LINE = 32, 128
# When the kernel ends, up to this share of the L2 may contain data that is not written to memory yet. The L2 of an H200
# (60 MiB) contained 24 MB.
L2_DIRTY = 0.5
TURN_BYTES = 64  # bytes that a slice of the L2 moves in one turn
# The turns of an L2 slice for each sector that it reads from memory or writes to memory. A sector takes half a turn.
# Half of the sectors belong to the other half of the L2 and take another half turn. For a sector read with a cold L2,
# Nsight Compute shows more turns: 1.29 on an H200 and 1.47 on an H100.
MEMORY_TURNS = 0.75
# Clocks of an L2 slice on an H100 (benchmarks/results/bounds_h100.md). LOOKUP_CLOCKS: for each cache line of a store or
# atomic; half of the lines are looked up in both halves of the L2. RETURN_CLOCKS: the additional clocks if an atomic
# returns a value.
LOOKUP_CLOCKS, RETURN_CLOCKS = 1.5, 0.5
SECTOR_LINES = 0.25  # the fewest cache lines per sector of local memory, because a cache line has four sectors
# An SM may combine several stores to a partly written sector before it sends the sector to the L2. The model assumes
# that it combines all of them if a request has at most COMBINED_LINES cache lines, else the share (COMBINED_LINES /
# lines)^4 of them.
COMBINED_LINES = 7
CHUNK = 512  # each piece of this many bytes lies in one slice of the L2
# An atomic float addition to the same word as the previous addition takes this many times as long as an atomic integer
# addition.
FLOAT_ADD_RATIO = 2.4
TAIL_RATIO = 1.05  # there is a tail if the busiest SM has at least this many times the mean number of blocks
LEAST_S = 1e-9  # limits shorter than this are left out


class Work(NamedTuple):
    """All launches of one kernel of a case that have the same grid and block.

    `entry`: the kernel's name in PTX. `times`: the number of launches. `report`: the simulator's report, with its
    counts summed over these launches. `functions`: the machine code, empty if it was not read. `ptx`: the lines of the
    PTX. `blocks_per_sm`: how many blocks fit on an SM.
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
        """The memory that the launches touch."""
        assert self.report.footprint is not None
        return self.report.footprint

    @property
    def scale(self) -> float:
        """The factor that turns the counts of the simulated blocks into an estimate for all blocks. If the work differs
        between blocks, the factor is reduced, so that the estimate is a lower bound (`sampling_factor`)."""
        whole = self.footprint.blocks / self.footprint.ran
        return whole if whole == 1 else max(1.0, whole * sampling_factor(self.footprint.parts))

    @property
    def fresh(self) -> Mapping[str, float]:
        """By array, how many loaded sectors the loading block had not touched before."""
        sectors: dict[str, float] = defaultdict(float)
        for touch in (touch for touch in self.footprint.touches if touch.op == "load"):
            sectors[touch.array] += touch.fresh
        return sectors

    @property
    def blocks(self) -> int:
        """The number of blocks of one launch."""
        return prod(self.grid)

    @property
    def warps(self) -> int:
        """The number of warps of a block."""
        return -(-prod(self.block) // 32)


def sampling_factor(parts: Sequence[tuple[int, int]]) -> float:
    """Return a lower bound for the mean instructions of a block, relative to the mean in the sample; at most 1.

    `parts`: (blocks, instructions) of each group of neighbouring blocks in the sample. The bound is two standard errors
    below the mean, but at least the lowest mean of a group. The standard error is estimated from the differences
    between successive groups: work that grows steadily along the grid then gives a small error.
    """
    means = [instructions / blocks for blocks, instructions in parts if blocks]
    mean = sum(instructions for _, instructions in parts) / max(1, sum(blocks for blocks, _ in parts))
    if len(means) < 2 or not mean:
        return 1.0
    squares = sum((a - b) ** 2 for a, b in pairwise(means)) / (2 * (len(means) - 1))
    return min(1.0, max(1 - 2 * sqrt(squares / len(means)) / mean, min(means) / mean))


# (resource, seconds, explanation). The explanation is a text, or a mapping of the counts used for the seconds, by name.
_Part = tuple[str, float, Mapping[str, float] | str]


def lower_bounds(
    work: Sequence[Work], card: Card, *, cache: str = "cold", moved: int | None = None
) -> tuple[Limit, ...]:
    """Return, for each resource of a card, the shortest time that it allows the launches of a case; the longest first.

    `work`: the kernels, in the order of the launches. `cache`: the state of the L2 before the launches, "cold" or
    "hot". `moved`: the bytes that must move between memory and the chip, if known; they replace the distinct sectors if
    only a sample of the blocks was simulated.
    """
    rates = Rates.of(card)
    parts = list(_memory(work, rates, cache, moved))
    for place, kernel in enumerate(work):
        code = _code_work(kernel, rates)
        units = [unit for unit in _unit_times(kernel, code, rates) if unit[1]]
        parts += _l2(kernel, rates, cold=place == 0 and cache == "cold")
        parts += [*units, *_atomics(kernel, rates), *_latency(kernel, code, rates, cold=place == 0 and cache == "cold")]
        if rates.blocks:
            blocks = float(kernel.blocks * kernel.times)
            parts.append(("blocks", blocks / rates.blocks, {"blocks": blocks}))
        parts += _tail(kernel, units, rates)
    launches, launch_s = sum(kernel.times for kernel in work), rates.launch_s if cache == "cold" else 0.0
    longest = max(_seconds(parts).values(), default=0.0)
    if rates.launch_gap_s and launches > 1:
        parts.append(("launch", (launches - 1) * rates.launch_gap_s, {"launches": launches}))
    if launches == 1 and launch_s > longest:
        parts.append(("start", longest, {}))
    ran, blocks = sum(kernel.footprint.ran for kernel in work), sum(kernel.footprint.blocks for kernel in work)
    note = f"; {launch_s * 1e6:.3g} µs of it to launch" if launch_s else ""
    note += f"; counted on {ran} of {blocks} blocks" if ran < blocks else ""
    limits = [
        Limit(resource, launch_s + seconds, _detail([part for part in parts if part[0] == resource], rates) + note)
        for resource, seconds in _seconds(parts).items()
        if seconds >= LEAST_S
    ]
    return tuple(sorted(limits, key=lambda limit: (-limit.time_s, limit.resource != "start")))


def _seconds(parts: Iterable[_Part]) -> Mapping[str, float]:
    total: dict[str, float] = defaultdict(float)
    for resource, seconds, _ in parts:
        total[resource] += seconds
    return total


def _detail(parts: Sequence[_Part], rates: Rates) -> str:
    """Return the explanation of one resource's time: the text of the longest part if that has a text, else a clause
    with the counts of all parts, summed by name."""
    resource, _, longest = max(parts, key=lambda part: part[1])
    if isinstance(longest, str):
        return longest
    figures: Counter[str] = Counter()
    for _, _, more in parts:
        figures.update(more)
    return clause(resource, figures, rates)


# Memory and L2 -------------------------------------------------------------------------------------------------------


def distinct(work: Work) -> tuple[float, float]:
    """Return (distinct sectors that a launch reads, distinct sectors that it writes), as means over the launches."""
    reads, writes = _distinct(work)
    return sum(reads.values()), sum(writes.values())


def _distinct(work: Work) -> tuple[dict[str, float], dict[str, float]]:
    """Return (distinct sectors that a launch reads, distinct sectors that it writes), both by array.

    If only a sample of blocks was simulated, these numbers are estimated: the model assumes that all blocks share the
    same fraction of their sectors as the sampled blocks. The estimate is at most the number of sectors of the array.
    """
    footprint = work.footprint
    result = []
    for touched, ops in ((footprint.read, ("load", "atomic")), (footprint.written, ("store", "atomic"))):
        by_array = {}
        for array, seen in touched.items():
            sectors = float(seen)
            if work.scale > 1:
                fresh = sum(t.fresh for t in footprint.touches if t.array == array and t.op in ops)
                shared = min(1.0, sectors / fresh) if fresh else 1.0
                sectors = min(footprint.sizes[array] * work.times, max(sectors, fresh * shared * work.scale))
            by_array[array] = sectors / work.times
        result.append(by_array)
    return result[0], result[1]


def _memory(work: Sequence[Work], rates: Rates, cache: str, moved: int | None) -> Iterator[_Part]:
    if rates.memory is None or rates.read is None or rates.written is None:
        return
    read = written = stored = 0.0
    sampled = any(kernel.scale > 1 for kernel in work)
    for place, kernel in enumerate(work):
        reads, writes = (SECTOR * sectors for sectors in distinct(kernel))
        filled = SECTOR * _partial_sectors(kernel) * max(0.0, 1 - L2_DIRTY * rates.l2_bytes / writes) if writes else 0.0
        if sampled and moved and place == 0 and reads + writes:
            share = moved / (reads + writes)
            reads, writes = reads * share, writes * share
        first = place == 0 and cache == "cold"
        read += reads if first else max(0.0, reads - rates.l2_bytes)
        read += (kernel.times - 1) * max(0.0, reads - rates.l2_bytes) + kernel.times * filled
        written += kernel.times * max(0.0, writes - L2_DIRTY * rates.l2_bytes)
        stored += kernel.times * writes
    yield "memory", read / rates.read + written / rates.written, {"read": read, "written": written, "stored": stored}


def _partial_sectors(work: Work) -> float:
    """Return a lower bound for the sectors that a launch fills only in part and does not load. The L2 reads such
    sectors before it writes them to memory.

    The bound follows from two facts: all lanes together fill no more bytes than they write; and at least two requests
    are needed to fill a sector that no single request fills.
    """
    reads, writes = _distinct(work)
    lanes: dict[str, float] = defaultdict(float)
    full: dict[str, float] = defaultdict(float)
    parts: dict[str, float] = defaultdict(float)
    for touch in (touch for touch in work.footprint.touches if touch.op == "store"):
        lanes[touch.array] += touch.requests * touch.bytes * work.scale / work.times
        full[touch.array] += (touch.sectors - touch.partial) * work.scale / work.times
        parts[touch.array] += touch.partial * work.scale / work.times
    incomplete = 0.0
    for array in lanes:
        stored = writes.get(array, 0.0)
        least = max(stored - lanes[array], 2 * (stored - full[array]) - parts[array])
        incomplete += max(0.0, min(stored, least) - reads.get(array, 0.0))
    return incomplete


def _l2(work: Work, rates: Rates, *, cold: bool) -> Iterator[_Part]:
    footprint = work.footprint
    sharing = max(1, min(work.blocks_per_sm, ceil(work.blocks / rates.sms)))
    requested = sum(touch.sectors * work.scale for touch in footprint.touches if touch.op == "load")
    stores = sum(touch.sectors * work.scale for touch in footprint.touches if touch.op != "load")
    partial = sum(touch.partial * work.scale for touch in footprint.touches if touch.op != "load")
    fresh = {array: sectors * work.scale for array, sectors in work.fresh.items()}
    loads = 0.0
    for array, sectors in fresh.items():
        # `read` counts a sector once, even if several of the sampled blocks load it.
        shared = footprint.read.get(array, 0) * work.scale
        least = min(shared, float(footprint.sizes[array]) * work.times, sectors)
        loads += max(least, min(shared, sectors / sharing, sectors * _sm_new_share(work, array, sectors, rates)))
    reads, writes = distinct(work)
    exchanged = reads if cold else 0.0  # the first reads miss a cold L2; written data may stay in the L2
    if not rates.l2_bytes or _exceeds_l2(work, rates):
        exchanged = (reads + writes) * work.times
    local = more = 0.0  # stores to local memory always reach the L2
    for row in (row for row in work.report.accesses if row.space == "local" and row.op == "store"):
        local += (row.sectors or 0) * work.scale
        more += (row.sectors or 0) * work.scale * SECTOR_LINES * ((row.sectors or 0) > (row.ideal_sectors or 0))
    stored = _l2_stores(work)
    seconds = (loads + stored.sectors) * SECTOR / rates.l2 if rates.l2 else 0.0
    if rates.l2_turns and rates.l2_slices:
        turns = (loads + stored.sectors + local) * SECTOR / TURN_BYTES + exchanged * MEMORY_TURNS
        clocks = max(stored.clocks + local + more, stored.lines) / rates.l2_slices
        seconds = max(seconds, turns / rates.l2_turns, clocks / rates.l2_clock)
    if seconds:
        repeated = max(0.0, requested - sum(fresh.values()))
        yield "l2", seconds, {"loads": loads, "stores": stores, "partial": partial, "again": repeated, "local": local}


class _L2Stores(NamedTuple):
    """The stores and atomics that reach the L2. `sectors`: the number of their sectors. `clocks`: the clocks that the
    slices need to receive these sectors. `lines`: the clocks that the slices need to look up the cache lines."""

    sectors: float
    clocks: float
    lines: float


def _l2_stores(work: Work) -> _L2Stores:
    sectors = clocks = lines = fresh = 0.0
    returned = {atomic.instruction for atomic in work.report.contended if atomic.returns}
    for touch in work.footprint.touches:
        if touch.op == "load" or not touch.requests:
            continue
        parts = touch.partial / touch.sectors if touch.sectors else 0.0
        per_request = touch.lines / touch.requests
        separate = 1 - min(1.0, (COMBINED_LINES / per_request) ** 4) if touch.op == "store" else 1.0
        sectors += touch.sectors - touch.partial * (1 - separate)
        clocks += touch.sectors - touch.partial + (touch.partial + touch.lines * parts) * separate
        looked_up = LOOKUP_CLOCKS + RETURN_CLOCKS * (touch.instruction in returned)
        lines += touch.lines * (1 - parts + parts * separate) * looked_up
        fresh += touch.fresh if touch.op == "store" else touch.sectors
    return _L2Stores(max(sectors, fresh) * work.scale, max(clocks, fresh) * work.scale, lines * work.scale)


def _sm_new_share(work: Work, array: str, fresh: float, rates: Rates) -> float:
    """Return which share of the `fresh` sectors (new to their block) is also new to the block's SM. The share can be
    below 1 only for an array that fits into the L1, because then the next block on the SM finds it there."""
    own = min(work.footprint.read.get(array, 0) * work.scale / work.times, float(work.footprint.sizes.get(array, 0)))
    return 1.0 if not fresh or own * SECTOR > L1_BYTES else min(1.0, own * rates.sms * work.times / fresh)


def _exceeds_l2(work: Work, rates: Rates) -> bool:
    """Return whether a launch touches more sectors than fit into the L2, so that all are exchanged with memory."""
    return sum(distinct(work)) * SECTOR > rates.l2_bytes


# What an SM executes -------------------------------------------------------------------------------------------------


class _CodeWork(NamedTuple):
    """The work of the machine code in some launches.

    `instructions`: warp instructions; `pipes`: warp instructions by pipe; `tensor`: operations of tensor cores by
    number format; `shuffles`: shuffles of warps. `clocks`: the fewest clocks that a warp needs for the code, summed
    over the warps; `waits`: in how many of these clocks the warp waits for memory; `warps`: the number of warps.
    """

    instructions: float
    pipes: Mapping[str, float]
    tensor: Mapping[str, float]
    shuffles: float
    clocks: float
    waits: float
    warps: float


def _code_work(work: Work, rates: Rates) -> _CodeWork | None:
    """Return the work of the machine code, or None if the code was not read or did not run."""
    executions = work.report.executed.get(work.entry)
    if not work.functions or not executions:
        return None
    counts = block_counts.count(work.functions, executions)
    pipes: dict[str, float] = defaultdict(float)
    tensor: dict[str, float] = defaultdict(float)
    total = shuffles = clocks = waits = 0.0
    loads = _load_clocks(work, rates)
    ran: dict[int, float] = defaultdict(float)
    for block, count in block_counts.blocks_with_counts(work.functions, counts):
        for instruction in block.instructions:
            if instruction.opcode in GLOBAL_LOADS:
                ran[instruction.ptx_line] += count.warps
    for touch in work.footprint.touches:
        # A warp does not wait for a load whose guard is false in all its lanes. This makes the mean latency smaller.
        if touch.instruction in loads and ran[touch.instruction]:
            loads[touch.instruction] *= min(1.0, touch.requests / ran[touch.instruction])
    block_paths = (
        path
        for function, times in zip(work.functions, counts, strict=True)
        for path in paths(function, [count.warps for count in times], loads)
    )
    for (block, count), path in zip(block_counts.blocks_with_counts(work.functions, counts), block_paths, strict=True):
        warps = count.warps * work.scale
        total += warps * len(block.instructions) + count.reissued * work.scale
        for instruction in block.instructions if warps else ():
            for name, weight in pipe_passes(instruction):
                pipes[name] += warps * weight
            if (product := tensor_operations(instruction)) is not None:
                tensor[product[0]] += warps * product[1]
            shuffles += warps * (instruction.opcode == "SHFL")
        clocks += warps * path.clocks
        waits += warps * path.waits
    start = next(iter(executions.values()))
    return _CodeWork(total, pipes, tensor, shuffles, clocks, waits, start.warps * work.scale)


def _unit_times(work: Work, code: _CodeWork | None, rates: Rates) -> Iterator[_Part]:
    """Yield (resource, seconds, counts by name) for each hardware unit of the SMs."""
    totals: dict[str, Counter[str]] = defaultdict(Counter)
    for row in work.report.accesses:
        totals[row.space] += Counter(requests=row.requests, wavefronts=row.wavefronts or 0, sectors=row.sectors or 0)
        totals[row.space]["loops"] += (row.wavefronts or 0) * (row.reloads > 0)
    shared = totals["shared"]["wavefronts"] * work.scale
    turns = sum(touch.cycles for touch in work.footprint.touches) * work.scale
    shuffles = code.shuffles if code else 0.0
    figures = {"shared": shared, "turns": turns, "shuffles": shuffles}
    # Some atomics are a loop of a load and a conditional store. The loop repeats if another warp has stored between the
    # two. If all w warps of a block loop at the same time, a warp needs (w + 1) / 2 iterations on average.
    repeats = (work.warps - 1) / 2 * totals["shared"]["loops"] * work.scale
    yield "lsu", (shared + turns + shuffles) / rates.lsu, {**figures, "again": repeats}
    instructions = code.instructions if code else work.report.instructions * work.scale
    yield "issue", instructions / rates.issue, {"instructions": instructions}
    if code:
        times = {name: code.pipes.get(name, 0.0) / rate for name, rate in rates.pipes.items()}
        for resource, names in (("fma", ("fma", "imad", "half")), ("alu", ("alu",)), ("fp64", ("fp64",))):
            seconds, name = max((times[name], name) for name in names)
            yield resource, seconds, {name: code.pipes.get(name, 0.0)}
        # If conversions are as slow as special functions, the same unit does both, and the two times add up.
        both = times["xu"], times["convert"]
        one_unit = rates.pipes["convert"] <= 1.1 * rates.pipes["xu"]
        figures = {name: code.pipes[name] for name in ("xu", "convert") if code.pipes.get(name)}
        yield "xu", sum(both) if one_unit else max(both), figures
        seconds = sum(count / rates.tensor[name] for name, count in code.tensor.items() if name in rates.tensor)
        yield "tensor", seconds, dict(code.tensor)
    requests = totals["constant"]["requests"] * work.scale
    if requests:
        more = totals["constant"]["wavefronts"] * work.scale - requests
        fetched = work.footprint.constants * work.scale
        seconds = requests / rates.constant + more / rates.constant_addresses + fetched * rates.constant_fetch_s
        yield "constant", seconds, {"requests": requests, "more": more, "fetched": fetched}
    local = totals["local"]["sectors"] * work.scale * SECTOR / LINE
    yield "local", local / rates.lsu, {"wavefronts": local}


def _load_clocks(work: Work, rates: Rates) -> dict[int, float]:
    """Return, by PTX line, the mean clocks from a load of global memory to its value; for shared memory at key 0.

    A request waits for its farthest sector. A request with a sector that is new to its block is served by memory with
    the probability that such a sector is new to the launch, else by the L2. All other requests, and all loads of a
    kernel that prefetches, are assumed to hit in the L1, and the L1 is assumed to be as fast as shared memory.
    """
    latencies = rates.load_clocks
    if latencies is None:
        return {}
    l1, l2, dram = latencies
    clocks: dict[int, float] = defaultdict(float)
    requests: dict[int, float] = defaultdict(float)
    fresh_sectors = work.fresh
    prefetched = any(
        prefetches(instruction.opcode, instruction.modifiers)
        for function in work.functions
        for instruction in function.instructions
    )
    for touch in work.footprint.touches:
        if touch.op == "store" or not touch.requests:
            continue
        fresh = fresh_sectors.get(touch.array, 0)
        new = min(1.0, work.footprint.read.get(touch.array, 0) / fresh) if fresh else 0.0
        missing = min(1.0, touch.missing / touch.requests) * _sm_new_share(work, touch.array, fresh * work.scale, rates)
        if touch.op == "atomic":
            missing, new = 1.0, 0.0
        elif prefetched:
            missing = 0.0
        mean = missing * (new * dram + (1 - new) * l2) + (1 - missing) * l1
        clocks[touch.instruction] += mean * touch.requests
        requests[touch.instruction] += touch.requests
    return {0: l1, **{line: total / requests[line] for line, total in clocks.items()}}


class _BlockClocks(NamedTuple):
    """The fewest clocks of a block. `mean`: the mean over the blocks. `longest`: the clocks of the longest block.
    `memory`: in which share of its clocks the longest block waits for global memory."""

    mean: float
    longest: float
    memory: float


def _block_clocks(work: Work, rates: Rates, *, cold: bool) -> _BlockClocks | None:
    """Return the clocks of blocks; None if the machine code was not executed, or the order of its lanes is unknown."""
    lines = work.report.executed.get(work.entry)
    code = lines.code if isinstance(lines, Lines) else None
    latencies = rates.load_clocks
    if not isinstance(code, Code) or code.unsettled or latencies is None or not code.clocks.longest[0]:
        return None
    l1, l2, dram = latencies
    clocks = (1.0, l1, l2 if work.blocks <= rates.sms else l1, l2, dram if cold else l2)
    total, longest = (sum(map(mul, part, clocks)) for part in (code.clocks.total, code.clocks.longest))
    memory = sum(map(mul, code.clocks.longest[2:], clocks[2:]))
    return _BlockClocks(total / code.clocks.blocks, longest / work.times, memory / longest)


def _latency(work: Work, code: _CodeWork | None, rates: Rates, *, cold: bool) -> Iterator[_Part]:
    if code is None or not code.warps or rates.memory_latency is None:
        return
    mean, waits = code.clocks / code.warps, code.waits / code.clocks
    block = _block_clocks(work, rates, cold=cold)
    if block is not None and block.mean > mean:
        mean, waits = block.mean, block.memory
    resident = min(work.blocks_per_sm * work.warps * rates.sms, work.blocks * work.warps)
    waves = max(1.0, code.warps / work.times / max(resident, 1))
    # The time of an empty block is proportional to its number of warps (measured for 32 warps), but at least the time
    # of an empty block of one warp.
    empty_block_s = max(rates.empty_block_s[0], rates.empty_block_s[1] * work.warps / 32)
    seconds = work.times * (mean * waves / rates.clock + (waves - 1) * empty_block_s)
    if block is not None and work.times * block.longest / rates.clock > seconds:
        yield (
            "latency",
            work.times * block.longest / rates.clock,
            f"the longest block takes {number(block.longest)} clocks at least, {block.memory:.0%} of them for memory; "
            f"a block takes {number(block.mean)} on average",
        )
        return
    in_waves = f", {number(waves)} one after the other" if waves > 1 else ""
    yield (
        "latency",
        seconds,
        f"a warp takes {number(mean)} clocks at least, {waits:.0%} of them for memory; an SM holds "
        f"{number(resident / rates.sms)} at a time{in_waves}{_in_flight(work, code, rates, resident)}",
    )


def _in_flight(work: Work, code: _CodeWork, rates: Rates, resident: float) -> str:
    """Return a clause that compares the bytes in flight of an SM with the bytes in flight needed for the full memory
    bandwidth; "" if a number is unknown, or if there are at least 100 times as many as needed."""
    loaded = sum(work.fresh.values()) * work.scale * SECTOR
    if not loaded or not code.clocks or rates.memory is None or rates.memory_latency is None:
        return ""
    have = loaded / code.clocks * rates.memory_latency * rates.clock * resident / rates.sms
    need = rates.memory * rates.memory_latency / rates.sms
    if have < need:
        return f"; {size(have)} in flight an SM where {size(need)} are needed"
    return f"; {size(have)} in flight an SM where {size(need)}{ENOUGH_TEXT}" if have < 100 * need else ""


def _tail(work: Work, units: Sequence[_Part], rates: Rates) -> Iterator[_Part]:
    busiest = ceil(work.blocks / rates.sms)
    resource, seconds, _ = max(units, key=lambda unit: unit[1], default=("", 0.0, ""))
    if busiest * rates.sms < TAIL_RATIO * work.blocks or not seconds:
        return
    waves = work.blocks / (rates.sms * max(work.blocks_per_sm, 1))
    yield (
        "tail",
        seconds * busiest * rates.sms / work.blocks,
        f"the busiest of {rates.sms} SMs has {busiest} of {work.blocks} blocks ({number(waves)} waves): "
        f"{NAMES[resource]}",
    )


def _atomics(work: Work, rates: Rates) -> Iterator[_Part]:
    """Yield the longest limit by atomics, if there is one: atomics on one word, or on an array in some L2 slices."""
    rows: dict[int, list[Access]] = defaultdict(list)
    for row in work.report.accesses:
        if row.space == "global" and row.op in ("atomic", "reduction"):
            rows[row.instruction].append(row)
    parts: list[_Part] = []
    for atomic in work.report.contended:
        own = rows[atomic.instruction]
        # Atomics of several lanes on one word are done one after another, unless the machine code first combines the
        # operands of a warp.
        lanes = max((count.pattern.lanes for row in own if row.aggregated for count in row.patterns), default=1)
        hits = work.scale * (atomic.hottest or 0) / max(lanes, 1)
        floats = any(row.what.rpartition(".")[2] in ("f32", "f64") for row in own)
        if hits and rates.atomic is not None:
            seconds = hits * (FLOAT_ADD_RATIO if floats else 1.0) / rates.atomic
            parts.append(("atomic", seconds, {"hits": hits}))
    if rates.l2_slices:
        sectors: dict[str, float] = defaultdict(float)
        for touch in work.footprint.touches:
            sectors[touch.array] += touch.sectors * work.scale * (touch.op == "atomic")
        for array, count in sectors.items():
            chunks = work.footprint.sizes.get(array, 0) * SECTOR / CHUNK
            slices = max(1, min(rates.l2_slices, work.footprint.written.get(array, 0) * work.scale, ceil(chunks)))
            detail = (
                f"{number(count)} sectors of {array} for atomics in {slices:.0f} of {rates.l2_slices} slices of the L2"
            )
            parts.append(("atomic", count / slices / rates.l2_clock, detail))
    if parts:
        yield max(parts, key=lambda part: part[1])
