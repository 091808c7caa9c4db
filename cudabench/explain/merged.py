"""Finds memory accesses of the PTX that ptxas merged: the machine instruction of each access, and how to count it.

No machine instruction has the PTX line of a merged access. The access is matched to a machine instruction with the same
memory space, kind (load or store), base register and basic block that is wide enough to include its offset: one load of
16 bytes replaces four loads of 4 bytes. A load is also merged into an earlier load of the same address, even in another
basic block, if every path to the later load passes the earlier load. An unused load is removed by ptxas.
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
    """A memory access of the PTX.

    `space`: 'global', 'shared', 'local' or 'generic'. `op`: 'load' or 'store'. The address is `base` + `offset`, where
    `base` is a register or a variable. `bytes`: the bytes that a lane accesses. `block`: the number of the basic block.
    """

    ptx_line: int
    space: str
    op: str
    base: str
    offset: int
    bytes: int
    block: int


class Group(NamedTuple):
    """The PTX accesses that one machine instruction replaces; there may be only one such access.

    `leader`: the PTX line in the machine instruction's line information. `lines`: the PTX lines of all accesses that
    the machine instruction replaces, the leader first. The instruction accesses `bytes` bytes per lane, from `offset`
    bytes after the base. `shift`: `offset` minus the offset of the leader's PTX access.
    """

    leader: int
    lines: tuple[int, ...]
    offset: int
    shift: int
    bytes: int


class Merged(NamedTuple):
    """The accesses of a kernel. `groups`: accesses that were matched to machine instructions. `unexplained`: accesses
    without a match. `aggregated`: the PTX lines of atomics that one lane executes for its whole warp."""

    groups: tuple[Group, ...]
    unexplained: tuple[Access, ...]
    aggregated: frozenset[int] = frozenset()

    def request_counts(self) -> dict[int, tuple[int, int]]:
        """Return, by PTX line, how to count the line's access: the argument `merged` of `simulator.launch.run`."""
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
    """Return the loads and stores on the given lines of a PTX text, except those of parameters and constants."""
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
    """Return which accesses of a kernel ptxas merged.

    `functions`: the kernel and its subroutines. `ptx`: the lines of the PTX. `lines`: the numbers of the PTX lines with
    the kernel's instructions.
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
    unexplained = _match_earlier_loads(unexplained, families, groups, widths, ptx)
    return Merged(tuple(sorted(groups)), tuple(unexplained), aggregated(functions))


def _match_earlier_loads(
    missing: Sequence[Access],
    families: Mapping[tuple[str, str, str, int], Sequence[Access]],
    groups: list[Group],
    widths: Mapping[int, int],
    ptx: Sequence[str],
) -> list[Access]:
    """Add each load in `missing` to the group of an instruction that loads the same address earlier on every path to
    the load; return the accesses without such a group. The base must be a variable or a register written only once."""
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
            windows = (group, _full_width(group, widths[group.leader]))
            end = access.offset + access.bytes
            taken = next((w for w in windows if w.offset <= access.offset and end <= w.offset + w.bytes), None)
            if taken is None:
                continue
            flow = ptx_text.read(ptx).flow(access.ptx_line)
            if flow.writes[access.base] <= 1 and flow.dominates(leaders[group.leader].ptx_line, access.ptx_line):
                groups[index] = taken._replace(lines=(*group.lines, access.ptx_line))
                break
        else:
            unmatched.append(access)
    return unmatched


def _full_width(group: Group, total: int) -> Group:
    """Return a group widened to all `total` bytes of its instruction; the start is aligned to `total` bytes."""
    behind = group.offset % total
    whole = group._replace(offset=group.offset - behind, shift=group.shift - behind, bytes=total)
    return group if group.bytes >= total else whole


def aggregated(functions: Iterable[Function]) -> frozenset[int]:
    """Return the PTX lines of atomics whose address is the same in a whole warp. For these, ptxas first combines the
    operands of the lanes (VOTE with POPC, or REDUX), and then one lane executes the atomic."""
    opcodes: dict[int, set[str]] = defaultdict(set)
    for instruction in (ins for function in functions for ins in function.instructions):
        opcodes[instruction.ptx_line].add(instruction.opcode.removeprefix("U"))
    return frozenset(
        line
        for line, names in opcodes.items()
        if names & {"ATOM", "ATOMG", "ATOMS", "RED", "REDG"} and names & {"REDUX", "POPC"} and names & {"VOTE", "VOTEU"}
    )


def _group(leader: Access, total: int, missing: list[Access]) -> Group:
    """Return the group of the instruction on the line of `leader`, which accesses `total` bytes per lane; remove the
    group's other accesses from `missing`."""
    best: tuple[int, int, list[Access]] = (0, leader.offset, [])
    for start in range(leader.offset + leader.bytes - total, leader.offset + 1, max(1, min(leader.bytes, 4))):
        inside = [a for a in missing if start <= a.offset and a.offset + a.bytes <= start + total]
        covered = {byte for a in inside for byte in range(a.offset, a.offset + a.bytes)}
        # An instruction of n bytes is aligned to n bytes. So if two windows contain equally many bytes of accesses,
        # choose the aligned window.
        weight = 2 * len(covered) + (start % total == 0)
        if inside and weight > best[0]:
            best = (weight, start, inside)
    _, start, inside = best
    for access in inside:
        missing.remove(access)
    lines = (leader.ptx_line, *(access.ptx_line for access in inside))
    size = max(total, leader.bytes) if inside else leader.bytes
    return Group(leader.ptx_line, lines, start, start - leader.offset, size)
