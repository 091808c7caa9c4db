"""Which small faults in the chapters does the simulator detect?

    python benchmarks/mutants.py [OPERATION[:FUNCTION] ...] [--jobs N] [--keep FILE]     # an hour of one core for all

Each mutant changes one line of a chapter, in a kernel or in a device function that kernels call: it drops a barrier, a
fence or a guard, turns `<` into `<=`, shifts an index by one, or makes a row of a shared tile shorter by one. A mutant
is found if one of the rungs (kernels of a ladder) that use the function ends with a hazard or a wrong result (exit code
3 of the command), at one of the settings of `TRIES`, or of `PLAIN`, which also compile without optimisation, as `check`
does. The unchanged rung must be right at all of them. A mutant that never ends counts as failed; a mutant that the
compiler refuses does not count. The output lists mutants that are not found. mutants_explained.json gives reasons:
`equivalent` mutants do no harm; `unseen` mutants do harm that the simulator does not see. The exit code is 1 if a
mutant is neither found nor explained.

Each mutant has its own process, `--jobs` of them at a time; a mutant that crashes, or takes over `--limit` seconds,
fails alone. `--keep` appends each result to a file, one JSON list per line, and skips mutants that the file has for the
same chapter and settings, so that an interrupted run can continue. `--again` runs only mutants that an earlier output
calls NOT FOUND, failed or refused; `--every N` runs every Nth. The last lines are the rows of the record's table.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import multiprocessing
import os
import re
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

# imports come from this checkout, even if another version of cudabench is installed
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from cudabench import operations
from cudabench.compile import nvrtc
from cudabench.devices.sim import SimDevice
from cudabench.errors import CompilerError, CudabenchError
from cudabench.measure.simulated_run import SimulatedRun
from cudabench.plan import cases, chapters
from cudabench.plan.cases import Request
from cudabench.records.launch import Source
from cudabench.records.plan import Case, Settings
from cudabench.simulator.isa import instructions  # noqa: F401  loaded here, and not in each process
from cudabench.source.files import parse_text
from cudabench.system import limited_process

SIZES = {1: (100_003,), 2: (67, 133), 3: (67, 70, 133)}
# Sizes of the panels, loops and tiles of `blocked`. They are so small that little code is unrolled, and that even a
# small matrix has many panels and tiles.
NARROW = {"WIDEST": "4", "PANEL": "64", "OUTER": "8", "SPREAD_ROWS": "8", "SUMS_Y": "4", "SUMS_X": "4", "STEP": "4"}
# Lines of `blocked` for panels with more rows per thread than occur with such a small matrix.
FULLER = r"case (?:4|8|16): PANEL_OF|(?:case (?:2|4|8)|default): CLUSTER_OF"
# Functions that only the last rungs have, and functions that they share with `blocked` except for one place in the
# code.
OF_LAST = (
    "update", "spread", "solve_spread_left", "solve_update_left", "solve_back", "cluster_rank", "cluster_barrier",
    "in_block", "eliminate_in_cluster", "solve_panel_cluster",
)  # fmt: skip
SMALL = {"TM": "4", "TN": "4", "TK": "4"}
TILED = ("registers", "vector", "double-buffer")
RAGGED = ("naive", "warp", "vector", "split", "short")  # rungs of matvec that work with any grid size
# Settings for each operation. They are tried in this order until one of them finds the mutant; an operation without an
# entry is tried only with its default size. `only`: the rungs that are tried with these settings; `of`: the functions
# whose mutants are tried; `architecture`: replaces sm_90; `without`: lines of the chapter to leave out, because they
# compile slowly.
TRIES: dict[str, tuple[dict[str, Any], ...]] = {
    # The second size has so many blocks that they do not all run at once. Then the last block of a mutant reads data
    # that earlier blocks have left.
    "distance": ({}, {"size": (400_003,)}, {"block": (48,)}),
    "matvec": (
        {},
        {"block": (48,)},
        {"block": (1024,)},
        {"grid": (1000,), "only": RAGGED},
        {"size": (33, 20_000), "only": ("split",)},  # long rows are split into pieces, whose sums must be joined
        {"size": (33, 20_000), "block": (48,), "only": ("split",)},
    ),
    # 110 columns end inside the second of two tiles of 32. A tile without padding has no unused column, so an index
    # that is too large leaves the tile. `ragged` has tiles of 56 rows, or of 64 rows if the rows of the output start at
    # multiples of 32 bytes. The sizes give tiles that are inside the matrix, that are cut off, and that end exactly
    # with it.
    "transpose": (
        {},
        {"size": (67, 110)},
        {"defines": {"IPAD": "0"}},
        {"grid": (999,)},
        {"size": (250, 133), "only": ("ragged",)},
        {"size": (192, 133), "only": ("ragged",)},
        {"size": (64, 124), "only": ("ragged",)},  # the last tile ends exactly where the matrix ends
        {"dtype": "int8", "size": (257, 131), "only": ("ragged",)},
        {"dtype": "int8", "size": (64, 144), "only": ("vector",), "of": ("turn_bytes",)},
    ),
    # Settings with the same block follow each other, because compiled code is kept for the next setting. Small tiles
    # compile fast and reuse the stages of their rings often. If the block is not square, some threads have no work. 72
    # is a whole number of steps; 150 is more than one tile.
    "matmul": (
        {"block": (8, 8), "defines": {"WTM": "4", "WTN": "4", "WTK": "8"}, "only": ("warp-tile",)},
        {"block": (8, 8), "defines": SMALL, "only": TILED},
        {},
        {"size": (67, 72, 133)},
        {"size": (150, 24, 150)},
        {"size": (66, 36, 132)},  # a whole number of vectors, but not of tiles
        {"size": (136, 200, 136), "only": ("tensor", "sliced", "wgmma", "wgmma-split")},
        {"size": (66, 64, 132), "only": ("tensor", "sliced", "wgmma", "wgmma-split")},  # a whole number of steps
        {"dtype": "float16", "only": ("half",)},
        {"dtype": "float16", "size": (136, 64, 136), "only": ("half",)},
        {"dtype": "float16", "size": (136, 72, 136), "block": (32, 12), "only": ("half",)},
        {"dtype": "float16", "size": (136, 328, 136), "only": ("half",)},
        {"defines": {"SLICES": "4"}, "size": (66, 36, 132), "only": ("sliced",)},
        {"defines": {"SLICES": "4"}, "size": (67, 70, 133), "only": ("sliced",)},
        # All tiles are whole, so the code runs without bounds checks, and so many steps run that each stage of a ring
        # is filled twice.
        {
            "block": (8, 8),
            "size": (64, 64, 64),
            "defines": {"WTM": "4", "WTN": "4", "WTK": "8"},
            "only": ("warp-tile",),
        },
        {"size": (132, 264, 132), "only": ("tma-split",), "of": ("matmul_tma_split",)},
        {"block": (32, 6), "size": (150, 24, 150), "only": ("tensor", "sliced")},  # the threads share the rows unevenly
        {"block": (32, 8), "only": ("naive", "tiled", *TILED)},
        {"block": (8, 32), "only": ("naive", "tiled", *TILED)},
        {"architecture": "sm_75", "size": (66, 36, 132), "only": ("warp-tile",)},
        {"architecture": "sm_80", "dtype": "float64", "size": (66, 36, 132), "only": ("tensor",)},
    ),
    "pi": ({}, {"block": (48,)}),
    # With 20 columns, every column belongs to the edge. With 1024 columns, the last warp of `pairs` has only a part of
    # its columns.
    "blur": (
        {},
        {"dtype": "uint8"},
        {"size": (67, 256)},
        {"block": (8, 6)},
        {"dtype": "uint8", "size": (67, 256)},
        {"dtype": "uint8", "size": (67, 20), "only": ("strip", "pairs")},
        {"dtype": "uint8", "size": (20, 1024), "block": (48, 1), "only": ("pairs",)},
        {"dtype": "uint8", "options": {"radius": 2}, "only": ("pairs",)},
        {"dtype": "uint8", "size": (20, 1040), "options": {"radius": 3}, "only": ("bands",)},
        # The strips end exactly where the picture ends, at its lower and its right edge.
        {"dtype": "uint8", "size": (23, 2000), "options": {"radius": 3}, "only": ("bands",)},
        {"dtype": "uint8", "size": (20, 1040), "block": (48, 1), "only": ("bands",)},
        # Some warps are inside the picture; others contain the end of one row of blocks and the beginning of the next
        # row.
        {"dtype": "uint8", "size": (40, 1040), "options": {"radius": 2}, "only": ("stacked",)},
        {"size": (40, 400), "options": {"radius": 2}, "only": ("stacked",)},
        {"dtype": "uint8", "size": (67, 515), "only": ("stacked",)},
    ),
    # With small blocks, each thread has many candidates for the pivot. If N + 1 is a multiple of 32, the matrix has no
    # unused space. 64 rows end exactly where a turn (loop iteration) of `fused` ends. In a uniform matrix no row has a
    # far larger element. 150 columns are two blocks of `blocked`.
    "solve": (
        {"size": (40,), "block": (8, 4), "only": ("gauss-jordan", "aligned", "fused")},
        {"size": (40,), "block": (8, 4), "defines": NARROW, "without": FULLER, "only": ("blocked",)},
        {"size": (70,), "block": (8, 4), "defines": NARROW, "without": FULLER, "only": ("blocked",)},
        {
            "size": (40,),
            "block": (8, 4),
            "defines": NARROW,
            "without": FULLER,
            "only": ("lower", "cluster"),
            "of": OF_LAST,
        },
        # The rows are spread over more than one block of a cluster.
        {
            "size": (70,),
            "block": (8, 4),
            "defines": NARROW,
            "without": FULLER,
            "only": ("cluster",),
            "of": ("eliminate_in_cluster",),
        },
        {"size": (40,), "block": (8, 4), "only": ("blocked",)},
        {"size": (150,), "block": (8, 4), "only": ("blocked",)},
        {"size": (63,), "block": (8, 4), "only": ("gauss-jordan", "aligned", "fused")},
        {"size": (70,), "block": (8, 4), "only": ("gauss-jordan", "fused")},
        {"size": (64,), "block": (8, 4), "only": ("fused",)},
        {"size": (40,), "block": (8, 4), "grid": (1, 1), "only": ("fused",)},
        {"size": (70,), "options": {"matrix": "uniform"}, "seed": 1, "only": ("fused",)},
        {"size": (150,), "only": ("blocked",)},
        # The matrix has more rows than one block holds, so the first panels are single columns in global memory.
        {
            "size": (517,),
            "block": (8, 4),
            "defines": NARROW | {"PANEL": "32"},
            "only": ("blocked",),
            "of": ("eliminate_column",),
        },
        {
            "architecture": "sm_75",
            "size": (40,),
            "block": (8, 4),
            "defines": NARROW,
            "without": FULLER,
            "only": ("blocked",),
        },
    ),
}
# Settings that are tried without compiler optimisation. An operation without an entry is tried only with its default
# size.
PLAIN: dict[str, tuple[dict[str, Any], ...]] = {
    "blur": (
        {"bounds": True, "size": (40, 130)},
        {"bounds": True, "size": (40, 130), "dtype": "uint8"},
        {"bounds": True, "size": (9, 48), "dtype": "uint8", "only": ("bands",)},  # each row is a whole number of words
        {"bounds": True, "size": (20, 64), "only": ("stacked",)},
        {"bounds": True, "size": (20, 64), "dtype": "uint8", "options": {"radius": 2}, "only": ("stacked",)},
    ),
    "matmul": (
        {"bounds": True, "size": (66, 36, 132)},
        {"bounds": True, "size": (72, 40, 136), "dtype": "float16", "only": ("half", "tma")},
        # A row is not a whole number of vectors, and there are more rows than a tile has.
        {"bounds": True, "block": (8, 8), "size": (67, 38, 133), "defines": SMALL, "only": TILED},
        {"bounds": True, "size": (67, 38, 133), "only": ("warp-tile", "tensor", "sliced")},
        {"bounds": True, "size": (150, 24, 150), "only": ("wgmma", "wgmma-split")},
    ),
    "matvec": ({"bounds": True, "size": (67, 130)},),
    "transpose": (
        {"bounds": True},
        {"bounds": True, "dtype": "int8", "size": (257, 131), "only": ("ragged",)},
        {"bounds": True, "dtype": "int8", "size": (64, 144), "only": ("vector",), "of": ("turn_bytes",)},
    ),
    "solve": (
        {"bounds": True, "size": (40,), "block": (8, 4), "only": ("fused",)},
        {"bounds": True, "size": (40,), "block": (8, 4), "defines": NARROW, "without": FULLER, "only": ("blocked",)},
        {
            "bounds": True,
            "size": (40,),
            "block": (8, 4),
            "defines": NARROW,
            "without": FULLER,
            "only": ("cluster",),
            "of": ("eliminate_in_cluster",),
        },
        # The last panel has fewer columns than there are registers for.
        {
            "bounds": True,
            "size": (42,),
            "block": (8, 4),
            "defines": NARROW,
            "without": FULLER,
            "only": ("blocked",),
            "of": ("move_columns",),
        },
    ),
}
RULES = {
    "drop a barrier": (r"__sync(threads|warp)\(\)", ";"),
    "drop a fence": (r"__threadfence(_block)?\(\)", ";"),
    "drop a guard": (r"\bif \(((?:[^()]|\([^()]*\))*)\)$", "if (false)"),
    "< to <=": (r"(?<=[\w)\]] )<(?= [\w(])", "<="),
    "shift an index": (r"\[threadIdx\.([xy])\]", r"[threadIdx.\1 + 1]"),
    "shrink a tile": (r"(__shared__ .*\[[^]]+)\];", r"\1 - 1];"),
}


def _explained(kind: str) -> dict[tuple[str, str, str], str]:
    """Return the reasons, keyed by (operation, rule, text of the line).

    '#2' after the text means the second line of the kernel with this text.
    """
    operations_of = json.loads(Path(__file__).with_name("mutants_explained.json").read_text())[kind]
    return {
        (operation, rule, line): reason
        for operation, rules in operations_of.items()
        for rule, lines in rules.items()
        for line, reason in lines.items()
    }


EQUIVALENT = _explained("equivalent")
UNSEEN = _explained("unseen")  # docs/simulator.md explains the reasons
KEYS = {"architecture", "only", "of", "bounds", "without"}  # keys of a setting that are not fields of a request
LINE = re.compile(r"(\S+) (\S+), line (\d+), ([^:]+): .*\((?:NOT FOUND|failed|refused)")
DEVICE = re.compile(r"^(?:template <[^\n]*>\s)?__device__ [^\n;{]*?(\w+)\(", re.MULTILINE)


class Mutant(NamedTuple):
    """One changed line of a chapter; before: the line's old text, with '#2' for a second line with this text."""

    rule: str
    line: int
    before: str
    after: str

    def of(self, text: str) -> str:
        """Return a text with the changed line."""
        lines = text.splitlines()
        return "\n".join([*lines[: self.line - 1], self.after, *lines[self.line :]]) + "\n"


