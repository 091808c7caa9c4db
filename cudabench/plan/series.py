"""Cases that share a problem, with the function that makes their operation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cudabench.records.planned import Case, Operation


@dataclass(frozen=True)
class Series:
    """Kernels that run on one problem, so that their figures compare.

    An `Operation` holds functions, which cannot be sent to the process that owns the GPU; `make` can be sent, and makes
    the operation there. `baseline` is false if the CPU has nothing to time.
    """

    make: Callable[[], Operation]
    cases: tuple[Case, ...]
    baseline: bool = True
