"""One kernel over many blocks: which blocks, in two passes, and which is best.

The first pass measures every block for a short time, one after the other. Blocks that come out close to the best are
then measured again in rounds, each round in the opposite order of the one before, so that a card that warms up or
throttles does not favour the block that came first. Their samples of all rounds together give the final figures, and
what a block's median moves from round to round says how much a difference between two blocks means.

The simulator has no noise: one pass, and blocks are ordered by the unit that their counts keep busiest.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from statistics import median

from cudabench.errors import UsageError
from cudabench.measure.run import Run
from cudabench.measure.session import Event, Finished
from cudabench.model import WARP, Case, Dim, Operation, Result, Settings, dim3
from cudabench.plan import cases
from cudabench.plan.cases import Request
from cudabench.plan.limits import MAX_BLOCK, MAX_THREADS_PER_BLOCK
from cudabench.results import compare, stats
from cudabench.results.ratio import time_ratio

COARSE_S = 0.1  # of sampling a block in the first pass
CLOSE = 0.03  # of the best time: blocks within it are measured again
MOST_FINALISTS = 6
ROUNDS = 4  # even, so that every block comes as often early as late

# What one of each keeps an SM's share of a unit busy for, on an H200: 4814 GB/s over 132 SMs at 1.98 GHz are 18.4 bytes
# a cycle; shared memory passes one wavefront a cycle; four schedulers issue an instruction each.
SECTOR_CYCLES = 1.75
WAVEFRONT_CYCLES = 1.0
INSTRUCTION_CYCLES = 0.25

SENSIBLE_X = (4, 8, 16, 32, 64, 128, 256, 512)
SENSIBLE_Y = (1, 2, 4, 8, 16, 32, 64)
SENSIBLE_LINE = (32, 64, 96, 128, 160, 192, 256, 320, 384, 448, 512, 640, 768, 896, 1024)
FEWEST_THREADS = 64  # two warps: fewer leave most of an SM's 64 warps empty, since it holds at most 32 blocks


@dataclass(frozen=True)
class Refusal:
    """A block that the kernel cannot take, and why."""

    block: Dim
    reason: str


@dataclass(frozen=True)
class Plan:
    """The blocks to measure, as cases, and those that were refused."""

    cases: tuple[Case, ...]
    refused: tuple[Refusal, ...]


# Which blocks --------------------------------------------------------------------------------------------------------


def axis(text: str) -> tuple[int, ...]:
    """Return the numbers of a range: 32, 8:64 (doubling), 8:64:8 (in steps of 8), or several of them with commas.

    Raises UsageError for what is none.
    """
    found: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"(\d{1,9})(?::(\d{1,9})(?::(\d{1,9}))?)?", part.strip(), re.ASCII)
        if not match:
            raise UsageError(f"--block '{text}' is no range: write 32, 8:64 (doubling), 8:64:8 (steps), or 8,16,32.")
        first, last, step = (int(group) if group else None for group in match.groups())
        assert first is not None
        last = first if last is None else last
        if not 1 <= first <= last or step == 0:
            raise UsageError(f"--block '{text}' is no range: it starts at 1 or more, does not fall, and has a step.")
        if last > MAX_BLOCK[0]:
            raise UsageError(f"--block '{text}' is out of range: CUDA allows at most {MAX_BLOCK[0]} threads a block.")
        while first <= last:
            found.add(first)
            first = first + step if step else first * 2
    return tuple(sorted(found))


def blocks(dimensions: int, axes: Sequence[Sequence[int]] = ()) -> list[Dim]:
    """Return the blocks of the given axes, or the sensible ones: whole warps, and enough of them."""
    if axes:
        ys = axes[1] if len(axes) > 1 else (1,)
        return [dim3((x, y)) for y in ys for x in axes[0] if x * y <= MAX_THREADS_PER_BLOCK]
    if dimensions == 1:
        return [dim3((x,)) for x in SENSIBLE_LINE]
    return [
        dim3((x, y))
        for y in SENSIBLE_Y
        for x in SENSIBLE_X
        if FEWEST_THREADS <= x * y <= MAX_THREADS_PER_BLOCK and x * y % WARP == 0
    ]


def plan(operation: Operation, request: Request, candidates: Sequence[Dim]) -> Plan:
    """Return a case for each block that the kernel takes. Raises UsageError where the request does not name one kernel
    or the kernel takes none of the blocks."""
    if request.source is None:
        named = [kernel for kernel, _ in cases.select(operation, request.kernels)]
        if len(named) != 1:
            names = ", ".join(kernel.name for kernel in named)
            raise UsageError(
                f"A sweep takes one kernel; '{' '.join(request.kernels)}' means {names}: name one of them."
            )
    made: list[Case] = []
    refused: list[Refusal] = []
    # Other mistakes than the block's show with the kernel's own block, and are no refusals.
    cases.build(operation, replace(request, block=None))
    for block in candidates:
        try:
            (case,) = cases.build(operation, replace(request, block=block[: operation.block_dimensions]))
        except UsageError as error:
            refused.append(Refusal(block, str(error)))
        else:
            made.append(case)
    if not made:
        detail = f" {refused[0].reason}" if refused else f" They have over {MAX_THREADS_PER_BLOCK} threads."
        raise UsageError(f"None of the blocks can be swept.{detail}")
    return Plan(tuple(made), tuple(refused))


# The second pass -----------------------------------------------------------------------------------------------------


def coarse(settings: Settings) -> Settings:
    """Return the settings of the first pass."""
    least = min(settings.min_time, COARSE_S)
    return replace(settings, min_time=least, max_time=min(settings.max_time, 10 * least), cpu=False)


def fine(settings: Settings) -> Settings:
    """Return the settings of one round of the second pass."""
    return replace(settings, min_time=settings.min_time / ROUNDS, max_time=settings.max_time / ROUNDS, cpu=False)


def finalists(results: Iterable[Result]) -> list[Result]:
    """Return the results that are close to the best, best first; none where nothing was timed."""
    timed = sorted((r for r in results if r.status == "ok" and r.time), key=cost)
    return [r for r in timed if cost(r)[0] <= cost(timed[0])[0] * (1 + CLOSE)][:MOST_FINALISTS]


def rounds(chosen: Sequence[Case]) -> list[Case]:
    """Return the cases of all rounds, every other one backwards."""
    return [case for at in range(ROUNDS) for case in (chosen if at % 2 == 0 else chosen[::-1])]


@dataclass(frozen=True)
class Final:
    """A block's result over all rounds, and how far its median moved between them, as a fraction."""

    result: Result
    moved: float


