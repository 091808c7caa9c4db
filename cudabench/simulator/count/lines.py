"""How often each line of the PTX was executed, computed from how often each basic block was executed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cudabench.simulator.report import Executed, Lines

if TYPE_CHECKING:
    from cudabench.simulator.count.order import ControlFlow


def executed_lines(flow: ControlFlow, executed: Sequence[Executed]) -> Lines:
    """Return how often each PTX line was executed, keyed by line; executed: how often each basic block was executed.

    An inlined function may have several copies with the same lines; their counts are added.
    """
    branching = [number for number, times in enumerate(executed) if times.taken or times.diverged]
    counts = [Executed(times.warps, times.lanes) if times.taken or times.diverged else times for times in executed]
    lines = Lines({line: counts[number] for line, number in flow.first.items()})
    for line, number in flow.again:
        if counts[number].warps:
            lines[line] = lines[line].plus(*counts[number])
    for number in branching:
        end, times = flow.blocks[number].terminator, executed[number]
        assert end is not None
        line = end.line.ptx_line
        lines[line] = lines[line].plus(taken=times.taken, diverged=times.diverged)
    return lines
