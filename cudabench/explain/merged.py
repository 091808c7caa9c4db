"""Memory accesses that ptxas merged: the PTX accesses of each machine instruction, and how they count.

A merged access lacks its own instruction. It belongs to an instruction with the same space, kind, base register and
basic block that is wide enough to cover its offset: a load of 16 bytes does four of 4. Two loads of one place are also
merged, even if the second is in a block that is only reached through the first one's block. Unused loads are removed.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from cudabench.compile.sass import Function
from cudabench.explain import ptx_text
from cudabench.explain.machine_code import width
from cudabench.simulator.count.atomics import ONE_LANE


class Access(NamedTuple):
    """A memory access of the PTX: its line, 'global', 'shared', 'local' or 'generic', 'load' or 'store', and its place.

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
    """The accesses of one machine instruction: the line in its line information, all lines, and its bytes.

    It moves `bytes` per lane from `offset` after the base, which is `shift` from the leader's own offset. A single
    access is a group too.
    """

    leader: int
    lines: tuple[int, ...]
    offset: int
    shift: int
    bytes: int


class Merged(NamedTuple):
    """All accesses of a kernel in groups, and the accesses that could not be matched.

    aggregated: lines of atomics that one lane does for its warp.
    """

    groups: tuple[Group, ...]
    unexplained: tuple[Access, ...]
    aggregated: frozenset[int] = frozenset()

    def issued(self) -> dict[int, tuple[int, int]]:
        """Return how the lines of groups count, in the form of `simulator.run`."""
        counts = dict.fromkeys(self.aggregated, (0, ONE_LANE))
        for group in self.groups:
            if len(group.lines) > 1:
                counts |= dict.fromkeys(group.lines[1:], (group.leader, 0))
                counts[group.leader] = (group.shift, group.bytes)
        return counts


_ADDRESS = re.compile(r"[^\[]*\[\s*([\w$%.]+)\s*(?:\+\s*(-?\s*\w+))?\s*\][^;]*;")
_BITS = re.compile(r"[busf](\d+)(?:x2)?$")
_OPCODES = ("LD", "LDG", "LDS", "LDL", "LDC", "LDSM", "LDU", "ULDC", "ST", "STG", "STS", "STL")


def accesses(ptx: Sequence[str], lines: Iterable[int]) -> list[Access]:
    """Return the loads and stores among lines of a PTX text, except of parameters and constants."""
    text, result = ptx_text.read(ptx), []
    for number in sorted(set(lines)):
        row = text[number]
        match = _ADDRESS.match(row.operands) if row.op in ("ld", "st") else None
        if match is None or row.space in ("const", "param"):
            continue
        bits = next((int(m[1]) for part in reversed(row.words) if (m := _BITS.match(part))), 0)
        if row.words[-1].endswith("x2"):
            bits = 32
        times = next((int(part[1:]) for part in row.words if part in ("v2", "v4", "v8")), 1)
        offset = int((match[2] or "0").replace(" ", ""), 0)
        op = "load" if row.op == "ld" else "store"
        result.append(Access(number, row.space, op, match[1], offset, bits * times // 8, text.blocks[number]))
    return result


def merge(functions: Sequence[Function], ptx: Sequence[str], lines: Iterable[int]) -> Merged:
    """Return which of a kernel's accesses ptxas merged.

    functions: the kernel and its subroutines; ptx: the lines of its PTX; lines: those that hold its instructions.
    """
    instructions = [ins for function in functions for ins in function.instructions if ins.opcode in _OPCODES]
    widths: dict[int, int] = {}
    for ins in instructions:
        widths[ins.ptx_line] = max(widths.get(ins.ptx_line, 0), width(ins))
    families: dict[tuple[str, str, str, int], list[Access]] = defaultdict(list)
    for access in accesses(ptx, lines):
        families[access.space, access.op, access.base, access.block].append(access)
    groups: list[Group] = []
    unexplained: list[Access] = []
    for family in families.values():
        missing = [access for access in family if access.ptx_line not in widths]
        present = [access for access in family if access.ptx_line in widths]
        groups += [_group(access, widths[access.ptx_line], missing) for access in present]
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
    """Add loads to groups whose leader loaded the same place before, in a block on every path to theirs, or loads it
    in its own instruction; return the others. The base must be a register with a single write, or a variable."""
    unmatched = []
    for access in missing:
        before = [
            earlier
            for (space, op, base, _), family in families.items()
            if (space, op, base) == (access.space, access.op, access.base)
            for earlier in family
            if earlier.ptx_line < access.ptx_line and earlier.block != access.block
        ]
        leaders = {earlier.ptx_line: earlier for earlier in before}
        for index, group in enumerate(groups):
            if access.op != "load" or group.leader not in leaders:
                continue
            windows = (group, _whole(group, widths[group.leader]))
            end = access.offset + access.bytes
            taken = next((w for w in windows if w.offset <= access.offset and end <= w.offset + w.bytes), None)
            if taken is None:
                continue
            flow = ptx_text.read(ptx).flow(access.ptx_line)
            if flow.writes[access.base] <= 1 and flow.always(leaders[group.leader].ptx_line, access.ptx_line):
                groups[index] = taken._replace(lines=(*group.lines, access.ptx_line))
                break
        else:
            unmatched.append(access)
    return unmatched


def _whole(group: Group, total: int) -> Group:
    """Return a group widened to its aligned instruction of `total` bytes."""
    behind = group.offset % total
    whole = group._replace(offset=group.offset - behind, shift=group.shift - behind, bytes=total)
    return group if group.bytes >= total else whole


def aggregated(functions: Iterable[Function]) -> frozenset[int]:
    """Return the lines of atomics whose address is the same for a warp, so that ptxas combines the lanes' operands
    first (VOTE with POPC, or REDUX) and lets one lane update."""
    opcodes: dict[int, set[str]] = defaultdict(set)
    for instruction in (ins for function in functions for ins in function.instructions):
        opcodes[instruction.ptx_line].add(instruction.opcode.removeprefix("U"))
    return frozenset(
        line
        for line, names in opcodes.items()
        if names & {"ATOM", "ATOMG", "ATOMS", "RED", "REDG"} and names & {"REDUX", "POPC"} and names & {"VOTE", "VOTEU"}
    )


def _group(leader: Access, total: int, missing: list[Access]) -> Group:
    """Return the group of an instruction of `total` bytes; its other accesses are removed from `missing`."""
    best: tuple[int, int, list[Access]] = (0, leader.offset, [])
    for start in range(leader.offset + leader.bytes - total, leader.offset + 1, max(1, min(leader.bytes, 4))):
        inside = [a for a in missing if start <= a.offset and a.offset + a.bytes <= start + total]
        covered = {byte for a in inside for byte in range(a.offset, a.offset + a.bytes)}
        # An instruction of 16 bytes is aligned to 16, which decides between two windows with equal content.
        weight = 2 * len(covered) + (start % total == 0)
        if inside and weight > best[0]:
            best = (weight, start, inside)
    _, start, inside = best
    for access in inside:
        missing.remove(access)
    lines = (leader.ptx_line, *(access.ptx_line for access in inside))
    size = max(total, leader.bytes) if inside else leader.bytes
    return Group(leader.ptx_line, lines, start, start - leader.offset, size)