def mutants(text: str, first: int, last: int) -> Iterator[Mutant]:
    """Yield the mutants of the lines from first to last of a chapter."""
    lines = text.splitlines()
    counts: Counter[tuple[str, str]] = Counter()
    for number in range(first, last + 1):
        line = lines[number - 1]
        for rule, (pattern, into) in RULES.items():
            if line.lstrip().startswith(("//", "#")) or not re.search(pattern, line):
                continue
            if rule == "drop a guard" and lines[number].strip() != "return;":
                continue
            changed = re.sub(pattern, into, line, count=1)
            counts[rule, line.strip()] += 1
            times = counts[rule, line.strip()]
            before = line.strip() + (f" #{times}" if times > 1 else "")
            yield Mutant(rule, number, before, changed)


class Function(NamedTuple):
    """A kernel or a device function of a chapter: its lines, from 1 on, and its text."""

    name: str
    first: int
    last: int
    text: str


def functions(text: str) -> list[Function]:
    """Return the functions of a chapter in its order. Overloads are several of one name."""
    spans = [
        (kernel.name, text.rindex("\n", 0, kernel.start) + 1, kernel.end) for kernel in parse_text(text, "").kernels
    ]
    for match in DEVICE.finditer(text):
        line_end, end = text.index("\n", match.end()), text.find("\n}", match.end()) + 2
        spans.append((match[1], match.start(), line_end if text[line_end - 1] == "}" else end))
    found = [
        Function(name, text.count("\n", 0, at) + 1, text.count("\n", 0, end) + 1, text[at:end])
        for name, at, end in spans
    ]
    return sorted(found, key=lambda function: function.first)


