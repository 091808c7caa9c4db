"""Compares two revisions of a source by the machine code that a compiler made from each revision.

`difference` compares one kernel on one architecture. `add_counts` adds the counts of a simulated launch of both
revisions. `failures` returns the differences that are failures. The verdict `same` means that there is nothing to
measure, because instructions, scheduling, constant data, registers, shared and local memory are the same.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from cudabench.compile.record import Compiled
from cudabench.errors import EXIT_FAILED, EXIT_THRESHOLD, EXIT_WRONG, CompilerError
from cudabench.explain import code
from cudabench.explain.code import Code, SourceLine
from cudabench.records.launch import Source
from cudabench.records.results import Access, Result
from cudabench.records.revisions import CodeDifference, CodeFigures, FirstChange, LineChange
from cudabench.results import units
from cudabench.results.columns import NOTHING
from cudabench.results.groups import grouped

# The architectures of `--arch all`, if the compiler supports them: one for each generation of multiprocessors, and
# sm_90a, because wgmma compiles only for sm_90a.
ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_120")
# The number of threads of a block, if neither --block nor __launch_bounds__ gives it.
THREADS = 256

COUNTED = ("sectors", "wavefronts", "executed")  # these figures need a simulated launch
DISASSEMBLED = ("spills", "instructions", "arithmetic")  # these figures need nvdisasm

CompileResult = Compiled | CompilerError  # a compiled kernel, or the reason why the compiler refused it


@dataclass(frozen=True)
class Side:
    """One revision of a source.

    `label`: the revision's name in messages; `source`: the text, and the name that the compiler gets; `defines`: the
    macros; `hidden`: names of files and folders that __FILE__ may put into the code; they are ignored in comparisons.
    """

    label: str
    source: Source
    defines: Mapping[str, str]
    hidden: tuple[str, ...] = ()


@dataclass(frozen=True)
class SelectedKernel:
    """A kernel of one side.

    `name`: the last part of the C++ name; `expression`: the C++ expression that names the kernel, such as 'f<float>';
    `line`: the kernel's line; `name_asked`: the name by which --kernel selects the kernel.
    """

    name: str
    expression: str
    line: int
    name_asked: str


@dataclass(frozen=True)
class Pair:
    """A kernel of both sides, or of one side (the other is None), with the launch for which it is compared.

    `threads`: the threads of a block; None if no launch is given: then as many threads as the code allows are assumed,
    at most `THREADS`. `shared`: the bytes of dynamic shared memory.
    """

    name: str
    old: SelectedKernel | None
    new: SelectedKernel | None
    threads: int | None = None
    shared: int = 0


# Comparing -----------------------------------------------------------------------------------------------------------


def difference(
    pair: Pair, arch: str, old: tuple[Side, Mapping[str, CompileResult]], new: tuple[Side, Mapping[str, CompileResult]]
) -> CodeDifference:
    """Return how a kernel differs on an architecture. `old` and `new`: a side, and the compile results of its kernels
    by C++ expression."""
    sides = (old[0], new[0])
    chosen = (pair.old, pair.new)
    compiled_pair = [
        by_expression[kernel.expression] if kernel else None
        for kernel, (_, by_expression) in zip(chosen, (old, new), strict=True)
    ]
    before, after = compiled_pair
    threads = pair.threads or min(THREADS, *map(_max_threads, chosen, compiled_pair))
    shown = pair.new or pair.old
    record = CodeDifference(pair.name, arch, "changed", shown.line if shown else 1, threads)
    codes: list[Code | None] = [
        code.code_of(compiled, kernel.expression, arch, threads, pair.shared, side.hidden)
        if kernel and isinstance(compiled, Compiled)
        else None
        for kernel, side, compiled in zip(chosen, sides, compiled_pair, strict=True)
    ]
    was, now = codes
    if was and now and was == now:
        return replace(record, verdict="same", old=was.figures, new=now.figures)
    for compiled in compiled_pair:
        if isinstance(compiled, Compiled):
            code.start_disassembly(compiled)
    was, now = (
        code.disassembled(side_code, compiled, kernel.expression, side.source.name)
        if side_code and kernel and isinstance(compiled, Compiled)
        else side_code
        for side_code, kernel, side, compiled in zip(codes, chosen, sides, compiled_pair, strict=True)
    )
    record = replace(record, old=was.figures if was else None, new=now.figures if now else None)
    if isinstance(after, CompilerError):
        verdict: Literal["unsupported", "failed"] = "unsupported" if isinstance(before, CompilerError) else "failed"
        return replace(record, verdict=verdict, reason=_sentence(after, sides[1]))
    if isinstance(before, CompilerError):
        return replace(record, verdict="mended" if now else "unsupported", reason=_sentence(before, sides[0]))
    if was is None or now is None:
        return replace(record, verdict="added" if was is None else "removed")
    changed = changes(was.figures, now.figures, data=was.data_sha256 != now.data_sha256)
    if not changed:
        return replace(record, verdict="same")
    texts = _Texts(sides)
    return replace(record, changed=changed, first=_first(was, now, texts), lines=_lines(was, now, texts))


def _max_threads(chosen: SelectedKernel | None, compiled: CompileResult | None) -> int:
    """Return the most threads of a block that __launch_bounds__ allows; THREADS if the kernel has none."""
    if not isinstance(compiled, Compiled) or chosen is None:
        return THREADS
    return compiled.resources[compiled.entry(chosen.expression)].max_threads or THREADS


def _sentence(error: CompilerError, side: Side) -> str:
    """Return the first line of a compiler's error, with the source's name replaced by the name that the user gave."""
    return str(error).replace(side.source.name, side.label).splitlines()[0]


def changes(old: CodeFigures, new: CodeFigures, data: bool = False) -> tuple[str, ...]:
    """Return the names of the figures that differ. `data`: whether the constant data differs."""
    names = ["code"] if old.sha256 != new.sha256 else []
    names += ["data"] if data else []
    names += [name for name, get in FIGURES.items() if get(old) != get(new) and None not in (get(old), get(new))]
    names += ["arithmetic"] if old.arithmetic != new.arithmetic else []
    return tuple(names)


# The numbers that --fail-on accepts by name: they can grow or fall.
FIGURES: dict[str, Callable[[CodeFigures], float | None]] = {
    "registers": lambda figures: figures.registers,
    "spills": lambda figures: figures.spill_bytes,
    "shared": lambda figures: figures.shared_bytes,
    "local": lambda figures: figures.local_bytes,
    "occupancy": lambda figures: figures.occupancy.fraction if figures.occupancy else None,
    "instructions": lambda figures: figures.instructions,
    "sectors": lambda figures: figures.sectors,
    "wavefronts": lambda figures: figures.wavefronts,
    "executed": lambda figures: figures.instructions_executed,
}
FAIL_ON = ("code", *FIGURES, "arithmetic")


class _Texts:
    """The lines of both sides' sources and headers, read when needed, and the new line of each old line.

    `at` is 0 for the old side and 1 for the new side.
    """

    def __init__(self, sides: tuple[Side, Side]) -> None:
        self._sides = sides
        self._read: dict[tuple[int, str], list[str]] = {}
        self._new_of: dict[str, dict[int, int]] = {}

    def lines(self, at: int, file: str) -> list[str]:
        """Return the lines of a side's source (`file` is '') or of a header; empty if the header cannot be found."""
        if (at, file) not in self._read:
            source = self._sides[at].source
            text = "" if file else source.text
            for folder in [os.path.dirname(source.name), *source.folders] if file else []:
                if (path := Path(folder, file)).is_file():
                    text = path.read_text(encoding="utf-8", errors="replace")
                    break
            self._read[at, file] = [line.strip() for line in text.splitlines()]
        return self._read[at, file]

    def line(self, at: int, place: SourceLine | None) -> str:
        """Return the text of the line at a place; empty if it is not known."""
        lines = self.lines(at, place.file) if place else []
        return lines[place.line - 1] if place and 0 < place.line <= len(lines) else ""

    def _numbers(self, file: str) -> dict[int, int]:
        if file not in self._new_of:
            self._new_of[file] = aligned(self.lines(0, file), self.lines(1, file))
        return self._new_of[file]

    def new_of(self, old: SourceLine) -> SourceLine | None:
        """Return the new line for an old line; None if the new file does not have the line.

        A line of an unreadable header gets the same number.
        """
        line = self._numbers(old.file).get(old.line) if self.lines(0, old.file) else old.line
        return SourceLine(old.file, line) if line else None

    def old_of(self, new: SourceLine) -> SourceLine | None:
        """Return the old line for a new line; None if the old file does not have the line."""
        if not self.lines(1, new.file):
            return new
        line = next((old for old, number in self._numbers(new.file).items() if number == new.line), None)
        return SourceLine(new.file, line) if line else None

    def line_pairs(
        self, was: Iterable[SourceLine], now: Iterable[SourceLine]
    ) -> list[tuple[SourceLine | None, SourceLine | None]]:
        """Return pairs (old line, new line): first each old line, then each new line without an old one. A missing line
        is None."""
        pairs: list[tuple[SourceLine | None, SourceLine | None]] = [(place, self.new_of(place)) for place in was]
        new_places = {new for _, new in pairs}
        return pairs + [(self.old_of(place), place) for place in now if place not in new_places]

    def record(self, old: SourceLine | None, new: SourceLine | None) -> LineChange:
        """Return a record of a line; its counts of instructions are 0 and must be set later."""
        shown = new or old
        text = self.line(1, new) if new else self.line(0, old)
        return LineChange(shown.file if shown else "", old.line if old else None, new.line if new else None, text, 0, 0)


