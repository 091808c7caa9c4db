"""What accesses cost and would cost at best, alone and summed: pure arithmetic over the simulator's counts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cudabench.model import Access


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
    """Return what accesses to a space are counted in: wavefronts in shared memory and of constants, else sectors."""
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
