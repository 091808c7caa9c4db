"""A job without the bodies of kernels that nobody asked for: the compiler's time goes into those that are."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from cudabench.toolchain import includes, names, reached
from cudabench.toolchain.host_code import without_host_code
from cudabench.toolchain.kernels import KernelSource, parse
from cudabench.toolchain.record import Job
from cudabench.toolchain.tokens import Scan

# Variables of this file alone: who else writes them decides what the compiler makes of those who read them.
_OF_THIS_FILE = re.compile(
    r"\bstatic\b[^;{}()]*\b__(?:device|constant|managed)__[^;{}()]*[;=\[{]"
    r"|\b__(?:device|constant|managed)__[^;{}()]*\bstatic\b[^;{}()]*[;=\[{]"
    r"|\bnamespace\s*\{"
)
# Tokens of a function up to which it becomes part of each kernel that calls it; of a larger one it matters how many do.
_INLINED = 400
_WARNING = re.compile(
    r"(?P<file>[^\n]+):(?P<line>\d+): (?:warning|remark)\b"
    r'(?: #177-D: (?:function|variable) "(?P<name>[^"\n]*)" was declared but never referenced)?'
)
_LASTING = ("define", "undef", "include", "line", "error", "warning")


def only(job: Job) -> Job:
    """Return a job whose source declares the kernels that are not among `job.names`; all else keeps its line.

    Those whose code may be part of another's stay: kernels that device code mentions. So do templates, of which the
    compiler makes nothing that is not asked for, and all where the file has variables of its own that nobody else sees.
    Raises nothing: a text that the compiler refuses so has to be compiled as it is.
    """
    asked = {names.plain(name) for name in job.names}
    if not asked or not all(asked) or job.source.count("__global__") < 2:
        return job
    kernels = parse(job.source, job.filename).kernels
    others = [
        kernel
        for kernel in kernels
        if kernel.name not in asked and not kernel.template_parameters and _closed(kernel.text)
    ]
    if not others or "\r" in job.source:
        return job
    texts: Mapping[str, str] = includes.read(job).texts
    if any(map(_OF_THIS_FILE.search, (job.source, *texts.values()))):
        return job
    mentioned = set()
    candidates = {kernel.name: kernel for kernel in others}
    for text in (without_host_code(job.source), *texts.values()):
        mentioned |= _mentioned(text, candidates)
    large = reached.large_functions(job.source, _INLINED)
    if large:
        large &= {name for one in kernels if one.name in asked for name in reached.names(job.source, one)}
    source = job.source
    for kernel in reversed(others):
        if kernel.name not in mentioned and not (large and large & reached.names(job.source, kernel)):
            source = source[: kernel.start] + _declared(kernel.text) + source[kernel.end :]
    return job if source == job.source else replace(job, source=source)


def as_written(log: str, job: Job, shorter: Job) -> str:
    """Return the warnings of a shortened job as of the whole file: its lines as they are, and none of what only the
    kernels that are left out use."""
    own, left = (one.source.split("\n") for one in (job, shorter))
    gone = {word for one, two in zip(own, left, strict=True) if one != two for word in re.findall(r"\w+", one)}
    within = [
        (job.source.count("\n", 0, kernel.start), job.source.count("\n", 0, kernel.end))
        for kernel in parse(job.source, job.filename).kernels
    ]
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


def _closed(text: str) -> bool:
    """Whether nothing that the preprocessor does within a text lasts behind it."""
    words = [directive.word for directive in Scan(text).directives]
    begun = sum(word in ("if", "ifdef", "ifndef") for word in words)
    return begun == words.count("endif") and not any(word in _LASTING for word in words)


def _mentioned(text: str, kernels: Mapping[str, KernelSource]) -> set[str]:
    """Return the kernels that a text names but in their own bodies and where it declares them."""
    if not any(name in text for name in kernels):
        return set()
    scan = Scan(text)
    found = {word for one in scan.directives for word in re.findall(r"\w+", one.rest) if word in kernels}
    declares = False
    for word, start in zip(scan.words, scan.starts, strict=True):
        if word in (";", "{", "}"):
            declares = False
        elif word == "__global__":
            declares = True
        elif word in kernels and not declares:
            own = kernels[word]
            if text[own.start : own.end] != own.text or not own.start <= start < own.end:
                found.add(word)
    return found


def _declared(text: str) -> str:
    """Return a kernel's head as a declaration, as long and with as many lines as the definition."""
    scan = Scan(text)
    brace = scan.starts[scan.head(0)[1]]
    return text[:brace] + ";" + re.sub(r"[^\n]", " ", text[brace + 1 :])
