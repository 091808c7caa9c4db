"""Run command lines with each launch on both engines of the simulator, and print the differences.

    python -m tests.compare_engines transpose --size 33 65 -d sim --no-cpu
    python -m tests.compare_engines --all                  each command of the frozen corpus and of its ladders
    python -m tests.compare_engines --looks transpose      also access patterns, whose differences are allowed

Exit codes: 0 if all launches agree or run on NumPy only; 1 if some differ.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from cudabench import cli
from cudabench.simulator.native import launch as native
from cudabench.simulator.native.outcome import Finished
from cudabench.simulator.outcome import Outcome
from cudabench.simulator.report import Report

PARTS = ("instructions", "executed", "branches", "contended", "imbalance", "footprint", "output")
COUNTS = ("requests", "sectors", "ideal_sectors", "wavefronts", "ideal_wavefronts", "merged", "reloads", "inexact")


def unlike(one: Report, other: Report) -> list[str]:
    """Return the differences between the native engine's report and NumPy's."""
    found = []
    for part in PARTS:
        x, y = getattr(one, part), getattr(other, part)
        if x != y:
            found.append(f"{part}: native {_short(x, y)}, NumPy {_short(y, x)}")
    mine, theirs = ({(a.instruction, a.space): a for a in _whole(report)} for report in (one, other))
    for key in sorted({*mine, *theirs}):
        x, y = mine.get(key), theirs.get(key)
        if x is None or y is None:
            found.append(f"access {key}: native {x}, NumPy {y}")
            continue
        for name in COUNTS:
            if getattr(x, name) != getattr(y, name):
                found.append(f"access {key} {name}: native {getattr(x, name)}, NumPy {getattr(y, name)}")
    return found


def looks_unlike(one: Report, other: Report) -> list[str]:
    """Return the differences in the main pattern, first address or step of an access, which are allowed."""
    found = []
    mine, theirs = ({(a.instruction, a.space): a for a in _whole(report)} for report in (one, other))
    for key in sorted({*mine} & {*theirs}):
        x, y = mine[key], theirs[key]
        for name, a, b in (
            ("pattern", x.patterns[0].pattern if x.patterns else None, y.patterns[0].pattern if y.patterns else None),
            ("first", x.first, y.first), ("step", x.step, y.step), ("array", x.array, y.array),
            ("by_data", x.by_data, y.by_data),
        ):  # fmt: skip
            if a != b:
                found.append(f"look {key} {name}: native {a}, NumPy {b}")
    return found


def _whole(report: Report) -> list[Any]:
    """Return the accesses of a report, one per instruction, summed over arrays."""
    found: dict[Any, Any] = {}
    for access in report.accesses:
        key = access.instruction, access.space
        found[key] = access if key not in found else found[key].plus(access)
    return list(found.values())


def _short(value: Any, other: Any) -> str:
    """Return the parts of a record that differ from another record."""
    if hasattr(value, "_asdict") and hasattr(other, "_asdict"):
        return str({name: part for name, part in value._asdict().items() if part != getattr(other, name)})
    if isinstance(value, dict) and isinstance(other, dict):
        return str({key: _short(part, other.get(key)) for key, part in value.items() if part != other.get(key)})
    if isinstance(value, tuple) and isinstance(other, tuple):
        return str([_short(x, y) for x, y in zip(value, other, strict=False) if x != y] or len(value))
    return str(value)[:300]


class Comparison:
    """The result of comparing launches: the number that agree, the reasons for launches on NumPy only, and the
    differences."""

    def __init__(self) -> None:
        self.alike = 0
        self.left: Counter[str] = Counter()
        self.differences: list[str] = []
        self.looks: list[str] = []


@contextlib.contextmanager
def comparing(threads: int = 2) -> Iterator[Comparison]:
    """Run each launch in the context on both engines; the results and the memory are those of NumPy."""
    found, attempt, report = Comparison(), native.attempt, Outcome.report
    pending: list[Any] = []

    def both(plan: Any, placed: Any, **how: Any) -> Any:
        slots = [slot for slot in placed.space.slots if slot.writable and slot.size]
        before = [slot.bytes.copy() for slot in slots]
        ran = attempt(plan, placed, **{**how, "threads": lambda: threads})
        after = [slot.bytes.copy() for slot in slots]
        if isinstance(ran, str):
            found.left[f"{ran} [{plan.code.name}]"] += 1
            if any(not np.array_equal(x, y) for x, y in zip(before, after, strict=True)):
                found.differences.append(f"{plan.code.name}: memory was not restored ({ran})")
            return ran
        for slot, bits in zip(slots, before, strict=True):
            slot.bytes[...] = bits
        pending[:] = [(plan, placed, ran, slots, after)]
        return "compared"

    def reported(own: Outcome) -> Report:
        made = report(own)
        if own.engine == "numpy" and pending and pending[0][0] is own.plan:
            plan, placed, ran, slots, after = pending.pop()
            mine = report(Finished(ran, plan, placed).outcome())
            where = f"{plan.code.name} grid {plan.grid} block {plan.block}"
            differs = unlike(mine, made)
            if own.hazards or own.suspicions:
                differs.append(f"NumPy has hazards: {[h.kind for h in (*own.hazards, *own.suspicions)]}")
            for slot, bits in zip(slots, after, strict=True):
                if not np.array_equal(slot.bytes, bits):
                    bad = np.flatnonzero(slot.bytes != bits)
                    differs.append(f"bits of '{slot.name}': {bad.size} bytes, first {bad[0]}")
            found.alike += not differs
            found.differences += [f"{where}: {one}" for one in differs]
            found.looks += [f"{where}: {one}" for one in looks_unlike(mine, made)]
        return made

    native.attempt, Outcome.report = both, reported  # type: ignore[method-assign, assignment]
    try:
        yield found
    finally:
        native.attempt, Outcome.report = attempt, report  # type: ignore[method-assign]


def run(words: list[str]) -> Comparison:
    """Run one command line and compare its launches."""
    os.environ["CUDABENCH_JOBS"] = "1"
    text = io.StringIO()
    with (
        comparing() as found, contextlib.suppress(SystemExit), contextlib.redirect_stdout(text),
        contextlib.redirect_stderr(text),
    ):  # fmt: skip
        cli.main(words)
    return found


def main() -> int:
    """Run the command lines that the arguments ask for."""
    words = sys.argv[1:]
    looks = "--looks" in words
    lines = [[word for word in words if word != "--looks"]]
    if lines == [["--all"]]:
        from tests.frozen import corpus
        from tests.frozen.shell import ROOT

        folder = Path(tempfile.mkdtemp())
        for name, place in (("examples", ROOT / "examples"), ("corpus", corpus.CORPUS)):
            (folder / name).symlink_to(place)
        os.chdir(folder)
        lines = [words for name in corpus.OPERATIONS for words in corpus.ladder(name)]
        lines += [words for name in corpus.GROUPS for words in corpus.lines(name, folder).values()]
    bad = alike = 0
    left: Counter[str] = Counter()
    for words in lines:
        found = run([str(word) for word in words])
        alike += found.alike
        left += found.left
        bad += bool(found.differences)
        for one in (*found.differences, *found.looks * looks):
            print(f"{' '.join(map(str, words))[:100]}: {one}")
    print(f"{alike} launches alike, {bad} command lines with differences; left to NumPy:")
    for why, times in left.most_common():
        print(f"{times:6} {why}")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
