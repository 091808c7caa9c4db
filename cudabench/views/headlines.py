"""Sentences about results, under a table and at the top of a page, as plain text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from cudabench.explain import verdict
from cudabench.explain.accesses import excesses, wasted, wasted_cycles
from cudabench.records.results import Result
from cudabench.results import units
from cudabench.results.columns import NOTHING
from cudabench.results.groups import grouped


def reasons(named: Iterable[tuple[str, Result]]) -> Mapping[tuple[str, str | None], list[str]]:
    """Return why kernels have no figures: {(status, reason): names}. Kernels with the same reason share an entry."""
    return grouped(((result.status, result.reason), name) for name, result in named if result.status != "ok")


def lowest_line(results: Sequence[Result]) -> str:
    """Return a sentence that names the kernels whose lower bound is the smallest, and the resource that sets this
    bound.

    Return '' if there is only one kernel, or if there are several sizes.
    """
    priced = [result for result in results if result.limits and result.status == "ok"]
    if len(priced) < 2 or several_sizes(results):
        return ""
    least = min(map(verdict.longest_limit_s, priced))
    tied = sorted(
        (result for result in priced if verdict.longest_limit_s(result) == least), key=lambda r: wasted(r.access or ())
    )
    held = grouped((limiting_resource(result), result.kernel) for result in tied)
    kernels = "; ".join(f"{', '.join(names)}, held by {what}" for what, names in held.items())
    return f"Lowest bound, {at_least(tied[0])}: {kernels}."


def most_wasteful(results: Sequence[Result]) -> Result | None:
    """Return the result whose accesses waste most; None without results."""
    return max(results, key=lambda result: wasted(result.access or ()), default=None)


def waste_line(result: Result, name: str) -> str:
    """Return a sentence on a kernel's waste and its most wasteful line; '' if the kernel wastes little."""
    if not excesses(result.access or ()):
        return ""
    row = max(result.access or (), key=wasted_cycles)
    return f"Most waste: {name}, {waste(result)}, line {units.place_of(row)}: {' '.join(row.source.split())}"


def waste(result: Result) -> str:
    """Return how much more than the ideal a kernel's accesses need, costliest unit first: '4.5x sectors'."""
    parts = [f"{excess.times:.2g}x {excess.unit}" for excess in excesses(result.access or ())]
    return ", ".join(parts) or NOTHING


def limiting_resource(result: Result) -> str:
    """Return the name of the resource whose limit is the longest."""
    return verdict.name(result.limits[0]) if result.limits else NOTHING


def at_least(result: Result) -> str:
    """Return the longest limit as a time with three digits, or the reason why there is no limit."""
    if not result.limits:
        return "not priced" if result.status == "ok" else result.status
    return units.seconds(result.limits[0].time_s, 3)


def several_sizes(results: Sequence[Result]) -> bool:
    """Return whether the results have more than one size."""
    return len({tuple(result.size.items()) for result in results}) > 1


def name_at(result: Result, results: Sequence[Result]) -> str:
    """Return a kernel's name, with its size if the results have several sizes."""
    return f"{result.kernel} at {units.size(result)}" if several_sizes(results) else result.kernel
