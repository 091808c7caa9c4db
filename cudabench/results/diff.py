"""Two revisions of a source by the machine code that compilers make of them, without a GPU.

`differences` compiles both for every architecture and compares kernel by kernel; `counted` adds what a simulated launch
of both counts; `failures` says what of it a gate stops. A verdict `same` promises that there is nothing to measure: the
instructions, scheduling included, the data at fixed places that they read, and registers, shared and local memory are
the same.
"""

from __future__ import annotations

import difflib
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Literal

from cudabench.compile import compiler
from cudabench.compile.record import Compiled
from cudabench.errors import EXIT_FAILED, EXIT_OK, EXIT_THRESHOLD, EXIT_WRONG, CompilerError
from cudabench.explain import code
from cudabench.explain.code import Code, Place, Step
from cudabench.records.launch import Source
from cudabench.records.results import Access, Result
from cudabench.records.revisions import CodeDifference, CodeFigures, FirstChange, LineChange
from cudabench.source.files import without_kernels
from cudabench.system import children, interrupts

# What `--arch all` means, as far as the compiler has them: one of each generation of multiprocessor, and sm_90a, for
# which alone wgmma compiles.
ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_120")
THREADS = 256  # of a block, where neither --block nor __launch_bounds__ says how many

COUNTED = ("sectors", "wavefronts", "executed")  # what only a simulated launch tells
DISASSEMBLED = ("spills", "instructions", "arithmetic")  # and what only nvdisasm does


@dataclass(frozen=True)
class Side:
    """One revision of a source: its text and the names under which it is compiled and told of.

    hidden: names of files and folders that code may hold by __FILE__, and which are no difference.
    """

    label: str
    source: Source
    defines: Mapping[str, str]
    hidden: tuple[str, ...] = ()


@dataclass(frozen=True)
class Chosen:
    """A kernel of one side: the last part of its name, its C++ expression, its line, and the name that picks it."""

    name: str
    expression: str
    line: int
    name_asked: str


@dataclass(frozen=True)
class Pair:
    """A kernel of both sides, or of one: what it is called, and the block and dynamic shared memory of its launch.

    threads: None where the launch does not say; then it is what the code allows, at most `THREADS`.
    """

    name: str
    old: Chosen | None
    new: Chosen | None
    threads: int | None = None
    shared: int = 0


def pairs_of(old: Mapping[str, Chosen], new: Mapping[str, Chosen]) -> list[Pair]:
    """Return the kernels of both sides by name, those of the new side first; one that alone is left on each side is
    taken for one kernel that was renamed."""
    pairs = [Pair(name, old.get(name), chosen) for name, chosen in new.items()]
    gone = [Pair(name, chosen, None) for name, chosen in old.items() if name not in new]
    fresh = [pair for pair in pairs if pair.old is None]
    if len(gone) == len(fresh) == 1:
        renamed = replace(fresh[0], name=f"{gone[0].name} -> {fresh[0].name}", old=gone[0].old)
        return [renamed if pair is fresh[0] else pair for pair in pairs]
    return [*pairs, *gone]


# Compiling -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Task:
    """All kernels of both sides on one architecture."""

    old: Side
    new: Side
    pairs: tuple[Pair, ...]
    arch: str


def differences(
    old: Side,
    new: Side,
    pairs: Sequence[Pair],
    architectures: Sequence[str],
    progress: Callable[[int, str], None] = lambda done, arch: None,
) -> list[CodeDifference]:
    """Return how each kernel differs on each architecture, kernels in the order of the pairs.

    Architectures are compiled in processes of their own, one a core (NVRTC compiles one source at a time in a process);
    the toolchain keeps what they made. progress: called with how many architectures are done, and the next one.

    Raises CudabenchError as `compiler.compile_cubin` does, but not for what a compiler refuses: that is a verdict.
    """
    tasks = [_Task(old, new, tuple(pairs), arch) for arch in architectures]
    found: dict[str, list[CodeDifference]] = {}
    results: Iterator[list[CodeDifference]]
    workers = min(len(tasks), cores()) if children.POOLS else 1
    progress(0, architectures[0])
    if workers < 2:
        results = map(_one_architecture, tasks)
        for done, (task, made) in enumerate(zip(tasks, results, strict=True), 1):
            found[task.arch] = made
            progress(done, architectures[min(done, len(tasks) - 1)])
    else:
        with children.starting_pools():
            pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=interrupts.ready)
        try:
            with children.starting_pools(), interrupts.deferred():  # Ctrl-C is for this process, from the first moment
                results = pool.map(_one_architecture, tasks)
            for done, (task, made) in enumerate(zip(tasks, results, strict=True), 1):
                found[task.arch] = made
                progress(done, architectures[min(done, len(tasks) - 1)])
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
    return [found[arch][at] for at in range(len(pairs)) for arch in architectures]


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _one_architecture(task: _Task) -> list[CodeDifference]:
    old = _compiled(task.old, [pair.old for pair in task.pairs if pair.old], task.arch)
    new = _compiled(task.new, [pair.new for pair in task.pairs if pair.new], task.arch)
    return [_difference(task, pair, old, new) for pair in task.pairs]


