"""Functions for the points of a sweep: a point's key, the points of each problem, and the best points."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from cudabench.explain import verdict
from cudabench.explain.accesses import SECTOR_CYCLES, WAVEFRONT_CYCLES, wasted
from cudabench.plan.space import Axis
from cudabench.records.plan import Case
from cudabench.records.results import Result
from cudabench.results import compare
from cudabench.results.groups import grouped
from cudabench.results.ratio import time_ratio

# Points are measured again if their time is within this fraction of the best time.
CLOSE = 0.03
ROUNDS = 4  # even, since every second round has the reverse order: each point is early as often as late
# Each of the four schedulers of a multiprocessor issues one instruction per cycle.
INSTRUCTION_CYCLES = 0.25


@dataclass(frozen=True)
class Final:
    """A point that was measured again.

    `result`: the result with the samples of all rounds; `moved`: the relative change of the median between rounds.
    """

    result: Result
    moved: float


def identity(result: Result | Case) -> tuple[Any, ...]:
    """Return the key that identifies a point in its sweep, as a tuple."""
    problem = result.problem if isinstance(result, Case) else result
    size = tuple((name, float(value)) for name, value in problem.size.items())
    return tuple(sorted(result.parameters.items())), result.kernel, result.block, result.grid, size, problem.dtype


def by_problem(results: Iterable[Result], axes: Sequence[Axis]) -> dict[tuple[tuple[str, str], ...], list[Result]]:
    """Return the results of each problem. The key is a tuple of (axis, value) for the axes that define a problem."""
    names = {axis.name for axis in axes if axis.problem}
    return grouped((tuple(item for item in r.parameters.items() if item[0] in names), r) for r in results)


def ties(finals: Sequence[Final]) -> list[Final]:
    """Return the points that are not clearly slower than the best point: the interval of the ratio of both times
    contains 1.

    The first of `finals` is the best point. All points are measured in one run, so the interval includes the change of
    medians between rounds instead of the noise between runs.
    """
    best, *finalists = finals
    moved = max(final.moved for final in finals)
    return [
        finalist
        for finalist in finalists
        if best.result.time
        and finalist.result.time
        and time_ratio(best.result.time, finalist.result.time, moved, run_to_run_s=0.0).low <= 1
    ]


def cost(result: Result) -> tuple[float, ...]:
    """Return the sort key of a point, a tuple; the least is the best.

    On a GPU the key is the time. In the simulator the key is (lower bound, wasted cycles) with a card, and (cycles of
    the busiest unit, counts) without a card; a sum of counts would also depend on units that are not busy. These cycles
    are never shown, because without latency and occupancy they are not a time.
    """
    if result.time:
        return (result.time.median_s,)
    if result.limits:
        return (verdict.longest_limit_s(result), wasted(result.access or ()))
    counted = compare.counts(result)
    sectors = counted.get("global sectors", 0) + counted.get("local sectors", 0)
    wavefronts, instructions = counted.get("shared wavefronts", 0), counted.get("PTX instructions", 0)
    busiest = max(sectors * SECTOR_CYCLES, wavefronts * WAVEFRONT_CYCLES, instructions * INSTRUCTION_CYCLES)
    return (busiest, sectors, wavefronts, instructions)


def best(results: Iterable[Result]) -> list[Result]:
    """Return the correct results with the least cost; there are several if their costs are equal."""
    right = [r for r in results if r.status == "ok"]
    least = min((cost(r) for r in right), default=None)
    return [r for r in right if cost(r) == least]
