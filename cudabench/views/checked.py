"""Prints the result of `cudabench check`: a line for each kernel, its hazards, and the kernels that did not run."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from math import prod

from cudabench.records.results import Result
from cudabench.views.console import Console, say
from cudabench.views.explanation import print_hazard, print_warnings

NAMES = {"ok": "clean", "wrong": "HAZARD", "failed": "FAILED", "skipped": "not executed"}
STYLES = {"ok": "green", "wrong": "bold red", "failed": "bold red", "skipped": "yellow"}


def show_checked(out: Console, results: Sequence[Result], left_out: Sequence[str], wanted: int) -> None:
    """Print the kernels of each file with their hazards, then a summary.

    `wanted`: how many kernels should run; `left_out`: the names of the files' other kernels.
    """
    from rich.text import Text

    width = max((len(result.kernel) for result in results), default=0)
    for file, rows in groupby(results, key=lambda result: result.source):
        say(out, file, "bold")
        for result in rows:
            word = "WRONG" if result.status == "wrong" and not result.hazards else NAMES[result.status]
            verdict = (f"{word:<{max(map(len, NAMES.values()))}}", STYLES[result.status])
            out.print(Text.assemble(f"  {result.kernel:<{width}}  ", verdict, f"  {detail(result)}"))
            for row in result.hazards or ():
                print_hazard(out, row, indent="      ")
            print_warnings(out, result.warnings, indent="      ")
    say(out, summary(results, wanted))
    if left_out:
        say(out, f"Not requested, so not checked: {', '.join(left_out)}")


def detail(result: Result) -> str:
    """Return the text after the verdict: why the kernel did not pass, or how many blocks and threads ran."""
    correct = result.verification is None or not result.verification.mismatches
    if result.status != "ok" and not (result.hazards and correct):
        return result.reason or ""
    blocks, threads = prod(result.grid), prod(result.block)
    return f"{blocks} block{'s' if blocks > 1 else ''} of {threads} thread{'s' if threads > 1 else ''}"


def summary(results: Sequence[Result], wanted: int) -> str:
    """Return a sentence that says how many kernels were executed, and how many have faults."""
    executed = [result for result in results if result.status in ("ok", "wrong")]
    bad = sum(result.status == "wrong" for result in executed)
    plural = "kernel" if wanted == 1 else "kernels"
    verdict = f"{bad} with faults" if bad else "no hazards" if executed else "nothing was checked"
    return f"{len(executed)} of {wanted} {plural} executed, {verdict}."
