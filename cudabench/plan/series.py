"""The record `Series`: cases with the same problem, and a function that makes their operation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cudabench.records.plan import Case, Operation


@dataclass(frozen=True)
class Series:
    """Kernels that run on the same problem, so that their times can be compared.

    `make`: returns the operation. An `Operation` contains functions, so it cannot be sent to the process that uses the
    GPU; `make` is sent instead, and called in that process. `baseline`: whether the operation has a CPU baseline.
    """

    make: Callable[[], Operation]
    cases: tuple[Case, ...]
    baseline: bool = True
