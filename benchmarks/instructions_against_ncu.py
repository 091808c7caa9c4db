"""Compare executed machine instructions, counted without a GPU, with Nsight Compute's hardware counter.

    CUDABENCH_COMPILER=nvcc python benchmarks/instructions_against_ncu.py [OPERATION[/KERNEL] ...]

Needs no GPU: simulates the ladders at the large sizes of results/instructions_h200.json (or --against FILE.json) and
prints a row for each kernel with the ratio. The compiler must make the same machine code as that file's, nvcc 13.0.
`--scale N` divides the first dimension and the hardware's counts by N, where that is exact (transpose, matvec, in
powers of two). counts_against_ncu.py compares all counters at small sizes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

MEASURED = Path(__file__).parent / "results" / "instructions_h200.json"


def main() -> None:
    """Compare the kernels that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernels", nargs="*", help="OPERATION or OPERATION/KERNEL; all where none is given")
    parser.add_argument("--against", type=Path, default=MEASURED, help="file of hardware counts")
    parser.add_argument("--scale", type=int, default=1, help="divide the first dimension")
    words = parser.parse_args()
    known = json.loads(words.against.read_text())
    wanted = [
        (operation, kernel)
        for operation, ladder in known["operations"].items()
        for kernel in ladder["kernels"]
        if not words.kernels or {operation, f"{operation}/{kernel}"} & set(words.kernels)
    ]
    compare(known, wanted, words.scale)


def compare(known: dict[str, Any], wanted: list[tuple[str, str]], scale: int) -> None:
    """Print a row for each kernel: instructions counted by the hardware and by the simulator, and their ratio."""
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


if __name__ == "__main__":
    main()
