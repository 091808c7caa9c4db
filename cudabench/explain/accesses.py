"""The cost of accesses and its ideal, single, summed and by line: pure arithmetic over the simulator's counts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cudabench.records.results import Access, Pattern

# How long a sector and a wavefront keep an SM's share of a unit busy on an H200: 4814 GB/s over 132 SMs at 1.98 GHz are
# 18.4 bytes a cycle; shared memory passes one wavefront a cycle.
SECTOR_CYCLES = 1.75
WAVEFRONT_CYCLES = 1.0
NOTABLE = 1.05  # least ratio to the ideal that is reported
_SUMMED = ("requests", "sectors", "ideal_sectors", "wavefronts", "ideal_wavefronts", "merged")
CYCLES = {"sectors": SECTOR_CYCLES, "wavefronts": WAVEFRONT_CYCLES}


@dataclass(frozen=True)
class Cost:
    """Requests with their total and ideal cost, in their unit: sectors, or wavefronts."""

    requests: int
    actual: int
    ideal: int

    @property
    def per_request(self) -> float | None:
        """The mean cost of a request, or None without any."""
        return self.actual / self.requests if self.requests else None

    @property
    def ideal_per_request(self) -> float | None:
        """The mean cost of a request at best, or None without any."""
        return self.ideal / self.requests if self.requests else None

    @property
    def waste(self) -> float | None:
        """The share of the cost that is waste, 0 to 1, or None without moved data."""
        return 1 - self.ideal / self.actual if self.actual else None


def unit(space: str) -> str:
    """Return the unit of a space's accesses: wavefronts in shared and constant memory, else sectors of 32 bytes."""
    return "wavefronts" if space in ("shared", "constant") else "sectors"


def cost(access: Access) -> Cost:
    """Return the cost of a row's requests."""
    if unit(access.space) == "wavefronts":
        return Cost(access.requests, access.wavefronts or 0, access.ideal_wavefronts or 0)
    return Cost(access.requests, access.sectors or 0, access.ideal_sectors or 0)


def total(rows: Iterable[Access], space: str, op: str | None = None) -> Cost:
    """Return the cost of all accesses to a space, or of those of one `op`."""
    costs = [cost(row) for row in rows if row.space == space and (op is None or row.op == op)]
    return Cost(
        sum(item.requests for item in costs), sum(item.actual for item in costs), sum(item.ideal for item in costs)
    )


@dataclass(frozen=True)
class Excess:
    """The excess cost of accesses in one unit, sectors or wavefronts: the ratio to the ideal, and the wasted cycles."""

    unit: str
    times: float
    cycles: float


def wasted_cycles(access: Access) -> float:
    """Return the wasted cycles of a row's requests."""
    spent = cost(access)
    return (spent.actual - spent.ideal) * CYCLES[unit(access.space)]


def wasted(rows: Iterable[Access]) -> float:
    """Return the wasted cycles of all accesses, which order kernels with equal bounds."""
    return sum(map(wasted_cycles, rows))


def excesses(rows: Sequence[Access]) -> list[Excess]:
    """Return the notable excesses of all accesses by unit, the most cycles first."""
    results = []
    for name in CYCLES:
        unit_rows = [row for row in rows if unit(row.space) == name]
        actual, ideal = sum(cost(row).actual for row in unit_rows), sum(cost(row).ideal for row in unit_rows)
        if ideal and actual > NOTABLE * ideal:
            results.append(Excess(name, actual / ideal, wasted(unit_rows)))
    return sorted(results, key=lambda excess: -excess.cycles)


def by_line(rows: Sequence[Access]) -> list[Access]:
    """Return one row for each line, kind, width, array and pattern; counts are summed, in the order of the source."""
    merged: dict[tuple[object, ...], Access] = {}
    for row in rows:
        pattern = row.pattern
        shape = (pattern.kind, pattern.stride_bytes, pattern.run) if pattern else None
        key = (row.file, row.line, row.source, row.space, row.op, row.bytes, row.array, shape, row.advice)
        previous = merged.get(key)
        merged[key] = row if previous is None else _sum(previous, row)
    return list(merged.values())


def _sum(first: Access, second: Access) -> Access:
    pairs = {name: (getattr(first, name), getattr(second, name)) for name in _SUMMED}
    sums: dict[str, Any] = {name: None if None in pair else sum(pair) for name, pair in pairs.items()}
    return replace(
        first,
        **sums,
        inexact=first.inexact or second.inexact,
        instruction=first.instruction if first.instruction == second.instruction else None,
    )


def pattern_text(pattern: Pattern | None) -> str:
    """Return the pattern of lanes in a few words: 'stride 128 B', 'rows of 4', 'one place'."""
    if pattern is None:
        return ""
    words = {
        "stride": f"stride {pattern.stride_bytes} B",
        "rows": f"rows of {pattern.run}",
        "contiguous": "neighbours" if (pattern.stride_bytes or 0) >= 0 else "neighbours, reversed",
        "broadcast": "one place" if pattern.run >= pattern.lanes else "groups at one place",
        "permutation": "neighbours, permuted",
        "single": "one lane",
    }.get(pattern.kind, pattern.kind)
    return words + (f", {pattern.lanes} lanes" if pattern.lanes < 32 and pattern.kind != "single" else "")
