"""Record every ladder at three sizes: the time of each kernel, and the share of each unit from Nsight Compute.

    python benchmarks/record_ladders.py FILE.json      # a GPU, and ncu with access to the counters

Times are medians of 7 runs between two events, each after all of the L2 was written. Shares are in % of the peak, for
one launch of the same machine code under ncu; for a kernel of several launches, the longest launch's. Results are not
verified here. Textures and `solve`, which has many launches, are left out. limits_against_times.py reads the file.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import ncu  # noqa: E402

from cudabench import operations  # noqa: E402
from cudabench.plan import cases  # noqa: E402
from cudabench.records.launch import ByValue, Texture  # noqa: E402
from cudabench.records.plan import Case, Operation  # noqa: E402

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
OWN = ("block_stream", "digest", "scrub", "demote")  # kernels that cudabench itself launches, which are not measured


def ladders(places: tuple[int, ...]) -> Iterator[tuple[int, str, tuple[int, ...], Case]]:
    """Yield the kernels of the ladders, except those with textures."""
    for place in places:
        for name, sizes in SIZES.items():
            operation = operations.get(name)
            options = {option.name: option.default for option in operation.options}
            for case in cases.build(operation, cases.Request(size=sizes[place], options=options)):
                textured = any(isinstance(a, Texture) for launch in case.launches for a in launch.arguments)
                if not case.skip_reason and not textured:
                    yield place, name, sizes[place], case


def launch_all(log_file: str, place: int, samples: int) -> None:
    """Launch each kernel and log its name; with `samples`, also log its median seconds, else launch once for ncu."""
    import pycuda.driver as cuda

    from cudabench.devices.cuda import CudaDevice

    with CudaDevice(0) as device, Path(log_file).open("w") as log:
        flushed = int(2.2 * cuda.Context.get_device().get_attribute(cuda.device_attribute.L2_CACHE_SIZE))
        flush, start, stop = cuda.mem_alloc(flushed), cuda.Event(), cuda.Event()
        pointers: dict[str, Any] = {}
        held: tuple[str, tuple[int, ...]] | None = None
        for _, name, size, case in ladders((place,)):
            if held != (name, size):
                for pointer in pointers.values():
                    pointer.free()
                pointers, held = upload(operations.get(name), case), (name, size)
            calls = prepared(device, case, pointers)
            if not samples:
                for function, grid, block, arguments, shared in calls:
                    function.prepared_call(grid, block, *arguments, shared_size=shared)
                    print(json.dumps([name, case.kernel, list(size)]), file=log, flush=True)
                cuda.Context.synchronize()
                continue
            seconds = []
            for _ in range(samples + 1):
                cuda.memset_d8(flush, 1, flushed)
                start.record()
                for function, grid, block, arguments, shared in calls:
                    function.prepared_async_call(grid, block, None, *arguments, shared_size=shared)
                stop.record()
                stop.synchronize()
                seconds.append(stop.time_since(start) * 1e-3)
            print(json.dumps([name, case.kernel, list(size), float(np.median(seconds[1:]))]), file=log, flush=True)


def upload(operation: Operation, case: Case) -> dict[str, Any]:
    """Return device memory with an operation's inputs, keyed by name."""
    import pycuda.driver as cuda

    arrays = {buffer.name: np.zeros(buffer.shape, buffer.dtype) for buffer in operation.buffers(case.problem)}
    arrays.update({k: np.array(v) for k, v in operation.inputs(case.problem).items() if k in arrays})
    pointers = {key: cuda.mem_alloc(max(array.nbytes, 16)) for key, array in arrays.items()}
    for key, array in arrays.items():
        cuda.memcpy_htod(pointers[key], np.ascontiguousarray(array))
    return pointers


def prepared(device: Any, case: Case, pointers: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Return the function, grid, block, arguments and bytes of shared memory of each launch."""
    import pycuda.driver as cuda

    from cudabench.devices.driver_objects import argument_types

    calls = []
    modules = {
        launch.function: device.load(part.source, part.defines, [other.function for other in part.launches])
        for part in case.parts
        for launch in part.launches
    }
    for launch in case.launches:
        function = modules[launch.function].function(launch.function)
        if launch.shared_bytes > 48 * 1024:
            function.set_attribute(cuda.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES, launch.shared_bytes)
        function.prepare(argument_types(launch.arguments))
        arguments = [
            pointers[a] if isinstance(a, str) else a.content if isinstance(a, ByValue) else a for a in launch.arguments
        ]
        calls.append((function, (*launch.grid, 1, 1)[:3], (*launch.block, 1, 1)[:3], arguments, launch.shared_bytes))
    return calls


def times(place: int) -> list[dict[str, Any]]:
    """Return a record for each kernel at one of the three sizes."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log.jsonl"
        ran = subprocess.run([sys.executable, __file__, "launch", str(log), str(place), "7"], check=False)
        lines = [json.loads(line) for line in log.read_text().splitlines()]
    if ran.returncode:
        print(f"the launches of place {place} ended with {ran.returncode}", file=sys.stderr)
    return [dict(zip(("operation", "kernel", "size", "seconds"), line, strict=True)) for line in lines]


def shares(place: int) -> dict[tuple[str, str, tuple[int, ...]], dict[str, float]]:
    """Return for each kernel, at one of the three sizes, the share of each unit in %, and the seconds that ncu
    measured."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log.jsonl"
        command = [sys.executable, __file__, "launch", str(log), str(place), "0"]
        rows = ncu.launches([SECONDS, *COUNTERS.values()], command, "all")
        launched = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    rows = [row for row in rows if not row.get("Kernel Name", "").startswith(OWN)]
    if not rows or len(rows) != len(launched):
        names = sorted({row.get("Kernel Name", "") for row in rows})
        print(f"ncu saw {len(rows)} of {len(launched)} launches: {names}", file=sys.stderr)
        return {}
    found: dict[tuple[str, str, tuple[int, ...]], list[dict[str, float]]] = defaultdict(list)
    for (name, kernel, size), row in zip(launched, rows, strict=True):
        shares = {key: ncu.number(row.get(counter)) for key, counter in COUNTERS.items()}
        found[name, kernel, tuple(size)].append({**shares, "ncu_seconds": ncu.number(row.get(SECONDS)) * 1e-9})
    longest = {key: max(launches, key=lambda launch: launch["ncu_seconds"]) for key, launches in found.items()}
    return {
        key: {**longest_launch, "ncu_seconds": sum(launch["ncu_seconds"] for launch in found[key])}
        for key, longest_launch in longest.items()
    }


def main() -> None:
    """Record, size by size."""
    if sys.argv[1:2] == ["launch"]:
        launch_all(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
        return
    if not sys.argv[1:]:
        sys.exit(__doc__)
    smi = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    device, driver = subprocess.run(smi, capture_output=True, text=True, check=True).stdout.split("\n")[0].split(", ")
    kernels: list[dict[str, Any]] = []
    how = "medians of 7 runs, cold; shares of one launch under ncu --cache-control all --clock-control none"
    for place in range(3):
        records, found = times(place), shares(place)
        for record in records:
            record.update(found.get((record["operation"], record["kernel"], tuple(record["size"])), {}))
        kernels += records
        content = {"device": device, "driver": driver, "how": how, "kernels": kernels}
        Path(sys.argv[1]).write_text(json.dumps(content, indent=1) + "\n")
        print(f"size {place}: {len(records)} rungs, {len(found)} of them under ncu", flush=True)


if __name__ == "__main__":
    main()
