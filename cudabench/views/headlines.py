"""The lines about results under a table and at the top of a page, as plain text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from cudabench.explain import verdict
from cudabench.explain.accesses import excesses, wasted, wasted_cycles
from cudabench.records.results import Result
from cudabench.results import units
from cudabench.results.columns import NOTHING
from cudabench.results.groups import grouped


def reasons(named: Iterable[tuple[str, Result]]) -> Mapping[tuple[str, str | None], list[str]]:
    """Return the reasons of kernels without figures; kernels with the same reason share an entry."""
    return grouped(((result.status, result.reason), name) for name, result in named if result.status != "ok")


def lowest_line(results: Sequence[Result]) -> str:
    """Return which kernels have the lowest bound, and their resource; '' for a single kernel or several sizes."""
    priced = [result for result in results if result.limits and result.status == "ok"]
    if len(priced) < 2 or several_sizes(results):
        return ""
    least = min(map(verdict.bound, priced))
    tied = sorted((result for result in priced if verdict.bound(result) == least), key=lambda r: wasted(r.access or ()))
    held = grouped((held_by(result), result.kernel) for result in tied)
    kernels = "; ".join(f"{', '.join(names)}, held by {what}" for what, names in held.items())
    return f"Lowest bound, {at_least(tied[0])}: {kernels}."


def most_wasteful(results: Sequence[Result]) -> Result | None:
    """Return the result that wastes most, or None."""
    return max(results, key=lambda result: wasted(result.access or ()), default=None)


def waste_line(result: Result, name: str) -> str:
    """Return a kernel's waste and its most wasteful line; '' if the waste is small."""
    if not excesses(result.access or ()):
        return ""
    row = max(result.access or (), key=wasted_cycles)
    return f"Most waste: {name}, {waste(result)}, line {units.place_of(row)}: {' '.join(row.source.split())}"


def waste(result: Result) -> str:
    """Return a kernel's accesses over the ideal, by unit, the more costly unit first: '4.5x sectors'."""
    parts = [f"{excess.times:.2g}x {excess.unit}" for excess in excesses(result.access or ())]
    return ", ".join(parts) or NOTHING


def held_by(result: Result) -> str:
    """Return the resource of the longest limit."""
    return verdict.name(result.limits[0]) if result.limits else NOTHING


def at_least(result: Result) -> str:
    """Return the longest limit with three digits, or why it is missing."""
    if not result.limits:
        return "not priced" if result.status == "ok" else result.status
    return units.seconds(result.limits[0].time_s, 3)


def several_sizes(results: Sequence[Result]) -> bool:
    """Return whether results have several sizes."""
    return len({tuple(result.size.items()) for result in results}) > 1


def name_at(result: Result, results: Sequence[Result]) -> str:
    """Return a kernel's name, with its size if the results have several sizes."""
    return f"{result.kernel} at {units.size(result)}" if several_sizes(results) else result.kernel
