"""Record every ladder at three sizes: the time of each rung, and which unit Nsight Compute finds busiest.

    python benchmarks/record_ladders.py FILE.json [SECONDS]      # a GPU, and ncu with access to the counters

Times are the medians of `cudabench OPERATION` (cold). Shares are of one launch of the same machine code under ncu, in
% of the peak; of a kernel of several launches the longest's. `solve`, of many launches, has times alone.
limits_against_times.py reads the file. Whatever is unfinished after SECONDS (300) is left out.
"""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from cudabench import operations  # noqa: E402
from cudabench.model import ByValue, Case, Texture  # noqa: E402
from cudabench.plan import cases  # noqa: E402

SIZES: dict[str, list[tuple[int, ...]]] = {
    "transpose": [(4096, 4096), (2048, 2048), (8192, 8192)],
    "vecadd": [(2**25,), (2**23,), (2**27,)],
    "distance": [(2**25,), (2**23,), (2**27,)],
    "grayscale": [(4320, 7680), (2160, 3840), (8192, 8192)],
    "blur": [(4320, 7680), (2160, 3840), (8192, 8192)],
    "matvec": [(8192, 8192), (4096, 4096), (16384, 4096)],
    "matmul": [(2048, 2048, 2048), (1024, 1024, 1024), (4096, 4096, 4096)],
    "lookup": [(2**25,), (2**22,), (2**26,)],
    "pi": [(2**24,), (2**22,), (2**27,)],
    "solve": [(1024,), (256,), (512,)],
}
COUNTERS = {
    "issue": "sm__inst_issued.avg.pct_of_peak_sustained_elapsed",
    "lsu": "l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_elapsed",
    "l2": "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "dram": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "fma": "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "alu": "sm__inst_executed_pipe_alu.avg.pct_of_peak_sustained_elapsed",
    "xu": "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_elapsed",
    "fp64": "sm__inst_executed_pipe_fp64.avg.pct_of_peak_sustained_elapsed",
    "tensor": "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_elapsed",
}
SECONDS = "gpu__time_duration.sum"


