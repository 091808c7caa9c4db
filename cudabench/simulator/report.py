"""What a simulated launch yields: frozen records without behaviour."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

Index = tuple[int, int, int]


class Access(NamedTuple):
    """Memory requests of one source line, space, operation and width, summed over the launch.

    bytes: per lane. requests: warp-level instructions with at least one active lane. sectors (global, local): distinct
    32-byte pieces touched, summed over requests; ideal_sectors: the same bytes packed. wavefronts (shared): passes
    over the 32 banks; ideal_wavefronts: without conflicts. Pairs that do not apply are None.
    """

    file: str
    line: int
    space: str
    op: str
    bytes: int
    requests: int
    sectors: int | None
    ideal_sectors: int | None
    wavefronts: int | None
    ideal_wavefronts: int | None


class Hazard(NamedTuple):
    """A fault of the kernel at a source line; block and thread are those of the first occurrence, x first."""

    kind: str
    file: str
    line: int
    block: Index
    thread: Index
    count: int  # type: ignore[assignment]
    message: str


class Report(NamedTuple):
    """The outcome of a launch.

    instructions: warp-level PTX instructions executed. output: what printf wrote. trace: a `trace.Trace`, or None.
    """

    instructions: int
    accesses: tuple[Access, ...]
    hazards: tuple[Hazard, ...]
    output: str
    trace: Any = None


def merge(reports: Iterable[Report]) -> Report:
    """Return one report for several launches: counts are summed, the first trace is kept."""
    instructions, output, trace = 0, [], None
    accesses: dict[tuple[Any, ...], list[int | None]] = {}
    hazards: dict[tuple[str, str, int], Hazard] = {}
    for report in reports:
        instructions += report.instructions
        output.append(report.output)
        trace = report.trace if trace is None else trace
        for access in report.accesses:
            key = access[:5]
            counts = accesses.get(key)
            if counts is None:
                accesses[key] = list(access[5:])
            else:
                for place, value in enumerate(access[5:]):
                    if value is not None:
                        counts[place] = (counts[place] or 0) + value
        for hazard in report.hazards:
            name = (hazard.kind, hazard.file, hazard.line)
            first = hazards.get(name)
            hazards[name] = hazard if first is None else first._replace(count=first.count + hazard.count)
    return Report(
        instructions,
        tuple(Access(*key, *counts) for key, counts in sorted(accesses.items(), key=lambda item: item[0])),
        tuple(sorted(hazards.values(), key=lambda hazard: (hazard.file, hazard.line, hazard.kind))),
        "".join(output),
        trace,
    )
