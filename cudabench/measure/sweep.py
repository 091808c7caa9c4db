"""One kernel over many blocks, macros, template arguments and problems: in two passes, and which is best.

The first pass measures every point for a short time, one after the other. Points that come out close to the best are
then measured again in rounds, each round in the opposite order of the one before, so that a card that warms up or
throttles does not favour the point that came first. Their samples of all rounds together give the final figures, and
what a point's median moves from round to round says how much a difference between two points means.

The simulator has no noise: one pass, and points are ordered by their bound on the card that is priced, those of one
bound by what they waste; without a card by the unit that their counts keep busiest.

Points of one problem compete; each problem, another size, type or distribution of the inputs, has a best of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Any

from cudabench import operations
from cudabench.errors import UsageError
from cudabench.explain import verdict
from cudabench.explain.accesses import SECTOR_CYCLES, WAVEFRONT_CYCLES, wasted
from cudabench.measure.run import Run
from cudabench.measure.session import Event, Finished
from cudabench.occupancy import MAX_THREADS_PER_BLOCK
from cudabench.plan import cases
from cudabench.plan.blocks import axis as axis
from cudabench.plan.blocks import blocks as blocks
from cudabench.plan.cases import Request
from cudabench.plan.series import Series
from cudabench.plan.space import Axis, Plan, Point, Refusal, combinations
from cudabench.records.file import ResultsFile
from cudabench.records.launch import Dim
from cudabench.records.planned import Case, Operation, Settings
from cudabench.records.results import Result
from cudabench.results import compare, stats
from cudabench.results.ratio import time_ratio

COARSE_S = 0.1  # of sampling a block in the first pass
CLOSE = 0.03  # of the best time: blocks within it are measured again
MOST_FINALISTS = 6
ROUNDS = 4  # even, so that every block comes as often early as late

INSTRUCTION_CYCLES = 0.25  # four schedulers issue an instruction each


# Which points ---------------------------------------------------------------------------------------------------------


def plan(
    operation: Operation, request: Request, candidates: Sequence[Dim], groups: Sequence[Sequence[Axis]] = ()
) -> Plan:
    """Return a point for each block that the kernel takes, with each combination of the axes in `groups`, which are
    macros. Raises UsageError where the request does not name one kernel or the kernel takes none of the blocks."""
    if request.source is None:
        named = [kernel for kernel, _ in cases.select(operation, request.kernels)]
        if len(named) != 1:
            names = ", ".join(kernel.name for kernel in named)
            raise UsageError(
                f"A sweep takes one kernel; '{' '.join(request.kernels)}' means {names}: name one of them."
            )
    series = Series(partial(operations.get, operation.name), ())
    made: list[Point] = []
    refused: list[Refusal] = []
    # Other mistakes than the point's show with the kernel's own block, and are no refusals.
    first = next(combinations(groups))
    cases.build(operation, replace(request, block=None, defines={**request.defines, **first}))
    for values in combinations(groups):
        for block in candidates:
            own = replace(request, block=block[: operation.block_dimensions], defines={**request.defines, **values})
            try:
                (case,) = cases.build(operation, own)
            except UsageError as error:
                refused.append(Refusal(block, str(error), values))
            else:
                made.append(Point(values, series, replace(case, named=False, parameters=values)))
    if not made:
        detail = f" {refused[0].reason}" if refused else f" They have over {MAX_THREADS_PER_BLOCK} threads."
        raise UsageError(f"None of the blocks can be swept.{detail}")
    return Plan(tuple(made), tuple(refused), tuple(axis for group in groups for axis in group))


def identity(result: Result | Case) -> tuple[Any, ...]:
    """Return what tells a point from the others of a sweep."""
    problem = result.problem if isinstance(result, Case) else result
    size = tuple((name, float(value)) for name, value in problem.size.items())
    return tuple(sorted(result.parameters.items())), result.kernel, result.block, result.grid, size, problem.dtype


def problem_of(result: Result, axes: Sequence[Axis]) -> tuple[tuple[str, str], ...]:
    """Return the problem that a result is of: the values of the axes that make one."""
    names = {axis.name for axis in axes if axis.problem}
    return tuple((name, value) for name, value in result.parameters.items() if name in names)


def by_problem(results: Iterable[Result], axes: Sequence[Axis]) -> dict[tuple[tuple[str, str], ...], list[Result]]:
    """Return results by the problem that they are of, in the order in which problems first come."""
    found: dict[tuple[tuple[str, str], ...], list[Result]] = {}
    for result in results:
        found.setdefault(problem_of(result, axes), []).append(result)
    return found


# The first pass ------------------------------------------------------------------------------------------------------


def first_pass(run: Run, points: Sequence[Point], known: Mapping[tuple[Any, ...], Result]) -> None:
    """Measure every point on every device, but those in `known`, whose results are taken over."""
    left = [point for point in points if identity(point.case) not in known]
    for point in points:
        if identity(point.case) in known:
            take(run, point, known[identity(point.case)])
    run.write()
    for device in run.devices:
        with run.one_by_one(len(left), device) as measure:
            for point in left:
                measure(point.series, point.case)


def take(run: Run, point: Point, result: Result) -> Result:
    """Keep a result of a point that an earlier run measured."""
    outcome = run.outcome(point.series)
    outcome.series = replace(outcome.series, cases=(*outcome.series.cases, point.case))
    run.keep(outcome, result)
    return result


def known(file: ResultsFile, name: str, run: Run, fixed: Mapping[str, Any]) -> dict[tuple[Any, ...], Result]:
    """Return the results of an earlier sweep by their points, with what it knows of the device put into `run`.

    `fixed` is what neither sweep varies. Raises UsageError for a file of something else: another kernel, source,
    problem, protocol, compiler or device, whose figures would not belong to those of this run.
    """
    before = file.settings.get("sweep")
    if not isinstance(before, dict) or not isinstance(before.get("fixed"), dict):
        raise UsageError(f"--resume {name}: it is no sweep's results file; name one, or leave --resume out.")
    differing = [key for key, value in fixed.items() if before["fixed"].get(key) != value]
    protocol = ("cache", "min_time", "max_time", "min_samples", "device")
    differing += [key for key in protocol if file.settings.get(key) != run.file.settings.get(key)]
    differing += [key for key, version in run.file.tool.items() if file.tool.get(key) != version]
    if file.provenance.get("sources") != run.file.provenance.get("sources"):
        differing.append("source")
    if differing:
        raise UsageError(
            f"--resume {name}: its {', '.join(dict.fromkeys(differing))} is not this sweep's, so its figures do not "
            "belong here: start anew without --resume."
        )
    run.file.devices.extend(file.devices)
    return {identity(result): result for result in file.results if result.status in ("ok", "wrong")}


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
    """Measure the best points of each problem again; what comes out takes the place of their first results."""
    finals: list[Final] = []
    by_point = {identity(case): case for outcome in run.outcomes for case in outcome.series.cases}
    for results in by_problem(run.file.results, plan.axes).values():
        chosen = {identity(result): result for result in finalists(results)}
        if not chosen:
            continue
        found = again(lambda cases: run.again(cases, fine(settings)), [by_point[point] for point in chosen])
        for final in found:
            run.replace(chosen[identity(final.result)], final.result)
        finals += found
        run.finish()
        run.write()
    return finals


def again(run: Callable[[Sequence[Case]], Generator[Event, None, None]], chosen: Sequence[Case]) -> list[Final]:
    """Measure the cases in rounds and return their results, best first; one that ever went wrong is that result."""
    found: dict[tuple[Any, ...], list[Result]] = {identity(case): [] for case in chosen}
    with closing(run(rounds(chosen))) as events:
        for event in events:
            if isinstance(event, Finished):
                found[identity(event.result)].append(event.result)
    # One that is right, and not timed, is none: a wrong one comes last.
    merged = (merge(results) for results in found.values() if results)
    return sorted(merged, key=lambda final: (final.result.status != "ok", cost(final.result)))


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
    clocks = [clock for time in times for clock in time.samples_sm_mhz] if all(t.samples_sm_mhz for t in times) else []
    together = stats.summarize(samples, one.cache, one.runs_per_sample, one.places, places, clocks)
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
    """Return what orders points, least first: the time; in the simulator the bound on the card that is priced and what
    is wasted, else the cycles of the busiest unit, then counts.

    Adding counts up would let a unit that is idle decide. The cycles are no time and are shown nowhere: latency and
    occupancy are not in them.
    """
    if result.time:
        return (result.time.median_s,)
    if result.limits:
        return (verdict.bound(result), wasted(result.access or ()))
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
