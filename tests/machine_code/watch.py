"""Runs command lines of the tool, and records the result of the machine code of each launch."""

from __future__ import annotations

import contextlib
import io
import os
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from cudabench import cli
from cudabench.explain import machine_code_selection
from cudabench.simulator import launch
from cudabench.simulator.report import Code, Report


class Ran(NamedTuple):
    """One launch: the counts of its machine code, or why they are not used; PTX instructions; seconds of the machine
    code."""

    kernel: str
    code: Code | str
    ptx_instructions: int
    seconds: float


@contextlib.contextmanager
def watching() -> Iterator[list[Ran]]:
    """Run the machine code of all launches within the context, and record the results."""
    found: list[Ran] = []
    original, parts = launch.machine_code_runner, machine_code_selection.may_diverge

    def kept(machine: Any, plan: Any, placed: Any) -> Any:
        runs = original(machine, plan, placed)

        def noted(report: Report) -> Code | str | None:
            start = time.perf_counter()
            code = runs(report)
            if code is not None:
                found.append(Ran(plan.code.name, code, report.instructions, time.perf_counter() - start))
            return code

        return noted

    launch.machine_code_runner, machine_code_selection.may_diverge = kept, lambda functions: True
    try:
        yield found
    finally:
        launch.machine_code_runner, machine_code_selection.may_diverge = original, parts


def run(words: list[str]) -> tuple[list[Ran], str]:
    """Run one command line; return its launches and its output."""
    os.environ["CUDABENCH_JOBS"] = "1"
    text = io.StringIO()
    with (
        watching() as found, contextlib.suppress(SystemExit), contextlib.redirect_stdout(text),
        contextlib.redirect_stderr(text),
    ):  # fmt: skip
        cli.main([str(word) for word in words])
    return found, text.getvalue()
