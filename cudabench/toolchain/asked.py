"""A job without the bodies of kernels that nobody asked for: the compiler's time goes into those that are.

A file of 15 kernels takes 43 s where the one that is asked for takes 0.3 s. One with fewer than `LEAST`, or a
short one, is compiled as it is: reading it would take as long.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from cudabench.errors import CudabenchError
from cudabench.source import clang_parse
from cudabench.source.records import Kernel, Task
from cudabench.source.words import without_remarks
from cudabench.toolchain import includes, names
from cudabench.toolchain.record import Job

LEAST, SHORT = 4, 4000  # kernels, characters
# Variables of this file alone: who else writes them decides what the compiler makes of those who read them.
_OF_THIS_FILE = re.compile(
    r"\bstatic\b[^;{}()]*\b__(?:device|constant|managed)__[^;{}()]*[;=\[{]"
    r"|\b__(?:device|constant|managed)__[^;{}()]*\bstatic\b[^;{}()]*[;=\[{]"
    r"|\bnamespace\s*\{"
)
# Words of a function up to which it becomes part of each kernel that calls it; of a larger one it matters how many do.
_INLINED = 200
_WARNING = re.compile(
    r"(?P<file>[^\n]+):(?P<line>\d+): (?:warning|remark)\b"
    r'(?: #177-D: (?:function|variable) "(?P<name>[^"\n]*)" was declared but never referenced)?'
)
_DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(\w+)", re.M)
_FUNCTION = re.compile(r"\b(?!__)(\w+)\s*\(")
_CLASS = re.compile(r"\b(?:struct|class|union)\s+(\w+)")
_LASTING = ("define", "undef", "include", "line", "error", "warning")


def only(job: Job) -> Job:
    """Return a job whose source declares the kernels that are not among `job.names`; all else keeps its line.

    Those whose code may be part of another's stay: kernels that device code mentions. So do templates, of which the
    compiler makes nothing that is not asked for, and all where the file has variables of its own that nobody else sees.
    Raises nothing: a text that the compiler refuses so has to be compiled as it is.
    """
    asked = {names.plain(name) for name in job.names}
    if not asked or not all(asked) or job.source.count("__global__") < LEAST or len(job.source) < SHORT:
        return job
    if "\r" in job.source or any(map(_OF_THIS_FILE.search, (job.source, *includes.read(job).texts.values()))):
        return job
    kernels = _kernels(job)
    called = {name for one in kernels for name in one.names - {one.name}}
    large = set(_large_functions(without_remarks(job.source)))
    large &= {name for one in kernels if one.name in asked for name in one.names}
    source = job.source
    for one in sorted(kernels, key=lambda kernel: -kernel.start):
        other = one.name not in asked | called and not one.template_parameters and "__global__" in one.text
        if other and _closed(one.text) and not large & one.names:
            source = source[: one.start] + _declared(one.text) + source[one.end :]
    return job if source == job.source else replace(job, source=source)


def as_written(log: str, job: Job, shorter: Job) -> str:
    """Return the warnings of a shortened job as of the whole file: its lines as they are, and none of what only the
    kernels that are left out use."""
    if shorter is job:
        return log
    own, left = (one.source.split("\n") for one in (job, shorter))
    gone = {word for one, two in zip(own, left, strict=True) if one != two for word in re.findall(r"\w+", one)}
    within = [(job.source.count("\n", 0, one.start), job.source.count("\n", 0, one.end)) for one in _kernels(job)]
    found: list[str] = []
    skipping = False
    for line in log.split("\n"):
        head = _WARNING.match(line)
        if head is not None:
            at = int(head["line"]) if head["file"] == job.filename else 0
            skipping = head["name"] in gone and not any(first < at <= last + 1 for first, last in within)
        elif found and _WARNING.match(found[-1]) and 0 < at <= len(own) and line.strip() == left[at - 1].strip():
            line = line[: len(line) - len(line.lstrip())] + own[at - 1].strip()
        if not skipping:
            found.append(line)
    return "\n".join(found)


def _kernels(job: Job) -> list[Kernel]:
    """Return the kernels of the file itself, as far as it can be read."""
    try:
        found = clang_parse.read(_task(job)).file.kernels
    except CudabenchError:
        return []
    own = [one for one in found if not one.file and one.text.endswith("}")]
    return [one for one in own if job.source[one.start : one.end] == one.text]


def _task(job: Job) -> Task:
    """Return what the parser is asked, as who plans a run has asked it: of a file of the user's, or of a chapter."""
    folder = str(Path(job.filename).resolve().parent)
    if folder not in job.include_dirs:
        return Task(os.path.basename(job.filename), job.source)
    beside = str(Path(job.filename).parent)
    folders = tuple(one for one in job.include_dirs if one not in (folder, beside))
    return Task(job.filename, job.source, beside, folders, job.defines, job.std)


def _closed(text: str) -> bool:
    """Return whether nothing that the preprocessor does within a text lasts behind it."""
    words = _DIRECTIVE.findall(without_remarks(text))
    begun = sum(word in ("if", "ifdef", "ifndef") for word in words)
    return begun == words.count("endif") and not any(word in _LASTING for word in words)


def _declared(text: str) -> str:
    """Return a kernel's head as a declaration, as long and with as many lines as the definition."""
    brace = without_remarks(text).index("{")
    return text[:brace] + ";" + re.sub(r"[^\n]", " ", text[brace + 1 :])


def _large_functions(plain: str) -> Iterator[str]:
    """Yield the names of functions and classes of more words than become part of their callers."""
    depth = head = start = 0
    for match in re.finditer(r"[;{}]", plain):
        if match[0] == "{":
            before = plain[head : match.start()]
            if depth == 0 and re.search(r'\bnamespace\b|\bextern\s*"', before):
                head = match.end()
                continue
            start, depth = (match.start() if depth == 0 else start), depth + 1
        elif match[0] == "}" and depth:
            depth -= 1
            if depth == 0 and len(re.findall(r"\w+", plain[start : match.end()])) > _INLINED:
                yield from _FUNCTION.findall(plain, head, start)[:1] or _CLASS.findall(plain, head, start)[-1:]
        if depth == 0:
            head = match.end()
