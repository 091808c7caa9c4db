"""Which files a source may include, and whose text messages may show.

A foreign source is compiled on this machine, and a compiler's message shows the line that it cannot read. So a source
may not include devices, and absolute paths only below a folder of -I. For files outside of the source's tree, of -I's
folders and of the toolkit, messages show only the place of an error.
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

# Folders of the C and C++ libraries of the host's compiler.
_SYSTEM = ("/usr/include", "/usr/lib", "/usr/lib64", "/usr/local/cuda", "/opt/cuda")
_HASH = r"(?:#|%:|\?\?=)"
_INCLUDE = re.compile(
    rf'^[ \t]*{_HASH}[ \t]*(include(?:_next)?|import|embed)\b[ \t]*(?:["<]([^">\n]+)[">]|(\w[^\n]*))', re.M
)
_ASKED = re.compile(r'(__has_)(?:include(?:_next)?|embed)[ \t]*\([ \t]*(?:["<]([^">\n]+)[">]|(\w[^\n]*))')
_DEFINE = re.compile(rf"^[ \t]*{_HASH}[ \t]*define[ \t]+(\w+)([^\n]*)", re.M)
_QUOTED = re.compile(r'["<]([^">\n]+)[">]')
_FROM_THE_ROOT = re.compile(r"(?:^|[^\w.])/")  # a slash without a name before it
_HOSTS_HEAD = re.compile(r"^(?P<file>[^\s:][^:]*):(?P<line>\d+):(?:\d+:)? (?:(?:fatal )?error|warning|note): ")


def check(job: Job) -> None:
    """Raise CompilerError for a forbidden #include of a source or its headers.

    For an #include from macros all possible texts are checked, and an absolute path among them is refused. The same
    holds for __has_include. An #embed must be below the folders.
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
    """Return the possible names of an #include from macros. Raises CompilerError if an absolute path is possible."""
    reached: set[str] = set()
    texts = [computed.partition("//")[0]]
    for text in texts:  # grows
        for word in set(re.findall(r"\w+", text)) - reached:
            reached.add(word)
            texts += macros.get(word, ())
    # Words that may expand to nothing, or to text that cannot continue a name.
    removable = {word for word in reached if any(not re.search(r"[\w.]$", text) for text in macros.get(word, ()))}
    names = [name for text in texts for name in _QUOTED.findall(text)]
    for text in texts:
        if '"' in text:
            continue  # a plain name, which is included
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
    """Return the beginning of a message: the source and the line with a name."""
    at = job.source.find(name)
    line = job.source.count("\n", 0, at) + 1
    return f"{job.filename}:{line}" if at >= 0 else job.filename


def without_foreign_text(log: str, job: Job) -> str:
    """Return a compiler's log that shows only the place of errors in outside files."""
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
    """Return the folder of a source, and the folder of its repository."""
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
    """Return whether a file is in one of the folders, with links resolved on both sides."""
    real = os.path.realpath(path)
    return any(real.startswith(os.path.join(os.path.realpath(folder), "")) for folder in folders)