def _compiled(side: Side, kernels: Sequence[Chosen], arch: str) -> dict[str, Compiled | CompilerError]:
    """Return by expression what a compiler made of each kernel, or why it refused.

    Where it refuses the file, each kernel is compiled without the others: one that is not for an architecture does not
    take them with it.
    """

    def compiled(text: str, names: Sequence[str]) -> Compiled:
        own = side.source
        return compiler.compile_cubin(
            text, own.name, arch=arch, defines=side.defines, include_dirs=own.folders, names=names, std=own.std
        )

    names = list(dict.fromkeys(kernel.expression for kernel in kernels))
    try:
        return dict.fromkeys(names, compiled(side.source.text, names)) if names else {}
    except CompilerError as error:
        if len(names) == 1:
            return {names[0]: error}
    found: dict[str, Compiled | CompilerError] = {}
    for kernel in kernels:
        try:
            found[kernel.expression] = compiled(without_kernels(side.source.text, {kernel.name}), [kernel.expression])
        except CompilerError as error:
            found[kernel.expression] = error
    return found


# Comparing -----------------------------------------------------------------------------------------------------------


def _difference(
    task: _Task,
    pair: Pair,
    old: Mapping[str, Compiled | CompilerError],
    new: Mapping[str, Compiled | CompilerError],
) -> CodeDifference:
    before = old[pair.old.expression] if pair.old else None
    after = new[pair.new.expression] if pair.new else None
    threads = pair.threads or min(_bound(before, pair.old), _bound(after, pair.new), THREADS)
    shown = pair.new or pair.old
    record = CodeDifference(pair.name, task.arch, "changed", shown.line if shown else 1, threads)

    def read(side: Side, chosen: Chosen | None, compiled: Compiled | CompilerError | None) -> Code | None:
        if chosen is None or not isinstance(compiled, Compiled):
            return None
        return code.read(compiled, chosen.expression, task.arch, threads, pair.shared, side.hidden)

    def disassembled(
        own: Code | None, side: Side, chosen: Chosen | None, compiled: Compiled | CompilerError | None
    ) -> Code | None:
        if own is None or chosen is None or not isinstance(compiled, Compiled):
            return own
        return code.disassembled(own, compiled, chosen.expression, side.source.name)

    was, now = read(task.old, pair.old, before), read(task.new, pair.new, after)
    if was and now and was == now:
        return replace(record, verdict="same", old=was.figures, new=now.figures)
    for one in (before, after):
        if isinstance(one, Compiled):
            code.begin(one)
    was = disassembled(was, task.old, pair.old, before)
    now = disassembled(now, task.new, pair.new, after)
    record = replace(record, old=was.figures if was else None, new=now.figures if now else None)
    if isinstance(after, CompilerError):
        verdict: Literal["unsupported", "failed"] = "unsupported" if isinstance(before, CompilerError) else "failed"
        return replace(record, verdict=verdict, reason=_sentence(after, task.new))
    if isinstance(before, CompilerError):
        reason = _sentence(before, task.old)
        return replace(record, verdict="mended" if now else "unsupported", reason=reason)
    if was is None or now is None:
        return replace(record, verdict="added" if was is None else "removed")
    changed = changes(was.figures, now.figures, data=was.data_sha256 != now.data_sha256)
    if not changed:
        return replace(record, verdict="same")
    texts = _Texts(task.old), _Texts(task.new)
    return replace(record, changed=changed, first=_first(was, now, texts), lines=_lines(was, now, texts))


