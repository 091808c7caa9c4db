"""Measure the ladders beside the libraries' calls, and print a Markdown table for each operation.

    python benchmarks/ladders_and_peers.py [--device cuda] [--quick] [OPERATION ...] > tables.md

A column is one command, `cudabench OPERATION --size ... --peer ...`, with cold caches; each row was verified. A figure
is in GB/s with the fraction of a copy in brackets, or in 10^9 operations per second. `--quick` samples for 0.1 s.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterable
from typing import Any, NamedTuple

from cudabench import operations


class Column(NamedTuple):
    """A problem: its size, its type, further words of the command, and the kernels to measure, if these are not all."""

    size: tuple[int, ...]
    dtype: str = "float32"
    words: tuple[str, ...] = ()
    kernels: tuple[str, ...] = ()


PICTURES = ((4320, 7680), (16384, 16384), (9999, 10001))
# for few long rows, only these kernels of matvec are measured, because the others take seconds
LONG_ROWS = ("block", "split")
COLUMNS: dict[str, tuple[Column, ...]] = {
    "transpose": tuple(Column(size) for size in ((4096, 4096), (16384, 16384), (32768, 32768), (10007, 5003))),
    "vecadd": tuple(Column((2**e,)) for e in (20, 24, 27)),
    "distance": (*(Column((2**e,)) for e in (20, 24, 28)), Column((2**26,), "int32")),
    "pi": (*(Column((2**e,)) for e in (20, 24, 30)), Column((2**28,), "float64")),
    "grayscale": tuple(Column(size) for size in PICTURES),
    "blur": (
        Column((8192, 8192)),
        Column((8192, 8192), words=("--radius", "3")),
        Column((4320, 7680), words=("--channels", "3")),
        Column((16384, 16384), "uint8"),
        Column((8192, 8192), "uint8", ("--radius", "3")),
    ),
    "matvec": (
        *(
            Column((2**26 // cols, cols), kernels=("block", "warp", "vector", "short"))
            for cols in (8, 128, 2048, 32768)
        ),
        Column((16384, 16384)),
        Column((16, 2**24), kernels=LONG_ROWS),
    ),
    "matmul": (
        *(Column((n,)) for n in (1024, 2048, 4096)),
        Column((8192,), kernels=("double-buffer", "warp-tile", "tensor")),
        *(Column((n,), "float64") for n in (2048, 4096)),
    ),
    "solve": (
        *(Column((n,)) for n in (512, 1024, 2048, 4096)),
        Column((8192,), kernels=("fused", "blocked")),
        Column((2048,), "float64"),
    ),
}


def measured(operation: str, column: Column, device: str, seconds: str) -> dict[str, Any]:
    """Return the results file of a command."""
    words = [operation, "--size", *map(str, column.size), "--dtype", column.dtype, *column.words]
    words += [word for kernel in column.kernels for word in ("--kernel", kernel)]
    if device.startswith("cuda"):
        peers = [peer.name for peer in operations.get(operation).peers if column.dtype in peer.dtypes]
        words += ["--min-time", seconds, *(word for peer in peers for word in ("--peer", peer))]
    command = [sys.executable, "-m", "cudabench", *words, "--device", device, "--no-cpu", "--quiet", "--json", "-"]
    ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    results: dict[str, Any] = json.loads(ran.stdout)
    return results


def cell(result: dict[str, Any]) -> str:
    """Return a result's figure, or the reason why the result has no figure."""
    if result["status"] != "ok":
        return f"{result['status']}: {result['reason']}"[:60]
    if result["gflops"] and (not result["bandwidth_gbps"] or result["operation"] in ("matmul", "solve")):
        return f"{result['gflops']:.0f}"
    fraction = f" ({result['copy_fraction']:.2f})" if result["copy_fraction"] else ""
    return f"{result['bandwidth_gbps']:.0f}{fraction}" if result["bandwidth_gbps"] else "-"


def row(cells: Iterable[str]) -> None:
    """Print a row at once, so that an interrupted run keeps its rows."""
    print(f"| {' | '.join(cells)} |", flush=True)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("operations", nargs="*", metavar="OPERATION")
    given = parser.parse_args()
    for operation in given.operations or COLUMNS:
        columns = COLUMNS[operation]
        files = [measured(operation, column, given.device, "0.1" if given.quick else "0.5") for column in columns]
        device = files[0]["device"]
        print(f"\n## {operation} on {device['name']}, driver {device['driver']}\n")
        row(["kernel", *(" ".join(("x".join(map(str, c.size)), c.dtype, *c.words)) for c in columns)])
        row(["---"] * (1 + len(columns)))
        by_name = [{result["kernel"]: cell(result) for result in file["results"]} for file in files]
        for kernel in dict.fromkeys(name for cells in by_name for name in cells):
            row([kernel, *(cells.get(kernel, "") for cells in by_name)])


if __name__ == "__main__":
    main()
