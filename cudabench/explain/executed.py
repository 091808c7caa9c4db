"""Counts how often each block of machine code ran, from its own execution or from the counts of its PTX lines.

Code without divergent paths runs as often as its PTX: a block as often as its stores, which ptxas does not move, or
else as most of its lines; some of these come from before the guarded EXIT in front of the block. Other code is executed
itself (`to_execute`), and its instructions are counted. If that is not possible, its blocks count as most of their
lines too, each line shared by its copies in the block; such counts are marked.

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
_STORES = ("ST", "RED", "ATOM")  # prefixes of opcodes that ptxas does not move past an EXIT


class Count(NamedTuple):
    """The executions of a block: warps that entered it, and their active lanes.

    again, again_lanes: further issues of instructions and their lanes, only known of code that was executed itself: a
    jump by table (BRX) is issued once for each target of its lanes.
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
    """Return the counts of blocks from the counts of their instructions."""

    def of_block(block: Block) -> Count:
        rows = [code.counts[ins.address] for ins in block.instructions]
        (warps, lanes, *_), number = rows[0], len(rows)
        again, again_lanes = (sum(row[part] for row in rows) - rows[0][part] * number for part in (0, 1))
        return Count(warps, lanes, again, again_lanes)

    return [[of_block(block) for block in function.blocks] for function in functions]


def counted(functions: Sequence[Function], counts: Sequence[Sequence[Count]] | None) -> Iterator[tuple[Block, Count]]:
    """Yield each block of a kernel and its subroutines with its count; without counts they ran 0 times."""
    for place, function in enumerate(functions):
        for block in function.blocks:
            yield block, counts[place][block.number] if counts else Count(0, 0)


def _from_lines(functions: Sequence[Function], executions: Executions) -> list[list[Count]]:
    """Return the counts of blocks by the lines of their instructions; 0 for a block without a line that ran."""

    kept = () if to_execute.parts(functions) else _STORES

    def of_block(block: Block) -> Count:
        votes: Counter[tuple[float, float]] = Counter()
        stores = [ins for ins in block.instructions if not ins.guard and ins.opcode.startswith(kept)]
        alike = Counter((ins.ptx_line, ins.mnemonic, bool(ins.guard)) for ins in stores or block.instructions)
        for (line, _, guarded), copies in alike.items():
            if times := executions.get(line):
                votes[times.warps / copies, times.lanes / copies] += 1 if guarded else 2
        warps, lanes = max(votes, key=lambda vote: votes[vote], default=(0, 0))
        return Count(ceil(warps), lanes)

    counts = [[of_block(block) for block in function.blocks] for function in functions]
    if counts and counts[0] and executions:
        first = next(iter(executions.values()))
        counts[0][0] = Count(first.warps, first.lanes)
    return counts


def beyond(functions: Sequence[Function], executions: Executions, ptx: Sequence[str]) -> tuple[str, ...]:
    """Return why more runs on hardware than `count` counts, from the same arguments."""
    reasons, text = [], ptx_text.read(ptx)
    calls = " ".join(" ".join(ptx[line - 1 : line + 1]) for line in executions if text[line].op == "call")
    if drivers := [name for ptx_name, name in _DRIVERS.items() if re.search(rf"\b{ptx_name}\b", calls)]:
        *others, last = drivers
        verb = f"{', '.join(others)} and {last} do" if others else f"{last} does"
        reasons.append(f"what {verb} is the driver's own code: its instructions and accesses to memory are not counted")
    if any(block.calls == function.name for function in functions for block in function.blocks):
        reasons.append("which lanes of a warp come back together from a function that calls itself is not followed")
    return tuple(reasons)
