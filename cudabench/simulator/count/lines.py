"""How often each line of the PTX ran, by how often each basic block did."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from cudabench.simulator.report import Executed

if TYPE_CHECKING:
    from cudabench.simulator.program.code import Block


class Layout(NamedTuple):
    """Where the PTX lines of a kernel are: each line, the block in which it is first, and (line, block) of the others.

    The copies of an inlined function have the same lines.
    """

    lines: tuple[int, ...]
    blocks: tuple[int, ...]
    again: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, blocks: Sequence[Block]) -> Layout:
        """Return it for the blocks of a kernel."""
        first: dict[int, int] = {}
        again = []
        for block in blocks:
            for line in block.lines:
                if first.setdefault(line, block.number) != block.number:
                    again.append((line, block.number))
        return cls(tuple(first), tuple(first.values()), tuple(again))


def executed_lines(
    blocks: Sequence[Block], layout: Layout, executed: Sequence[Executed], more: Iterable[tuple[int, Executed]]
) -> dict[int, Executed]:
    """Return how often each PTX line ran, from how often each block did; the copies of an inlined function add up.

    more: what some lines did besides: atomics that are loops, divisions and roots that call a subroutine.
    """
    branching = [number for number, times in enumerate(executed) if times.taken or times.parted]
    own = list(executed)
    for number in branching:
        own[number] = Executed(own[number].warps, own[number].lanes)
    lines = dict(zip(layout.lines, map(own.__getitem__, layout.blocks), strict=True))
    for line, number in layout.again:
        if own[number].warps:
            lines[line] = lines[line].plus(*own[number])
    for number in branching:
        end, times = blocks[number].terminator, executed[number]
        assert end is not None
        line = end.line.ptx_line
        lines[line] = lines[line].plus(taken=times.taken, parted=times.parted, taking=times.taking)
    for line, times in more:
        lines[line] = lines[line].plus(*times)
    return lines
