"""Measure launches and whole commands on the simulator's two engines, side by side.

    python benchmarks/simulator_engines.py [--repeats N] [CASE ...]

The engines take turns in one process, so that their ratio holds on a busy machine; the fastest of N turns counts. A
command runs in a separate process, without the CPU baseline (--no-cpu). Each line also says whether bits and counts are
equal, and how many launches the native engine did not run. The kernels are in `benchmarks/engine_cases`.
"""

from __future__ import annotations

import argparse
import json
import os
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cudabench.compile.compiler import compile_ptx
from cudabench.simulator import api as simulator

ROOT = Path(__file__).resolve().parent.parent
KERNELS = ROOT / "benchmarks" / "engine_cases"
ENGINES = ("numpy", "native")
SAXPY = (
    "run examples/saxpy.cu --kernel saxpy --grid cdiv(n,256) --block 256 --arg n=10007 --arg a=2.5 "
    "--arg x=float32[n]:random --arg y=float32[n]:random"
)
COMMANDS = {
    "solve --size 64": "solve --size 64",
    "solve --size 200": "solve --size 200",
    "transpose, its ladder": "transpose",
    "README's first command": "transpose --kernel smem-pad --block 32 8",
    "a small run": SAXPY,
}


class Launches(NamedTuple):
    """The results of a case, and the reports of its launches."""

    results: np.ndarray
    reports: list[simulator.Report]

    def counts(self) -> list[Any]:
        """Return the counts that must be equal on both engines."""
        return [
            (
                report.instructions,
                *((access.key, access.requests, access.sectors, access.wavefronts) for access in report.accesses),
            )
            for report in self.reports
        ]


Case = Callable[[], Launches]


def program(name: str) -> simulator.Program:
    """Load the program of a file of kernels."""
    file = KERNELS / f"{name}.cu"
    return simulator.load(compile_ptx(file.read_text(), file.name, arch="sm_90").ptx)


