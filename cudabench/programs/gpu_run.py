"""Runs a program on a GPU, and lists its launches with their times, which CUPTI measures.

The CUDA driver loads the library of `native/trace` into the program. This library writes each launch to a folder, which
is read here when the program has ended. The program itself is not changed, and CUPTI's activity records need no
privileges.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cudabench.devices import probe
from cudabench.errors import DeviceUnusable
from cudabench.measure import provenance as origin
from cudabench.measure.session import SilentProgress
from cudabench.programs import process
from cudabench.programs.launches import matches, readable_name
from cudabench.records.file import ResultsFile
from cudabench.records.launch import Dim, Source
from cudabench.records.program import Launches
from cudabench.records.results import Result
from cudabench.results import stats
from cudabench.system import native

LAUNCH = np.dtype([("kernel", "<u4"), ("device", "<u4"), ("start", "<u8"), ("end", "<u8")])  # `Launch` of trace.cpp
CACHE = "as found"  # the L2 cache is as the program leaves it, neither emptied nor warmed
MOST_SAMPLES = 10_000  # the results file has at most this many launch times of a kernel, every Nth of all


@dataclass(frozen=True)
class GpuRequest:
    """A program to run. `shown`: program and arguments as the user wrote them; `command`: the same, with the full
    path; `index`: the number of the only GPU that the program may use, or None; `glob`: a pattern of the names of the
    kernels to list; `budget`: the seconds after which the program is ended, or None."""

    shown: tuple[str, ...]
    command: tuple[str, ...]
    index: int | None = None
    glob: str = ""
    budget: float | None = None
    sources: tuple[str, ...] = ()
    to_stderr: bool = False  # whether the program's output goes to stderr, because stdout is needed for the results


class Configuration(NamedTuple):
    """The sizes of a launch and the resources of its kernel, which one line of the trace contains."""

    grid: Dim
    block: Dim
    shared_bytes: int
    registers: int
    local_bytes: int


@dataclass
class TracedKernel:
    """The launches of a kernel on one GPU.

    For each launch, `numbers` has the number of its geometry in `geometries`, and `times` its time in seconds, NaN if
    the program ended before the launch did.
    """

    name: str
    device: int
    geometries: list[Configuration]
    numbers: np.ndarray
    times: np.ndarray


class GpuRun(process.RecordedProgram):
    """The run of a program on a GPU, with its results."""

    def __init__(self, request: GpuRequest, path: Path | None = None) -> None:
        settings = {"device": "cuda" if request.index is None else f"cuda:{request.index}", "budget": request.budget}
        file = ResultsFile(settings, {"numpy": np.__version__}, probe.host())
        super().__init__(file, path, SilentProgress, request.shown, request.budget)
        self.request = request
        self.elapsed_s = 0.0
        self.problem = ""  # the reason why CUPTI did not record launches

    def collect(self) -> None:
        """Run the program to its end; even if the program fails, its launches' results are in the file afterwards.

        Raises DeviceUnusable without a driver, CUPTI or the trace library.
        """
        from cudabench.compile import toolkit

        try:
            library = native.trace()
        except native.NotBuilt as lack:
            raise DeviceUnusable(f"The recorder of launches is missing: {lack}.") from None
        environment = {
            **os.environ, "CUDA_INJECTION64_PATH": str(library), "CUDABENCH_CUPTI": toolkit.cupti(),
        }  # fmt: skip
        if self.request.index is not None:
            environment["CUDA_VISIBLE_DEVICES"] = str(probe.gpu(self.request.index).uuid)
        self.file.provenance = origin.provenance_record(map(_source, self.request.sources), {"name": "nvcc"})
        self.started(probe.gpu(self.request.index or 0))
        self.write()
        with tempfile.TemporaryDirectory(prefix="cudabench-") as folder:
            try:
                self._wait({**environment, "CUDABENCH_TRACE": folder})
            finally:
                self._write_results(Path(folder))

    def _wait(self, environment: dict[str, str]) -> None:
        """Start the program, and wait until it ends or the time of --budget is over."""
        begin = time.monotonic()
        child = process.start(self.request.command, environment, to_stderr=self.request.to_stderr)
        try:
            self.exit_code = process.exit_code(child, self.budget)
        except subprocess.TimeoutExpired:
            self.stopped = self.end_of_budget()
        finally:
            process.end(child)
            self.elapsed_s = time.monotonic() - begin

    def _write_results(self, folder: Path) -> None:
        """Make the results of the launched kernels and write them to the results file."""
        kernels = [kernel for kernel in traced_kernels(folder) if matches(self.request.glob, kernel.name)]
        for kernel in kernels:
            device = probe.gpu(kernel.device if self.request.index is None else self.request.index)
            self.started(device)
            self.file.results.append(_result(kernel, device.label, ", ".join(self.request.sources)))
        for file in sorted(folder.glob("*.problem")):
            self.problem = file.read_text(errors="replace").strip()
        launches = tuple(Launches(kernel.name, len(kernel.times), 0) for kernel in kernels)
        self.file.program = replace(
            self.program, launches=sum(row.launches for row in launches), exit_code=self.exit_code, kernels=launches
        )
        self.finish()
        self.write()


def traced_kernels(folder: Path) -> list[TracedKernel]:
    """Return the kernels of all processes that wrote a trace to a folder, the one that took most time first."""
    parts: dict[tuple[str, int], list[tuple[Configuration, np.ndarray]]] = {}
    for lines in sorted(folder.glob("*.kernels")):
        launches = np.fromfile(lines.with_suffix(".launches"), LAUNCH)
        launches = launches[np.argsort(launches["kernel"], kind="stable")]
        known = [*_kernels(lines)]
        ends = np.searchsorted(launches["kernel"], np.arange(len(known) + 1))
        for (name, geometry), first, last in zip(known, ends, ends[1:], strict=False):
            own = launches[first:last]
            for device in np.unique(own["device"]):
                rows = own[own["device"] == device]
                parts.setdefault((name, int(device)), []).append((geometry, rows))
    kernels = []
    for (name, device), found in parts.items():
        rows = np.concatenate([rows for _, rows in found])
        numbers = np.repeat(np.arange(len(found)), [len(rows) for _, rows in found])
        order = np.argsort(rows["start"], kind="stable")
        spans = (rows["end"] - rows["start"].astype(np.float64)) * 1e-9
        times = np.where((rows["end"] > rows["start"]) & (rows["start"] > 0), spans, np.nan)
        kernels.append(TracedKernel(name, device, [geometry for geometry, _ in found], numbers[order], times[order]))
    return sorted(kernels, key=lambda kernel: -float(np.nansum(kernel.times)))


def _kernels(lines: Path) -> Iterator[tuple[str, Configuration]]:
    """Yield (name, geometry) for each complete line of a trace's kernels."""
    for line in lines.read_text(errors="replace").splitlines(keepends=True):
        *numbers, name = line.split(" ", 10)
        if len(numbers) == 10 and name.endswith("\n"):
            gx, gy, gz, bx, by, bz, static, dynamic, registers, local = map(int, numbers)
            geometry = Configuration((gx, gy, gz), (bx, by, bz), static + dynamic, registers, local)
            yield readable_name(name.strip(), name.strip()), geometry


def _result(kernel: TracedKernel, device: str, source: str) -> Result:
    """Return the result of a kernel: the geometry of its slowest launch, and the statistics of its times."""
    known = kernel.times[~np.isnan(kernel.times)]
    slowest = int(np.nanargmax(kernel.times)) if len(known) else 0
    geometry = kernel.geometries[kernel.numbers[slowest]]
    time = None
    if len(known):
        time = stats.summarize(known, CACHE)
        step = -(-len(known) // MOST_SAMPLES)
        time = replace(time, samples_s=time.samples_s[::step])
    return Result(
        operation="exec", kernel=kernel.name, id=None, function=kernel.name, source=source, size={}, dtype="",
        block=geometry.block, grid=geometry.grid, device=device, status="ok", shared_bytes=geometry.shared_bytes,
        registers=geometry.registers, local_bytes=geometry.local_bytes, time=time,
    )  # fmt: skip


def _source(path: str) -> Source:
    return Source(path, Path(path).read_text(encoding="utf-8", errors="replace"), builtin=False)
