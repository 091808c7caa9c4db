"""Bencher Metric Format (bencher.dev/docs/reference/bencher-metric-format), for `bencher run --adapter json`: by
benchmark and measure a value, and where samples were taken their quartiles as its bounds."""

from __future__ import annotations

import json
from collections.abc import Sequence

from cudabench import text as texts
from cudabench.errors import CudabenchError
from cudabench.records.results import Result
from cudabench.results import compare
from cudabench.views.export.run import Run, names

LONGEST_NAME = 1024  # of a benchmark, in characters


def text(runs: Sequence[Run]) -> str:
    """Return the measures of every right result: `latency`, Bencher's own, in nanoseconds; `bandwidth` in GB/s,
    `gflops`; the simulator's counts.

    Raises CudabenchError where there is nothing to report.
    """
    document = {}
    for run, labels in zip(runs, names(runs), strict=True):
        for result, label in zip(run.file.results, labels, strict=True):
            measures = _measures(result) if result.status == "ok" else {}
            if measures:
                document[texts.line(label)[:LONGEST_NAME]] = measures
    if not document:
        held = "hold" if len(runs) > 1 else "holds"
        raise CudabenchError(
            f"{', '.join(run.name for run in runs)} {held} no right result with a time or count, so there is nothing "
            "to report."
        )
    return texts.json(json.dumps(document, indent=2)) + "\n"


def _measures(result: Result) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    if result.time:
        median, low, high = (value * 1e9 for value in (result.time.median_s, result.time.q1_s, result.time.q3_s))
        found["latency"] = _metric(median, low, high)
        for measure, rate in (("bandwidth", result.bandwidth_gbps), ("gflops", result.gflops)):
            if rate is not None and min(low, high) > 0:  # a rate's bounds are those of the time, turned around
                found[measure] = _metric(rate, rate * median / high, rate * median / low)
    for what, value in compare.counts(result).items():
        found[what.replace(" ", "-")] = {"value": value}
    return found


def _metric(value: float, low: float, high: float) -> dict[str, float]:
    figures = {"value": value, "lower_value": low, "upper_value": high}
    return {key: float(f"{figure:.7g}") for key, figure in figures.items()}
