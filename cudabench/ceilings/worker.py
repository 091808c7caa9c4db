"""The process that owns the GPU while its ceilings are measured."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from cudabench.ceilings.gpu import Ceilings, HostDevice
from cudabench.measure.session import Finished
from cudabench.measure.worker import Told, finished, serve
from cudabench.records.planned import Settings


def measuring(device: HostDevice, tell: Told, **how: Any) -> Callable[[tuple[str, Settings]], Finished]:
    """Return what measures a ceiling that is ordered by its name."""
    ceilings: Ceilings | None = None

    def carry_out(order: tuple[str, Settings]) -> Finished:
        nonlocal ceilings
        name, settings = order
        ceilings = ceilings or Ceilings(device, settings, **how)
        ceilings.progress = partial(tell, name)
        found = ceilings.measure(name)
        return finished(device, found, found.status == "failed")

    return carry_out


if __name__ == "__main__":
    serve(sys.argv[1:], measuring)