def _first(old: Code, new: Code, texts: _Texts) -> FirstChange | None:
    """Return the first changed opcode or, if all opcodes are equal, the first instruction with changed operands.

    Return None if only the scheduling changed. Instructions without a source line, such as the set-up at the start, are
    compared only if all other instructions are the same.
    """
    if old.steps is None or new.steps is None:
        return None
    for all_steps in (False, True):
        was, now = ([step for step in steps if all_steps or step.place] for steps in (old.steps, new.steps))
        kinds: tuple[Literal["opcode", "operands"], ...] = ("opcode", "operands")
        for kind in kinds:
            i = _differs_at(*([step.opcode if kind == "opcode" else step.text for step in side] for side in (was, now)))
            if i is not None:
                before, after = (side[i] if i < len(side) else None for side in (was, now))
                shown = after or before
                place = shown.place if shown else None
                return FirstChange(
                    kind=kind,
                    position=next(i for i, step in enumerate(new.steps if after else old.steps) if step is shown),
                    old=before.text if before else "",
                    new=after.text if after else "",
                    file=place.file if place else "",
                    line=place.line if place else None,
                    source=texts.line(1 if after else 0, place),
                )
    return None


def _differs_at(old: Sequence[str], new: Sequence[str]) -> int | None:
    """Return the first index at which two sequences differ, or None."""
    index = next((position for position, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), None)
    return min(len(old), len(new)) if index is None and len(old) != len(new) else index


