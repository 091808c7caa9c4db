"""Runs command lines of the tool with each launch's machine code beside its PTX."""

from __future__ import annotations

import contextlib
import io
import math
import os
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from cudabench import cli
from cudabench.devices import sim
from cudabench.simulator import launch as ptx_launch
from cudabench.simulator.machine_code import image, launch
from cudabench.simulator.machine_code.decode import Unreadable

ROUNDING = {"f2": 2e-2, "f4": 1e-3, "f8": 1e-9}


class Ran(NamedTuple):
    """One launch: what its machine code counted, or why it was not run, and arrays that differ from PTX's."""

    kernel: str
    counted: launch.Counted | str
    unlike: tuple[str, ...] = ()
    settled: str = ""
    ptx_instructions: int = 0
    seconds: float = 0

    def counts(self) -> dict[str, int]:
        """Return the counts under the names of an ncu report's keys in `card.py`."""
        if isinstance(self.counted, str):
            return {}
        found = {"inst": self.counted.warps, "threads": self.counted.lanes}
        return found | {kind: self.counted.pieces(kind) for kind in launch.PIECES}


def differs(mine: np.ndarray, other: np.ndarray) -> bool:
    """Return whether bytes differ in more than the rounding of some float type."""
    if np.array_equal(mine, other):
        return False
    for kind, most in ROUNDING.items():
        width = int(kind[1])
        if mine.size % width:
            continue
        x, y = mine.view(kind).astype(float), other.view(kind).astype(float)
        with np.errstate(all="ignore"):
            near = np.abs(x - y) <= most * np.maximum(np.abs(x), np.abs(y)) + most * 1e-3
        if np.all(near | (x == y) | (np.isnan(x) & np.isnan(y))):
            return False
    return True


@contextlib.contextmanager
def watching() -> Iterator[list[Ran]]:
    """Let each launch of the simulator run its machine code as well meanwhile."""
    found: list[Ran] = []
    images: dict[int, bytes | None] = {}
    load, run, place = sim.simulator.load, sim.simulator.run, ptx_launch.place_arguments
    loaded = sim.SimDevice._load
    placed: list[Any] = []

    def noted(self: Any, case: Any, functions: Any, names: Any) -> Any:
        made = loaded(self, case, functions, names)
        images[id(made.program)] = made.compiled.cubin
        return made

    def placing(code: Any, *args: Any) -> Any:
        placed[:] = [place(code, *args)]
        placed.append(launch.memory(placed[0].space))
        return placed[0]

    def both(program: Any, entry: str, grid: Any, block: Any, *args: Any, **how: Any) -> Any:
        report = run(program, entry, grid, block, *args, **how)
        cubin = images.get(id(program))
        if cubin is None or how.get("sample") or report.hazards or report.suspicions:
            why = "no cubin" if cubin is None else "a sample" if how.get("sample") else "not clean"
            found.append(Ran(entry, why))
            return report
        try:
            kernel = image.kernel(cubin, entry)
        except Unreadable as why:
            found.append(Ran(entry, f"unreadable: {why}"))
            return report
        three = [tuple(int(x) for x in (*np.atleast_1d(each), 1, 1)[:3]) for each in (grid, block)]
        start = time.perf_counter()
        ran = launch.execute(
            kernel, three[0], three[1], how.get("shared_bytes", 0), placed[0], placed[1],
            20 * report.instructions + 1_000_000,
        )  # fmt: skip
        seconds = time.perf_counter() - start
        unlike = ()
        if not isinstance(ran, str):
            slots = placed[0].space.slots
            unlike = tuple(
                slots[at].name for at, data in ran.arrays.items() if differs(data, slots[at].bytes)
            )
        found.append(Ran(entry, ran, unlike, "" if isinstance(ran, str) else ran.unsettled or "", report.instructions, seconds))
        return report

    sim.SimDevice._load, sim.simulator.run, ptx_launch.place_arguments = noted, both, placing  # type: ignore
    try:
        yield found
    finally:
        sim.SimDevice._load, sim.simulator.run, ptx_launch.place_arguments = loaded, run, place  # type: ignore
        assert load is sim.simulator.load and math


def run(words: list[str]) -> tuple[list[Ran], str]:
    """Run one command line; return its launches and what it printed."""
    os.environ["CUDABENCH_JOBS"] = "1"
    text = io.StringIO()
    with (
        watching() as found, contextlib.suppress(SystemExit), contextlib.redirect_stdout(text),
        contextlib.redirect_stderr(text),
    ):  # fmt: skip
        cli.main([str(word) for word in words])
    return found, text.getvalue()
