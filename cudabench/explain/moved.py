"""Loads that ptxas moved behind a branch: what fewer lanes come to is loaded less often than in the PTX.

A loop that loads for its next turn loads once too often; where nothing else reads that, ptxas moves the load behind the
branch that leaves the loop. The simulator executes the PTX, and counts those loads: here its counts are brought down to
how often the machine code comes to them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from cudabench.compile.sass import Function
from cudabench.explain import executed
from cudabench.explain.machine_code import width
from cudabench.simulator import Access

REASON = "ptxas loads this behind a branch that the PTX has after it, for fewer lanes: counted by the warps there"
_LOADS = {"LDG": "global", "LDS": "shared"}


def issued(
    accesses: Iterable[Access], entry: str, functions: Sequence[Function], executions: executed.Executions,
    ptx: Sequence[str], counts: Sequence[Sequence[executed.Count]] | None = None,
) -> tuple[Access, ...]:  # fmt: skip
    """Return accesses with those of one kernel brought down to what its machine code loads.

    functions, executions, ptx: as for `executed.count`, whose result `counts` is where it is there already.
    """
    if counts is None:
        counts = executed.count(functions, executions, ptx)
    loads: dict[int, list[tuple[str, int, bool, executed.Count]]] = defaultdict(list)
    for function, ran in zip(functions, counts, strict=True):
        for block, times in zip(function.blocks, ran, strict=True):
            for one in block.instructions:
                if one.opcode in _LOADS:
                    loads[one.ptx_line].append((_LOADS[one.opcode], width(one), bool(one.guard), times))
    found = []
    for access in accesses:
        copies = loads.get(access.instruction) if access.op == "load" and access.kernel == entry else None
        written = executions.get(access.instruction)
        if copies and written and access.requests and not access.merged:
            alike = all((space, size) == (access.space, access.bytes) for space, size, _, _ in copies)
            sure = all(times.sure and not guarded for _, _, guarded, times in copies)
            lanes = sum(times.lanes for _, _, _, times in copies)
            if alike and sure and 0 < lanes < written.lanes:
                share = sum(times.warps for _, _, _, times in copies) / written.warps
                access = (access.times(share) if share < 1 else access)._replace(inexact=REASON)
        found.append(access)
    return tuple(found)
