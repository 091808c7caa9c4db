"""Finds the user's headers that a source includes, by reading the #include lines of the texts."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cudabench.compile import prelude
from cudabench.compile.record import Job
from cudabench.system import outputs

MAX_HEADERS = 64  # the maximum number of headers that are read for a source; a kernel does not need more
PACKAGE = Path(__file__).parent.parent
_HEADERS = (".h", ".hh", ".hpp", ".hxx", ".cuh", ".inl", ".inc", ".cu")
# A folder that contains one of these names is taken as the top folder of a project.
_ROOTS = (".git", "CMakeLists.txt", "Makefile", "configure", "setup.py", "pyproject.toml", "PKG-INFO")
MAX_DEPTH = 8  # how many folders above a source are searched for the top folder of its project
MAX_ENTRIES = 20_000  # the search ends after about this many files and folders of a project
# Names of folders in which projects keep copies of other projects.
_THIRD_PARTY = frozenset(
    ["third_party", "third-party", "thirdparty", "3rdparty", "external", "externals", "extern", "vendor", "deps"]
)

_CUDAS = ("cub", "thrust", "cuda", "cooperative_groups", "nv")  # folders with headers that every toolkit contains
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*["<]([^">\n]+)[">]', re.M)
# Directives whose file cannot be known without the preprocessor: `#include MACRO`, `__has_include`, `#include_next`,
# digraphs for '#'.
_UNCLEAR = re.compile(
    r'^[ \t]*(?:%:|\?\?=)|#[ \t]*include(?:_next\b|[ \t]*[^"<\s])|__has_include|__has_embed|#[ \t]*embed\b', re.M
)


@dataclass(frozen=True)
class Included:
    """The headers that a job's source includes and that are in the job's folders.

    `texts`: each header's text, keyed by its name in #include lines. If a header is included by two names, the text of
    the second one is an #include of the first. `complete`: whether these are all the headers that can be included from
    the folders. `own`: the path of each header, keyed by its first name, without headers of other projects
    (`third_party/glm`). `absent`: (name, text that includes it) for each header that is not in the folders.
    """

    texts: dict[str, str]
    complete: bool
    own: Mapping[str, Path] = field(default_factory=dict)
    absent: tuple[tuple[str, str], ...] = ()


def find_folder(name: str, path: str | Path) -> Path | None:
    """Search a missing header in the usual folders around a source; return its folder for -I, or None.

    The usual folders are the source's folder, the three folders above it, and in each of these four folders `include`,
    `includes`, `inc`, `common`, `Common` and `src`. A name that begins with a folder above the source, such as
    'src/acc/settings.h' for src/acc/cuda/kernels.cu, is searched in the folder that contains `src`. If these searches
    fail, the header is searched in the whole project, and is found if exactly one file of the project has this name.
    """
    if Path(name).is_absolute():
        return None
    own = Path(path).parent
    for folder in (own, own / "..", own / ".." / "..", own / ".." / ".." / ".."):
        for below in ("", "include", "includes", "inc", "common", "Common", "src"):
            if (folder / below / name).is_file():
                return Path(os.path.normpath(folder / below))
    absolute = Path(os.path.abspath(own))
    for above in (absolute, *absolute.parents):
        if above.name == Path(name).parts[0] and (above.parent / name).is_file():
            return above.parent
    marked = [
        above for above in (absolute, *absolute.parents[:MAX_DEPTH]) if any((above / name).exists() for name in _ROOTS)
    ]
    # The top folder is the folder of the Git repository. Without a repository, it is the highest folder that has a
    # build file.
    root = next((above for above in marked if (above / ".git").exists()), marked[-1] if marked else None)
    parts = Path(name).parts
    if root is None or ".." in parts:
        return None
    paths = [path for path in _tree(root).get(parts[-1], ()) if path.parts[-len(parts) :] == parts]
    return Path(*paths[0].parts[: -len(parts)]) if len(paths) == 1 else None


@functools.lru_cache(maxsize=4)
def _tree(root: Path) -> dict[str, list[Path]]:
    """Return the paths of the headers below a folder, keyed by file name. The search ends after about MAX_ENTRIES
    files."""
    headers: dict[str, list[Path]] = {}
    entries = 0
    for folder, below, files in os.walk(root):
        # This package's stand-in headers are skipped, because the package may be inside the project's folder.
        below[:] = sorted(name for name in below if not name.startswith(".") and Path(folder, name) != PACKAGE)
        entries += len(below) + len(files)
        for name in files:
            if Path(name).suffix in _HEADERS:
                headers.setdefault(name, []).append(Path(folder, name))
        if entries > MAX_ENTRIES:
            break
    return headers


def missing_folders(text: str, path: str | Path, folders: Sequence[str | Path]) -> list[str]:
    """Return the folders to add with `-I`, so that all headers of a source and of its headers can be found."""
    added: list[str] = []
    while True:
        own = map(str, (Path(path).parent, *folders, *added))
        absent = read(Job(text, str(path), "", (), tuple(own), ())).absent
        near = [find_folder(name, path) for name, text in absent if not _is_standard_header(name, text)]
        more = [str(folder) for folder in dict.fromkeys(near) if folder and str(folder) not in added]
        if not more:
            return added
        added += more


def _is_standard_header(name: str, text: str) -> bool:
    """Return whether a header belongs to CUDA or the standard library, so that an #include of it does not mean a
    project's header with the same name."""
    known = name in dict(prelude.headers(forward=True)) and re.search(rf"<{re.escape(name)}>", text)
    return name.partition("/")[0] in _CUDAS or bool(known)


@functools.lru_cache(maxsize=256)  # the cache helps because a header is read again for each file that includes it
def included_names(text: str) -> tuple[tuple[str, ...], bool]:
    """Return (the names in the #include lines of a text, whether the text may include further files)."""
    joined = re.sub(r"\\\r?\n|/\*.*?\*/", " ", text, flags=re.S)
    names = (*_INCLUDE.findall(text), *_INCLUDE.findall(joined))
    return tuple(dict.fromkeys(names)), _UNCLEAR.search(joined) is not None


def read(job: Job) -> Included:
    """Return the headers in the job's folders that the job's source includes, directly or through other headers.

    Raises UsageError if an output option of the command line would overwrite one of these headers.
    """
    paths: dict[str, Path] = {}
    names: dict[Path, str] = {}
    texts: dict[str, str] = {}
    absent: list[tuple[str, str]] = []
    complete = True
    waiting: list[tuple[str, Path | None]] = [(job.source, None)]
    while waiting:
        text, beside = waiting.pop()
        listed, unclear = included_names(text)
        complete = complete and not unclear
        for name in listed:
            folders = [*([beside] if beside else []), *map(Path, job.include_dirs)]
            path = next((path for folder in folders if (path := folder / name).is_file()), None)
            if path is None:
                absent.append((name, text))
            if path is None or paths.get(name) == path:
                continue
            # two files have the same name, and only the compiler knows which file the #include means
            if name in paths or len(paths) >= MAX_HEADERS:
                complete = False
                continue
            outputs.note_read(path)
            real = Path(os.path.realpath(path))
            if real in names:
                paths[name], texts[name] = path, f'#include "{names[real]}"\n'
                continue
            try:
                texts[name] = path.read_text(encoding="utf-8", errors="replace")
            except OSError:
                complete = False
                continue
            paths[name], names[real] = path, name
            waiting.append((texts[name], path.parent))
    own = {name: paths[name] for name in names.values() if _THIRD_PARTY.isdisjoint(paths[name].parent.parts)}
    return Included(texts, complete, own, tuple(absent))
