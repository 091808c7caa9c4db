"""The headers of the user's own that a source includes, found by reading its text."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cudabench import outputs
from cudabench.toolchain.record import Job

MAX_HEADERS = 64  # beside a source: more are no single kernel's

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*["<]([^">\n]+)[">]', re.M)
# What the reader cannot follow: a name that a macro writes, a choice that hangs on a header, an unusual spelling.
_UNCLEAR = re.compile(
    r'^[ \t]*(?:%:|\?\?=)|#[ \t]*include(?:_next\b|[ \t]*[^"<\s])|__has_include|__has_embed|#[ \t]*embed\b', re.M
)


@dataclass(frozen=True)
class Included:
    """The texts of the headers in a job's folders, by the name that an #include gives them.

    `complete` says that there are no others, as far as the job's own folders go.
    """

    texts: dict[str, str]
    complete: bool


def nearby(name: str, path: str | Path) -> Path | None:
    """Return the folder that has a header, of those that lie around a source as projects have them; None if none has.

    These are the source's own, the three above it, and their `include`, `includes`, `inc`, `common` and `src`.
    """
    if Path(name).is_absolute():
        return None
    own = Path(path).parent
    for folder in (own, own / "..", own / ".." / "..", own / ".." / ".." / ".."):
        for below in ("", "include", "includes", "inc", "common", "Common", "src"):
            if (folder / below / name).is_file():
                return Path(os.path.normpath(folder / below))
    return None


def lacking(text: str, path: str | Path, folders: Sequence[str | Path]) -> list[str]:
    """Return the folders that `-I` should name: they have headers of a source, or of its headers, that are in none of
    those given."""
    found: list[str] = []
    waiting = [(text, Path(path))]
    seen: set[Path] = set()
    while waiting and len(seen) < MAX_HEADERS:
        text, beside = waiting.pop()
        for name in _INCLUDE.findall(text):
            places = (beside.parent, Path(path).parent, *map(Path, folders), *map(Path, found))
            header = next((one for place in places if (one := place / name).is_file()), None)
            if header is None and (folder := nearby(name, path)) is not None:
                found.append(str(folder))
                header = folder / name
            if header is not None and header not in seen:
                seen.add(header)
                with contextlib.suppress(OSError):
                    waiting.append((header.read_text(encoding="utf-8", errors="replace"), header))
    return list(dict.fromkeys(found))


def named(text: str) -> list[str]:
    """Return the names that the #include lines of a text have, comments left out, in order."""
    return _INCLUDE.findall(re.sub(r"\\\r?\n|/\*.*?\*/", " ", text, flags=re.S))


def read(job: Job) -> Included:
    """Return what a job's source includes from the job's folders, and what that includes in turn.

    Raises UsageError where an option of the command line is to replace one of these headers.
    """
    found: dict[str, Path] = {}
    texts: dict[str, str] = {}
    complete = True
    waiting: list[tuple[str, Path | None]] = [(job.source, None)]
    while waiting:
        text, beside = waiting.pop()
        joined = re.sub(r"\\\r?\n|/\*.*?\*/", " ", text, flags=re.S)
        complete = complete and not _UNCLEAR.search(joined)
        for name in _INCLUDE.findall(text) + _INCLUDE.findall(joined):
            folders = [*([beside] if beside else []), *map(Path, job.include_dirs)]
            path = next((path for folder in folders if (path := folder / name).is_file()), None)
            if path is None or found.get(name) == path:
                continue
            if name in found or len(found) >= MAX_HEADERS:  # one name for two files: which is meant is the compiler's
                complete = False
                continue
            outputs.note_read(path)
            try:
                texts[name] = path.read_text(encoding="utf-8", errors="replace")
            except OSError:
                complete = False
                continue
            found[name] = path
            waiting.append((texts[name], path.parent))
    return Included(texts, complete)