def _bound(compiled: Compiled | CompilerError | None, chosen: Chosen | None) -> int:
    """The threads that __launch_bounds__ allows."""
    if not isinstance(compiled, Compiled) or chosen is None:
        return THREADS
    return compiled.resources[compiled.entry(chosen.expression)].max_threads or THREADS


def _sentence(error: CompilerError, side: Side) -> str:
    """The first line of a compiler's refusal, with the source called as the user calls it."""
    return without_folders(str(error), side).splitlines()[0]


def without_folders(text: str, side: Side) -> str:
    """Return a text in which the source is called as the user calls it."""
    return text.replace(side.source.name, side.label)


def changes(old: CodeFigures, new: CodeFigures, data: bool = False) -> tuple[str, ...]:
    """Return the names of what differs between two figures; `data`: whether the data at fixed places does."""
    found = ["code"] if old.sha256 != new.sha256 else []
    found += ["data"] if data else []
    found += [name for name, of in FIGURES.items() if of(old) != of(new) and None not in (of(old), of(new))]
    found += ["arithmetic"] if old.arithmetic != new.arithmetic else []
    return tuple(found)


def _blocks(figures: CodeFigures) -> float | None:
    return figures.occupancy.fraction if figures.occupancy else None


# What can be more or less, by the name that --fail-on takes.
FIGURES: dict[str, Callable[[CodeFigures], float | None]] = {
    "registers": lambda figures: figures.registers,
    "spills": lambda figures: figures.spill_bytes,
    "shared": lambda figures: figures.shared_bytes,
    "local": lambda figures: figures.local_bytes,
    "occupancy": _blocks,
    "instructions": lambda figures: figures.instructions,
    "sectors": lambda figures: figures.sectors,
    "wavefronts": lambda figures: figures.wavefronts,
    "executed": lambda figures: figures.instructions_executed,
}
LESS_IS_WORSE = ("occupancy",)
ANY_CHANGE = ("code", "arithmetic")
FAIL_ON = ("code", *FIGURES, "arithmetic")


class _Texts:
    """The lines of a side's source and headers, read when they are asked for."""

    def __init__(self, side: Side) -> None:
        self.side = side
        self._lines: dict[str, list[str]] = {"": [line.strip() for line in side.source.text.splitlines()]}

    def lines(self, file: str) -> list[str]:
        """Return the lines of a header by its name; none where it is not beside the source or in its folders."""
        if file not in self._lines:
            self._lines[file] = []
            for folder in [os.path.dirname(self.side.source.name), *self.side.source.folders]:
                path = Path(folder, file)
                if path.is_file():
                    text = path.read_text(encoding="utf-8", errors="replace")
                    self._lines[file] = [line.strip() for line in text.splitlines()]
                    break
        return self._lines[file]

    def line(self, place: Place | None) -> str:
        """Return the text of a line, empty where it is not known."""
        lines = self.lines(place.file) if place else []
        return lines[place.line - 1] if place and 0 < place.line <= len(lines) else ""


def _first(old: Code, new: Code, texts: tuple[_Texts, _Texts]) -> FirstChange | None:
    """Return the first other opcode or, where all are the same, the first other operand; None for scheduling alone.

    Instructions that came from no line, such as the set-up at the start, count only where the others are the same.
    """
    if old.steps is None or new.steps is None:
        return None
    for everything in (False, True):
        was, now = ([step for step in steps if everything or step.place] for steps in (old.steps, new.steps))
        for kind in ("opcode", "operands"):
            at = _apart(*([step.opcode if kind == "opcode" else step.text for step in side] for side in (was, now)))
            if at is not None:
                before, after = (side[at] if at < len(side) else None for side in (was, now))
                return _change(kind, old.steps if after is None else new.steps, before, after, texts)
    return None


def _change(
    kind: str, steps: Sequence[Step], before: Step | None, after: Step | None, texts: tuple[_Texts, _Texts]
) -> FirstChange:
    shown, text = (after, texts[1]) if after else (before, texts[0])
    place = shown.place if shown else None
    return FirstChange(
        kind=kind,  # type: ignore[arg-type]
        position=next(at for at, step in enumerate(steps) if step is shown),
        old=before.text if before else "",
        new=after.text if after else "",
        file=place.file if place else "",
        line=place.line if place else None,
        source=text.line(place),
    )


def _apart(old: Sequence[str], new: Sequence[str]) -> int | None:
    """Return where two sequences begin to differ, None where they do not."""
    for at, (one, other) in enumerate(zip(old, new, strict=False)):
        if one != other:
            return at
    return None if len(old) == len(new) else min(len(old), len(new))


