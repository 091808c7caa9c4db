"""Exports CSV: a row for each kernel, in the results file's units (seconds, bytes, GB/s). Missing values are empty."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from cudabench.records.file import ResultsFile
from cudabench.records.results import Result
from cudabench.text import cell
from cudabench.views.export.run import Run, hazards, short_size, total

Made = Callable[[Result, ResultsFile], Any]


def keys(*names: str, of: str = "") -> dict[str, Made]:
    """Return columns by name.

    Each column shows the field with the column's name in a result or, with `of`, in the record that the result's field
    `of` contains.
    """

    def getter(name: str) -> Made:
        return lambda result, file: getattr(getattr(result, of) if of else result, name, None)

    return {name: getter(name) for name in names}


COLUMNS: dict[str, Made] = {
    **keys("operation", "kernel", "id", "function", "source"),
    "size": lambda r, f: short_size(r),
    **keys("dtype"),
    "block": lambda r, f: "x".join(map(str, r.block)),
    "grid": lambda r, f: "x".join(map(str, r.grid)),
    **keys("device"),
    "device_name": lambda r, f: device.name if (device := f.device_of(r)) else None,
    **keys("status", "reason"),
    **keys("cache", "samples", "median_s", "q1_s", "q3_s", "min_s", "mean_s", "relative_ci", of="time"),
    **keys("bytes", "flops", "bandwidth_gbps", "gflops", "copy_gbps", "copy_fraction", "peak_fraction"),
    **keys("speedup_vs_cpu", "footprint_over_l2"),
    "cpu_time_s": lambda r, f: r.cpu.time_s if r.cpu else None,
    **keys("registers", "shared_bytes", "local_bytes"),
    "occupancy_fraction": lambda r, f: r.occupancy.fraction if r.occupancy else None,
    "global_load_sectors": lambda r, f: cost.actual if (cost := total(r, "global", "load")) else None,
    "global_store_sectors": lambda r, f: cost.actual if (cost := total(r, "global", "store")) else None,
    "global_ideal_sectors": lambda r, f: cost.ideal if (cost := total(r, "global")) else None,
    "shared_wavefronts": lambda r, f: cost.actual if (cost := total(r, "shared")) else None,
    "shared_ideal_wavefronts": lambda r, f: cost.ideal if (cost := total(r, "shared")) else None,
    **keys("instructions"),
    "hazards": lambda r, f: hazards(r),
    "warnings": lambda r, f: " ".join(w.code for w in r.warnings),
    "device_uuid": lambda r, f: device.uuid if (device := f.device_of(r)) else None,
}


def text(runs: Sequence[Run]) -> str:
    """Return CSV with the columns of COLUMNS and a row for each result."""
    return table(
        COLUMNS, runs, lambda file: ([value(result, file) for value in COLUMNS.values()] for result in file.results)
    )


def table(columns: Iterable[str], runs: Sequence[Run], rows: Callable[[ResultsFile], Iterable[list[Any]]]) -> str:
    """Return CSV with the rows of all runs. With several runs, the last column is the name of the run's file."""
    several = len(runs) > 1
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([*columns, *(["file"] if several else [])])
    for run in runs:
        for row in rows(run.file):
            values = [*row, *([run.name] if several else [])]
            writer.writerow([cell(value) if isinstance(value, str) else value for value in values])
    return stream.getvalue()
