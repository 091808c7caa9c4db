"""Protects the user's files from foreign sources: limits the files that a source includes and the text in messages.

A source from another person is compiled on this machine, and an error message shows the source line with the error, so
the message could reveal a private file that the source includes. Therefore a source may not include a device file, such
as /dev/zero. A source may include a file by an absolute path only if the file lies below a folder that was given with
-I. A message shows a line of a file only if the file is in the source's tree, a folder of -I or the toolkit.
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

# Folders with the C and C++ libraries of the host compiler.
_SYSTEM = ("/usr/include", "/usr/lib", "/usr/lib64", "/usr/local/cuda", "/opt/cuda")
_HASH = r"(?:#|%:|\?\?=)"
_INCLUDE = re.compile(
    rf'^[ \t]*{_HASH}[ \t]*(include(?:_next)?|import|embed)\b[ \t]*(?:["<]([^">\n]+)[">]|(\w[^\n]*))', re.M
)
_ASKED = re.compile(r'(__has_)(?:include(?:_next)?|embed)[ \t]*\([ \t]*(?:["<]([^">\n]+)[">]|(\w[^\n]*))')
_DEFINE = re.compile(rf"^[ \t]*{_HASH}[ \t]*define[ \t]+(\w+)([^\n]*)", re.M)
_QUOTED = re.compile(r'["<]([^">\n]+)[">]')
_FROM_THE_ROOT = re.compile(r"(?:^|[^\w.])/")  # matches a slash with no name before it, which begins an absolute path
_HOSTS_HEAD = re.compile(r"^(?P<file>[^\s:][^:]*):(?P<line>\d+):(?:\d+:)? (?:(?:fatal )?error|warning|note): ")


def check(job: Job) -> None:
    """Raise CompilerError if a source or its headers have a forbidden #include.

    For an #include of a macro, all texts to which it can expand are checked, and an absolute path among them is an
    error. __has_include is checked in the same way. A file of #embed must be in the source's tree or below a folder of
    -I.
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
    """Return the file names to which an #include of macros can expand. Raises CompilerError for an absolute path."""
    reached: set[str] = set()
    texts = [computed.partition("//")[0]]
    for text in texts:  # the loop itself appends to `texts`
        for word in set(re.findall(r"\w+", text)) - reached:
            reached.add(word)
            texts += macros.get(word, ())
    # Macros that may expand to nothing, or to a text that does not end with a character of a name. A '/' after such a
    # macro can begin an absolute path.
    removable = {word for word in reached if any(not re.search(r"[\w.]$", text) for text in macros.get(word, ()))}
    names = [name for text in texts for name in _QUOTED.findall(text)]
    for text in texts:
        if '"' in text:
            continue  # the text is a quoted file name, which is already in `names`
        bare = re.sub(r"\w+", lambda word: "" if word[0] in removable else word[0], text)
        if _FROM_THE_ROOT.search(re.sub(r"\s", "", bare)):
            raise CompilerError(
                f"{_place(computed, job)}: error: '{computed.strip()[:80]}' may expand to an absolute path, "
                "which is forbidden: write the name itself, from the source's folder."
            )
    return names


def _check_name(name: str, job: Job, *, embedded: bool) -> None:
    place = _place(name, job)
    folders = [*map(Path, job.include_dirs)]
    for path in [folder / name for folder in (_folder(job), *folders)]:
        if path.exists() and not path.is_file() and not path.is_dir():
            raise CompilerError(f"{place}: error: '{name}' is not a regular file: include a regular file.")
        if embedded and path.exists() and not _below(path, [*_tree(job), *folders]):
            raise CompilerError(
                f"{place}: error: '{name}' is embedded from outside the source's folder: give a folder above it with "
                "-I."
            )
    if os.path.isabs(name) and not _below(Path(name), [*folders, *_of_the_toolkit()]):
        raise CompilerError(
            f"{place}: error: '{name}' is included by its absolute path: name it by a path from the "
            "source's folder, or give a folder above it with -I."
        )


def _place(name: str, job: Job) -> str:
    """Return 'FILE:LINE' of the first line of the source that contains `name`, or 'FILE'."""
    at = job.source.find(name)
    line = job.source.count("\n", 0, at) + 1
    return f"{job.filename}:{line}" if at >= 0 else job.filename


def without_foreign_text(log: str, job: Job) -> str:
    """Return a compiler's log in which errors in outside files have only the file and the line, not the text."""
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
        message = (
            f"{head['file']}({head['line']}): error: an error in a file outside the source's folder, whose text is "
            "hidden; -I with its folder shows it"
        )
        if message not in kept:
            kept.append(message)
    return "\n".join(kept)


_ENDING = re.compile(r"\d+ (?:catastrophic )?errors? detected|[Cc]ompilation terminated")


def _folder(job: Job) -> Path:
    return Path(os.path.abspath(job.filename)).parent


def _tree(job: Job) -> list[Path]:
    """Return the folder of the job's source and, if it is in a git repository, the repository's top folder."""
    folder = _folder(job)
    repository = next((above for above in (folder, *folder.parents) if (above / ".git").exists()), None)
    return [folder, *([repository] if repository else [])]


def _of_the_toolkit() -> list[Path]:
    headers, cache = toolkit.headers(), cache_folder()
    return [
        *map(Path, _SYSTEM),
        *([headers.parent] if headers else []),
        *toolkit.device_library_headers("#include <curand_kernel.h>"),
        *([cache] if cache else []),
        *Path(tempfile.gettempdir()).glob("cudabench-*"),
    ]


def _below(path: Path, folders: Iterable[Path]) -> bool:
    """Return whether a file is in or below one of the folders, after symbolic links are resolved in both paths."""
    real = os.path.realpath(path)
    return any(real.startswith(os.path.join(os.path.realpath(folder), "")) for folder in folders)
