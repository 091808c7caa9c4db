"""What accesses cost and would cost at best, alone and summed: pure arithmetic over the simulator's counts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cudabench.records.results import Access

# What one of each keeps an SM's share of a unit busy for, on an H200: 4814 GB/s over 132 SMs at 1.98 GHz are 18.4 bytes
# a cycle; shared memory passes one wavefront a cycle.
SECTOR_CYCLES = 1.75
WAVEFRONT_CYCLES = 1.0
NOTABLE = 1.05  # times the ideal: less is not worth a word
CYCLES = {"sectors": SECTOR_CYCLES, "wavefronts": WAVEFRONT_CYCLES}


@dataclass(frozen=True)
class Cost:
    """Requests with what they cost in all and would cost at best, in their unit: sectors, or wavefronts."""

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
        """The share of the cost that is waste, 0 to 1, or None where nothing was moved."""
        return 1 - self.ideal / self.actual if self.actual else None


def unit(space: str) -> str:
    """Return what accesses to a space are counted in: wavefronts in shared and constant memory, else sectors of 32
    bytes."""
    return "wavefronts" if space in ("shared", "constant") else "sectors"


def cost(access: Access) -> Cost:
    """Return what the requests of one row cost."""
    if unit(access.space) == "wavefronts":
        return Cost(access.requests, access.wavefronts or 0, access.ideal_wavefronts or 0)
    return Cost(access.requests, access.sectors or 0, access.ideal_sectors or 0)


def total(rows: Iterable[Access], space: str, op: str | None = None) -> Cost:
    """Return the cost of all accesses to a space, or of those of one `op`."""
    costs = [cost(row) for row in rows if row.space == space and (op is None or row.op == op)]
    return Cost(
        sum(each.requests for each in costs), sum(each.actual for each in costs), sum(each.ideal for each in costs)
    )


@dataclass(frozen=True)
class Excess:
    """What accesses cost in one unit, sectors or wavefronts, over what would do: how many times that, and the cycles of
    what is over."""

    unit: str
    times: float
    cycles: float


def over(access: Access) -> float:
    """Return the cycles of what the requests of one row cost over the ideal."""
    spent = cost(access)
    return (spent.actual - spent.ideal) * CYCLES[unit(access.space)]


def wasted(rows: Iterable[Access]) -> float:
    """Return the cycles of what all accesses cost over the ideal: what orders kernels whose bounds are equal."""
    return sum(map(over, rows))


def excesses(rows: Sequence[Access]) -> list[Excess]:
    """Return what all accesses cost over the ideal by unit, the most cycles first, without what is not worth a word."""
    found = []
    for name in CYCLES:
        own = [row for row in rows if unit(row.space) == name]
        actual, ideal = sum(cost(row).actual for row in own), sum(cost(row).ideal for row in own)
        if ideal and actual > NOTABLE * ideal:
            found.append(Excess(name, actual / ideal, wasted(own)))
    return sorted(found, key=lambda one: -one.cycles)
