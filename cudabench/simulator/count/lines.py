"""How often each line of the PTX ran, from how often each basic block ran."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cudabench.simulator.report import Executed

if TYPE_CHECKING:
    from cudabench.simulator.count.order import Ways


def executed_lines(ways: Ways, executed: Sequence[Executed]) -> dict[int, Executed]:
    """Return how often each PTX line ran, from how often each block ran; the copies of an inlined function add up."""
    branching = [number for number, times in enumerate(executed) if times.taken or times.diverged]
    counts = [Executed(times.warps, times.lanes) if times.taken or times.diverged else times for times in executed]
    lines = {line: counts[number] for line, number in ways.first.items()}
    for line, number in ways.again:
        if counts[number].warps:
            lines[line] = lines[line].plus(*counts[number])
    for number in branching:
        end, times = ways.blocks[number].terminator, executed[number]
        assert end is not None
        line = end.line.ptx_line
        lines[line] = lines[line].plus(taken=times.taken, diverged=times.diverged)
    return lines
