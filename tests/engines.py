"""One launch on both engines of the simulator, for tests that compare the engines."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np

from cudabench.compile.compiler import compile_ptx
from cudabench.simulator import api
from cudabench.simulator.native import launch as native
from cudabench.simulator.native.outcome import Finished
from cudabench.simulator.program.arguments import place_arguments
from tests.compare_engines import unlike


class Both(NamedTuple):
    """The result of a launch: the NumPy engine's report, the native engine's counts or why it gave up, the arguments
    after each, and the native engine's report (None if it gave up)."""

    report: api.Report
    ran: native.LaunchCounts | str
    numpy: list[Any]
    native: list[Any]
    told: api.Report | None = None

    def same(self) -> bool:
        """Return whether all arrays have the same bits."""
        pairs = zip(self.numpy, self.native, strict=True)
        return all(x.tobytes() == y.tobytes() for x, y in pairs if isinstance(x, np.ndarray))


def copies(arguments: Sequence[Any]) -> list[Any]:
    """Return the arguments with copied arrays."""
    return [value.copy() if isinstance(value, np.ndarray) else value for value in arguments]


def loaded(source: str, arch: str = "sm_90") -> api.Program:
    """Return a program from CUDA C++ or PTX text."""
    return api.load(source if ".version" in source else compile_ptx(source, "k.cu", arch=arch).ptx)


def both(
    program: api.Program, kernel: str, grid: Any, block: Any, arguments: Sequence[Any], *, shared_bytes: int = 0,
    threads: int = 1, footprint: bool = False, merged: Mapping[int, tuple[int, int]] | None = None,
) -> Both:  # fmt: skip
    """Run a launch on both engines, with separate arrays."""
    mine, theirs = copies(arguments), copies(arguments)
    program.reset()
    with patch.dict(os.environ, CUDABENCH_ENGINE="numpy"):
        report = api.run(
            program, kernel, grid, block, theirs, shared_bytes=shared_bytes, footprint=footprint, merged=merged
        )
    program.reset()
    code = program.code(kernel)
    placed = place_arguments(code, program.space(), mine, None, {})
    three = [(*((one,) if isinstance(one, int) else one), 1, 1)[:3] for one in (grid, block)]
    plan = program.plan(kernel, *three, shared_bytes, False, None, None, None)
    lines = [access.location.ptx_line for access in code.accesses]
    issued = {number: merged[line] for number, line in enumerate(lines) if merged and line in merged}
    ran = native.attempt(
        plan, placed, budget=5_000_000, seconds=None, footprint=footprint, shares=False, issued=issued,
        progress=None, threads=lambda: threads,
    )  # fmt: skip
    told = None if isinstance(ran, str) else Finished(ran, plan, placed).outcome().report()
    return Both(report, ran, theirs, mine, told)


def alike(found: Both) -> list[str]:
    """Return the differences between the engines (bits, instructions, counts, contention), or why the native engine
    gave up."""
    if found.told is None:
        return [str(found.ran)]
    return unlike(found.told, found.report) + ([] if found.same() else ["bits"])
