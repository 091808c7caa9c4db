"""Finds source lines with hidden costs: 64-bit divisions, float expressions that are computed in double, spills.

A division of 64-bit integers is a subroutine of about a hundred instructions. A literal such as 2.0 turns a whole
expression of floats into doubles, which most GPUs compute at 1/32 or 1/64 of the rate. If no register is left for a
value, it is spilled: stored to local memory and loaded again.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from cudabench.compile.sass import Function
from cudabench.explain import block_counts, machine_code, ptx_text
from cudabench.explain.block_counts import Executions
from cudabench.source.words import macros_of, without_comments, words_of


class HiddenCost(NamedTuple):
    """The source lines with one kind of hidden cost.

    `kind`: 'division', 'double' or 'spill'. `lines`: the numbers of the source lines. `instructions`: how many warp
    instructions the hidden cost took. `bytes`: the bytes that spills move, summed over all lanes.
    """

    kind: str
    lines: tuple[int, ...]
    instructions: int
    bytes: int = 0


_LITERAL = re.compile(r"\b0d[0-9A-Fa-f]{16}\b")
# Matches a decimal number without suffix, which is a double in C++.
_DOUBLE = re.compile(r"(?:\d+\.\d*|\.\d+|\d+(?=[eE]))(?:[eE][+-]?\d+)?")


def literals(texts: Sequence[str]) -> list[str]:
    """Return the distinct literals of double precision, such as '2.0', in the given source lines."""
    return list(dict.fromkeys(word for text in texts for word in words_of(text) if _DOUBLE.fullmatch(word)))


def literals_of_macros(texts: Sequence[str], source: str) -> list[str]:
    """Return the literals of double precision in the definitions of macros whose names are in the lines `texts`."""
    named = {word for text in texts for word in words_of(text)}
    return literals([meaning for name, _, meaning in macros_of(without_comments(source)) if name in named])


def spills(functions: Sequence[Function], executions: Executions, ptx: Sequence[str], name: str) -> HiddenCost | None:
    """Return the hidden cost of spills: the lines of the file `name` whose values a kernel spilled; None without any.

    `functions`: the kernel's machine code. `executions`: how often each PTX line ran.
    """
    if not executions or not machine_code.spill_bytes(functions, ptx):
        return None
    places = _source_lines(ptx_text.read(ptx), name)
    local = machine_code.local_accesses(functions, ptx, block_counts.count(functions, executions))
    spilled = [access for access in local if access.spill and access.warps]
    lines = {places[access.ptx_line] for access in spilled if access.ptx_line in places}
    warps, moved = sum(access.warps for access in spilled), sum(access.lanes * access.bytes for access in spilled)
    return HiddenCost("spill", tuple(sorted(lines)), round(warps), round(moved)) if lines else None


def hidden_costs(ptx: Sequence[str], executions: Executions, name: str) -> list[HiddenCost]:
    """Return the hidden costs, in the file `name`, of 64-bit divisions and of float expressions computed in double.

    `executions`: how often each PTX line ran. A source line has the cost 'double' if it converts a float to double,
    computes in double precision with a literal, and rounds the result to float.
    """
    divided: Counter[int] = Counter()
    doubles: dict[int, Counter[str]] = defaultdict(Counter)
    text = ptx_text.read(ptx)
    places = _source_lines(text, name)
    for number, times in executions.items():
        line, row = places.get(number), text[number]
        if line is None or not times.warps:
            continue
        if row.words[0] in ("div", "rem") and row.words[1:] in (("s64",), ("u64",)):
            divided[line] += times.warps
        elif "f64" in row.words:
            step = "computed"
            if row.op == "cvt":
                step = "widened" if row.words[-1] == "f32" else "rounded" if "f32" in row.words else "converted"
            elif _LITERAL.search(row.operands):
                doubles[line]["literal"] += times.warps
            doubles[line][step] += times.warps
    mixed = {n: steps for n, steps in doubles.items() if {"widened", "literal", "rounded"} <= steps.keys()}
    results = []
    if divided:
        results.append(HiddenCost("division", tuple(sorted(divided)), sum(divided.values())))
    if mixed:
        ran = sum(count for steps in mixed.values() for step, count in steps.items() if step != "literal")
        results.append(HiddenCost("double", tuple(sorted(mixed)), ran))
    return results


@lru_cache(16)
def _source_lines(text: ptx_text.Text, name: str) -> dict[int, int]:
    """Return, by the number of a PTX line, the source line of the PTX line in the file `name`. Code that the compiler
    added gets the source line of the code before it."""
    return {number: last for number, (path, _, last) in text.places.items() if path.endswith(name)}
