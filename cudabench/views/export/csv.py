"""CSV: one row a kernel, numbers as the results file has them: seconds, bytes, GB/s. What was not measured is empty."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from cudabench.records.file import ResultsFile
from cudabench.records.results import Result
from cudabench.text import cell
from cudabench.views.export.run import Run, hazards, short_size, total

COLUMNS: dict[str, Callable[[Result, ResultsFile], Any]] = {
    "operation": lambda r, f: r.operation,
    "kernel": lambda r, f: r.kernel,
    "id": lambda r, f: r.id,
    "function": lambda r, f: r.function,
    "source": lambda r, f: r.source,
    "size": lambda r, f: short_size(r),
    "dtype": lambda r, f: r.dtype,
    "block": lambda r, f: "x".join(map(str, r.block)),
    "grid": lambda r, f: "x".join(map(str, r.grid)),
    "device": lambda r, f: r.device,
    "device_name": lambda r, f: device.name if (device := f.device_of(r)) else None,
    "status": lambda r, f: r.status,
    "reason": lambda r, f: r.reason,
    "cache": lambda r, f: r.time.cache if r.time else None,
    "samples": lambda r, f: r.time.samples if r.time else None,
    "median_s": lambda r, f: r.time.median_s if r.time else None,
    "q1_s": lambda r, f: r.time.q1_s if r.time else None,
    "q3_s": lambda r, f: r.time.q3_s if r.time else None,
    "min_s": lambda r, f: r.time.min_s if r.time else None,
    "mean_s": lambda r, f: r.time.mean_s if r.time else None,
    "relative_ci": lambda r, f: r.time.relative_ci if r.time else None,
    "bytes": lambda r, f: r.bytes,
    "flops": lambda r, f: r.flops,
    "bandwidth_gbps": lambda r, f: r.bandwidth_gbps,
    "gflops": lambda r, f: r.gflops,
    "copy_gbps": lambda r, f: r.copy_gbps,
    "copy_fraction": lambda r, f: r.copy_fraction,
    "peak_fraction": lambda r, f: r.peak_fraction,
    "speedup_vs_cpu": lambda r, f: r.speedup_vs_cpu,
    "footprint_over_l2": lambda r, f: r.footprint_over_l2,
    "cpu_time_s": lambda r, f: r.cpu.time_s if r.cpu else None,
    "registers": lambda r, f: r.registers,
    "shared_bytes": lambda r, f: r.shared_bytes,
    "local_bytes": lambda r, f: r.local_bytes,
    "occupancy_fraction": lambda r, f: r.occupancy.fraction if r.occupancy else None,
    "global_load_sectors": lambda r, f: cost.actual if (cost := total(r, "global", "load")) else None,
    "global_store_sectors": lambda r, f: cost.actual if (cost := total(r, "global", "store")) else None,
    "global_ideal_sectors": lambda r, f: cost.ideal if (cost := total(r, "global")) else None,
    "shared_wavefronts": lambda r, f: cost.actual if (cost := total(r, "shared")) else None,
    "shared_ideal_wavefronts": lambda r, f: cost.ideal if (cost := total(r, "shared")) else None,
    "instructions": lambda r, f: r.instructions,
    "hazards": lambda r, f: hazards(r),
    "warnings": lambda r, f: " ".join(w.code for w in r.warnings),
    "device_uuid": lambda r, f: device.uuid if (device := f.device_of(r)) else None,
}


def text(runs: Sequence[Run]) -> str:
    """Return one row a result under COLUMNS."""
    return table(
        COLUMNS, runs, lambda file: ([made(result, file) for made in COLUMNS.values()] for result in file.results)
    )


def table(columns: Iterable[str], runs: Sequence[Run], rows: Callable[[ResultsFile], Iterable[list[Any]]]) -> str:
    """Return the rows of all runs; of several runs the last column is the file."""
    several = len(runs) > 1
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([*columns, *(["file"] if several else [])])
    for run in runs:
        for row in rows(run.file):
            values = [*row, *([run.name] if several else [])]
            writer.writerow([cell(value) if isinstance(value, str) else value for value in values])
    return stream.getvalue()
