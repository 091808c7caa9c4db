"""Memory accesses that ptxas merged: which accesses of the PTX one machine instruction does.

An access that ptxas merged has no instruction of its own. It belongs to one of the same space and kind whose PTX names
the same base register, in the same basic block, and which is wide enough to cover its offset: a load of 16 bytes does
four of 4. Two loads of one place are one as well, also where the second is in a block that is only reached through the
first one's; and a load nobody uses is none.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from cudabench.compile.sass import Function
from cudabench.explain.flow import flow_around
from cudabench.explain.machine_code import width
from cudabench.simulator.count.atomics import ONE_LANE


class Access(NamedTuple):
    """A memory access of the PTX: its line, 'global', 'shared', 'local' or 'generic', 'load' or 'store', and where.

    The address is base + offset, base a register or a variable; bytes: of a lane. block: the number of its basic block.
    """

    ptx_line: int
    space: str
    op: str
    base: str
    offset: int
    bytes: int
    block: int


class Group(NamedTuple):
    """Accesses that one machine instruction does: the line that it is named after, all lines, and what it moves.

    It moves `bytes` a lane from `offset` behind the base on, which is `shift` from the leader's own offset; a single
    access is a group too.
    """

    leader: int
    lines: tuple[int, ...]
    offset: int
    shift: int
    bytes: int


class Merged(NamedTuple):
    """All accesses of a kernel in groups, and those that nothing explains.

    aggregated: lines of atomics that one lane of a warp does for all.
    """

    groups: tuple[Group, ...]
    unexplained: tuple[Access, ...]
    aggregated: frozenset[int] = frozenset()

    def issued(self) -> dict[int, tuple[int, int]]:
        """Return how the lines of groups count, as `simulator.run` wants it told."""
        found = dict.fromkeys(self.aggregated, (0, ONE_LANE))
        for group in self.groups:
            if len(group.lines) > 1:
                found |= dict.fromkeys(group.lines[1:], (group.leader, 0))
                found[group.leader] = (group.shift, group.bytes)
        return found


_ACCESS = re.compile(
    r"\s*(?:@!?[\w$%]+\s+)?(?P<op>ld|st)(?P<modifiers>(?:\.[\w:]+)+)\s+(?P<operands>.*?)\[\s*(?P<base>[\w$%.]+)"
    r"\s*(?:\+\s*(?P<offset>-?\s*\w+))?\s*\](?P<after>[^;]*);"
)
_SPACES = ("global", "shared", "local", "const", "param")
_BITS = re.compile(r"[busf](\d+)(?:x2)?$")
_CUTS = re.compile(r"\s*(?:[$\w]+:\s*$|(?:@!?[\w$%]+\s+)?(?:bra|brx|ret|exit|call|bar|barrier)\b|[{}]\s*$)")
_OPCODES = {"LD": "generic", "LDG": "global", "LDS": "shared", "LDL": "local", "LDC": "const", "LDSM": "shared"}
_OPCODES |= {"ST": "generic", "STG": "global", "STS": "shared", "STL": "local", "LDU": "global", "ULDC": "const"}
_MOST = 32


def accesses(ptx: Sequence[str], lines: Iterable[int]) -> list[Access]:
    """Return the loads and stores among lines of a PTX text; parameters and constants are none of them."""
    cuts, found = _cuts(tuple(ptx)), []
    for number in sorted(set(lines)):
        match = _ACCESS.match(ptx[number - 1]) if 0 < number <= len(ptx) else None
        if match is None:
            continue
        modifiers = match["modifiers"].replace("::", ".").split(".")
        space = next((m for m in modifiers if m in _SPACES), "generic")
        if space in ("const", "param"):
            continue
        bits = next((int(m[1]) for part in reversed(modifiers) if (m := _BITS.match(part))), 0)
        if modifiers[-1].endswith("x2"):
            bits = 32
        times = next((int(part[1:]) for part in modifiers if part in ("v2", "v4", "v8")), 1)
        offset = int((match["offset"] or "0").replace(" ", ""), 0)
        op = "load" if match["op"] == "ld" else "store"
        found.append(Access(number, space, op, match["base"], offset, bits * times // 8, bisect_right(cuts, number)))
    return found


@lru_cache(maxsize=8)
def _cuts(ptx: tuple[str, ...]) -> tuple[int, ...]:
    """Return the lines of a PTX text at which a basic block ends, ascending."""
    return tuple(number for number, text in enumerate(ptx, 1) if _CUTS.match(text))


def merge(functions: Sequence[Function], ptx: Sequence[str], lines: Iterable[int]) -> Merged:
    """Return which of a kernel's accesses ptxas merged.

    functions: the kernel and its subroutines; ptx: the lines of its PTX; lines: those that hold its instructions.
    """
    widths: dict[int, int] = {}
    for function in functions:
        for instruction in function.instructions:
            if instruction.opcode in _OPCODES:
                line = instruction.ptx_line
                widths[line] = max(widths.get(line, 0), width(instruction))
    families: dict[tuple[str, str, str, int], list[Access]] = defaultdict(list)
    for access in accesses(ptx, lines):
        families[access.space, access.op, access.base, access.block].append(access)
    groups: list[Group] = []
    unexplained: list[Access] = []
    for family in families.values():
        missing = [access for access in family if access.ptx_line not in widths]
        for access in family:
            if access.ptx_line in widths:
                groups.append(_group(access, widths[access.ptx_line], missing))
        unexplained += missing
    unexplained = _loaded_before(unexplained, families, groups, widths, ptx)
    return Merged(tuple(sorted(groups)), tuple(unexplained), aggregated(functions))


def _loaded_before(
    missing: Sequence[Access],
    families: Mapping[tuple[str, str, str, int], Sequence[Access]],
    groups: list[Group],
    widths: Mapping[int, int],
    ptx: Sequence[str],
) -> list[Access]:
    """Add loads to the groups whose leader loaded the same place before, in a block on every way to theirs, or loads it
    beside its own; return the others. The base must be a register that one instruction alone writes, or a variable."""
    left = []
    for access in missing:
        before = [
            one
            for (space, op, base, _), family in families.items()
            if (space, op, base) == (access.space, access.op, access.base)
            for one in family
            if one.ptx_line < access.ptx_line and one.block != access.block
        ]
        leaders = {one.ptx_line: one for one in before}
        for at, group in enumerate(groups):
            if access.op != "load" or group.leader not in leaders:
                continue
            moves = (group, _whole(group, widths[group.leader]))
            taken = next((one for one in moves if _covers(one, access)), None)
            if taken is None:
                continue
            flow = flow_around(ptx, access.ptx_line)
            if flow.writes(access.base) <= 1 and flow.always(leaders[group.leader].ptx_line, access.ptx_line):
                groups[at] = taken._replace(lines=(*group.lines, access.ptx_line))
                break
        else:
            left.append(access)
    return left


def _covers(group: Group, access: Access) -> bool:
    return group.offset <= access.offset and access.offset + access.bytes <= group.offset + group.bytes


def _whole(group: Group, total: int) -> Group:
    """Return a group as its instruction of `total` bytes, which is aligned to them, moves it."""
    if group.bytes >= total:
        return group
    start = group.offset - group.offset % total
    return group._replace(offset=start, shift=group.shift + start - group.offset, bytes=total)


def aggregated(functions: Iterable[Function]) -> frozenset[int]:
    """Return the lines of atomics whose address is the same for a warp, so that ptxas combines the lanes' operands
    first (VOTE with POPC, or REDUX) and lets one lane update."""
    opcodes: dict[int, set[str]] = defaultdict(set)
    for function in functions:
        for instruction in function.instructions:
            opcodes[instruction.ptx_line].add(instruction.opcode.removeprefix("U"))
    return frozenset(
        line
        for line, names in opcodes.items()
        if names & {"ATOM", "ATOMG", "ATOMS", "RED", "REDG"} and names & {"REDUX", "POPC"} and names & {"VOTE", "VOTEU"}
    )


def _group(leader: Access, total: int, missing: list[Access]) -> Group:
    """Return what an instruction of `total` bytes does besides its own access; that is taken out of `missing`."""
    best: tuple[int, int, list[Access]] = (0, leader.offset, [])
    for start in range(leader.offset + leader.bytes - total, leader.offset + 1, max(1, min(leader.bytes, 4))):
        inside = [a for a in missing if start <= a.offset and a.offset + a.bytes <= start + total]
        covered = {byte for a in inside for byte in range(a.offset, a.offset + a.bytes)}
        # An instruction of 16 bytes is aligned to 16: where two windows hold as much, that one is it.
        weight = 2 * len(covered) + (start % total == 0)
        if inside and weight > best[0]:
            best = (weight, start, inside)
    _, start, inside = best
    for access in inside:
        missing.remove(access)
    lines = (leader.ptx_line, *(access.ptx_line for access in inside))
    moved = max(total, leader.bytes) if inside else leader.bytes
    return Group(leader.ptx_line, lines, start, start - leader.offset, moved)
