"""The headers of the user's own that a source includes, found by reading its text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

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


def named(text: str) -> list[str]:
    """Return the names that the #include lines of a text have, comments left out, in order."""
    return _INCLUDE.findall(re.sub(r"\\\r?\n|/\*.*?\*/", " ", text, flags=re.S))


def read(job: Job) -> Included:
    """Return what a job's source includes from the job's folders, and what that includes in turn."""
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
            try:
                texts[name] = path.read_text(encoding="utf-8", errors="replace")
            except OSError:
                complete = False
                continue
            found[name] = path
            waiting.append((texts[name], path.parent))
    return Included(texts, complete)
