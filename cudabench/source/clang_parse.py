"""Parses C++ with libclang, in a separate process with limits of time and memory.

The limits are needed because sources may come from other people: a text can make libclang crash, run for minutes or use
all memory. If a process cannot be forked (macOS, Windows), the text is parsed in this process, without limits.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from cudabench.compile import cache, includes, limits, outside
from cudabench.compile.record import Job
from cudabench.errors import NO_MEMORY, CompilerError, CudabenchError, DeviceUnusable, NotEnoughMemory
from cudabench.source.records import VIRTUAL, Answer, Question, Reading, Task
from cudabench.system import limited_process

if TYPE_CHECKING:
    from clang.cindex import TranslationUnit

    from cudabench.source.cursors import Fault
    from cudabench.source.declared import Declarations

T = TypeVar("T")

MOST_SECONDS = 10.0
MOST_BYTES = 1 << 30
MOST_HEADERS = 64  # only the first headers of the user, in the order of inclusion, are read, up to this number
MOST_INSTANCES = 32  # layouts of at most this many class template instances are computed without a question
# the parser goes on after a missing header; without this flag, it silently reads unknown types as int
KEEP_GOING = 0x200
HEADERS = Path(__file__).parent / "headers"
_OPTIONS = (
    "-x", "cuda", "-target", "x86_64-linux-gnu", "--cuda-path=/nonexistent", "-nocudainc", "-nocudalib",
    "--cuda-host-only", "-nostdinc", "-ferror-limit=0", "-fgnuc-version=13.0", "-w",
    "-U__clang__", "-U__CUDA__", "-ftemplate-depth=256", "-fbracket-depth=256", "-fconstexpr-steps=100000",
)  # fmt: skip


@functools.lru_cache(maxsize=64)  # the cache helps because a file is read again for each of its kernels
def read(task: Task) -> Reading:
    """Return the declarations of a file, and the answers to the task's questions.

    Raises CompilerError for a text that makes the parser crash or run too long, and for a forbidden #include.
    """
    if task.folder is not None:
        outside.check(_job(task))
    name = _key(task)
    cached = cache.read("parsed", name)
    if cached is not None and (reading := cache.unpacked(Reading, cached)) is not None:
        return replace(reading, file=replace(reading.file, text=task.text, task=task))
    _load()
    seconds = _seconds()
    try:
        reading = run_bounded(functools.partial(_read, task))
    except limited_process.TimeLimitReached:
        if seconds < MOST_SECONDS:
            raise limits.too_long(task.path, "the C++ parser", seconds) from None
        raise CompilerError(
            f"{task.path}: reading it took over {seconds:g} s and was stopped: the file or its includes are too large, "
            "or its macros expand too much."
        ) from None
    except (limited_process.MemoryLimitReached, _ParseFailed, RecursionError):
        raise CompilerError(
            f"{task.path}: its text makes the C++ parser crash or run out of memory, as brackets and operators do that "
            "nest very deep: write it in smaller parts."
        ) from None
    cache.write("parsed", name, cache.packed(replace(reading, file=replace(reading.file, text="", task=None))))
    return reading


def run_bounded(work: Callable[[], T]) -> T:
    """Call `work`, which uses the parser, in a process with limits; return its value.

    Raises like `limited_process.call`.
    """
    return limited_process.call(work, seconds=_seconds(), memory=MOST_BYTES)


def _seconds() -> float:
    return min(MOST_SECONDS, limits.compile_seconds())


def _job(task: Task) -> Job:
    folders = (task.folder, *task.folders) if task.folder is not None else ()
    return Job(task.text, task.path, "", task.defines, folders, ())


def _key(task: Task) -> str | None:
    """Return the cache key of a task; None if its #include lines do not show all headers that it depends on."""
    included = includes.read(_job(task)) if task.folder is not None else includes.Included({}, True)
    if not included.complete:
        return None
    parser = find_spec("clang")
    folders = [HEADERS.parent, HEADERS, *map(Path, (parser and parser.submodule_search_locations) or ())]
    parts = (*map(cache.mark_of, folders), task, sorted(included.texts.items()))
    return hashlib.sha256(repr(parts).encode(errors="surrogateescape")).hexdigest()


class _ParseFailed(CudabenchError):
    """The parser could not parse a text at all."""


