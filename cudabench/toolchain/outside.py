"""Files that are none of a source's business: what it may not include, and whose text no message shows.

A source of others is compiled on this machine, and a compiler's message repeats the line that it cannot read. So an
#include names no device, and nothing by its absolute path unless -I names a folder above it; of a file outside the
source's tree, the folders of -I and the toolkit a message says where the fault is, and no more.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable
from pathlib import Path

from cudabench.errors import CompilerError
from cudabench.toolchain import diagnostics, includes, toolkit
from cudabench.toolchain.record import Job

# Where the C and C++ libraries of the host's compiler are.
_SYSTEM = ("/usr/include", "/usr/lib", "/usr/lib64", "/usr/local/cuda", "/opt/cuda")
_HASH = r"(?:#|%:|\?\?=)"
_INCLUDE = re.compile(
    rf'^[ \t]*{_HASH}[ \t]*(?:include(?:_next)?|import|embed)\b[ \t]*(?:["<]([^">\n]+)[">]|(\w+))', re.M
)
_NAMED = re.compile(rf'^[ \t]*{_HASH}[ \t]*define[ \t]+(\w+)[ \t]+["<]([^">\n]+)[">]', re.M)
_HOSTS_HEAD = re.compile(r"^(?P<file>[^\s:][^:]*):(?P<line>\d+):(?:\d+:)? (?:(?:fatal )?error|warning|note): ")


def check(job: Job) -> None:
    """Raise CompilerError for an #include of a source, or of its own headers, that is none of its business.

    One that a macro writes is followed where the macro's text is a name; another is the compiler's, within its limits.
    """
    texts = [job.source, *includes.read(job).texts.values()]
    joined = [re.sub(r"\\\r?\n|/\*.*?\*/", " ", text, flags=re.S) for text in texts]
    named: dict[str, set[str]] = {}
    for macro, meaning in [pair for text in joined for pair in _NAMED.findall(text)]:
        named.setdefault(macro, set()).add(meaning)
    for macro, value in job.defines:
        named.setdefault(macro, set()).add(value.strip('"<>'))
    for text in joined:
        for written, macro in _INCLUDE.findall(text):
            for name in {written} if written else named.get(macro, set()):
                _check_name(name, job)


def _check_name(name: str, job: Job) -> None:
    line = _line(name, job.source)
    place = f"{job.filename}:{line}" if line else job.filename
    places = [Path(folder) / name for folder in (_folder(job), *map(Path, job.include_dirs))]
    for path in places:
        if path.exists() and not path.is_file() and not path.is_dir():
            raise CompilerError(f"{place}: error: '{name}' is no regular file, and nothing else is included.")
    if os.path.isabs(name) and not _below(Path(name), [*map(Path, job.include_dirs), *_of_the_toolkit()]):
        raise CompilerError(
            f"{place}: error: '{name}' is included by its absolute path, which only an option may allow: name it by "
            "a path from the source's folder, or give a folder above it with -I."
        )


def _line(name: str, source: str) -> int | None:
    at = source.find(name)
    return source.count("\n", 0, at) + 1 if at >= 0 else None


def without_foreign_text(log: str, job: Job) -> str:
    """Return a compiler's log in which what is said of a file outside is reduced to the place."""
    roots = [*_tree(job), *map(Path, job.include_dirs), *_of_the_toolkit()]
    kept: list[str] = []
    foreign = False
    for line in log.splitlines():
        head = diagnostics.HEAD.match(line) or _HOSTS_HEAD.match(line)
        if head is None:
            if not foreign or _ENDING.match(line):
                kept.append(line)
            continue
        path = Path(head["file"])
        foreign = path.exists() and not _below(path, roots)
        if not foreign:
            kept.append(line)
            continue
        said = (
            f"{head['file']}({head['line']}): error: a fault in a file outside the source's folder, whose text is not "
            "shown; -I with its folder would"
        )
        if said not in kept:
            kept.append(said)
    return "\n".join(kept)


_ENDING = re.compile(r"\d+ (?:catastrophic )?errors? detected|[Cc]ompilation terminated")


def _folder(job: Job) -> Path:
    return Path(os.path.abspath(job.filename)).parent


def _tree(job: Job) -> list[Path]:
    """Return the folder of a source, and that of the repository that it is in."""
    folder = _folder(job)
    repository = next((above for above in (folder, *folder.parents) if (above / ".git").exists()), None)
    return [folder, *([repository] if repository else [])]


def _of_the_toolkit() -> list[Path]:
    headers, cache = toolkit.headers(), toolkit.cache_folder()
    return [
        *map(Path, _SYSTEM),
        *([headers.parent] if headers else []),
        *([cache] if cache else []),
        *Path(tempfile.gettempdir()).glob("cudabench-*"),
    ]


def _below(path: Path, folders: Iterable[Path]) -> bool:
    """Tell whether a file lies in one of the folders, links followed on both sides."""
    real = os.path.realpath(path)
    return any(real.startswith(os.path.join(os.path.realpath(folder), "")) for folder in folders)
