"""Accesses as a reader takes them in: those of one line to one array in one row, whatever the compiler unrolled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cudabench.records.results import Access, Pattern


def by_line(rows: Sequence[Access]) -> list[Access]:
    """Return one row for each line, kind, width, array and pattern; counts are summed, in the order of the source."""
    found: dict[tuple[object, ...], Access] = {}
    for row in rows:
        pattern = row.pattern
        shape = (pattern.kind, pattern.stride_bytes, pattern.run) if pattern else None
        key = (row.line, row.source, row.space, row.op, row.bytes, row.array, shape, row.advice)
        have = found.get(key)
        found[key] = row if have is None else _sum(have, row)
    return list(found.values())


def _sum(first: Access, second: Access) -> Access:
    def add(x: int | None, y: int | None) -> int | None:
        return None if x is None or y is None else x + y

    return replace(
        first,
        requests=first.requests + second.requests,
        sectors=add(first.sectors, second.sectors),
        ideal_sectors=add(first.ideal_sectors, second.ideal_sectors),
        wavefronts=add(first.wavefronts, second.wavefronts),
        ideal_wavefronts=add(first.ideal_wavefronts, second.ideal_wavefronts),
        merged=first.merged + second.merged,
        inexact=first.inexact or second.inexact,
        instruction=first.instruction if first.instruction == second.instruction else None,
    )


def spoken(pattern: Pattern | None) -> str:
    """Return what the lanes do in a few words: 'stride 128 B', 'rows of 4', 'one place'."""
    if pattern is None:
        return ""
    if pattern.kind == "stride":
        words = f"stride {pattern.stride_bytes} B"
    elif pattern.kind == "rows":
        words = f"rows of {pattern.run}"
    elif pattern.kind == "contiguous":
        words = "neighbours" if (pattern.stride_bytes or 0) >= 0 else "neighbours, reversed"
    else:
        words = {
            "broadcast": "one place" if pattern.run >= pattern.lanes else "groups at one place",
            "permutation": "neighbours, permuted", "gather": "gather", "single": "one lane",
        }.get(pattern.kind, pattern.kind)  # fmt: skip
    return words + (f", {pattern.lanes} lanes" if pattern.lanes < 32 and pattern.kind != "single" else "")
