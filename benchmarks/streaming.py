"""Measure the ladders that stream (vecadd, grayscale, blur, matvec, distance, pi) and their peers on a GPU.

    python benchmarks/streaming.py [--peers] [OPERATION ...] > tables.md

The tables are those of `results/streaming_h200.md`: GB/s and the fraction of a copy measured in between, cold L2, each
output verified before and after. Where matvec's block and warp forms cross is the table over COLS. `--peers` times the
libraries' calls by events on a stream that a long flush keeps busy, so that no launch gap is in the time.
Inputs and references are made side by side on all cores, which is most of the work.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from cudabench import operations
from cudabench.measure import gpu_run
from cudabench.measure.context import InputSet
from cudabench.plan import cases
from cudabench.records.planned import Case, Operation, Settings
from cudabench.records.results import Result

SETTINGS = Settings(cpu=False, min_time=0.1, max_time=0.5)


@dataclass(frozen=True)
class Task:
    """A ladder, or part of one, at one size; `label` heads its column."""

    operation: str
    size: tuple[int, ...]
    label: str
    dtype: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    kernels: tuple[str, ...] = ()

    def build(self) -> tuple[Operation, list[Case]]:
        """Return the operation and its cases."""
        operation = operations.get(self.operation)
        options = {option.name: option.default for option in operation.options} | self.options
        request = cases.Request(kernels=self.kernels, size=self.size, dtype=self.dtype, options=options)
        return operation, cases.build(operation, request)


CROSSING = tuple(
    Task("matvec", (2**26 // cols, cols), str(cols), kernels=("block", "warp", "vector", "short"))
    for cols in (8, 32, 128, 512, 2048, 8192, 32768)
)
PLAN: dict[str, tuple[Task, ...]] = {
    "vecadd float32, GB/s by N": tuple(Task("vecadd", (2**e,), f"2^{e}") for e in (20, 24, 27)),
    "distance, GB/s by N": (
        *(Task("distance", (2**e,), f"2^{e} float32") for e in (20, 24, 28)),
        Task("distance", (2**26,), "2^26 int32", "int32"),
    ),
    "pi, 10^9 operations a second by N": (
        *(Task("pi", (2**e,), f"2^{e} float32") for e in (20, 24, 30)),
        Task("pi", (2**28,), "2^28 float64", "float64"),
    ),
    "grayscale, GB/s by ROWS x COLS": tuple(
        Task("grayscale", size, f"{size[0]} x {size[1]}") for size in ((4320, 7680), (16384, 16384), (9999, 10001))
    ),
    "blur, GB/s by ROWS x COLS": (
        Task("blur", (4320, 7680), "4320 x 7680 float32"),
        Task("blur", (8192, 8192), "8192 x 8192 float32"),
        Task("blur", (8192, 8192), "the same, radius 3", options={"radius": 3}),
        Task("blur", (7999, 8001), "7999 x 8001 float32"),
        Task("blur", (4320, 7680), "4320 x 7680 RGB float32", options={"channels": 3}),
        Task("blur", (16384, 16384), "16384 x 16384 uint8", "uint8"),
        Task("blur", (15999, 16001), "15999 x 16001 uint8", "uint8"),
        Task("blur", (8192, 8192), "8192 x 8192 uint8, radius 3", "uint8", {"radius": 3}),
        Task("blur", (4320, 7680), "4320 x 7680 RGB uint8", "uint8", {"channels": 3}),
    ),
    # Rungs that take seconds for a few long rows are left out there.
    "matvec float32, GB/s by ROWS x COLS": (
        Task("matvec", (16384, 16384), "2^14 x 2^14"),
        Task("matvec", (2**20, 256), "2^20 x 256"),
        Task("matvec", (2**22, 32), "2^22 x 32"),
        Task("matvec", (2**24, 8), "2^24 x 8"),
        Task("matvec", (256, 2**20), "256 x 2^20", kernels=("block", "warp", "vector", "split")),
        Task("matvec", (16, 2**24), "16 x 2^24", kernels=("block", "split")),
    ),
    "matvec float32, GB/s by COLS, 2^26 elements": CROSSING,
}


# Ladders -------------------------------------------------------------------------------------------------------------


def prepare(task: Task) -> tuple[str, list[Case], InputSet]:
    """Return what a task needs on the host: its label, its cases, their inputs and right outputs."""
    operation, planned = task.build()
    inputs = InputSet(operation, planned[0].problem)
    for case in planned:
        inputs.expected(case.expects)
    return task.label, planned, inputs


def measure(device: Any, planned: list[Case], inputs: InputSet) -> list[Result]:
    """Return the results of a task's kernels."""
    shared = gpu_run.GpuRun(inputs.operation, planned[0].problem, SETTINGS, device)
    shared.input_sets = (inputs, shared.input_sets[1])
    try:
        return [shared.measure(case) for case in planned]
    finally:
        shared.release()


