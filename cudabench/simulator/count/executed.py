"""How often each line of the PTX was executed; for the branches of each source line, how often warps diverge there, and
what they execute until their paths reconverge."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import TYPE_CHECKING

from cudabench.simulator.program.code import Block, Code
from cudabench.simulator.report import Branch, Executed, Lines

if TYPE_CHECKING:
    from cudabench.simulator.count.order import ControlFlow


def branches(code: Code, executed: Sequence[Executed], flow: ControlFlow) -> tuple[Branch, ...]:
    """Return one record for each source line with conditional branches that were executed, sorted by line.

    executed: how often each basic block was executed.
    """
    lines: dict[tuple[str, int], list[Block]] = {}
    regions: dict[tuple[str, int], set[int]] = {}
    loops, by_data = set(), set()
    for block, place in flow.conditional_blocks:
        if executed[block.number].warps:
            lines.setdefault(place, []).append(block)
        if executed[block.number].diverged:
            inside = flow.between(block)
            regions.setdefault(place, set()).update(inside)
            if block.number in inside:
                loops.add(place)
            if block.number in flow.data_dependent_branches:
                by_data.add(place)
    # The instructions of a block count for the innermost branch around it: the branch with the smallest region.
    owners: dict[int, tuple[str, int]] = {}
    for place in sorted(regions, key=lambda place: -len(regions[place])):
        owners.update(dict.fromkeys(regions[place], place))
    within: dict[tuple[str, int], list[int]] = {}
    for number, place in owners.items():
        within.setdefault(place, []).append(number)
    records = []
    for place, ends in sorted(lines.items(), key=itemgetter(0)):
        counts = [executed[block.number] for block in ends]
        numbers = within.get(place, ())
        records.append(
            Branch(
                *place, sum(times.warps for times in counts), sum(times.diverged for times in counts),
                sum(times.lanes for times in counts), sum(times.taken for times in counts),
                sum(code.blocks[number].weight * executed[number].warps for number in numbers),
                sum(code.blocks[number].weight * executed[number].lanes for number in numbers),
                place in loops, place in by_data,
            )
        )  # fmt: skip
    return tuple(records)


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
