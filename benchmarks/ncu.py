"""Runs a command under Nsight Compute (ncu) and reads the counters that ncu prints; several benchmarks import this
module."""

from __future__ import annotations

import csv
import io
import subprocess
import sys
from collections.abc import Iterable, Sequence


def launches(counters: Iterable[str], command: Sequence[str], cache_control: str = "none") -> list[dict[str, str]]:
    """Return the counters of each launch of a command, keyed by name; print ncu's output if it saw no launch."""
    options = ["--clock-control", "none", "--csv", "--page", "raw", "--print-units", "base"]
    words = ["ncu", "--target-processes", "all", "--cache-control", cache_control, *options]
    words += ["--metrics", ",".join(counters), *command]
    ran = subprocess.run(words, capture_output=True, text=True, check=False)
    if not (rows := rows_of(ran.stdout)):
        print(f"ncu saw no launch: {ran.stdout[-1500:]}{ran.stderr[-1500:]}", file=sys.stderr)
    return rows


def rows_of(text: str) -> list[dict[str, str]]:
    """Return the counters of each launch in ncu's output."""
    lines = [line for line in text.splitlines() if line.startswith('"')]
    return [row for row in csv.DictReader(io.StringIO("\n".join(lines))) if row.get("ID")]


def number(text: str | None) -> float:
    """Return a counter's value; 0 if it is missing."""
    try:
        return float((text or "").replace(",", ""))
    except ValueError:
        return 0.0
