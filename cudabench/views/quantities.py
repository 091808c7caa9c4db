"""The quantities that drawings show. Each has functions that return its value in a result, its text and its ideal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median

from cudabench.errors import CudabenchError
from cudabench.explain.accesses import Cost, total, unit
from cudabench.records.results import Result
from cudabench.results import compare, units

# operations per byte; a kernel with fewer operations per byte is limited by memory on every current card
ARITHMETIC = 10


@dataclass(frozen=True)
class Quantity:
    """A quantity to draw.

    `name`: the name with the unit; `value`: a function that returns the quantity of a result, or None; `text`: a
    function that returns a value as text; `ideal`: a function that returns the ideal value for a result, or None;
    `more`: more is better.
    """

    name: str
    value: Callable[[Result], float | None]
    text: Callable[[float], str] = units.digits
    ideal: Callable[[Result], float | None] = lambda result: None
    more: bool = False

    @property
    def unit(self) -> str:
        """The unit, which follows the word 'in' in the name; the whole name if the name lacks 'in'."""
        return self.name.rpartition(" in ")[2]


BANDWIDTH = Quantity("bandwidth in GB/s", lambda r: r.bandwidth_gbps, more=True)
GFLOPS = Quantity("GFLOP/s", lambda r: r.gflops, more=True)
TIME = Quantity("time in µs", lambda r: r.time.median_s * 1e6 if r.time else None)


AT_LEAST = Quantity("at least, in µs", lambda r: r.limits[0].time_s * 1e6 if r.limits else None)


def count_of(space: str) -> Quantity:
    """Return the quantity that the simulator counts for accesses to a memory space, with the ideal count."""

    def spent(result: Result) -> Cost | None:
        cost = total(result.access or (), space)
        return cost if cost.requests else None

    return Quantity(
        f"{space} {unit(space)}",
        lambda r: float(cost.actual) if (cost := spent(r)) else None,
        lambda value: units.count(round(value)),
        lambda r: float(cost.ideal) if (cost := spent(r)) else None,
    )


def quantities(results: Sequence[Result]) -> list[Quantity]:
    """Return the quantities to draw for these results. Raises CudabenchError if the results have none."""
    correct = [r for r in results if r.status == "ok"]
    if any(r.time for r in correct):
        if all(r.gflops is not None and is_arithmetic(r) for r in correct):
            return [GFLOPS]
        return [BANDWIDTH if any(r.bandwidth_gbps is not None for r in correct) else TIME]
    counted = [q for q in map(count_of, ("global", "shared")) if any(q.value(r) is not None for r in correct)]
    if not counted:
        raise CudabenchError("There is nothing to draw: no right result has a time or a count.")
    return counted


def of_blocks(results: Sequence[Result]) -> list[Quantity]:
    """Return the quantities to draw for a sweep's blocks; if simulated, the counts that differ between blocks."""
    correct = [r for r in results if r.status == "ok"]
    if any(r.time for r in correct):
        if all(r.gflops is not None and is_arithmetic(r) for r in correct):
            return [GFLOPS]
        if all(r.bandwidth_gbps is not None for r in correct):
            return [Quantity("GB/s", lambda r: r.bandwidth_gbps, more=True)]
        scale, name = _scale_of([r.time.median_s for r in correct if r.time])
        return [Quantity(name, lambda r: r.time.median_s if r.time else None, lambda v: units.digits(v / scale))]
    bounds = [bound for r in correct if (bound := least_time(r)) is not None]
    drawn: list[Quantity] = []
    if len(set(bounds)) > 1:
        scale, name = _scale_of(bounds)
        drawn = [Quantity(f"at least, {name}", least_time, lambda v: units.digits(v / scale, 3))]
    names = ("global sectors", "local sectors", "shared wavefronts", "PTX instructions")
    varying = [name for name in names if len({compare.counts(r).get(name) for r in correct}) > 1]
    counted = varying or ([] if drawn else ["PTX instructions"])
    return drawn + [Quantity(name, partial(_counted, name), short) for name in counted]


def _counted(name: str, result: Result) -> float | None:
    return compare.counts(result).get(name)


def short(value: float, gap: str = "") -> str:
    """Return a count with three digits: '960', '65.5k'. `gap`: the text between the number and the letter."""
    for factor, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{units.digits(float(f'{value / factor:.3g}'), 3)}{gap}{letter}"
    return f"{value:.0f}"


def copy_of(results: Sequence[Result]) -> float | None:
    """Return the speed in GB/s of a copy of the same bytes in the same run, or None."""
    copies = [r.copy_gbps for r in results if r.copy_gbps]
    return median(copies) if copies else None


def _scale_of(values: Sequence[float]) -> tuple[float, str]:
    """Return the unit of time that suits all values, as (seconds, name)."""
    return next(((f, u) for f, u in units.TIME_UNITS if min(values) >= f), units.TIME_UNITS[-1])


def is_arithmetic(result: Result) -> bool:
    """Return whether a result has ten or more operations per byte, so that operations describe it better than bytes."""
    return result.flops is not None and (not result.bytes or result.flops >= ARITHMETIC * result.bytes)


def least_time(result: Result) -> float | None:
    """Return the least possible time of a result in seconds, which is its longest limit; None without limits."""
    return float(result.limits[0].time_s) if result.limits else None
