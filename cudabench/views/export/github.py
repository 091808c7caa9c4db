"""Annotations of GitHub: a workflow command for each hazard, wrong result and skipped kernel, at its line."""

from __future__ import annotations

from collections.abc import Sequence

from cudabench.views.annotations import of_run
from cudabench.views.export.run import Run


def text(runs: Sequence[Run]) -> str:
    """Return the annotations of the runs, one on each line."""
    return "".join(f"{line}\n" for run in runs for line in of_run(run))