def aligned(old: Sequence[str], new: Sequence[str]) -> dict[int, int]:
    """Return the new line number, from 1, of each old line that remains.

    The lines of a changed section are matched one by one if the section has the same number of lines in both texts.
    """
    return {
        a + k + 1: c + k + 1
        for tag, a, b, c, d in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
        if tag == "equal" or (tag == "replace" and b - a == d - c)
        for k in range(b - a)
    }


def _lines(old: Code, new: Code, texts: _Texts) -> tuple[LineChange, ...]:
    """Return the lines that have more or fewer instructions than before, the largest change first."""
    was, now = old.by_line, new.by_line
    changed = [
        replace(texts.record(before, after), old_instructions=fewer, new_instructions=more)
        for before, after in texts.line_pairs(was, now)
        if (fewer := was.get(before, 0) if before else 0) != (more := now.get(after, 0) if after else 0)
    ]
    return tuple(sorted(changed, key=_size))


def _size(line: LineChange) -> tuple[int, int, str, int]:
    """Return the sort key of a line, for the largest change first: by counts, by instructions, then by position."""
    counts = (line.old_sectors, line.new_sectors), (line.old_wavefronts, line.new_wavefronts)
    change = sum(abs((b or 0) - (a or 0)) for a, b in counts)
    return -change, -abs(line.new_instructions - line.old_instructions), line.file, line.new_line or line.old_line or 0


# Counts --------------------------------------------------------------------------------------------------------------


def add_counts(
    difference: CodeDifference, sides: tuple[Side, Side], before: Result | None, after: Result | None
) -> CodeDifference:
    """Return a difference with the counts of a simulated launch of each side.

    A result is None if its side was not launched.
    """
    was = difference.old and before and _with_counts(difference.old, before)
    now = difference.new and after and _with_counts(difference.new, after)
    record = replace(difference, old=was or difference.old, new=now or difference.new)
    if not was or not now or before is None or after is None:
        return record
    changed = (*difference.changed, *(n for n in changes(was, now) if n in COUNTED))
    lines = _lines_with_counts(record.lines, _Texts(sides), before.access or (), after.access or ())
    return replace(record, changed=changed, lines=lines)


def _with_counts(figures: CodeFigures, result: Result) -> CodeFigures:
    rows = result.access
    return replace(
        figures,
        status=result.status,
        reason=result.reason,
        sectors=None if rows is None else sum(row.sectors or 0 for row in rows),
        wavefronts=None if rows is None else sum(row.wavefronts or 0 for row in rows),
        instructions_executed=result.machine_code.instructions_executed if result.machine_code else None,
    )