def used(name: str, chapter: list[Function]) -> set[str]:
    """Return the names of a kernel and all functions that it calls, directly or indirectly."""
    found: set[str] = set()
    more = {name}
    while more:
        found |= more
        code = [re.sub("//.*", "", function.text) for function in chapter if function.name in more]
        words = {word for text in code for word in re.findall(r"\w+", text)}
        more = {function.name for function in chapter if function.name in words} - found
    return found


class Try(NamedTuple):
    """A rung with settings of `TRIES` or `PLAIN`; at: the index of these settings in the operation's tries."""

    at: int
    settings: dict[str, Any]
    rung: str
    case: Case


class Task(NamedTuple):
    """A mutant with its tries in order; if `mutant` is None, a rung that is tried unchanged."""

    name: str
    function: str
    mutant: Mutant | None
    content: str
    tries: tuple[Try, ...]

    @property
    def which(self) -> str:
        """The task's name in the output."""
        if self.mutant is None:
            return f"{self.name} {self.tries[0].rung}, by itself"
        return f"{self.name} {self.function}, line {self.mutant.line}, {self.mutant.rule}"


class End(NamedTuple):
    """How a task ended and why, with which settings and rung, and after how many seconds."""

    end: str
    said: str
    settings: dict[str, Any]
    rung: str
    seconds: float