def breadth_first(nodes: int = 100_000, degree: int = 6, apart: bool = False) -> Case:
    """Return a breadth-first search from one node of a random graph, with one launch per level.

    apart: whether the kernel writes the reached nodes to a separate array, so that it has no race.
    """
    code, draw = program("breadth_first"), np.random.default_rng(1)
    first = np.concatenate([[0], np.cumsum(draw.poisson(degree, nodes))]).astype(np.int32)
    to = draw.integers(0, nodes, first[-1]).astype(np.int32)

    def run() -> Launches:
        level, grew, reports = np.full(nodes, -1, np.int32), np.ones(1, np.int32), []
        level[0] = 0
        while grew[0]:
            grew[0] = 0
            following = level.copy() if apart else level
            arguments = [first, to, level, *[following] * apart, grew, nodes, len(reports)]
            reports.append(simulator.run(code, "reach" if apart else "expand", -(-nodes // 256), 256, arguments))
            level = following
        return Launches(level, reports)

    return run


def wavefront(side: int = 1024) -> Case:
    """Return an alignment of two sequences, with one launch of 16-thread blocks per antidiagonal of tiles."""
    code, draw, tiles = program("wavefront"), np.random.default_rng(2), side // 16
    score = draw.integers(-4, 5, (side + 1, side + 1)).astype(np.int32)

    def run() -> Launches:
        table, reports = np.zeros_like(score), []
        table[0] = table[:, 0] = -10 * np.arange(side + 1)
        for diagonal in range(2 * tiles - 1):
            first = max(0, diagonal - tiles + 1)
            blocks = min(diagonal, tiles - 1) - first + 1
            arguments = [score, table, side + 1, 10, diagonal, first]
            reports.append(simulator.run(code, "fill", blocks, 16, arguments))
        return Launches(table, reports)

    return run


def queens(side: int = 10) -> Case:
    """Return a count of all ways to place queens, with one thread per placement in the first two rows."""
    code = program("queens")
    rows = [
        (1 << a | 1 << b, (2 << a | 1 << b) << 1, (1 << a >> 1 | 1 << b) >> 1)
        for a, b in permutations(range(side), 2)
        if abs(a - b) > 1
    ]
    starts = np.array(rows, np.uint32)

    def run() -> Launches:
        ways = np.zeros(len(starts), np.uint64)
        arguments = [side, starts, len(starts), ways]
        return Launches(ways, [simulator.run(code, "count", -(-len(starts) // 96), 96, arguments)])

    return run


def mandelbrot(side: int = 512, most: int = 512) -> Case:
    """Return the computation of an image of the Mandelbrot set."""
    code = program("mandelbrot")

    def run() -> Launches:
        image = np.zeros((side, side), np.int32)
        blocks = (-(-side // 16), -(-side // 16))
        return Launches(image, [simulator.run(code, "steps", blocks, (16, 16), [image, side, most])])

    return run


def vecadd(times: int = 1000) -> Case:
    """Return many launches of four blocks."""
    code, (a, b) = program("vecadd"), np.random.default_rng(3).random((2, 1024), np.float32)

    def run() -> Launches:
        total = np.zeros_like(a)
        return Launches(total, [simulator.run(code, "add", 4, 256, [a, b, total, 1024]) for _ in range(times)])

    return run


def lasting(times: int = 1000) -> Case:
    """Return the launches of `vecadd` without checks, in an address space that all launches share, as a host program
    makes them."""
    space, (a, b) = simulator.AddressSpace(), np.random.default_rng(3).random((2, 1024), np.float32)
    file = KERNELS / "vecadd.cu"
    code = simulator.load(compile_ptx(file.read_text(), file.name, arch="sm_90").ptx, space=space)
    addresses = [space.allocate(array.copy().view(np.uint8)) for array in (a, b, np.zeros_like(a))]
    raw = struct.pack("<QQQi", *addresses, 1024).ljust(code.code("add").parameter_bytes, b"\0")

    def run() -> Launches:
        space.bytes_at(addresses[2]).fill(0)
        for _ in range(times):
            simulator.run(code, "add", 4, 256, simulator.Placed(space, raw), checked=False)
        return Launches(space.bytes_at(addresses[2]).copy(), [])

    return run


def matmul(side: int = 512) -> Case:
    """Return a matrix product without tiles."""
    code, (a, b) = program("matmul"), np.random.default_rng(4).random((2, side, side), np.float32)

    def run() -> Launches:
        product = np.zeros_like(a)
        blocks = (side // 16, side // 16)
        return Launches(product, [simulator.run(code, "multiply", blocks, (16, 16), [a, b, product, side])])

    return run


CASES: dict[str, Callable[[], Case]] = {
    "breadth-first search, 100,000 nodes": breadth_first,
    "the same search without its race": lambda: breadth_first(apart=True),
    "wavefront of 16-thread blocks, 1024^2": wavefront,
    "10 queens": queens,
    "Mandelbrot 512^2": mandelbrot,
    "1,000 launches of vecadd 1,024": vecadd,
    "1,000 of them unchecked, memory lasts": lasting,
    "matmul naive 512^3": matmul,
}


def launched(case: Case, repeats: int) -> tuple[list[float], str]:
    """Return the seconds on each engine, and the differences between the engines' results."""
    times: dict[str, list[float]] = {engine: [] for engine in ENGINES}
    found: dict[str, Launches] = {}
    for _ in range(repeats):
        for engine in ENGINES:
            os.environ["CUDABENCH_ENGINE"] = engine
            start = time.perf_counter()
            found[engine] = case()
            times[engine].append(time.perf_counter() - start)
    numpy, native = (found[engine] for engine in ENGINES)
    away = sum(report.engine != "native" for report in native.reports)
    notes = [] if numpy.results.tobytes() == native.results.tobytes() else ["BITS DIFFER"]
    if numpy.counts() != native.counts():
        more = sum(report.instructions for report in numpy.reports) / sum(
            report.instructions for report in native.reports
        )
        notes.append(f"counts differ: instructions {more - 1:+.2%} on NumPy")
    if away:
        notes.append(f"{away} of {len(native.reports)} launches on NumPy")
    return [min(times[engine]) for engine in ENGINES], "; ".join(notes) or "equal"


def command(words: str, repeats: int) -> tuple[list[float], str]:
    """Return the seconds of a whole command on each engine, and the differences of its results."""
    times: dict[str, list[float]] = {engine: [] for engine in ENGINES}
    found: dict[str, list[dict[str, Any]]] = {}
    engines: list[str] = []
    line = [sys.executable, "-m", "cudabench", *words.split(), "-d", "sim", "--no-cpu", "--json", "-", "-q"]
    for _ in range(repeats):
        for engine in ENGINES:
            start = time.perf_counter()
            ran = subprocess.run(
                line, cwd=ROOT, env={**os.environ, "CUDABENCH_ENGINE": engine}, capture_output=True, text=True
            )
            times[engine].append(time.perf_counter() - start)
            if ran.returncode:
                return [min(times[engine]) for engine in ENGINES if times[engine]], ran.stderr.strip()
            results = json.loads(ran.stdout)["results"]
            found[engine] = results
            engines = [result["engine"] for result in results]
    pairs = zip(found["numpy"], found["native"], strict=True)
    differ = {name for result, other in pairs for name in result if result[name] != other[name]} - {"engine"}
    notes = [f"DIFFER: {', '.join(sorted(differ))}"] if differ else []
    if away := sum(engine != "native" for engine in engines):
        notes.append(f"{away} of {len(engines)} kernels on NumPy")
    return [min(times[engine]) for engine in ENGINES], "; ".join(notes) or "equal"


def main() -> None:
    """Measure and print a line for each case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3, help="turns of each engine")
    parser.add_argument("cases", nargs="*", metavar="CASE", help="a part of the name of a case; all without one")
    options = parser.parse_args()
    print(f"{'case':40} {'NumPy':>9} {'native':>9} {'ratio':>6}")
    for name in (*CASES, *COMMANDS):
        if options.cases and not any(word in name for word in options.cases):
            continue
        if name in CASES:
            times, note = launched(CASES[name](), options.repeats)
        else:
            times, note = command(COMMANDS[name], options.repeats)
        shown = " ".join(f"{seconds:8.3f}s" for seconds in times)
        ratio = f"{times[0] / times[1]:6.1f}" if len(times) == 2 else ""
        print(f"{name:40} {shown} {ratio}  {note}", flush=True)


if __name__ == "__main__":
    main()
