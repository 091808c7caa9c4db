"""Runs command lines of the tool, and keeps what the machine code of each launch came to."""

from __future__ import annotations

import contextlib
import io
import os
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from cudabench import cli
from cudabench.explain import executed, to_execute
from cudabench.simulator import launch
from cudabench.simulator.report import Code, Lines, Report


class Ran(NamedTuple):
    """One launch: what its machine code did, or why that is not believed; PTX instructions; seconds of the former.

    needed: why it would have run by itself, or "". inferred: warp and thread instructions as the PTX tells them.
    """

    kernel: str
    code: Code | str
    ptx_instructions: int
    seconds: float
    needed: str
    inferred: tuple[float, float]

    @property
    def counted(self) -> tuple[int, int]:
        """Warp and thread instructions of the machine code, where it ran."""
        rows = self.code.counts.values() if isinstance(self.code, Code) else ()
        return sum(row[0] for row in rows), sum(row[1] for row in rows)


@contextlib.contextmanager
def watching() -> Iterator[list[Ran]]:
    """Run the machine code of all launches meanwhile, and keep what it came to."""
    found: list[Ran] = []
    original, needed, parts = launch.with_machine_code, to_execute.needed, to_execute.parts
    asked: list[tuple[str, tuple[float, float]]] = []

    def always(functions: Any, executions: Any, ptx: Any) -> str:
        counts = executed.count(functions, executions, ptx)
        blocks = [(len(block.instructions), one) for block, one in executed.counted(functions, counts)]
        warps = sum(size * one.warps + one.again for size, one in blocks)
        lanes = sum(size * one.lanes + one.again_lanes for size, one in blocks)
        asked.append((needed(functions, executions, ptx), (warps, lanes)))
        return "all do"

    def kept(machine: Any, plan: Any, placed: Any) -> Any:
        told = original(machine, plan, placed)

        def noted(report: Report) -> Report:
            start = time.perf_counter()
            after = told(report)
            lines = after.executed.get(plan.code.name)
            if isinstance(lines, Lines) and lines.code is not None:
                seconds = time.perf_counter() - start
                found.append(Ran(plan.code.name, lines.code, report.instructions, seconds, *asked.pop()))
            return after

        return noted

    launch.with_machine_code, to_execute.needed, to_execute.parts = kept, always, lambda functions: True
    try:
        yield found
    finally:
        launch.with_machine_code, to_execute.needed, to_execute.parts = original, needed, parts


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