def main() -> int:
    """Run the mutants of the named operations, or of all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("operations", nargs="*", metavar="OPERATION[:FUNCTION]")
    parser.add_argument("--jobs", type=int, default=1, metavar="N")
    parser.add_argument("--limit", type=float, default=1200, metavar="SECONDS")
    parser.add_argument("--keep", type=Path, metavar="FILE")
    parser.add_argument("--again", type=Path, metavar="LOG")
    parser.add_argument("--every", type=int, default=1, metavar="N")
    given = parser.parse_args()
    again = None if given.again is None else {match.groups() for match in LINE.finditer(given.again.read_text())}
    tasks = [
        task
        for words in given.operations or operations.SUMMARIES
        for number, task in enumerate(tasks_of(*words.partition(":")[::2], again=again))
        if number % given.every == 0
    ]
    # a shell starts background processes with SIGINT ignored, so the handlers are set here
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    total, whole = ends_of(tasks, given.jobs, given.keep, given.limit)
    return 130 if not whole else 1 if total["NOT FOUND"] + total["failed"] else 0


ENDS = ("found", "refused", "failed", "equivalent", "not seen", "NOT FOUND")


def words_of(counts: Counter[str]) -> str:
    """Return the counts of the ends as text."""
    return ", ".join(f"{counts[end]} {end}" for end in ENDS if counts[end] or end == ENDS[0])


def tasks_of(name: str, only: str = "", again: set[tuple[str, ...]] | None = None) -> Iterator[Task]:
    """Yield the mutants of an operation, or of one function, with their tries."""
    settings_of = (*TRIES.get(name, ({},)), *PLAIN.get(name, ({"bounds": True},)))
    cases = [
        (settings, rung.name, case)
        for settings in settings_of
        for rung in operations.get(name).kernels
        if (case := case_of(name, rung.name, settings)) is not None
    ]
    tries = [Try(at, *entry) for at, entry in enumerate(cases)]
    for file, text, function, calls in every_function(name):
        if only not in ("", function.name):
            continue
        users = tuple(
            attempt
            for attempt in tries
            if attempt.case.source.name.endswith(f"/{file}")
            and function.name in attempt.settings.get("of", (function.name,))
            and any(function.name in calls.get(launch.function, ()) for launch in attempt.case.launches)
        )
        for mutant in mutants(text, function.first, function.last) if users else ():
            if again is None or (name, function.name, str(mutant.line), mutant.rule) in again:
                tried = [(attempt.settings, attempt.rung) for attempt in users]
                content = hashlib.sha256((mutant.of(text) + repr(tried)).encode()).hexdigest()
                yield Task(name, function.name, mutant, content, users)


def every_function(name: str) -> Iterator[tuple[str, str, Function, dict[str, set[str]]]]:
    """Yield the functions of an operation's chapters: the file, its text with headers, the function, and the calls of
    each function."""
    for file in chapters.names(operations.get(name)):
        text = inlined(chapters.read_chapter(file))
        chapter = functions(text)
        calls = {function.name: used(function.name, chapter) for function in chapter}
        yield from ((file, text, function, calls) for function in chapter)


def inlined(source: Source) -> str:
    """Return a chapter's text with its headers in place of their #includes."""
    text = source.text
    for header, own in chapters.headers(source).items():
        first, *more = text.split(f'#include "{header}"\n')
        text = first + (own + "".join(more) if more else "")
    return text