def second_pass(run: Run, plan: Plan, settings: Settings) -> list[Final]:
    """Measure the best blocks of a run again; what comes out takes the place of their first results."""
    chosen = {result.block: result for result in finalists(run.file.results)}
    if not chosen:
        return []
    by_block = {case.block: case for case in plan.cases}
    finals = again(lambda cases: run.again(cases, fine(settings)), [by_block[block] for block in chosen])
    for final in finals:
        run.replace(chosen[final.result.block], final.result)
    run.write()
    return finals


def again(run: Callable[[Sequence[Case]], Generator[Event, None, None]], chosen: Sequence[Case]) -> list[Final]:
    """Measure the cases in rounds and return their results, best first; one that ever went wrong is that result."""
    found: dict[Dim, list[Result]] = {case.block: [] for case in chosen}
    with closing(run(rounds(chosen))) as events:
        for event in events:
            if isinstance(event, Finished):
                found[event.result.block].append(event.result)
    return sorted((merge(results) for results in found.values() if results), key=lambda final: cost(final.result))


def merge(results: Sequence[Result]) -> Final:
    """Return several measurements of one block as one: all samples, and figures of their median."""
    bad = next((result for result in results if result.status != "ok"), None)
    first = results[0]
    times = [result.time for result in results if result.time]
    if bad or not times:
        return Final(bad or first, 0.0)
    one = times[0]
    samples = [sample for time in times for sample in time.samples_s]
    places = [place for time in times for place in time.samples_place]
    together = stats.summarize(samples, one.cache, one.runs_per_sample, one.places, places)
    speedup = one.median_s / together.median_s
    copies = [result.copy_gbps for result in results if result.copy_gbps]
    copy = median(copies) if copies else None
    bandwidth = first.bandwidth_gbps * speedup if first.bandwidth_gbps is not None else None
    medians = [time.median_s for time in times]
    merged = replace(
        first,
        time=together,
        bandwidth_gbps=bandwidth,
        gflops=first.gflops * speedup if first.gflops is not None else None,
        copy_gbps=copy,
        copy_fraction=bandwidth / copy if bandwidth is not None and copy else None,
        peak_fraction=first.peak_fraction * speedup if first.peak_fraction is not None else None,
        warnings=tuple(dict.fromkeys(warning for result in results for warning in result.warnings)),
    )
    return Final(merged, (max(medians) - min(medians)) / together.median_s)


def ties(finals: Sequence[Final]) -> list[Final]:
    """Return the finalists, the best one left out, that cannot be told from it: their ratio's interval holds 1.

    Two blocks of one run share its clocks and addresses, so what medians moved between rounds takes the place of what
    two runs differ.
    """
    best, *others = finals
    moved = max(final.moved for final in finals)
    return [
        other
        for other in others
        if best.result.time
        and other.result.time
        and time_ratio(best.result.time, other.result.time, moved, run_to_run_s=0.0).low <= 1
    ]


# The order -----------------------------------------------------------------------------------------------------------


def cost(result: Result) -> tuple[float, ...]:
    """Return what orders blocks, least first: the time; in the simulator the cycles of the busiest unit, then counts.

    Adding counts up would let a unit that is idle decide. The cycles are no time and are shown nowhere: latency and
    occupancy are not in them.
    """
    if result.time:
        return (result.time.median_s,)
    counted = compare.counts(result)
    sectors = counted.get("global sectors", 0) + counted.get("local sectors", 0)
    wavefronts, instructions = counted.get("shared wavefronts", 0), counted.get("instructions", 0)
    busiest = max(sectors * SECTOR_CYCLES, wavefronts * WAVEFRONT_CYCLES, instructions * INSTRUCTION_CYCLES)
    return (busiest, sectors, wavefronts, instructions)


def best(results: Iterable[Result]) -> list[Result]:
    """Return the right results with the least cost; several where the simulator's counts are equal."""
    right = [r for r in results if r.status == "ok"]
    least = min((cost(r) for r in right), default=None)
    return [r for r in right if cost(r) == least]
