"""Executed machine instructions, counted without a GPU, against Nsight Compute's hardware counter.

    CUDABENCH_COMPILER=nvcc python benchmarks/instructions_against_ncu.py [OPERATION[/KERNEL] ...]
    python benchmarks/instructions_against_ncu.py --measure OUT.json [OPERATION[/KERNEL] ...]

The first form needs no GPU: it simulates the ladders at the sizes of results/instructions_h200.json (or --against
FILE.json) and prints a row a kernel with the ratio. The same compiler has to make the same machine code: that file's is
nvcc 13.0. `--scale N` divides the first dimension by N and the hardware's counts too, where that is exact (transpose,
matvec, in powers of two). The second form needs a GPU and ncu with access to its counters, and writes
such a file.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

MEASURED = Path(__file__).parent / "results" / "instructions_h200.json"
COUNTERS = {
    "instructions": "smsp__inst_executed.sum",
    "shared_wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    "load_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "store_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
}


def main() -> None:
    """Compare or measure, by the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernels", nargs="*", help="OPERATION or OPERATION/KERNEL; all where none is given")
    parser.add_argument("--against", type=Path, default=MEASURED, help="file of hardware counts")
    parser.add_argument("--scale", type=int, default=1, help="divide the first dimension")
    parser.add_argument("--measure", type=Path, metavar="OUT.json", help="run ncu and write its counts")
    parser.add_argument("--launch", nargs=2, metavar=("OPERATION", "KERNEL"), help=argparse.SUPPRESS)
    words = parser.parse_args()
    known = json.loads(words.against.read_text())
    if words.launch:
        launch(*words.launch, known["operations"][words.launch[0]]["size"])
        return
    wanted = [
        (operation, kernel)
        for operation, ladder in known["operations"].items()
        for kernel in ladder["kernels"]
        if not words.kernels or {operation, f"{operation}/{kernel}"} & set(words.kernels)
    ]
    if words.measure:
        measure(known, wanted, words.measure)
    else:
        compare(known, wanted, words.scale)


def compare(known: dict[str, Any], wanted: list[tuple[str, str]], scale: int) -> None:
    """Print a row a kernel: instructions by the hardware and by the simulator, their ratio, equal or not."""
    print("| operation | kernel | hardware | counted | ratio | PTX alone |\n| --- | --- | ---: | ---: | ---: | ---: |")
    equal = 0
    for operation, kernel in wanted:
        ladder = known["operations"][operation]
        hardware = ladder["kernels"][kernel]["instructions"] / scale
        size = [ladder["size"][0] // scale, *ladder["size"][1:]]
        result = simulate(operation, kernel, size, known["arch"])
        code = result["machine_code"] or {}
        counted = code.get("instructions_executed")
        if counted is None:
            print(f"| {operation} | {kernel} | {hardware:.0f} | - | {result['reason'] or 'nvdisasm is missing'} | |")
            continue
        equal += counted == hardware
        ratio, alone = counted / hardware, result["instructions"] / hardware
        print(f"| {operation} | {kernel} | {hardware:.0f} | {counted} | {ratio:.4f} | {alone:.3f} |", flush=True)
    print(f"\n{equal} of {len(wanted)} equal to the instruction")


def simulate(operation: str, kernel: str, size: list[int], arch: str) -> dict[str, Any]:
    """Return the simulator's result of one kernel."""
    command = [sys.executable, "-m", "cudabench", operation, "--kernel", kernel, "--size", *map(str, size)]
    command += ["--device", f"sim:{arch}", "--no-cpu", "--quiet", "--json", "-"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if not ran.stdout:
        sys.exit(ran.stderr)
    result: dict[str, Any] = json.loads(ran.stdout)["results"][0]
    return result


def measure(known: dict[str, Any], wanted: list[tuple[str, str]], out: Path) -> None:
    """Run every kernel once under ncu and write the sums over its launches."""
    found: dict[str, Any] = defaultdict(lambda: {"kernels": {}})
    for operation, kernel in wanted:
        options = ["--cache-control", "all", "--clock-control", "none", "--csv", "--page", "raw"]
        program = [sys.executable, __file__, "--launch", operation, kernel]
        command = ["ncu", *options, "--target-processes", "all", "--metrics", ",".join(COUNTERS.values()), *program]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = [line for line in ran.stdout.splitlines() if line.startswith('"')]
        rows = [row for row in csv.DictReader(io.StringIO("\n".join(lines))) if row.get("ID")]
        if not rows:
            sys.exit(f"{operation} {kernel}: ncu saw no launch: {ran.stdout[-500:]}{ran.stderr[-500:]}")
        sums = {
            name: sum(int(float(row[counter].replace(",", ""))) for row in rows) for name, counter in COUNTERS.items()
        }
        found[operation]["size"] = known["operations"][operation]["size"]
        found[operation]["kernels"][kernel] = sums
        print(operation, kernel, sums, flush=True)
    device = subprocess.run(
        ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], capture_output=True, text=True
    ).stdout.splitlines()
    name, _, driver = device[0].partition(", ") if device else ("", "", "")
    content = {**known, "device": name, "driver": driver, "counters": COUNTERS, "operations": found}
    out.write_text(json.dumps(content, indent=1) + "\n")


def launch(name: str, kernel: str, size: list[int]) -> None:
    """Launch one kernel once, for ncu to watch."""
    from cudabench import operations
    from cudabench.devices.cuda import CudaDevice
    from cudabench.plan import cases

    operation = operations.get(name)
    (case,) = cases.build(operation, cases.Request(kernels=(kernel,), size=tuple(size)))
    inputs = operation.inputs(case.problem)
    with CudaDevice(0) as device:
        pointers = {}
        for buffer in operation.buffers(case.problem):
            pointers[buffer.name] = device.allocate(buffer.nbytes)
            if buffer.name in inputs:
                device.upload(pointers[buffer.name], inputs[buffer.name])
        device.run(device.bind(device.load(case.source, case.defines), case.launches, pointers), case.kernel)


if __name__ == "__main__":
    main()
