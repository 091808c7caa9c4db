"""Whether the machine code holds lanes that pass by a barrier of the block until the others have come from it.

Where it does, the barrier is executed by a part of a warp whose other lanes are alive: what synccheck of
compute-sanitizer calls "divergent threads in warp". Where it does not, those lanes go on to their end meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable

from cudabench.toolchain.sass import Function, Instruction


def held(functions: Iterable[Function], ptx_line: int) -> bool:
    """Return whether any barrier of a line of the PTX has a guard, or stands where lanes are to meet behind it (between
    BSSY and BSYNC of one barrier register)."""
    for function in functions:
        bars = [one for one in function.instructions if one.opcode == "BAR" and one.ptx_line == ptx_line]
        if any(one.guard for one in bars):
            return True
        if bars and not region(function).isdisjoint(one.address for one in bars):
            return True
    return False


def region(function: Function) -> set[int]:
    """Return the addresses of the instructions between a BSSY and its BSYNC."""
    found: set[int] = set()
    for block in function.blocks:
        for place, one in enumerate(block.instructions):
            if one.opcode == "BSSY":
                found |= _between(function, block.number, place + 1, one)
    return found


def _between(function: Function, block: int, place: int, begins: Instruction) -> set[int]:
    register = begins.operands[0]
    found: set[int] = set()
    seen: set[int] = set()
    work = [(block, place)]
    while work:
        number, first = work.pop()
        inside = function.blocks[number].instructions[first:]
        found.update(one.address for one in inside)
        last = inside[-1] if inside else None
        if last is not None and last.opcode == "BSYNC" and last.operands[0] == register:
            continue
        for following in function.blocks[number].successors:
            if following not in seen:
                seen.add(following)
                work.append((following, 0))
    return found