def aligned(old: Sequence[str], new: Sequence[str]) -> dict[int, int]:
    """Return the new number of each old line that is still there, from 1; a line that was rewritten is the one in its
    place, where as many stand there as before."""
    found = {}
    for tag, a, b, c, d in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal" or (tag == "replace" and b - a == d - c):
            found.update({a + k + 1: c + k + 1 for k in range(b - a)})
    return found


@dataclass
class _Lines:
    """Which lines of both sides are the same one."""

    texts: tuple[_Texts, _Texts]

    def __post_init__(self) -> None:
        self._new_of: dict[str, dict[int, int]] = {}

    def old_of(self, new: Place) -> Place | None:
        """Return the old line that became a new one, None where there is none."""
        if not self.texts[1].lines(new.file):
            return new
        self.key(Place(new.file, 1))
        line = next((old for old, own in self._new_of[new.file].items() if own == new.line), None)
        return Place(new.file, line) if line else None

    def key(self, old: Place) -> tuple[Place | None, Place | None]:
        """Return an old line with the new one that it became."""
        if old.file not in self._new_of:
            self._new_of[old.file] = aligned(self.texts[0].lines(old.file), self.texts[1].lines(old.file))
        numbers = self._new_of[old.file]
        # Of a header that cannot be read, lines are taken for unmoved.
        line = numbers.get(old.line) if self.texts[0].lines(old.file) else old.line
        return (old, Place(old.file, line)) if line else (old, None)

    def record(self, old: Place | None, new: Place | None) -> LineChange:
        """Return an empty record of a line."""
        shown = new or old
        text = self.texts[1].line(new) if new else self.texts[0].line(old)
        return LineChange(shown.file if shown else "", old.line if old else None, new.line if new else None, text, 0, 0)


def _lines(old: Code, new: Code, texts: tuple[_Texts, _Texts]) -> tuple[LineChange, ...]:
    """Return the lines whose numbers of instructions differ, the largest change first."""
    lines, was, now = _Lines(texts), old.by_line, new.by_line
    found, seen = [], set()
    for place, count in was.items():
        pair = lines.key(place)
        after = now.get(pair[1], 0) if pair[1] else 0
        seen.add(pair[1])
        if after != count:
            found.append(replace(lines.record(*pair), old_instructions=count, new_instructions=after))
    for place, count in now.items():
        if place not in seen:
            found.append(replace(lines.record(lines.old_of(place), place), new_instructions=count))
    return tuple(sorted(found, key=_size))


def _size(line: LineChange) -> tuple[int, int, str, int]:
    """Order lines by how much they changed: what the launch counts, then instructions, then place."""
    counts = (line.old_sectors, line.new_sectors), (line.old_wavefronts, line.new_wavefronts)
    moved = sum(abs((b or 0) - (a or 0)) for a, b in counts)
    return -moved, -abs(line.new_instructions - line.old_instructions), line.file, line.new_line or line.old_line or 0


# Counts --------------------------------------------------------------------------------------------------------------


def counted(
    difference: CodeDifference, old: Side, new: Side, before: Result | None, after: Result | None
) -> CodeDifference:
    """Return a difference with what a simulated launch of each side counted; None for a side that was not launched."""
    was = difference.old and before and _with_counts(difference.old, before)
    now = difference.new and after and _with_counts(difference.new, after)
    record = replace(difference, old=was or difference.old, new=now or difference.new)
    if not was or not now or before is None or after is None:
        return record
    changed = (*difference.changed, *(n for n in changes(was, now) if n in COUNTED))
    lines = _lines_with_counts(record.lines, (_Texts(old), _Texts(new)), before.access or (), after.access or ())
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
    changed: Sequence[LineChange], texts: tuple[_Texts, _Texts], before: Sequence[Access], after: Sequence[Access]
) -> tuple[LineChange, ...]:
    """Return the changed lines with the counts of both sides, and those whose counts alone differ."""
    lines = _Lines(texts)
    was, now = _by_place(before), _by_place(after)
    records = {(line.file, line.old_line, line.new_line): line for line in changed}
    for place in was:
        _, new = lines.key(place)
        records.setdefault((place.file, place.line, new.line if new else None), lines.record(place, new))
    taken = {(file, new) for file, _, new in records}
    for place in now:
        if (place.file, place.line) not in taken:
            old_place = lines.old_of(place)
            key = (place.file, old_place.line if old_place else None, place.line)
            records.setdefault(key, lines.record(old_place, place))
    found = []
    for (file, old_line, new_line), line in records.items():
        a = was.get(Place(file, old_line), (0, 0)) if old_line else (0, 0)
        b = now.get(Place(file, new_line), (0, 0)) if new_line else (0, 0)
        if a != b or line.old_instructions != line.new_instructions:
            found.append(replace(line, old_sectors=a[0], new_sectors=b[0], old_wavefronts=a[1], new_wavefronts=b[1]))
    return tuple(sorted(found, key=_size))


