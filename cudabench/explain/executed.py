"""Counts how often each block of machine code ran: as that itself ran, or as the lines of its PTX tell.

Code whose lanes have one way alone runs as often as its PTX: a block as its stores, which stay where they are, or else
as most of its lines, of which some came from before the guarded EXIT that it stands after. Other code runs itself
(`to_execute`), and its instructions were counted. Where that cannot be, its blocks count as most of their lines do too,
each line shared by its copies in the block; such counts are marked.

An instruction that only its guard keeps from running counts: the hardware issues it.
"""

from __future__ import annotations

import re
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from typing import NamedTuple

from cudabench.compile.sass import Block, Function
from cudabench.explain import ptx_text, to_execute
from cudabench.simulator.report import Code, Executed, Lines

Executions = Mapping[int, Executed]  # how often each PTX line ran
_STORES = ("ST", "RED", "ATOM")  # how the opcodes begin of what ptxas does not move past an EXIT


class Count(NamedTuple):
    """The executions of a block: warps that entered it, and their active lanes.

    again, again_lanes: how often instructions were issued besides, as a jump by table (BRX) is once for each place that
    lanes go to, and their lanes; known of code that ran itself.
    """

    warps: float
    lanes: float
    again: float = 0
    again_lanes: float = 0


MOST_COUNTED = 64  # kernels of a run whose counts are cached
_DRIVERS = {"malloc": "malloc", "free": "free", "vprintf": "printf", "__assertfail": "assert"}  # by their PTX names

# Cached counts, by the identity of their inputs: several readers need them after one run.
_counted: OrderedDict[tuple[int, int], tuple[Sequence[Function], Executions, list[list[Count]]]] = OrderedDict()


def count(functions: Sequence[Function], executions: Executions) -> list[list[Count]]:
    """Return the counts of the blocks of a kernel and of its subroutines, in order; callers must not change them.

    functions: the kernel first. executions: warps and lanes of each PTX line, the kernel's first line first.
    """
    key = id(functions), id(executions)
    if key not in _counted:
        # Keeps the inputs alive, so that their identities stay unique.
        code = executions.code if isinstance(executions, Lines) else None
        counts = _from_code(functions, code) if isinstance(code, Code) else _from_lines(functions, executions)
        _counted[key] = functions, executions, counts
        if len(_counted) > MOST_COUNTED:
            _counted.popitem(last=False)
    return _counted[key][2]


def _from_code(functions: Sequence[Function], code: Code) -> list[list[Count]]:
    """Return the counts of blocks whose instructions were counted themselves."""

    def of(block: Block) -> Count:
        rows = [code.counts[one.address] for one in block.instructions]
        (warps, lanes, *_), number = rows[0], len(rows)
        again, more = (sum(row[part] for row in rows) - rows[0][part] * number for part in (0, 1))
        return Count(warps, lanes, again, more)

    return [[of(block) for block in function.blocks] for function in functions]


def counted(functions: Sequence[Function], counts: Sequence[Sequence[Count]] | None) -> Iterator[tuple[Block, Count]]:
    """Yield each block of a kernel and its subroutines with its count; without counts they ran 0 times."""
    for place, function in enumerate(functions):
        for block in function.blocks:
            yield block, counts[place][block.number] if counts else Count(0, 0)


def _from_lines(functions: Sequence[Function], executions: Executions) -> list[list[Count]]:
    """Return the counts of blocks by the lines of their instructions; of none with a line that ran 0."""

    kept = () if to_execute.parts(functions) else _STORES

    def of(block: Block) -> Count:
        votes: Counter[tuple[float, float]] = Counter()
        stores = [one for one in block.instructions if not one.guard and one.opcode.startswith(kept)]
        alike = Counter((one.ptx_line, one.mnemonic, bool(one.guard)) for one in stores or block.instructions)
        for (line, _, guarded), copies in alike.items():
            if times := executions.get(line):
                votes[times.warps / copies, times.lanes / copies] += 1 if guarded else 2
        warps, lanes = max(votes, key=lambda each: votes[each], default=(0, 0))
        return Count(ceil(warps), lanes)

    found = [[of(block) for block in function.blocks] for function in functions]
    if found and found[0] and executions:
        first = next(iter(executions.values()))
        found[0][0] = Count(first.warps, first.lanes)
    return found


def beyond(functions: Sequence[Function], executions: Executions, ptx: Sequence[str]) -> tuple[str, ...]:
    """Return why more runs on hardware than `count` says; arguments as there."""
    found, text = [], ptx_text.read(ptx)
    calls = " ".join(" ".join(ptx[line - 1 : line + 1]) for line in executions if text[line].op == "call")
    if theirs := [name for ptx_name, name in _DRIVERS.items() if re.search(rf"\b{ptx_name}\b", calls)]:
        *others, last = theirs
        said = f"{', '.join(others)} and {last} do" if others else f"{last} does"
        found.append(f"what {said} is the driver's own code: its instructions and accesses to memory are not counted")
    if any(block.calls == function.name for function in functions for block in function.blocks):
        found.append("which lanes of a warp come back together from a function that calls itself is not followed")
    return tuple(found)
