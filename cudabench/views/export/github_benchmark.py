"""The array that benchmark-action/github-action-benchmark reads as customSmallerIsBetter or customBiggerIsBetter: name,
unit, value, range, extra."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal

from cudabench import text as texts
from cudabench.errors import CudabenchError
from cudabench.records.file import ResultsFile
from cudabench.records.results import Result
from cudabench.results import compare, units
from cudabench.views.export.run import Run, names

Metric = Literal["time", "bandwidth"]

COUNTS = ("global sectors", "shared wavefronts", "instructions")


def text(runs: Sequence[Run], metric: Metric = "time") -> str:
    """Return the action's array: times in microseconds and, of the simulator, counts; or bandwidths.

    One array has one direction: times and counts are better smaller, bandwidths bigger. Raises CudabenchError where
    there is nothing to report, which the action refuses.
    """
    entries = []
    for run, labels in zip(runs, names(runs), strict=True):
        for result, label in zip(run.file.results, labels, strict=True):
            if result.status != "ok":
                continue
            if metric == "bandwidth":
                entries += _bandwidth(result, run.file, label)
            else:
                entries += [*_time(result, run.file, label), *_counts(result, label)]
    if not entries:
        what = "bandwidth" if metric == "bandwidth" else "time or count"
        held = "hold" if len(runs) > 1 else "holds"
        raise CudabenchError(
            f"{', '.join(run.name for run in runs)} {held} no right result with a {what}, and the action refuses an "
            "empty array."
        )
    return texts.json(json.dumps(entries, indent=2)) + "\n"


def _entry(label: str, unit: str, value: float, spread: float | None, extra: Sequence[str]) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": texts.line(label),
        "unit": unit,
        "value": value if isinstance(value, int) else float(f"{value:.7g}"),
    }
    if spread is not None:
        entry["range"] = f"± {spread:.3g}"
    if extra:
        entry["extra"] = "\n".join(map(texts.line, extra))
    return entry


def _extra(result: Result, file: ResultsFile) -> list[str]:
    return [
        *([device.name] if (device := file.device_of(result)) else []),
        *([f"{units.digits(result.bandwidth_gbps)} GB/s"] if result.bandwidth_gbps is not None else []),
        *([f"{units.percent(result.copy_fraction)} of copy"] if result.copy_fraction is not None else []),
        *([f"{result.time.samples} samples, {result.time.cache} L2"] if result.time else []),
    ]


def _time(result: Result, file: ResultsFile, label: str) -> list[dict[str, Any]]:
    if result.time is None:
        return []
    half = (result.time.q3_s - result.time.q1_s) / 2
    return [_entry(label, "µs", result.time.median_s * 1e6, half * 1e6, _extra(result, file))]


def _bandwidth(result: Result, file: ResultsFile, label: str) -> list[dict[str, Any]]:
    if result.time is None or result.bandwidth_gbps is None:
        return []
    half = (result.time.q3_s - result.time.q1_s) / 2 / result.time.median_s * result.bandwidth_gbps
    return [_entry(label, "GB/s", result.bandwidth_gbps, half, _extra(result, file))]


def _counts(result: Result, label: str) -> list[dict[str, Any]]:
    found = compare.counts(result)
    # The action divides by the value before: a zero has no ratio.
    return [_entry(f"{label}, {what}", what.split()[-1], found[what], None, []) for what in COUNTS if found.get(what)]