def _load() -> None:
    """Load libclang, so that forked processes have it already. Raises DeviceUnusable if it cannot be loaded."""
    try:
        from clang.cindex import LibclangError, conf

        from cudabench.source import missing as missing
    except ImportError:
        raise DeviceUnusable("No C++ parser is installed: install it with `pip install libclang`.") from None
    try:
        _ = conf.lib
    except LibclangError as error:
        if any(sign in str(error) for sign in NO_MEMORY):
            raise NotEnoughMemory(
                "The C++ parser cannot be loaded, because this process may take too little memory: raise the limit "
                "that 'ulimit -v' shows."
            ) from None
        why = " ".join(str(error).split())
        raise DeviceUnusable(
            f"The C++ parser cannot be loaded ({why}): install it with `pip install libclang`."
        ) from None


def _read(task: Task) -> Reading:
    """Parse a task in the process with limits. Parse again if layouts of class template instances are missing."""
    declarations, _, front = parse_with_stand_ins(task)
    if not declarations.incomplete:
        return declarations.reading
    more = tuple(Question(name, type=True) for name in declarations.incomplete[:MOST_INSTANCES])
    reading = _parse(replace(task, questions=(*task.questions, *more)), front).reading
    return Reading(replace(reading.file, task=task), reading.answers[: len(task.questions)])


def parse_with_stand_ins(task: Task, front: str = "", options: int = 0) -> tuple[Declarations, Sequence[Fault], str]:
    """Parse a file; while names are unknown, add stand-in declarations for them and parse again.

    `front`: declarations to put before the file. Return (what was found in the last round, the errors of the first
    round, all text that was put before the file). To be called in the process with limits.
    """
    from cudabench.source.missing import ROUNDS, MissingNames

    missing, declarations = MissingNames(), _parse(task, front, options)
    faults = declarations.faults
    for _ in range(ROUNDS - 1):
        if not missing.add_missing(declarations, task.name, _text_with_questions(task)):
            break
        declarations = _parse(task, front + missing.text(), options)
    return declarations, faults, front + missing.text()


def _parse(task: Task, stand_ins: str, options: int = 0) -> Declarations:
    """Parse a file once; `stand_ins`: declarations to put before it. Raises _ParseFailed if libclang cannot parse it at
    all."""
    from clang.cindex import Index, TranslationUnitLoadError

    from cudabench.source.declared import read_unit

    text, stand_in_file = _text_with_questions(task), VIRTUAL + "missing.h"
    std = task.std or ("c++20" if re.search(r"\b(?:concept|requires)\b", task.text) else "c++17")
    words = [*_OPTIONS, f"-std={std}", f"-isystem{HEADERS}"]
    words += [f"-I{folder}" for folder in (task.folder, *task.folders) if folder is not None]
    words += [f"-D{name}={value}" if value else f"-D{name}" for name, value in task.defines]
    words += ["-include", str(HEADERS / "cuda_reading.h"), "-include", stand_in_file]
    try:
        files = [(task.name, text), (stand_in_file, stand_ins)]
        unit = Index.create().parse(task.name, words, files, options=KEEP_GOING | options)
    except TranslationUnitLoadError:
        raise _ParseFailed from None
    return read_unit(unit, task, {task.name: text, **_headers(unit, task.name)})


def _headers(unit: TranslationUnit, main: str) -> dict[str, str]:
    """Return the texts of the user's headers that were included, keyed by path."""
    texts: dict[str, str] = {}
    names = dict.fromkeys(include.include.name for include in unit.get_includes())
    own = [name for name in names if name != main and not name.startswith((VIRTUAL, str(HEADERS)))]
    for name in own[:MOST_HEADERS]:
        with contextlib.suppress(OSError):
            texts[name] = Path(name).read_bytes().decode("utf-8", errors="surrogateescape")
    return texts


def _text_with_questions(task: Task) -> str:
    """Return the file's text, followed by C++ declarations whose types answer the task's questions."""
    from cudabench.source.declared import QUERY

    text, lines = task.text, []
    for at, question in enumerate(task.questions):
        if question.launches:
            continue
        expression = question.text
        # the template has overloads; one gets a new name here, so that the question names only this one
        if question.at is not None:
            name = re.compile(r"\w+").match(text, question.at)
            assert name is not None
            own = f"cudabench_{name[0]}"
            text = f"{text[: question.at]}{own}{text[name.end() :]}"
            expression = re.sub(rf"\b{name[0]}(?=\s*<)", own, expression, count=1)
        type_text = expression if question.type else f"decltype(&{expression})"
        lines += [
            f"using {QUERY}{at} = {type_text};",
            f"constexpr auto {QUERY}{at}_size = cudabench_size<{QUERY}{at}>::value;",
        ]
    return text + "\n" + "\n".join(lines) + "\n" if lines else text


def answer_of(task: Task, question: Question) -> Answer:
    """Return the parser's answer to one question about a file; the answer is empty if the parser has none."""
    answers = read(replace(task, questions=(question,))).answers
    return answers[0] if answers else Answer()
