"""What a simulated launch left open, decided: by the machine code, or as a warning where no result tells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cudabench import simulator
from cudabench.compile import nvdisasm
from cudabench.compile.record import Compiled
from cudabench.devices import sim
from cudabench.explain import barriers
from cudabench.records.planned import Case
from cudabench.records.results import Warning
from cudabench.results.warnings import warning

# Suspicions that are said of every kernel, and those that are said of one that is only checked.
ALWAYS = ("skipped-barrier", "early-exit", "unsearched")
OF_CHECKS = ("ended-before-barrier", "too-large")
CODES = {"too-large": "unsearched"}  # of warnings, where they differ
BESIDE = ("skipped-barrier", "ended-before-barrier")  # not said beside a barrier that is called divergent
# Faults from which races within a block follow, which are then not reported beside them.
EXCUSES = ("divergent-barrier", "invalid-mask")


def settled(run: sim.Run, compiled: Sequence[tuple[Case, Compiled]], disassemble: bool) -> sim.Run:
    """Return a run whose barriers that part warps are told by the machine code: divergent, or passed by.

    Where it cannot be read, those count as divergent that lanes pass by to go on.
    """
    hazards = {(one.kind, one.file, one.line): one for one in run.report.hazards}
    suspicions = []
    for one in run.report.suspicions:
        if not one.kind.startswith("divergent-barrier"):
            suspicions.append(one)
            continue
        parted = _parted(one, compiled) if disassemble else None
        if parted or (parted is None and one.kind == "divergent-barrier"):
            hazards.setdefault(("divergent-barrier", *one[1:3]), one._replace(kind="divergent-barrier"))
        elif one.kind == "divergent-barrier":
            suspicions.append(one._replace(kind="skipped-barrier"))
    told = {(file, line) for kind, file, line in hazards if kind == "divergent-barrier"}
    suspicions = [one for one in suspicions if one.kind not in BESIDE or (one.file, one.line) not in told]
    suspicions = [one for one in suspicions if not any(one.message[:-1] in each.message for each in hazards.values())]
    left = list(hazards.values())
    cause = next((one for one in left if one.kind in EXCUSES), None)
    follow = [one for one in left if cause and one.kind == "race" and not one.between_blocks]
    if cause and follow:
        left = [one for one in left if one not in follow]
        lines = "line" if len(follow) == 1 else "lines"
        places = ", ".join(str(one.line) for one in follow)
        said = f"races within a block in {lines} {places} may follow from line {cause.line} and are left out: mend that"
        suspicions.append(cause._replace(kind="unsearched", message=said))
    ordered = sorted(left, key=lambda one: (one.file, one.line, one.kind))
    return replace(run, report=run.report._replace(hazards=tuple(ordered), suspicions=tuple(suspicions)))


def _parted(one: simulator.Hazard, compiled: Sequence[tuple[Case, Compiled]]) -> bool | None:
    """Return whether a barrier parts a warp in the machine code, None where that cannot be read."""
    if nvdisasm.path() is None or any(each.cubin is None for _, each in compiled):
        return None
    return any(
        barriers.predicated(nvdisasm.functions(each.cubin, entry), one.instruction)
        for part, each in compiled
        if each.cubin is not None
        for entry in dict.fromkeys(each.entry(launch.function) for launch in part.launches)
    )


def notes(report: simulator.Report, checked: bool, expected: bool) -> list[Warning]:
    """Return what is said of a launch whose result does not tell.

    checked: whether hazards are all that is asked for. expected: whether a result was held against what was expected.
    """
    kinds = ALWAYS + (OF_CHECKS if checked else ())
    shown = [one for one in report.suspicions if one.kind in kinds]
    if not expected:
        shown += [one for one in report.suspicions if one.kind == "undefined-shuffle"][:1]
    by_line = {(one.kind, one.file, one.line): one for one in reversed(shown)}
    return [
        warning(CODES.get(one.kind, one.kind), line=one.line, message=one.message.removesuffix("."))
        for one in shown
        if by_line[one.kind, one.file, one.line] is one
    ]
