"""What costs far more than it looks, by source line: divisions of 64 bits, doubles between floats, spills.

A division of 64-bit integers is a subroutine of about a hundred instructions. A literal such as 2.0 makes a whole
expression of floats one of doubles, which most cards compute at 1/32 or 1/64 of the rate. A value that finds no
register goes to memory and back.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from cudabench.compile.sass import Function
from cudabench.explain import executed, machine_code
from cudabench.explain.executed import Executions


class Costly(NamedTuple):
    """Source lines of one kind, 'division', 'double' or 'spill', and the warp instructions of that kind that they ran.

    bytes: what those move for all lanes together, of spills.
    """

    kind: str
    lines: tuple[int, ...]
    instructions: int
    bytes: int = 0


_FILE = re.compile(r'\s*\.file\s+(\d+)\s+"([^"]*)"')
_LOC = re.compile(r"\s*\.loc\s+(\d+)\s+(\d+)")
_OPCODE = re.compile(r"\s*(?:@!?[\w$%]+\s+)?([a-z][\w.]*)\s")
_DIVISION = re.compile(r"(div|rem)\.[su]64$")
_LITERAL = re.compile(r"\b0d[0-9A-Fa-f]{16}\b")


# Without a suffix, and no part of a name, a number in base 16 or a longer one.
_DOUBLE = re.compile(r"(?<![\w.])(?:\d+\.\d*|\.\d+|\d+(?=[eE][+-]?\d))(?:[eE][+-]?\d+)?(?![\w.])")
_COMMENT = re.compile(r"//.*|/\*.*?\*/|\"(?:[^\"\\]|\\.)*\"")


def literals(texts: Sequence[str]) -> list[str]:
    """Return the literals of double precision that stand on source lines, each once."""
    return list(dict.fromkeys(found for text in texts for found in _DOUBLE.findall(_COMMENT.sub(" ", text))))


def literals_of_macros(texts: Sequence[str], source: str) -> list[str]:
    """Return the literals of double precision in the macros that source lines name, each once."""
    named = set(re.findall(r"[^\W\d]\w*", " ".join(texts)))
    return literals([value for name, value in _MACRO.findall(source) if name in named])


_MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+(.*)$", re.M)


def spills(functions: Sequence[Function], executions: Executions, ptx: Sequence[str], name: str) -> Costly | None:
    """Return the lines of the file `name` whose values found no register and went to local memory.

    functions: a kernel's machine code; executions: how often each PTX line ran.
    """
    if not executions or not machine_code.spill_bytes(functions, ptx):
        return None
    places = _places(tuple(ptx), name)
    counts = executed.count(functions, executions, ptx)
    found = [one for one in machine_code.local_accesses(functions, ptx, counts) if one.spill and one.warps]
    lines = {places[one.ptx_line] for one in found if one.ptx_line in places}
    warps, moved = sum(one.warps for one in found), sum(one.lanes * one.bytes for one in found)
    return Costly("spill", tuple(sorted(lines)), round(warps), round(moved)) if lines else None


def find(ptx: Sequence[str], executions: Executions, name: str) -> list[Costly]:
    """Return what a kernel ran of each kind on the lines of the file `name`.

    executions: how often each PTX line ran. A line has doubles between floats where it widens a float, computes in
    double precision with a literal, and rounds back to float.
    """
    divided: dict[int, int] = {}
    doubles: dict[int, dict[str, int]] = {}
    places = _places(tuple(ptx), name)
    for number, times in executions.items():
        line = places.get(number)
        if line is None or not times.warps:
            continue
        text = ptx[number - 1]
        match = _OPCODE.match(text)
        if match is None:
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


@lru_cache(maxsize=8)
def _places(ptx: tuple[str, ...], name: str) -> dict[int, int]:
    """Return by line of the PTX the line of the file `name` that it is for, both counted from 1."""
    files = {match[1]: match[2] for text in ptx if (match := _FILE.match(text))}
    found: dict[int, int] = {}
    inside, line = False, 0
    for number, text in enumerate(ptx, 1):
        if match := _LOC.match(text):
            inside = files.get(match[1], "").endswith(name)
            line = int(match[2]) or line  # what the compiler added itself stands at 0, behind the line it is for
        elif inside and line:
            found[number] = line
    return found
