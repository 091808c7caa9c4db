"""The simulator's counts against Nsight Compute's hardware counters: transposes at several sizes and blocks.

    python benchmarks/counts_against_ncu.py

Needs a GPU and ncu with access to its counters. Prints a row for each kernel, size and block where any count differs,
and how many were equal. Sectors are to be equal always; shared wavefronts where ptxas left the accesses as they are.
"""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

SIZES = [("256", "256"), ("200", "1000"), ("333", "127")]
BLOCKS = [("32", "8"), ("16", "16"), ("8", "32")]
METRICS = {
    "load sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "store sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "shared load wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "shared store wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
}


def main() -> None:
    """Print what differs."""
    equal = {name: [0, 0] for name in METRICS}
    for size, block in zip(SIZES, BLOCKS, strict=True):
        words = ["transpose", "--size", *size, "--block", *block]
        simulated = {r["kernel"]: (r["function"], counts(r)) for r in simulate(words)}
        measured = profile(words)
        for kernel, (function, ours) in simulated.items():
            theirs = measured.get(function)
            if theirs is None:
                print(f"{kernel}: ncu saw no launch of {function}")
                continue
            for name in METRICS:
                same = ours[name] == theirs[name]
                equal[name][0] += same
                equal[name][1] += 1
                if not same:
                    print(
                        f"{kernel:<17} {'x'.join(size):>9} block {'x'.join(block):<6} {name}: "
                        f"simulator {ours[name]}, ncu {theirs[name]}"
                    )
    for name, (same, of) in equal.items():
        print(f"{name}: {same} of {of} equal")


def simulate(words: list[str]) -> list[dict[str, Any]]:
    """Return the simulator's results."""
    ran = subprocess.run(
        [sys.executable, "-m", "cudabench", *words, "--device", "sim", "--no-cpu", "-q", "--json", "-"],
        capture_output=True,
        text=True,
        check=True,
    )
    results: list[dict[str, Any]] = json.loads(ran.stdout)["results"]
    return results


def counts(result: dict[str, Any]) -> dict[str, int]:
    """Return a simulated result's sums under the names of the metrics."""

    def total(space: str, op: str, key: str) -> int:
        return sum(a[key] for a in result["access"] if (a["space"], a["op"]) == (space, op))

    return {
        "load sectors": total("global", "load", "sectors"),
        "store sectors": total("global", "store", "sectors"),
        "shared load wavefronts": total("shared", "load", "wavefronts"),
        "shared store wavefronts": total("shared", "store", "wavefronts"),
    }


def profile(words: list[str]) -> dict[str, dict[str, int]]:
    """Return ncu's counts of each kernel's first launch."""
    options = ["--clock-control", "none", "--csv", "--page", "raw", "--target-processes", "all"]
    choice = ["--kernel-name", "regex:transpose_", "--metrics", ",".join(METRICS.values())]
    program = [sys.executable, __file__, "--launch", *words]
    ran = subprocess.run(["ncu", *options, *choice, *program], capture_output=True, text=True, check=False)
    return {row["Kernel Name"].split("(")[0]: row["counts"] for row in rows(ran.stdout)}


def rows(text: str) -> Iterator[dict[str, Any]]:
    """Yield ncu's raw rows, the first of a kernel last in line so that it wins."""
    lines = [line for line in text.splitlines() if line.startswith('"')]
    found = [row for row in csv.DictReader(io.StringIO("\n".join(lines))) if row.get("Kernel Name")]
    for row in reversed(found):
        row["counts"] = {name: int(float(row[metric].replace(",", ""))) for name, metric in METRICS.items()}  # type: ignore[assignment]
        yield row


def launch(words: list[str]) -> None:
    """Launch every kernel of the ladder once, for ncu to watch."""
    from cudabench import operations
    from cudabench.devices.cuda import CudaDevice
    from cudabench.plan import cases

    size, block = words[2:4], words[5:7]
    operation = operations.get("transpose")
    ladder = cases.build(
        operation, cases.Request(size=(int(size[0]), int(size[1])), block=(int(block[0]), int(block[1])))
    )
    with CudaDevice(0) as device:
        nbytes = int(size[0]) * int(size[1]) * 4
        pointers = {"in": device.allocate(nbytes), "out": device.allocate(nbytes)}
        for case in ladder:
            device.run(device.bind(device.load(case.source, case.defines), case.launches, pointers), case.kernel)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--launch"]:
        launch(sys.argv[2:])
    else:
        main()