def ends_of(
    tasks: Sequence[Task], jobs: int = 1, keep: Path | None = None, limit: float = 1200
) -> tuple[Counter[str], bool]:
    """Run mutants and print those that are not found. Return the counts of the ends, and whether all have ended."""
    nvrtc.load()
    kept = ends_kept(keep)
    found = {n: kept[task.name, task.content] for n, task in enumerate(tasks) if (task.name, task.content) in kept}
    left = [n for n in range(len(tasks)) if n not in found]
    rungs = {
        (tasks[n].name, attempt.at): Task(tasks[n].name, "", None, "", (attempt,))
        for n in left
        for attempt in tasks[n].tries
    }
    right: dict[tuple[str, int], float] = {}  # for each unchanged rung: the seconds that it took
    wrong: list[str] = []
    whole = True
    began = time.monotonic()

    def say(done: int, of: int, which: str, end: End) -> None:
        at = f"[{done} of {of}, {time.monotonic() - began:.0f} s]"
        print(f"{at} {which}: {end.end} after {end.seconds:.1f} s", file=sys.stderr, flush=True)

    try:
        with contextlib.closing(pool(list(rungs.items()), {}, jobs, limit)) as ended:
            for done, (where, end) in enumerate(ended, 1):
                say(done, len(rungs), rungs[where].which, end)
                right[where] = end.seconds
                if end.end != "ok":
                    wrong.append(f"{rungs[where].which}, is {end.end}: {end.settings}: {end.said}")
        # Mutants with many tries run first, so that no long mutant runs alone at the end.
        left.sort(key=lambda n: -likely(tasks[n], right))
        with contextlib.closing(pool([(n, tasks[n]) for n in left], right, jobs, limit)) as ended:
            for done, (number, end) in enumerate(ended, 1):
                found[number] = end
                if keep is not None:
                    append(keep, tasks[number], end)
                say(done, len(left), tasks[number].which, end)
    except KeyboardInterrupt:
        whole = False
    total = said_of(tasks, found)
    for sentence in wrong:
        print(sentence)
    if not whole:
        print(f"interrupted: {len(tasks) - len(found)} of {len(tasks)} have not ended")
    total += Counter(failed=len(wrong))
    return total, whole


