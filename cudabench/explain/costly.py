"""Arithmetic that costs far more than it looks, by source line: divisions of 64 bits, and doubles between floats.

A division of 64-bit integers is a subroutine of about a hundred instructions. A literal such as 2.0 makes a whole
expression of floats one of doubles, which most cards compute at 1/32 or 1/64 of the rate.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from cudabench.explain.executed import Executions


class Costly(NamedTuple):
    """Source lines of one kind, 'division' or 'double', and the warp instructions of that kind that they ran."""

    kind: str
    lines: tuple[int, ...]
    instructions: int


_FILE = re.compile(r'\s*\.file\s+(\d+)\s+"([^"]*)"')
_LOC = re.compile(r"\s*\.loc\s+(\d+)\s+(\d+)")
_OPCODE = re.compile(r"\s*(?:@!?[\w$%]+\s+)?([a-z][\w.]*)\s")
_DIVISION = re.compile(r"(div|rem)\.[su]64$")
_LITERAL = re.compile(r"\b0d[0-9A-Fa-f]{16}\b")


def find(ptx: Sequence[str], executions: Executions, name: str) -> list[Costly]:
    """Return what a kernel ran of each kind on the lines of the file `name`.

    executions: how often each PTX line ran. A line has doubles between floats where it widens a float, computes in
    double precision with a literal, and rounds back to float.
    """
    files: dict[str, str] = {}
    for text in ptx:
        if match := _FILE.match(text):
            files[match[1]] = match[2]
    divided: dict[int, int] = {}
    doubles: dict[int, dict[str, int]] = {}
    inside, line = False, 0
    for number, text in enumerate(ptx, 1):
        if match := _LOC.match(text):
            inside = files.get(match[1], "").endswith(name)
            line = int(match[2]) or line  # what the compiler added itself stands at 0, behind the line it is for
            continue
        match = _OPCODE.match(text)
        times = executions.get(number)
        if match is None or times is None or not times.warps or not inside or not line:
            continue
        opcode = match[1]
        if _DIVISION.match(opcode):
            divided[line] = divided.get(line, 0) + times.warps
        elif "f64" in opcode.split("."):
            steps = doubles.setdefault(line, {})
            words = opcode.split(".")
            step = "computed"
            if words[0] == "cvt":
                step = "widened" if words[-1] == "f32" else "rounded" if "f32" in words else "converted"
            elif _LITERAL.search(text):
                steps["literal"] = steps.get("literal", 0) + times.warps
            steps[step] = steps.get(step, 0) + times.warps
    mixed = {n: steps for n, steps in doubles.items() if {"widened", "literal", "rounded"} <= steps.keys()}
    found = []
    if divided:
        found.append(Costly("division", tuple(sorted(divided)), sum(divided.values())))
    if mixed:
        ran = sum(count for steps in mixed.values() for step, count in steps.items() if step != "literal")
        found.append(Costly("double", tuple(sorted(mixed)), ran))
    return found
