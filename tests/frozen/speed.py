"""Times of benchmarks/simulator_speed.py of two trees, side by side in one run: the ratio is the machine's no more."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.frozen.shell import ROOT

LINE = re.compile(r"(.{44}) +([\d.]+) ms")


def times(tree: Path) -> dict[str, float]:
    """Run a tree's benchmark and return its figures in ms."""
    command = [sys.executable, str(tree / "benchmarks" / "simulator_speed.py")]
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    ran = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=True)
    return {match[1].strip(): float(match[2]) for match in LINE.finditer(ran.stdout)}


def table(other: Path, turns: int = 3) -> str:
    """Return the least times of both trees, measured in turns, with their ratio."""
    best: dict[Path, dict[str, float]] = {other: {}, ROOT: {}}
    for _ in range(turns):
        for tree, least in best.items():
            for what, ms in times(tree).items():
                least[what] = min(ms, least.get(what, ms))
    lines = [f"{'':44} {'before':>10} {'now':>10}  now / before"]
    for what in (what for what in best[other] if what in best[ROOT]):
        before, now = best[other][what], best[ROOT][what]
        lines.append(f"{what:44} {before:7.1f} ms {now:7.1f} ms  {now / before:.2f}")
    return "\n".join(lines) + "\n"
