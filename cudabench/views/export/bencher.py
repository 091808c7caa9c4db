"""Bencher Metric Format (bencher.dev/docs/reference/bencher-metric-format), for `bencher run --adapter json`.

The format has a value for each benchmark and measure. The lower and upper values are the quartiles of the samples.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from cudabench import text as texts
from cudabench.records.results import Result
from cudabench.results import compare
from cudabench.views.export.run import Run, nothing_right, right_results

LONGEST_NAME = 1024  # a benchmark's name has at most this many characters


def text(runs: Sequence[Run]) -> str:
    """Return the measures of every correct result, as JSON.

    The measures are `latency` in nanoseconds, which Bencher knows; `bandwidth` in GB/s; `gflops`; and the simulator's
    counts. Raises CudabenchError if there is nothing to report.
    """
    results = ((texts.line(label)[:LONGEST_NAME], _measures(result)) for result, _, label in right_results(runs))
    document = {label: measures for label, measures in results if measures}
    if not document:
        raise nothing_right(runs, "time or count, so there is nothing to report")
    return texts.json(json.dumps(document, indent=2)) + "\n"


def _measures(result: Result) -> dict[str, dict[str, float]]:
    measures: dict[str, dict[str, float]] = {}
    if result.time:
        median, low, high = (value * 1e9 for value in (result.time.median_s, result.time.q1_s, result.time.q3_s))
        measures["latency"] = _metric(median, low, high)
        for measure, rate in (("bandwidth", result.bandwidth_gbps), ("gflops", result.gflops)):
            # The rate is inversely proportional to the time, so the low time gives the upper value of the rate.
            if rate is not None and min(low, high) > 0:
                measures[measure] = _metric(rate, rate * median / high, rate * median / low)
    for what, value in compare.counts(result).items():
        measures[what.removeprefix("PTX ").replace(" ", "-")] = {"value": value}
    return measures


def _metric(value: float, low: float, high: float) -> dict[str, float]:
    figures = {"value": value, "lower_value": low, "upper_value": high}
    return {key: float(f"{figure:.7g}") for key, figure in figures.items()}
