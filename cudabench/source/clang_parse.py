"""C++ as the compiler's parser reads it: libclang in a process that can be ended, for what others wrote.

A text may make it crash, run for minutes or take all memory. Where no process can be forked (macOS, Windows) it is
parsed here, without bounds.
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
from cudabench.system import confined

if TYPE_CHECKING:
    from clang.cindex import TranslationUnit

    from cudabench.source.cursors import Fault
    from cudabench.source.declared import Found

T = TypeVar("T")

MOST_SECONDS = 10.0
MOST_BYTES = 1 << 30
MOST_HEADERS = 64  # of the user's own that are read, in the order in which they are included
MOST_QUESTIONS = 32  # about instances of class templates, of one's own accord
KEEP_GOING = 0x200  # behind a header that is not there, too; else an unknown type is int, and no error says so
HEADERS = Path(__file__).parent / "headers"
_OPTIONS = (
    "-x", "cuda", "-target", "x86_64-linux-gnu", "--cuda-path=/nonexistent", "-nocudainc", "-nocudalib",
    "--cuda-host-only", "-nostdinc", "-ferror-limit=0", "-fgnuc-version=13.0", "-w",
    "-U__clang__", "-U__CUDA__", "-ftemplate-depth=256", "-fbracket-depth=256", "-fconstexpr-steps=100000",
)  # fmt: skip


@functools.lru_cache(maxsize=64)  # a ladder asks for its chapter once a kernel
def read(task: Task) -> Reading:
    """Return what the parser reads. Raises CompilerError for a text that it does not stand, and for an #include of
    what is not the source's business."""
    if task.folder is not None:
        outside.check(_job(task))
    name = _key(task)
    kept = cache.read("parsed", name)
    if kept is not None and (reading := cache.unpacked(Reading, kept)) is not None:
        return replace(reading, file=replace(reading.file, text=task.text, task=task))
    _load()
    seconds = _seconds()
    try:
        reading = bounded(functools.partial(_read, task))
    except confined.TooLong:
        if seconds < MOST_SECONDS:
            raise limits.too_long(task.path, "the C++ parser", seconds) from None
        raise CompilerError(
            f"{task.path}: reading it took over {seconds:g} s and was stopped: it, or what it includes, is too large, "
            "or its macros make too much of it."
        ) from None
    except (confined.TooMuch, _Refused, RecursionError):
        raise CompilerError(
            f"{task.path}: its text makes the C++ parser crash or run out of memory, as brackets and operators do that "
            "nest very deep: write it in smaller parts."
        ) from None
    cache.write("parsed", name, cache.packed(replace(reading, file=replace(reading.file, text="", task=None))))
    return reading


def bounded(work: Callable[[], T]) -> T:
    """Return what work with the parser makes, in a process that can be ended. Raises TooLong and TooMuch."""
    return confined.call(work, seconds=_seconds(), memory=MOST_BYTES)


def _seconds() -> float:
    return min(MOST_SECONDS, limits.compile_seconds())


def _job(task: Task) -> Job:
    folders = (task.folder, *task.folders) if task.folder is not None else ()
    return Job(task.text, task.path, "", task.defines, folders, ())


def _key(task: Task) -> str | None:
    """Return the name of what is kept of a task, None where the text does not show all that it hangs on."""
    included = includes.read(_job(task)) if task.folder is not None else includes.Included({}, True)
    if not included.complete:
        return None
    parser = find_spec("clang")
    folders = [HEADERS.parent, HEADERS, *map(Path, (parser and parser.submodule_search_locations) or ())]
    parts = (*map(cache.mark_of, folders), task, sorted(included.texts.items()))
    return hashlib.sha256(repr(parts).encode(errors="surrogateescape")).hexdigest()


class _Refused(CudabenchError):
    """The parser gave up."""


def _load() -> None:
    """Load all here, so that no process that is forked has to. Raises DeviceUnusable where that cannot be."""
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
    """Runs in the process that may be ended."""
    found, _, front = understood(task)
    if not found.incomplete:
        return found.reading
    more = tuple(Question(name, type=True) for name in found.incomplete[:MOST_QUESTIONS])
    reading = _parsed(replace(task, questions=(*task.questions, *more)), front).reading
    return Reading(replace(reading.file, task=task), reading.answers[: len(task.questions)])


def understood(task: Task, front: str = "", options: int = 0) -> tuple[Found, Sequence[Fault], str]:
    """Parse a file behind declarations, with stand-ins for what it lacks besides: return what it declares, the errors
    without the stand-ins, and all that is in front. Runs in the process that may be ended."""
    from cudabench.source.missing import ROUNDS, Missing

    lacks, found = Missing(), _parsed(task, front, options)
    faults = found.faults
    for _ in range(ROUNDS - 1):
        if not lacks.learn(found, task.name, _asked(task)):
            break
        found = _parsed(task, front + lacks.text(), options)
    return found, faults, front + lacks.text()


def _parsed(task: Task, lacking: str, options: int = 0) -> Found:
    """Return what libclang makes of a file, behind declarations of what it lacks. Raises _Refused where it gives up."""
    from clang.cindex import Index, TranslationUnitLoadError

    from cudabench.source.declared import read_unit

    text, lacks = _asked(task), VIRTUAL + "missing.h"
    std = task.std or ("c++20" if re.search(r"\b(?:concept|requires)\b", task.text) else "c++17")
    words = [*_OPTIONS, f"-std={std}", f"-isystem{HEADERS}"]
    words += [f"-I{folder}" for folder in (task.folder, *task.folders) if folder is not None]
    words += [f"-D{name}={value}" if value else f"-D{name}" for name, value in task.defines]
    words += ["-include", str(HEADERS / "cuda_reading.h"), "-include", lacks]
    try:
        files = [(task.name, text), (lacks, lacking)]
        unit = Index.create().parse(task.name, words, files, options=KEEP_GOING | options)
    except TranslationUnitLoadError:
        raise _Refused from None
    return read_unit(unit, task, {task.name: text, **_headers(unit, task.name)})


def _headers(unit: TranslationUnit, main: str) -> dict[str, str]:
    """Return the texts of the user's own headers that were included."""
    found: dict[str, str] = {}
    names = dict.fromkeys(include.include.name for include in unit.get_includes())
    own = [name for name in names if name != main and not name.startswith((VIRTUAL, str(HEADERS)))]
    for name in own[:MOST_HEADERS]:
        with contextlib.suppress(OSError):
            found[name] = Path(name).read_bytes().decode("utf-8", errors="surrogateescape")
    return found


def _asked(task: Task) -> str:
    """Return the file's text with the questions behind it."""
    from cudabench.source.declared import QUERY

    text, lines = task.text, []
    for at, question in enumerate(task.questions):
        if question.launches:
            continue
        wanted = question.text
        if question.at is not None:  # an overloaded template: under a name of its own
            name = re.compile(r"\w+").match(text, question.at)
            assert name is not None
            own = f"cudabench_{name[0]}"
            text = f"{text[: question.at]}{own}{text[name.end() :]}"
            wanted = re.sub(rf"\b{name[0]}(?=\s*<)", own, wanted, count=1)
        meant = wanted if question.type else f"decltype(&{wanted})"
        lines += [
            f"using {QUERY}{at} = {meant};",
            f"constexpr auto {QUERY}{at}_size = cudabench_size<{QUERY}{at}>::value;",
        ]
    return text + "\n" + "\n".join(lines) + "\n" if lines else text


def asked(task: Task, question: Question) -> Answer:
    """Return what the parser answers to a question about a file."""
    answers = read(replace(task, questions=(question,))).answers
    return answers[0] if answers else Answer()
