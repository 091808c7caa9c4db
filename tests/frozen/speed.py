"""Times of benchmarks/simulator_speed.py: of two trees side by side, or as multiples of the time of NumPy work.

The ratio of two trees measures a change on any machine. The written multiples are only a rough record of the
simulator's speed, since processors differ in more than speed. No time makes a test fail.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from tests.frozen.shell import DATA, ROOT

LINE = re.compile(r"(.{44}) +([\d.]+) ms")
WRITTEN = DATA / "speed.txt"


def yardstick() -> float:
    """Return the shortest time of a gather and a sort of 2^20 numbers in ms."""
    numbers, least = np.random.default_rng(1).integers(0, 1 << 20, 1 << 20), float("inf")
    for _ in range(5):
        start = time.perf_counter()
        np.sort(numbers[numbers])
        least = min(least, time.perf_counter() - start)
    return least * 1e3


def times(*trees: Path, turns: int = 3) -> list[dict[str, float]]:
    """Return the shortest times of each tree's benchmark in ms; the trees take turns."""
    best: list[dict[str, float]] = [{} for _ in trees]
    for _ in range(turns):
        for tree, least in zip(trees, best, strict=True):
            command = [sys.executable, str(tree / "benchmarks" / "simulator_speed.py")]
            environment = {**os.environ, "PYTHONPATH": str(tree)}
            ran = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=True)
            for match in LINE.finditer(ran.stdout):
                what = match[1].strip()
                least[what] = min(float(match[2]), least.get(what, float("inf")))
    return best


def multiples() -> dict[str, float]:
    """Return this checkout's times as multiples of the yardstick's time."""
    (best,), unit = times(ROOT), yardstick()
    return {what: ms / unit for what, ms in best.items()}


def written() -> dict[str, float]:
    """Return the written multiples."""
    found = (line.rsplit(None, 1) for line in WRITTEN.read_text().splitlines() if not line.startswith("#"))
    return {what.strip(): float(value) for what, value in found}


def write() -> None:
    """Write this checkout's multiples."""
    lines = [f"{what:44} {value:10.5f}" for what, value in multiples().items()]
    WRITTEN.write_text("\n".join(["# Times over that of a gather and a sort of 2^20 numbers by NumPy.", *lines, ""]))


def table(before: Mapping[str, float], now: Mapping[str, float]) -> str:
    """Return a table with both columns, which have the same unit, and their ratio."""
    lines = [f"{'':44} {'before':>9} {'now':>9}  now / before"]
    lines += [
        f"{k:44} {before[k]:9.4f} {now[k]:9.4f}  {now[k] / before[k]:.2f}" for k in before if k in now and before[k]
    ]
    return "\n".join(lines)
