"""A kernel's source on a page: the lines of the kernel, and other lines that ran. Colours show a line's counts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from functools import lru_cache
from itertools import pairwise
from types import SimpleNamespace

from cudabench.errors import CudabenchError
from cudabench.explain.accesses import cost, unit
from cudabench.records.results import Access, Branch, Hazard, Result
from cudabench.source.choose_kernel import find_kernel
from cudabench.source.files import parse_text
from cudabench.source.records import SourceFile
from cudabench.views.quantities import short

LEVELS = 5
MOST_LINES = 220  # at most this many lines are shown for one kernel
MOST_ROWS = 640  # at most this many lines are shown on a page, for all kernels together
CONTEXT = 2  # how many lines are shown before and after a line outside the kernel that was executed


MEANINGS = {
    "sectors": "pieces of 32 bytes that requests to global memory touch",
    "wavefronts": "passes over the banks of shared memory",
    "executed": "machine instructions that warps executed",
    "threads": "active threads of 32, in the mean of those instructions: fewer is divergence",
}


def listing(result: Result, text: str | None, most: int = MOST_LINES) -> SimpleNamespace | None:
    """Return the source of a kernel with its counts; None if no line is known.

    `headings`: the columns of heat with their meanings; `rows`: the lines; a row with `skipped` replaces that many
    lines, which are not shown; `cut`: how many lines were removed because there are more than `most` (the lines with
    the highest counts are kept). `text` is the source, or None if the file lacks it: in this case, only lines that
    access memory are known.
    """
    counts = _counts(result)
    places: list[Access | Branch | Hazard] = [*(result.access or ()), *(result.branches or ()), *(result.hazards or ())]
    sources = {row.line: row.source for row in places if not row.file}
    lines = text.split("\n") if text is not None else []
    wanted = _wanted(result, text, counts) if text is not None else sorted(sources)
    wanted = [number for number in wanted if text is None or 0 < number <= len(lines)]
    if not wanted:
        return None
    present = [name for name in MEANINGS if any(name in by for by in counts.values())]
    tops = {name: max(by.get(name, 0.0) for by in counts.values()) for name in present}
    code = {line.line: line.instructions for line in result.lines or () if not line.file}
    faults = {hazard.line for hazard in result.hazards or () if not hazard.file}
    cut = max(0, len(wanted) - most)
    if cut:
        shares = {n: sum(by.get(name, 0.0) / (tops[name] or 1.0) for name in present) for n, by in counts.items()}
        wanted = sorted(sorted(wanted, key=lambda n: (n not in faults, -shares.get(n, -1.0)))[:most])
    rows = []
    for before, number in pairwise([wanted[0] - 1, *wanted]):
        if number > before + 1:
            rows.append(SimpleNamespace(number=0, text="", heat=(), skipped=number - before - 1))
        shown = lines[number - 1] if text is not None else sources[number]
        by = counts.get(number, {})
        rows.append(
            SimpleNamespace(
                number=number,
                text=shown.expandtabs(4).rstrip(),
                heat=[_heat(name, by.get(name), tops[name], by) for name in present],
                code=code.get(number, 0),
                skipped=0,
                hazard=number in faults,
            )
        )
    headings = [(name, MEANINGS[name]) for name in present]
    return SimpleNamespace(headings=headings, rows=rows, cut=cut, whole=text is not None)


def _counts(result: Result) -> dict[int, dict[str, float]]:
    """Return the counts by line and by column, for lines of the source file itself, without its headers."""
    counts: dict[int, dict[str, float]] = defaultdict(dict)
    for row in result.access or ():
        in_old_file = row.source.startswith("(") and row.source.endswith(")") and "." in row.source
        if row.file or (in_old_file and " " not in row.source):
            continue  # the line is in a header, whose text is not shown
        spent, name, by = cost(row), unit(row.space), counts[row.line]
        by[name] = by.get(name, 0.0) + spent.actual
        by[f"ideal {name}"] = by.get(f"ideal {name}", 0.0) + spent.ideal
    for line in result.lines or ():
        if not line.file and line.executions:
            counts[line.line]["executed"] = line.executions
            counts[line.line]["threads"] = line.threads_per_instruction or 0.0
    return counts


def _wanted(result: Result, text: str, counts: Iterable[int]) -> list[int]:
    """Return the numbers of the lines to show, in order.

    These are the lines of the kernel and its comment, other lines that ran, and CONTEXT lines before and after those
    other lines.
    """
    lines = text.split("\n")
    wanted: set[int] = set()
    try:
        kernel = find_kernel(_parsed(text, result.source), result.function)
    except (CudabenchError, RecursionError):
        pass
    else:
        first, last = text.count("\n", 0, kernel.start) + 1, text.count("\n", 0, kernel.end) + 1
        while first > 1 and lines[first - 2].strip().startswith(("//", "/*", "*")):
            first -= 1
        wanted |= set(range(first, last + 1))
    for number in (*counts, *(hazard.line for hazard in result.hazards or () if not hazard.file)):
        if number not in wanted:
            wanted |= set(range(number - CONTEXT, number + CONTEXT + 1))
    ordered = sorted(wanted)
    for line, next_line in pairwise(ordered):
        # a row that says how many lines are skipped would take as much room as these lines, so the lines are shown
        if 1 < next_line - line <= CONTEXT + 1:
            wanted |= set(range(line, next_line))
    return sorted(wanted)


@lru_cache(maxsize=8)
def _parsed(text: str, name: str) -> SourceFile:
    """Return the parsed source. A source with several kernels is parsed only once."""
    return parse_text(text, name)


def _heat(name: str, value: float | None, top: float, by: dict[str, float]) -> SimpleNamespace:
    """Return one count of a line: its text, and its level of heat from 0 to LEVELS, relative to the hottest line."""
    if value is None:
        return SimpleNamespace(text="", level=0, title="")
    if name == "threads":  # few active threads are costly, so a low value is coloured as hot
        level = 0 if value > 31.5 else 1 + min(LEVELS - 1, int((32 - value) / 32 * LEVELS))
        return SimpleNamespace(text=f"{value:.1f}", level=level, title=f"{value:.2f} of 32 threads active")
    level = max(1, round(value / top * LEVELS)) if top and value else 0
    ideal = by.get(f"ideal {name}")
    over = f"; {short(ideal, ' ')} would do" if ideal and ideal < value else ""
    times = f" {value / ideal:.3g}x" if ideal and value >= 1.05 * ideal else ""
    title = f"{value:,.0f} {name}{over}".replace(",", " ")
    return SimpleNamespace(text=f"{short(value, ' ')}{times}", level=level, title=title)
