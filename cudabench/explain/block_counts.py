"""Counts how often each basic block of machine code ran.

If the code has no divergent paths, the counts are derived from the counts of its PTX lines. A block ran as often as the
PTX lines of its stores, because ptxas does not move stores. For a block without stores, each instruction votes for the
count of its PTX line, and the count with the most votes is used: ptxas may have moved the other instructions into the
block, from before a guarded EXIT. Machine code with divergent paths is executed in the simulator, which counts its
instructions. If the simulator cannot execute the code, the counts are derived from the PTX lines too, and are marked
as uncertain. The count of a line is divided by the number of copies of its instruction in the block.

An instruction whose guard is false in all lanes is counted too, because the hardware issues it.
"""

from __future__ import annotations

import re
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from typing import NamedTuple

from cudabench.compile.sass import Block, Function
from cudabench.explain import machine_code_selection, ptx_text
from cudabench.simulator.machine_code.image import DRIVER_FUNCTIONS
from cudabench.simulator.report import Code, Executed, Lines

Executions = Mapping[int, Executed]  # for each PTX line: how often it ran
_STORES = ("ST", "RED", "ATOM")  # ptxas does not move an instruction with one of these opcode prefixes past an EXIT


class Count(NamedTuple):
    """The executions of a basic block. `warps`: how often a warp entered the block. `lanes`: the active lanes, summed
    over these entries.

    `reissued`: how many additional times instructions of the block were issued; `reissued_lanes`: the lanes in these
    additional issues. For example, a jump by table (BRX) is issued once for each target of its lanes. Both are 0 if the
    machine code itself was not executed.
    """

    warps: float
    lanes: float
    reissued: float = 0
    reissued_lanes: float = 0


MOST_CACHED = 64  # the most kernels for which counts are cached

# The counts of the last runs are cached, because several functions need them. The keys are the ids of the inputs.
_count_cache: OrderedDict[tuple[int, int], tuple[Sequence[Function], Executions, list[list[Count]]]] = OrderedDict()


def count(functions: Sequence[Function], executions: Executions) -> list[list[Count]]:
    """Return, for each function, a list with the count of each of its blocks; callers must not change the lists.

    `functions`: first the kernel, then its subroutines. `executions`: how often each PTX line ran; the first entry is
    the line of the kernel's first instruction.
    """
    key = id(functions), id(executions)
    if key not in _count_cache:
        # The cache keeps a reference to the inputs, so that no other object can get the same id.
        code = code_of(executions)
        counts = _from_lines(functions, executions) if code is None else _from_code(functions, code)
        _count_cache[key] = functions, executions, counts
        if len(_count_cache) > MOST_CACHED:
            _count_cache.popitem(last=False)
    return _count_cache[key][2]


def code_of(executions: Executions | None) -> Code | None:
    """Return the counts of the machine code if the simulator executed that code, else None."""
    code = executions.code if isinstance(executions, Lines) else None
    return code if isinstance(code, Code) else None


def _from_code(functions: Sequence[Function], code: Code) -> list[list[Count]]:
    """Return the counts of the blocks of each function, computed from the counts of executed machine instructions."""

    counts = code.counts

    def of_block(block: Block) -> Count:
        rows = [counts[ins.address] for ins in block.instructions]
        (warps, lanes, *_), number = rows[0], len(rows)
        reissued, reissued_lanes = (sum(row[part] for row in rows) - rows[0][part] * number for part in (0, 1))
        return Count(warps, lanes, reissued, reissued_lanes)

    return [[of_block(block) for block in function.blocks] for function in functions]


def blocks_with_counts(
    functions: Sequence[Function], counts: Sequence[Sequence[Count]] | None
) -> Iterator[tuple[Block, Count]]:
    """Yield (block, count of the block) for all blocks of a kernel and its subroutines; without `counts`, 0s."""
    for place, function in enumerate(functions):
        for block in function.blocks:
            yield block, counts[place][block.number] if counts else Count(0, 0)


def _from_lines(functions: Sequence[Function], executions: Executions) -> list[list[Count]]:
    """Return the counts of the blocks, derived from the counts of PTX lines; 0 for a block none of whose lines ran."""

    kept = () if machine_code_selection.may_diverge(functions) else _STORES

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


def undercount_reasons(functions: Sequence[Function], executions: Executions, ptx: Sequence[str]) -> tuple[str, ...]:
    """Return the reasons why hardware executes more instructions than `count` returns; empty if there is no reason.
    `ptx`: the lines of the PTX."""
    reasons, text = [], ptx_text.read(ptx)
    calls = " ".join(" ".join(ptx[line - 1 : line + 1]) for line in executions if text[line].op == "call")
    if drivers := [name for ptx_name, name in DRIVER_FUNCTIONS.items() if re.search(rf"\b{ptx_name}\b", calls)]:
        *others, last = drivers
        verb = f"{', '.join(others)} and {last} do" if others else f"{last} does"
        reasons.append(f"what {verb} is the driver's own code: its instructions and accesses to memory are not counted")
    if code_of(executions) is None and any(
        block.calls == function.name for function in functions for block in function.blocks
    ):
        reasons.append("the counts do not model which lanes of a warp return together from a recursive function")
    return tuple(reasons)
