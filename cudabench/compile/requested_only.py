"""Removes the bodies of kernels that were not requested, which saves the compiler's time.

An example: compiling a file of 15 kernels takes 43 s, but 0.3 s if only one kernel has its body. A file with fewer than
`LEAST` kernels or `SHORT` characters is compiled whole, because finding the bodies would take as long.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

from cudabench.compile import names
from cudabench.compile.record import Job
from cudabench.errors import CudabenchError
from cudabench.source import clang_parse
from cudabench.source.records import Kernel, SourceFile, Task
from cudabench.source.words import DIRECTIVE, blank, without_comments

LEAST, SHORT = 4, 4000  # a file with fewer kernels, or fewer characters, is not shortened
_WARNING = re.compile(
    r"(?P<file>[^\n]+):(?P<line>\d+): (?:warning|remark)\b"
    r'(?: #177-D: (?:function|variable) "(?P<name>[^"\n]*)" was declared but never referenced)?'
)
_LASTING = ("define", "undef", "include", "line", "error", "warning")


def without_other_kernels(job: Job) -> Job:
    """Return a job whose source only declares the kernels that are not in `job.names`. All other text keeps its line.

    Some other kernels keep their bodies: kernels that device code mentions, because this code may need the body, and
    templates, of which only requested instances are compiled. If the file has private variables, all kernels keep their
    bodies. Never raises: if the compiler refuses the shortened text, the caller must compile the whole text.
    """
    requested = {names.plain(name) for name in job.names}
    if not requested or not all(requested) or job.source.count("__global__") < LEAST or len(job.source) < SHORT:
        return job
    file = _read(job)
    if file is None or file.private or "\r" in job.source:
        return job
    kernels = _kernels(file)
    called = {name for kernel in kernels for name in kernel.names - {kernel.name}}
    large = file.large & {name for kernel in kernels if kernel.name in requested for name in kernel.names}
    source = job.source
    for kernel in sorted(kernels, key=lambda kernel: -kernel.start):
        other = kernel.name not in requested | called and not kernel.template_parameters and "__global__" in kernel.text
        if other and _is_self_contained(kernel.text) and not large & kernel.names:
            source = source[: kernel.start] + _declared(kernel.text) + source[kernel.end :]
    return job if source == job.source else replace(job, source=source)


def warnings_as_written(log: str, job: Job, shorter: Job) -> str:
    """Return the warnings of a shortened job, without those that only shortening caused.

    The removed warnings are those on the changed lines, and those that a helper function is not used any more.
    """
    file = None if shorter is job else _read(job)
    if file is None:
        return log
    pairs = zip(*(version.source.split("\n") for version in (job, shorter)), strict=True)
    changed = {at: own for at, (own, shortened) in enumerate(pairs, 1) if own != shortened}
    removed = {word for own in changed.values() for word in re.findall(r"\w+", own)}
    within = [
        (job.source.count("\n", 0, kernel.start), job.source.count("\n", 0, kernel.end)) for kernel in _kernels(file)
    ]
    kept: list[str] = []
    skipping = False
    for line in log.split("\n"):
        head = _WARNING.match(line)
        if head is not None:
            at = int(head["line"]) if head["file"] == job.filename else 0
            unused = head["name"] in removed and not any(first < at <= last + 1 for first, last in within)
            skipping = unused or at in changed
        if not skipping:
            kept.append(line)
    return "\n".join(kept)


def _read(job: Job) -> SourceFile | None:
    """Parse a job's source with libclang, with the options with which the run was planned; None if that fails."""
    task = Task(os.path.basename(job.filename), job.source)
    folder, beside = str(Path(job.filename).resolve().parent), str(Path(job.filename).parent)
    if folder in job.include_dirs:
        folders = tuple(include_dir for include_dir in job.include_dirs if include_dir not in (folder, beside))
        task = Task(job.filename, job.source, beside, folders, job.defines, job.std)
    try:
        return clang_parse.read(task).file
    except CudabenchError:
        return None


def _kernels(file: SourceFile) -> list[Kernel]:
    """Return the kernels that are defined in the file itself, not in a header or by a macro."""
    own = [kernel for kernel in file.kernels if not kernel.file and kernel.text.endswith("}")]
    return [kernel for kernel in own if file.text[kernel.start : kernel.end] == kernel.text]


def _is_self_contained(text: str) -> bool:
    """Return whether removing this text cannot change other text: each #if in it has its #endif, and no #define,
    #include or the like occurs."""
    words = [directive[1] for directive in DIRECTIVE.finditer(without_comments(text))]
    begun = sum(map(words.count, ("if", "ifdef", "ifndef")))
    return begun == words.count("endif") and not any(word in _LASTING for word in words)


def _declared(text: str) -> str:
    """Return the declaration of a kernel, from its definition `text`, with blanks up to the same length and lines."""
    brace = without_comments(text).index("{")
    return text[:brace] + ";" + blank(text[brace + 1 :])