def likely(task: Task, right: dict[tuple[str, int], float]) -> float:
    """Return the expected seconds of a task: an explained mutant runs all tries, other mutants run a few tries."""
    assert task.mutant is not None
    seconds = [right.get((task.name, attempt.at), 0) for attempt in task.tries]
    key = (task.name, task.mutant.rule, task.mutant.before)
    return sum(seconds) if key in EQUIVALENT or key in UNSEEN else sum(seconds[:3])


def said_of(tasks: Sequence[Task], found: dict[int, End]) -> Counter[str]:
    """Print how each mutant ended, in the order of the chapters, and a table of how many mutants ended in which way.
    Return the numbers."""
    by_name: dict[str, Counter[str]] = {}
    shown: dict[tuple[str, str, str], bool] = {}  # for each explained line: whether all its mutants were found
    for number, task in enumerate(tasks):
        mutant, ended = task.mutant, found.get(number)
        if mutant is None or ended is None:
            continue
        key = (task.name, mutant.rule, mutant.before)
        end, reason = ended.end, ended.said
        if key in EQUIVALENT or key in UNSEEN:
            shown[key] = end != "ok" and shown.get(key, True)
        if end == "ok":
            reason = EQUIVALENT.get(key) or UNSEEN.get(key) or ""
            end = "equivalent" if key in EQUIVALENT else "not seen" if key in UNSEEN else "NOT FOUND"
        by_name.setdefault(task.name, Counter())[end] += 1
        if end != "found":
            print(f"{task.which}: {mutant.after.strip()} ({end}{': ' * bool(reason)}{reason})")
        elif ended.settings:
            print(f"{task.which}: found by {ended.rung} with {ended.settings}")
    for key, found_all in shown.items():
        if found_all:
            print(f"{': '.join(key)}: is listed with a reason, and found")
    for name, counts in by_name.items():
        print(f"{name}: " + words_of(counts))
    total = sum(by_name.values(), Counter())
    print("all: " + words_of(total), flush=True)
    for name, counts in (*by_name.items(), ("all", total)):
        numbers = [counts[end] for end in ("found", "equivalent", "not seen", "refused")]
        print("|", " | ".join(map(str, (name, counts.total(), *numbers, counts["NOT FOUND"] + counts["failed"]))), "|")
    return total