def _lines_with_counts(
    changed: Sequence[LineChange], texts: _Texts, before: Sequence[Access], after: Sequence[Access]
) -> tuple[LineChange, ...]:
    """Return the changed lines with the counts of both sides, and the unchanged lines whose counts differ."""
    was, now = _by_place(before), _by_place(after)
    lines = [*changed, *(texts.record(*places) for places in texts.line_pairs(was, now))]
    counted_lines = []
    for line, *_ in grouped(((line.file, line.old_line, line.new_line), line) for line in lines).values():
        a = was.get(SourceLine(line.file, line.old_line), (0, 0)) if line.old_line else (0, 0)
        b = now.get(SourceLine(line.file, line.new_line), (0, 0)) if line.new_line else (0, 0)
        if a != b or line.old_instructions != line.new_instructions:
            counted_lines.append(
                replace(line, old_sectors=a[0], new_sectors=b[0], old_wavefronts=a[1], new_wavefronts=b[1])
            )
    return tuple(sorted(counted_lines, key=_size))


def _by_place(rows: Sequence[Access]) -> dict[SourceLine, tuple[int, int]]:
    """Return (sectors, wavefronts) by place.

    The source text of an access in a header is the header's name in parentheses.
    """

    def place(row: Access) -> SourceLine:
        header = re.fullmatch(r"\(([^()]+\.\w+)\)", row.source)
        return SourceLine(header[1] if header else "", row.line)

    return {
        position: (sum(row.sectors or 0 for row in line_rows), sum(row.wavefronts or 0 for row in line_rows))
        for position, line_rows in grouped((place(row), row) for row in rows).items()
    }


# Gates ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Failure:
    """A reason why a comparison fails: the exit code, a sentence without full stop, the difference, and the figure's
    name."""

    code: int
    message: str
    difference: CodeDifference
    metric: str


def failures(differences: Sequence[CodeDifference], fail_on: Sequence[str]) -> list[Failure]:
    """Return the failures: kernels that no longer compile or became wrong, and figures of `fail_on` that became worse.

    Any change of `code` or `arithmetic` is worse; a lower occupancy is worse; a higher value of other figures is worse.
    """
    failed = []
    supported = {difference.kernel for difference in differences if difference.verdict != "unsupported"}
    for difference in differences:
        name = f"{difference.kernel} on {difference.arch}"
        if difference.verdict == "failed" or difference.kernel not in supported:
            failed.append(
                Failure(EXIT_FAILED, f"{name} does not compile: {difference.reason}".rstrip("."), difference, "failed")
            )
        now = (
            difference.new.status
            if difference.new and difference.new.status != (difference.old and difference.old.status)
            else None
        )
        if difference.new and now in ("wrong", "failed"):
            code, phrase = (EXIT_WRONG, "is wrong") if now == "wrong" else (EXIT_FAILED, "failed")
            failed.append(Failure(code, f"{name} {phrase}: {difference.new.reason}".rstrip("."), difference, now))
        failed += [
            Failure(EXIT_THRESHOLD, f"{name}: {sentence}", difference, metric)
            for metric in fail_on
            if (sentence := worse(difference, metric))
        ]
    return failed


def worse(difference: CodeDifference, metric: str) -> str | None:
    """Return a text that says how a figure became worse, or None if the figure did not become worse."""
    old, new = difference.old, difference.new
    if metric == "code":
        return {"changed": "its code changed", "removed": "it is gone"}.get(difference.verdict)
    if old is None or new is None:
        return None
    if metric == "arithmetic":
        before, after = (", ".join(side.arithmetic or ()) or "none" for side in (old, new))
        return None if before == after else f"arithmetic {before} -> {after}"
    was, now = FIGURES[metric](old), FIGURES[metric](new)
    if was is None or now is None:
        return None
    grew = now < was if metric == "occupancy" else now > was
    return f"{metric} {figure_text(metric, old)} -> {figure_text(metric, new)}" if grew else None


def figure_text(metric: str, figures: CodeFigures | None) -> str:
    """Return a figure as text: bytes with their unit, occupancy as a percentage; '-' if the figure is not known."""
    value = FIGURES[metric](figures) if figures else None
    if value is None:
        return NOTHING
    if metric == "occupancy":
        return f"{value:.0%}"
    return units.count(int(value)) + (" B" if metric in ("spills", "shared", "local") else "")
