"""The JSON array that the action benchmark-action/github-action-benchmark reads.

The action's option `tool` must be customSmallerIsBetter or customBiggerIsBetter. An entry has name, unit, value, range
and extra.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal

from cudabench import text as texts
from cudabench.records.file import ResultsFile
from cudabench.records.results import Result
from cudabench.results import compare, units
from cudabench.views.export.run import Run, nothing_right, right_results

Metric = Literal["time", "bandwidth"]

COUNTS = ("global sectors", "shared wavefronts", "PTX instructions")


def text(runs: Sequence[Run], metric: Metric = "time") -> str:
    """Return the array: times in microseconds and the simulator's counts, or bandwidths.

    For all values of an array, the same direction must be better: smaller for times and counts, larger for bandwidths.
    Raises CudabenchError if there is nothing to report, because the action refuses an empty array.
    """
    entries = []
    for result, file, label in right_results(runs):
        entries += _timed(result, file, label, metric)
        entries += _counts(result, label) if metric == "time" else []
    if not entries:
        what = "bandwidth" if metric == "bandwidth" else "time or count"
        raise nothing_right(runs, f"{what}, and the action refuses an empty array")
    return texts.json(json.dumps(entries, indent=2)) + "\n"


def _entry(label: str, unit: str, value: float, spread: float | None, extra: Sequence[str]) -> dict[str, Any]:
    return {
        "name": texts.line(label),
        "unit": unit,
        "value": value if isinstance(value, int) else float(f"{value:.7g}"),
        **({} if spread is None else {"range": f"± {spread:.3g}"}),
        **({"extra": "\n".join(map(texts.line, extra))} if extra else {}),
    }


def _extra(result: Result, file: ResultsFile) -> list[str]:
    return [
        *([device.name] if (device := file.device_of(result)) else []),
        *([f"{units.digits(result.bandwidth_gbps)} GB/s"] if result.bandwidth_gbps is not None else []),
        *([f"{units.percent(result.copy_fraction)} of copy"] if result.copy_fraction is not None else []),
        *([f"{result.time.samples} samples, {result.time.cache} L2"] if result.time else []),
    ]


def _timed(result: Result, file: ResultsFile, label: str, metric: Metric) -> list[dict[str, Any]]:
    if result.time is None or (metric == "bandwidth" and result.bandwidth_gbps is None):
        return []
    half = (result.time.q3_s - result.time.q1_s) / 2
    if metric == "bandwidth" and result.bandwidth_gbps is not None:
        half = half / result.time.median_s * result.bandwidth_gbps
        return [_entry(label, "GB/s", result.bandwidth_gbps, half, _extra(result, file))]
    return [_entry(label, "µs", result.time.median_s * 1e6, half * 1e6, _extra(result, file))]


def _counts(result: Result, label: str) -> list[dict[str, Any]]:
    counts = compare.counts(result)
    # A count of zero is left out, because the GitHub action divides by the previous value.
    return [
        _entry(f"{label}, {what.removeprefix('PTX ')}", what.split()[-1], counts[what], None, [])
        for what in COUNTS
        if counts.get(what)
    ]
