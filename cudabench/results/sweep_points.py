"""The points of a sweep: their identity, their problem, and the best of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from cudabench.explain import verdict
from cudabench.explain.accesses import SECTOR_CYCLES, WAVEFRONT_CYCLES, wasted
from cudabench.plan.space import Axis
from cudabench.records.planned import Case
from cudabench.records.results import Result
from cudabench.results import compare
from cudabench.results.groups import grouped
from cudabench.results.ratio import time_ratio

CLOSE = 0.03  # blocks whose time is within this fraction of the best time are measured again
ROUNDS = 4  # even, so that every block runs early as often as late
INSTRUCTION_CYCLES = 0.25  # each of four schedulers issues an instruction a cycle


@dataclass(frozen=True)
class Final:
    """A block's result over all rounds, and the change of its median between them, as a fraction."""

    result: Result
    moved: float


def identity(result: Result | Case) -> tuple[Any, ...]:
    """Return the key of a point, unique in its sweep."""
    problem = result.problem if isinstance(result, Case) else result
    size = tuple((name, float(value)) for name, value in problem.size.items())
    return tuple(sorted(result.parameters.items())), result.kernel, result.block, result.grid, size, problem.dtype


def by_problem(results: Iterable[Result], axes: Sequence[Axis]) -> dict[tuple[tuple[str, str], ...], list[Result]]:
    """Return results by problem: the values of the axes that define one, in the order of the axes."""
    names = {axis.name for axis in axes if axis.problem}
    return grouped((tuple(item for item in r.parameters.items() if item[0] in names), r) for r in results)


def ties(finals: Sequence[Final]) -> list[Final]:
    """Return the finalists that are not clearly slower than the best one: the interval of their ratio holds 1.

    Two blocks of one run share its clocks and addresses, so the change of medians between rounds replaces the noise
    between runs.
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
    """Return the sort key of points, best first: the time. In the simulator: the bound on the priced card and the
    wasted accesses, else the cycles of the busiest unit, then counts.

    A sum of counts would let an idle unit decide. The cycles are not a time, because latency and occupancy are not
    in them; they are never shown.
    """
    if result.time:
        return (result.time.median_s,)
    if result.limits:
        return (verdict.bound(result), wasted(result.access or ()))
    counted = compare.counts(result)
    sectors = counted.get("global sectors", 0) + counted.get("local sectors", 0)
    wavefronts, instructions = counted.get("shared wavefronts", 0), counted.get("PTX instructions", 0)
    busiest = max(sectors * SECTOR_CYCLES, wavefronts * WAVEFRONT_CYCLES, instructions * INSTRUCTION_CYCLES)
    return (busiest, sectors, wavefronts, instructions)


def best(results: Iterable[Result]) -> list[Result]:
    """Return the right results with the least cost; there are several if the simulator's counts are equal."""
    right = [r for r in results if r.status == "ok"]
    least = min((cost(r) for r in right), default=None)
    return [r for r in right if cost(r) == least]