def times(operation: str, size: tuple[int, ...]) -> list[dict[str, Any]]:
    """Return a record for each rung that ran."""
    words = ["--size", *map(str, size), "--no-cpu", "--min-time", "0.05", "--max-time", "0.15", "--quiet"]
    command = [sys.executable, "-m", "cudabench", operation, *words, "--json", "-"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    if not ran.stdout:
        print(ran.stderr[-500:], file=sys.stderr)
        return []
    content = json.loads(ran.stdout)
    return [
        {"operation": operation, "kernel": one["kernel"], "size": list(size), "seconds": one["time"]["median_s"]}
        for one in content["results"]
        if one["time"]
    ]


def ladders(places: tuple[int, ...]) -> Iterator[tuple[int, str, tuple[int, ...], Case]]:
    """Yield the rungs without textures, but for solve's."""
    for place in places:
        for name, sizes in SIZES.items():
            if name == "solve":
                continue
            operation = operations.get(name)
            options = {option.name: option.default for option in operation.options}
            for case in cases.build(operation, cases.Request(size=sizes[place], options=options)):
                textured = any(isinstance(a, Texture) for launch in case.launches for a in launch.arguments)
                if not case.skip_reason and not textured:
                    yield place, name, sizes[place], case


def launch_all(log_file: str, place: int) -> None:
    """Launch each rung's kernels once, for ncu to watch, and note which."""
    import pycuda.driver as cuda

    from cudabench.devices.cuda import CudaDevice, packing

    with CudaDevice(0) as device, Path(log_file).open("w") as log:
        pointers: dict[str, Any] = {}
        held: tuple[str, tuple[int, ...]] | None = None
        for _, name, size, case in ladders((place,)):
            operation = operations.get(name)
            if held != (name, size):
                for pointer in pointers.values():
                    pointer.free()
                arrays = {
                    buffer.name: np.zeros(buffer.shape, buffer.dtype) for buffer in operation.buffers(case.problem)
                }
                arrays.update({k: np.array(v) for k, v in operation.inputs(case.problem).items() if k in arrays})
                pointers = {key: cuda.mem_alloc(max(array.nbytes, 16)) for key, array in arrays.items()}
                for key, array in arrays.items():
                    cuda.memcpy_htod(pointers[key], np.ascontiguousarray(array))
                held = (name, size)
            modules = {launch.function: device.load(part) for part in case.parts for launch in part.launches}
            for launch in case.launches:
                function = modules[launch.function].function(launch.function)
                if launch.shared_bytes > 48 * 1024:
                    function.set_attribute(cuda.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES, launch.shared_bytes)
                function.prepare(packing(launch.arguments))
                arguments = [
                    pointers[a] if isinstance(a, str) else a.content if isinstance(a, ByValue) else a
                    for a in launch.arguments
                ]
                function.prepared_call(
                    (*launch.grid, 1, 1)[:3], (*launch.block, 1, 1)[:3], *arguments, shared_size=launch.shared_bytes
                )
                print(json.dumps([name, case.kernel, list(size)]), file=log, flush=True)
            cuda.Context.synchronize()


def shares(place: int) -> dict[tuple[str, str, tuple[int, ...]], dict[str, float]]:
    """Return the share of each unit in %, and ncu's own seconds, of the rungs at a place of SIZES."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log.jsonl"
        metrics = ",".join([SECONDS, *COUNTERS.values()])
        options = [
            "--cache-control",
            "all",
            "--clock-control",
            "none",
            "--csv",
            "--page",
            "raw",
            "--print-units",
            "base",
        ]
        command = ["ncu", *options, "--metrics", metrics, sys.executable, __file__, "launch", str(log), str(place)]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = [line for line in ran.stdout.splitlines() if line.startswith('"')]
        rows = [row for row in csv.DictReader(io.StringIO("\n".join(lines))) if row.get("ID")]
        launched = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    if not rows or len(rows) != len(launched):
        print(
            f"ncu saw {len(rows)} of {len(launched)} launches: {ran.stderr[-800:]}{ran.stdout[-800:]}", file=sys.stderr
        )
        return {}
    found: dict[tuple[str, str, tuple[int, ...]], list[dict[str, float]]] = defaultdict(list)
    for (name, kernel, size), row in zip(launched, rows, strict=True):
        one = {key: _number(row.get(counter)) for key, counter in COUNTERS.items()}
        found[name, kernel, tuple(size)].append({**one, "ncu_seconds": _number(row.get(SECONDS)) * 1e-9})
    longest = {key: max(launches, key=lambda one: one["ncu_seconds"]) for key, launches in found.items()}
    return {
        key: {**one, "ncu_seconds": sum(launch["ncu_seconds"] for launch in found[key])} for key, one in longest.items()
    }


def _number(text: str | None) -> float:
    try:
        return float((text or "").replace(",", ""))
    except ValueError:
        return 0.0


def main() -> None:
    """Record, size by size, until the time is over."""
    if sys.argv[1:2] == ["launch"]:
        launch_all(sys.argv[2], int(sys.argv[3]))
        return
    if not sys.argv[1:]:
        sys.exit(__doc__)
    until = time.monotonic() + (float(sys.argv[2]) if len(sys.argv) > 2 else 300)
    smi = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    device, driver = subprocess.run(smi, capture_output=True, text=True, check=True).stdout.split("\n")[0].split(", ")
    kernels: list[dict[str, Any]] = []
    how = "medians of cudabench, cold; shares of one launch under ncu --cache-control all --clock-control none"
    for place in range(3):
        for name, sizes in SIZES.items():
            if time.monotonic() < until:
                kernels += times(name, sizes[place])
        found = shares(place) if time.monotonic() < until else {}
        for one in kernels:
            one.update(found.get((one["operation"], one["kernel"], tuple(one["size"])), {}))
        content = {"device": device, "driver": driver, "how": how, "kernels": kernels}
        Path(sys.argv[1]).write_text(json.dumps(content, indent=1) + "\n")
        print(
            f"place {place}: {len(kernels)} rungs, {len(found)} under ncu, {until - time.monotonic():.0f} s left",
            flush=True,
        )


if __name__ == "__main__":
    main()
