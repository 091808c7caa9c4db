"""Files that are none of a source's business: what it may not include, and whose text no message shows.

A source of others is compiled on this machine, and a compiler's message repeats the line that it cannot read. So an
#include names no device, and nothing by its absolute path unless -I names a folder above it; of a file outside the
source's tree, the folders of -I and the toolkit a message says where the fault is, and no more.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from cudabench.compile import diagnostics, includes, toolkit
from cudabench.compile.record import Job
from cudabench.errors import CompilerError
from cudabench.system.folders import cache_folder

# Where the C and C++ libraries of the host's compiler are.
_SYSTEM = ("/usr/include", "/usr/lib", "/usr/lib64", "/usr/local/cuda", "/opt/cuda")
_HASH = r"(?:#|%:|\?\?=)"
_INCLUDE = re.compile(
    rf'^[ \t]*{_HASH}[ \t]*(include(?:_next)?|import|embed)\b[ \t]*(?:["<]([^">\n]+)[">]|(\w[^\n]*))', re.M
)
_ASKED = re.compile(r'(__has_)(?:include(?:_next)?|embed)[ \t]*\([ \t]*(?:["<]([^">\n]+)[">]|(\w[^\n]*))')
_DEFINE = re.compile(rf"^[ \t]*{_HASH}[ \t]*define[ \t]+(\w+)([^\n]*)", re.M)
_QUOTED = re.compile(r'["<]([^">\n]+)[">]')
_FROM_THE_ROOT = re.compile(r"(?:^|[^\w.])/")  # a slash with no name before it
_HOSTS_HEAD = re.compile(r"^(?P<file>[^\s:][^:]*):(?P<line>\d+):(?:\d+:)? (?:(?:fatal )?error|warning|note): ")


def check(job: Job) -> None:
    """Raise CompilerError for an #include of a source, or of its own headers, that is none of its business.

    One that macros write is followed through all that they may become; where a path from the root may be among it, it
    is refused. So is one that is only asked for, by __has_include. What is taken in as numbers, by #embed, is below the
    folders.
    """
    texts = [job.source, *includes.read(job).texts.values()]
    joined = [re.sub(r"\\\r?\n|/\*.*?\*/", " ", text, flags=re.S) for text in texts]
    defined = [
        (macro, meaning.partition("//")[0].strip()) for text in joined for macro, meaning in _DEFINE.findall(text)
    ]
    macros: dict[str, set[str]] = {}
    for macro, meaning in (*defined, *job.defines):
        macros.setdefault(macro, set()).add(meaning)
    for text in joined:
        for directive, written, computed in (*_INCLUDE.findall(text), *_ASKED.findall(text)):
            for name in [written] if written else _names(computed, macros, job):
                _check_name(name, job, embedded=directive == "embed")


def _names(computed: str, macros: Mapping[str, set[str]], job: Job) -> list[str]:
    """Return the names that an #include may have whose text macros write; CompilerError where they may make a path
    from the root."""
    reached: set[str] = set()
    texts = [computed.partition("//")[0]]
    for text in texts:  # grows
        for word in set(re.findall(r"\w+", text)) - reached:
            reached.add(word)
            texts += macros.get(word, ())
    # Words that may become nothing, or what a name cannot go on from.
    gone = {word for word in reached if any(not re.search(r"[\w.]$", text) for text in macros.get(word, ()))}
    names = [name for text in texts for name in _QUOTED.findall(text)]
    for text in texts:
        if '"' in text:
            continue  # a name as it stands, and among those
        bare = re.sub(r"\w+", lambda word: "" if word[0] in gone else word[0], text)
        if _FROM_THE_ROOT.search(re.sub(r"\s", "", bare)):
            raise CompilerError(
                f"{_place(computed, job)}: error: the name that macros make of '{computed.strip()[:80]}' may be an "
                "absolute path, and none is included so: write the name itself, from the source's folder."
            )
    return names


def _check_name(name: str, job: Job, *, embedded: bool) -> None:
    place = _place(name, job)
    folders = [*map(Path, job.include_dirs)]
    for path in [folder / name for folder in (_folder(job), *folders)]:
        if path.exists() and not path.is_file() and not path.is_dir():
            raise CompilerError(f"{place}: error: '{name}' is no regular file, and nothing else is included.")
        if embedded and path.exists() and not _below(path, [*_tree(job), *folders]):
            raise CompilerError(
                f"{place}: error: '{name}' is embedded from outside the source's folder: give a folder above it with "
                "-I."
            )
    if os.path.isabs(name) and not _below(Path(name), [*folders, *_of_the_toolkit()]):
        raise CompilerError(
            f"{place}: error: '{name}' is included by its absolute path, which only an option may allow: name it by "
            "a path from the source's folder, or give a folder above it with -I."
        )


def _place(name: str, job: Job) -> str:
    """Return the source with the line that has a name, as messages begin."""
    at = job.source.find(name)
    line = job.source.count("\n", 0, at) + 1
    return f"{job.filename}:{line}" if at >= 0 else job.filename


def without_foreign_text(log: str, job: Job) -> str:
    """Return a compiler's log in which what is said of a file outside is reduced to the place."""
    roots = [*_tree(job), *map(Path, job.include_dirs), *_of_the_toolkit()]
    kept: list[str] = []
    foreign = False
    for line in log.splitlines():
        head = diagnostics.HEAD.match(line) or _HOSTS_HEAD.match(line)
        path = Path(head["file"]) if head else None
        foreign = path.exists() and not _below(path, roots) if path else foreign
        if head is None or not foreign:
            kept += [line] if not foreign or _ENDING.match(line) else []
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
    headers, cache = toolkit.headers(), cache_folder()
    return [
        *map(Path, _SYSTEM),
        *([headers.parent] if headers else []),
        *toolkit.of_device_libraries("#include <curand_kernel.h>"),
        *([cache] if cache else []),
        *Path(tempfile.gettempdir()).glob("cudabench-*"),
    ]


def _below(path: Path, folders: Iterable[Path]) -> bool:
    """Tell whether a file lies in one of the folders, links followed on both sides."""
    real = os.path.realpath(path)
    return any(real.startswith(os.path.join(os.path.realpath(folder), "")) for folder in folders)
