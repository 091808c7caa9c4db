"""How the kernels of a run share the time that the whole run may take."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from cudabench.records.planned import Case, Settings
from cudabench.records.results import Result


@dataclass(frozen=True)
class Budget:
    """The time that is left to a run, in seconds of the machine's monotonic clock, which its processes share.

    `seconds` is what --budget gave; `end` is when they are over; `later` counts the kernels that come after those of
    the session in hand.
    """

    seconds: float
    end: float
    later: int = 0

    def until(self, left: int) -> float | None:
        """Return when the next of `left` kernels has to be done, so that all that follow have as long as it; None
        where the time is over."""
        now = time.monotonic()
        return now + (self.end - now) / (left + self.later) if now < self.end else None

    def left_out(self, case: Case, device: str) -> Result:
        """Return the result of a kernel whose turn came too late."""
        from cudabench.measure.context import describe

        reason = f"not measured: --budget {self.seconds:g} s was spent before its turn; give more, or fewer kernels"
        return replace(describe(case, device), status="failed", reason=reason)


def shortened(settings: Settings, until: float | None) -> Settings:
    """Return settings that sample no longer than until an instant, but long enough for the fewest samples."""
    if until is None:
        return settings
    left = max(until - time.monotonic(), 0.0)
    return replace(settings, max_time=min(settings.max_time, left), min_time=min(settings.min_time, left))