def pool(
    tasks: Sequence[tuple[Any, Task]], right: dict[tuple[str, int], float], jobs: int, limit: float
) -> Iterator[tuple[Any, End]]:
    """Yield the key and the end of each task as it ends; `jobs` tasks run at a time, each in its own process.

    A process that dies, or takes longer than the limit in seconds, fails its task. Closing the generator ends all
    processes.
    """
    fork = multiprocessing.get_context("fork")
    waiting = list(tasks)[::-1]
    running: dict[Connection, tuple[Any, BaseProcess, float]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                key, task = waiting.pop()
                out_of, back = fork.Pipe(duplex=False)
                process = fork.Process(target=work, args=(task, right, back), daemon=True)
                with warnings.catch_warnings():
                    warnings.simplefilter(
                        "ignore", DeprecationWarning
                    )  # forking with threads is safe here, because the child does not take locks of other threads
                    process.start()
                back.close()
                running[out_of] = (key, process, time.monotonic())
            ready = wait(list(running), timeout=1)
            for out_of, (key, process, start) in list(running.items()):
                seconds = time.monotonic() - start
                if out_of in ready:
                    try:
                        end = End(*out_of.recv(), seconds)
                    except EOFError:
                        process.join()
                        end = End("failed", f"its process ended with {process.exitcode}", {}, "", seconds)
                elif seconds > limit:
                    end = End("failed", f"no end within {limit:g} s", {}, "", seconds)
                else:
                    continue
                del running[out_of]
                finish(process, out_of)
                yield key, end
    finally:
        for out_of, (_, process, _) in running.items():
            finish(process, out_of)


def finish(process: BaseProcess, out_of: Connection) -> None:
    """End a process."""
    process.kill()  # the compiler process ends by itself when its pipe is closed
    process.join()
    out_of.close()


def work(task: Task, right: dict[tuple[str, int], float], back: Connection) -> None:
    """Run a task in its process: try it until it is found, and send the fields of `End` except the seconds."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process handles Ctrl-C
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    limited_process.die_with_parent()
    end, reason, attempt = "ok", "", task.tries[0]
    try:
        for attempt in task.tries:
            text = attempt.case.source.text
            # The limit is a minute plus 20 times the time of the unchanged rung, because a busy machine may have become
            # much slower.
            seconds = 60 + 20 * right[task.name, attempt.at] if task.mutant else 1200
            changed = task.mutant.of(text) if task.mutant else text + "\n"
            end, reason = end_of(task.name, attempt.case, changed, attempt.settings, seconds)
            if end != "ok":
                break
    except Exception as error:  # an exception here is a defect, which must be shown
        end, reason = "failed", f"{type(error).__name__}: {error}"
    back.send((end, reason, attempt.settings, attempt.rung))


def append(keep: Path, task: Task, end: End) -> None:
    """Append the end of a mutant to a file at once, so that an interruption does not lose it."""
    line = json.dumps([task.name, task.content, end.end, end.said, end.settings, end.rung, task.which, end.seconds])
    with keep.open("ab+") as file:
        # an earlier run was stopped while it wrote its last line
        cut = file.tell() and os.pread(file.fileno(), 1, file.tell() - 1) != b"\n"
        file.write(b"\n" * bool(cut) + line.encode() + b"\n")


def ends_kept(keep: Path | None) -> dict[tuple[str, str], End]:
    """Return how the mutants of earlier runs ended, keyed by (operation, text of the changed chapter)."""
    lines = keep.read_text(encoding="utf-8").splitlines() if keep is not None and keep.exists() else []
    found = {}
    for line in lines:
        with contextlib.suppress(ValueError):  # the last line may be incomplete
            name, content, end, reason, settings, rung, _, *seconds = json.loads(line)
            found[name, content] = End(end, reason, settings, rung, *seconds or [0.0])
    return found


def case_of(name: str, kernel: str, settings: dict[str, Any]) -> Case | None:
    """Return a kernel's case with settings of `TRIES`; None if the kernel refuses them."""
    operation = operations.get(name)
    if "only" in settings and kernel not in settings["only"]:
        return None
    options = {option.name: option.default for option in operation.options} | settings.get("options", {})
    size = settings.get("size", SIZES[len(operation.dimensions)])
    own = {key: value for key, value in settings.items() if key not in KEYS}
    request = Request(kernels=(kernel,), **{**own, "size": size, "options": options})
    try:
        case = cases.build(operation, request)[0]
    except CudabenchError:
        return None
    return None if case.skip_reason else replace(case, source=replace(case.source, text=inlined(case.source)))


def end_of(name: str, case: Case, text: str, settings: dict[str, Any], timeout: float) -> tuple[str, str]:
    """Return the end of a case with this text, and its reason: 'ok', 'found' (a wrong result or a hazard), 'refused'
    (by the compiler) or 'failed'. timeout: in seconds."""
    if "without" in settings:
        text = re.sub(settings["without"], "//", text)
    changed = replace(case, source=replace(case.source, text=text), named=False, bounds="bounds" in settings)
    device = SimDevice(settings.get("architecture", "sm_90"))
    run = SimulatedRun(operations.get(name), changed.problem, Settings(cpu=False, timeout=timeout), device)
    run.disassemble = False
    try:
        for part in changed.parts:
            device.load(part)
    except CompilerError as error:
        return "refused", str(error)
    result = run.measure(changed)
    return ENDS_OF[result.status], result.reason or ""


ENDS_OF = {"ok": "ok", "wrong": "found", "failed": "failed", "skipped": "refused"}


if __name__ == "__main__":
    sys.exit(main())