def _by_place(rows: Sequence[Access]) -> dict[Place, tuple[int, int]]:
    """Return sectors and wavefronts by line; an access in a header has its name, in parentheses, for a source text."""
    found: dict[Place, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for row in rows:
        header = re.fullmatch(r"\(([^()]+\.\w+)\)", row.source)
        place = Place(header[1] if header else "", row.line)
        sectors, wavefronts = found[place]
        found[place] = (sectors + (row.sectors or 0), wavefronts + (row.wavefronts or 0))
    return dict(found)


# Gates ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Failure:
    """Why a comparison fails: the exit code, one sentence without its full stop, what it is of, and its file's line."""

    code: int
    message: str
    difference: CodeDifference
    metric: str


def failures(found: Sequence[CodeDifference], fail_on: Sequence[str]) -> list[Failure]:
    """Return what fails: a kernel that no longer compiles, one that was right and is wrong, and what became worse of
    the `fail_on` names: `code` and `arithmetic` for any change, the others where they grew (occupancy: fell)."""
    failed = []
    nowhere = {each.kernel for each in found} - {each.kernel for each in found if each.verdict != "unsupported"}
    for each in found:
        name = f"{each.kernel} on {each.arch}"
        if each.verdict == "failed" or each.kernel in nowhere:
            failed.append(Failure(EXIT_FAILED, f"{name} does not compile: {each.reason}".rstrip("."), each, "failed"))
        bad = {side.status for side in (each.old,) if side}
        if each.new and each.new.status == "wrong" and "wrong" not in bad:
            failed.append(Failure(EXIT_WRONG, f"{name} is wrong: {each.new.reason}".rstrip("."), each, "wrong"))
        if each.new and each.new.status == "failed" and "failed" not in bad:
            failed.append(Failure(EXIT_FAILED, f"{name} failed: {each.new.reason}".rstrip("."), each, "failed"))
        failed += [
            Failure(EXIT_THRESHOLD, f"{name}: {sentence}", each, metric)
            for metric in fail_on
            if (sentence := worse(each, metric))
        ]
    return failed


def worse(difference: CodeDifference, metric: str) -> str | None:
    """Return in words how a metric became worse, or None."""
    old, new = difference.old, difference.new
    if metric == "code":
        return {"changed": "its code changed", "removed": "it is gone"}.get(difference.verdict)
    if old is None or new is None:
        return None
    if metric == "arithmetic":
        before, after = (", ".join(side.arithmetic or ()) or "none" for side in (old, new))
        return None if before == after else f"arithmetic {before} -> {after}"
    before_, after_ = FIGURES[metric](old), FIGURES[metric](new)
    if before_ is None or after_ is None:
        return None
    grew = after_ < before_ if metric in LESS_IS_WORSE else after_ > before_
    return f"{metric} {figure_text(metric, old)} -> {figure_text(metric, new)}" if grew else None


def figure_text(metric: str, figures: CodeFigures | None) -> str:
    """Return a figure as text: bytes with their unit, occupancy as a percentage; '-' where there is none."""
    value = FIGURES[metric](figures) if figures else None
    if value is None:
        return "-"
    if metric == "occupancy":
        return f"{value:.0%}"
    return (
        f"{value:,} B".replace(",", " ") if metric in ("spills", "shared", "local") else f"{value:,}".replace(",", " ")
    )


def exit_code(found: Sequence[Failure]) -> int:
    """Return the exit code of the gravest failure: wrong, then failed, then a gate."""
    codes = {failure.code for failure in found}
    return next((code for code in (EXIT_WRONG, EXIT_FAILED, EXIT_THRESHOLD) if code in codes), EXIT_OK)
