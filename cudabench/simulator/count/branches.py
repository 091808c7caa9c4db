"""Branches by source line: how often they part warps, and what that costs until the paths meet again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cudabench.simulator.program.code import Block, Code
from cudabench.simulator.report import Branch, Executed

if TYPE_CHECKING:
    from cudabench.simulator.plan import Plan


def branches(code: Code, executed: Sequence[Executed], plan: Plan) -> tuple[Branch, ...]:
    """Return the conditional branches that ran, one record a source line, in the order of the source.

    executed: how often each basic block ran. plan: that of the launch, which has the post-dominators.
    """
    lines: dict[tuple[str, int], list[Block]] = {}
    for block, place in plan.ends:
        if executed[block.number].warps:
            lines.setdefault(place, []).append(block)
    regions: dict[tuple[str, int], set[int]] = {}
    loops, by_data = set(), set()
    for place, ends in lines.items():
        for block in ends:
            if executed[block.number].parted:
                inside = plan.between(block)
                regions.setdefault(place, set()).update(inside)
                if block.number in inside:
                    loops.add(place)
                if block.number in plan.decided_by_data:
                    by_data.add(place)
    # Each block counts for the innermost branch around it, whose region is the smallest.
    owners: dict[int, tuple[str, int]] = {}
    for place in sorted(regions, key=lambda place: -len(regions[place])):
        owners.update(dict.fromkeys(regions[place], place))
    within: dict[tuple[str, int], list[int]] = {}
    for number, place in owners.items():
        within.setdefault(place, []).append(number)
    found = []
    for place, ends in sorted(lines.items(), key=lambda item: item[0]):
        own = [executed[block.number] for block in ends]
        mine = within.get(place, ())
        found.append(
            Branch(
                *place, sum(times.warps for times in own), sum(times.parted for times in own),
                sum(times.lanes for times in own), sum(times.taken for times in own),
                sum(code.blocks[number].weight * executed[number].warps for number in mine),
                sum(code.blocks[number].weight * executed[number].lanes for number in mine),
                place in loops, place in by_data,
            )
        )  # fmt: skip
    return tuple(found)


def post_dominators(blocks: Sequence[Block]) -> list[int]:
    """Return for each block, as bits, the blocks that every way from it to the end passes, itself among them."""
    everything = (1 << len(blocks)) - 1
    found = [everything if block.successors else 1 << block.number for block in blocks]
    changed = True
    while changed:
        changed = False
        for block in reversed(blocks):
            if not block.successors:
                continue
            every = everything
            for number in block.successors:
                every &= found[number]
            every |= 1 << block.number
            if every != found[block.number]:
                found[block.number] = every
                changed = True
    return found


def between(blocks: Sequence[Block], start: Block, always: int) -> set[int]:
    """Return the blocks on the ways from a branch to where all of them meet; always: its post-dominators."""
    meeting = always & ~(1 << start.number)
    inside: set[int] = set()
    ahead = list(start.successors)
    while ahead:
        number = ahead.pop()
        if number in inside or meeting >> number & 1:
            continue
        inside.add(number)
        ahead.extend(blocks[number].successors)
    return inside