def table(title: str, columns: Sequence[tuple[str, list[Result]]]) -> Iterator[str]:
    """Yield a Markdown table: kernels down, tasks across; a figure and in brackets its fraction of a copy."""
    yield f"\n### {title}\n"
    yield "| kernel | " + " | ".join(label for label, _ in columns) + " |"
    yield "| --- " * (len(columns) + 1) + "|"
    for name in dict.fromkeys(result.kernel for _, results in columns for result in results):
        cells = []
        for _, results in columns:
            result = next((result for result in results if result.kernel == name), None)
            cells.append(cell(result) if result else "")
        yield f"| {name} | " + " | ".join(cells) + " |"
    copies = [np.median([r.copy_gbps for r in results if r.copy_gbps] or [0]) for _, results in columns]
    if any(copies):
        yield "| *copy* | " + " | ".join(f"{copy:.0f}" for copy in copies) + " |"


def cell(result: Result) -> str:
    """Return a result as a cell."""
    if result.status != "ok":
        return f"{result.status}: {result.reason}"[:60]
    if result.bandwidth_gbps is None:
        return f"{result.gflops:.0f}"
    return f"{result.bandwidth_gbps:.0f} ({result.copy_fraction:.2f})"


def ladders(device: Any, wanted: Sequence[str] = ()) -> None:
    """Print the tables of the operations wanted, or of all."""
    plan = {title: tasks for title, tasks in PLAN.items() if not wanted or tasks[0].operation in wanted}
    with ThreadPoolExecutor() as pool:
        waiting = {title: [pool.submit(prepare, task) for task in tasks] for title, tasks in plan.items()}
        for title, futures in waiting.items():
            columns = []
            while futures:
                label, planned, inputs = futures.pop(0).result()
                columns.append((label, measure(device, planned, inputs)))
            print("\n".join(table(title, columns)), flush=True)


# Peers ---------------------------------------------------------------------------------------------------------------


def peers() -> Iterator[tuple[str, int, Callable[[], Any]]]:
    """Yield name, bytes and call of what the libraries offer."""
    import torch
    from torch.nn.functional import avg_pool2d

    def random(*shape: int) -> Any:
        return torch.rand(shape, device="cuda")

    distance = torch.compile(lambda a, b: torch.linalg.vector_norm(a - b))
    weights = torch.tensor([0.21, 0.72, 0.07], device="cuda")
    grey = torch.compile(lambda p: ((p * weights).sum(-1) + 0.5).to(torch.uint8))
    for e in (20, 24, 28):
        a, b, c = random(2**e), random(2**e), random(2**e)
        yield f"copy: c.copy_(a), 2^{e} float32", 8 * 2**e, partial(c.copy_, a)
        yield f"read: a.sum(), 2^{e} float32", 4 * 2**e, partial(torch.sum, a)
        yield f"vecadd: torch.add(a, b, out=c), 2^{e}", 12 * 2**e, partial(torch.add, a, b, out=c)
        yield f"distance: compiled vector_norm(a - b), 2^{e}", 8 * 2**e, partial(distance, a, b)
        yield f"distance: torch.dist(a, b), 2^{e}", 8 * 2**e, partial(torch.dist, a, b)
    for rows, cols in ((16384, 16384), (2**20, 256), (2**22, 32), (2**24, 8), (256, 2**20), (16, 2**24)):
        matrix, x, y = random(rows, cols), random(cols), random(rows)
        nbytes = 4 * (rows * cols + rows + cols)
        yield f"matvec: torch.mv(A, x, out=y), {rows} x {cols}", nbytes, partial(torch.mv, matrix, x, out=y)
    for rows, cols in ((4320, 7680), (16384, 16384)):
        rgb = torch.randint(0, 256, (rows, cols, 3), dtype=torch.uint8, device="cuda")
        yield f"grayscale: compiled weighted sum, {rows} x {cols}", 4 * rows * cols, partial(grey, rgb)
        image = random(1, 1, rows, cols)
        for r in (1, 3):
            pool = partial(avg_pool2d, image, 2 * r + 1, 1, r, count_include_pad=False)
            yield f"blur: avg_pool2d, neighbours inside, r = {r}, {rows} x {cols}", 8 * rows * cols, pool


def time_peer(call: Callable[[], Any], flush: Any, samples: int = 15) -> float:
    """Return the median seconds of a call with a cold L2. The flush outlasts the queueing of the call."""
    import torch

    call()
    times = []
    for _ in range(samples):
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        flush.zero_()
        start.record()
        call()
        stop.record()
        stop.synchronize()
        times.append(start.elapsed_time(stop) * 1e-3)
    return float(np.median(times))


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", action="store_true", help="time the libraries instead of the ladders")
    parser.add_argument("operations", nargs="*", metavar="OPERATION", help="only these ladders")
    wanted = parser.parse_args()
    if wanted.peers:
        import torch

        flush = torch.empty(2**30, dtype=torch.uint8, device="cuda")
        print("| call | GB/s |\n| --- | --- |")
        for name, nbytes, call in peers():
            print(f"| {name} | {nbytes / time_peer(call, flush) / 1e9:.0f} |", flush=True)
        return
    from cudabench.devices.cuda import CudaDevice

    with CudaDevice(0) as device:
        print(f"{device.info.name}, driver {device.info.driver}")
        ladders(device, wanted.operations)


if __name__ == "__main__":
    main()
