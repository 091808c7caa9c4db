"""What a simulated launch left open, decided: by the machine code, or as a warning where no result tells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cudabench import simulator
from cudabench.devices import sim
from cudabench.explain import barriers
from cudabench.model import Case, Warning
from cudabench.results.warnings import warning
from cudabench.toolchain import nvdisasm
from cudabench.toolchain.record import Compiled

# Suspicions that are said of every kernel, and those that are said of one that is only checked.
ALWAYS = ("skipped-barrier", "early-exit", "unsearched")
OF_CHECKS = ("ended-before-barrier",)


def settled(run: sim.Run, compiled: Sequence[tuple[Case, Compiled]], disassemble: bool) -> sim.Run:
    """Return a run with each suspected divergent barrier called one, or none, as the machine code has it."""
    open_ = [one for one in run.report.suspicions if one.kind == "divergent-barrier"]
    if not open_:
        return run
    wrong = [one for one in open_ if disassemble and _held(one, compiled)]
    report = run.report._replace(
        hazards=tuple(sorted((*run.report.hazards, *wrong), key=lambda one: (one.file, one.line, one.kind))),
        suspicions=tuple(one for one in run.report.suspicions if one not in open_),
    )
    return replace(run, report=report)


def _held(one: simulator.Hazard, compiled: Sequence[tuple[Case, Compiled]]) -> bool:
    if nvdisasm.path() is None:
        return False
    return any(
        barriers.held(nvdisasm.functions(each.cubin, entry), one.instruction)
        for part, each in compiled
        if each.cubin is not None
        for entry in dict.fromkeys(each.entry(launch.function) for launch in part.launches)
    )


def notes(report: simulator.Report, checked: bool, expected: bool) -> list[Warning]:
    """Return what is said of a launch whose result does not tell.

    checked: whether hazards are all that is asked for. expected: whether a result was held against what was expected.
    """
    kinds = ALWAYS + (OF_CHECKS if checked else ())
    found = [warning(one.kind, line=one.line, message=one.message) for one in report.suspicions if one.kind in kinds]
    if not expected:
        shuffles = [one for one in report.suspicions if one.kind == "undefined-shuffle"]
        found += [warning(one.kind, line=one.line, message=one.message) for one in shuffles[:1]]
    return found
