"""Computes the cost of memory accesses, and the lowest possible cost: for one access, for a sum, for a source line.

Both costs are computed from the simulator's counts. A row is the record of one access (`records.results.Access`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cudabench.records.results import Access, Pattern

# The clock cycles that an access takes. A sector takes 1.75 cycles of an SM's share of the memory bandwidth (on an
# H200: 4814 GB/s over 132 SMs at 1.98 GHz are 18.4 bytes per cycle). A wavefront takes one cycle of the shared memory.
SECTOR_CYCLES = 1.75
WAVEFRONT_CYCLES = 1.0
NOTABLE = 1.05  # an access is reported if its cost is at least this many times the ideal cost
_SUMMED = ("requests", "sectors", "ideal_sectors", "wavefronts", "ideal_wavefronts", "merged")
CYCLES = {"sectors": SECTOR_CYCLES, "wavefronts": WAVEFRONT_CYCLES}


@dataclass(frozen=True)
class Cost:
    """The cost of some requests. `requests`: the number of requests. `actual`: how many sectors or wavefronts (see
    `unit`) the requests need. `ideal`: how many sectors or wavefronts the best access pattern would need."""

    requests: int
    actual: int
    ideal: int

    @property
    def per_request(self) -> float | None:
        """The mean cost of a request, or None without any request."""
        return self.actual / self.requests if self.requests else None

    @property
    def ideal_per_request(self) -> float | None:
        """The mean ideal cost of a request, or None without any request."""
        return self.ideal / self.requests if self.requests else None

    @property
    def waste(self) -> float | None:
        """The share of the cost beyond the ideal, from 0 to 1, or None if the cost is 0."""
        return 1 - self.ideal / self.actual if self.actual else None


def unit(space: str) -> str:
    """Return the unit of the cost of accesses to a memory space: "wavefronts" for shared and constant memory, else
    "sectors" (of 32 bytes)."""
    return "wavefronts" if space in ("shared", "constant") else "sectors"


def cost(access: Access) -> Cost:
    """Return the cost of all requests of one access."""
    if unit(access.space) == "wavefronts":
        return Cost(access.requests, access.wavefronts or 0, access.ideal_wavefronts or 0)
    sectors = access.sectors or 0
    # Fewer lanes of the machine code than of the PTX may be active, and the ideal is counted by the PTX.
    return Cost(access.requests, sectors, min(sectors, access.ideal_sectors or 0))


def total(rows: Iterable[Access], space: str, op: str | None = None) -> Cost:
    """Return the total cost of all accesses to a memory space, or only of those with the given `op`, such as "load"."""
    costs = [cost(row) for row in rows if row.space == space and (op is None or row.op == op)]
    return Cost(
        sum(item.requests for item in costs), sum(item.actual for item in costs), sum(item.ideal for item in costs)
    )


@dataclass(frozen=True)
class Excess:
    """The part of the cost of accesses that exceeds the ideal cost. `unit`: "sectors" or "wavefronts". `times`: the
    cost divided by the ideal cost. `cycles`: the clock cycles that the excess takes."""

    unit: str
    times: float
    cycles: float


def wasted_cycles(access: Access) -> float:
    """Return how many clock cycles more an access takes than with the ideal cost."""
    spent = cost(access)
    return (spent.actual - spent.ideal) * CYCLES[unit(access.space)]


def wasted(rows: Iterable[Access]) -> float:
    """Return how many cycles more all accesses take than with the ideal cost. This number sorts kernels with equal
    lower bounds."""
    return sum(map(wasted_cycles, rows))


def excesses(rows: Sequence[Access]) -> list[Excess]:
    """Return the excess in sectors and the excess in wavefronts, the one with more cycles first; each only if the cost
    is more than `NOTABLE` times the ideal cost."""
    results = []
    for name in CYCLES:
        unit_rows = [row for row in rows if unit(row.space) == name]
        actual, ideal = sum(cost(row).actual for row in unit_rows), sum(cost(row).ideal for row in unit_rows)
        if ideal and actual > NOTABLE * ideal:
            results.append(Excess(name, actual / ideal, wasted(unit_rows)))
    return sorted(results, key=lambda excess: -excess.cycles)


def by_line(rows: Sequence[Access]) -> list[Access]:
    """Merge equal rows into one row with the sums of their counts, without sorting the rows.

    Rows are equal if they have the same source line, memory space, `op`, bytes per lane, array, pattern and advice.
    """
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
    """Return a few words for an access pattern: 'stride 128 B', 'rows of 4', 'one place' (all lanes at one address)."""
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
