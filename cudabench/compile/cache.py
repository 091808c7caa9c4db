"""Keeps NVRTC's results in the user's cache folder, so that a second command need not compile.

An entry's name is a hash of everything that its content depends on: the text, the options, the user's headers, the
library. A source with computed includes is not cached, and neither are nvcc's results, which depend on the host's
headers too (PyCUDA has its own cache for them). CUDABENCH_CACHE=off turns the cache off.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import tempfile
from base64 import b64encode
from dataclasses import asdict, astuple
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from cudabench.compile import includes
from cudabench.compile.record import Job
from cudabench.system.folders import cache_folder
from cudabench.system.reading import check_regular

if TYPE_CHECKING:
    from cudabench.compile.nvrtc import Library

T = TypeVar("T")
MOST_BYTES = 256 << 20
# The parts of this package that a compile depends on: its options, its headers, its selection of a file's part.
_HERE = Path(__file__).parent
_FOLDERS = (_HERE, _HERE / "headers", _HERE.parent / "source", _HERE.parent / "source" / "headers")


def key(job: Job, library: Library) -> str | None:
    """Return the name of a job's entry; None if the job cannot be cached."""
    included = includes.read(job)
    if not included.complete or (not library.bundles_headers and "#include" in job.source):
        return None  # a toolkit's headers change without the library
    try:
        file = os.stat(library.path)
    except OSError:
        return None
    # The PTX names the user's headers, with short names if they are in the current folder.
    folder = os.getcwd() if included.texts else ""
    parts = (
        library.version,
        file.st_size,
        file.st_mtime_ns,
        *map(mark_of, _FOLDERS),
        astuple(job),
        sorted(included.texts.items()),
        folder,
    )
    return hashlib.sha256(repr(parts).encode()).hexdigest()


@functools.lru_cache(maxsize=4)
def mark_of(folder: Path) -> tuple[tuple[str, int, int], ...]:
    """Return a fingerprint of a folder of the package, whose options and headers affect the results."""
    with os.scandir(folder) as entries:
        files = [(entry.name, entry.stat()) for entry in entries if entry.is_file()]
    return tuple(sorted((name, file.st_size, file.st_mtime_ns) for name, file in files))


def read(kind: str, name: str | None) -> bytes | None:
    """Return the bytes kept under a kind and name; None if they are missing or damaged."""
    path = _path(kind, name)
    if path is None:
        return None
    try:
        check_regular(path)  # others may write this folder too
        digest, _, body = path.read_bytes().partition(b"\n")
    except OSError:
        return None
    with contextlib.suppress(OSError):
        if digest.decode(errors="replace") != hashlib.sha256(body).hexdigest():
            path.unlink()  # truncated or overwritten
            return None
        os.utime(path)  # marks it as just used; the oldest entries are deleted first
    return body


def write(kind: str, name: str | None, body: bytes) -> None:
    """Keep bytes. Errors, such as a read-only home, are ignored."""
    path = _path(kind, name)
    if path is None:
        return
    with contextlib.suppress(OSError):
        put(path, hashlib.sha256(body).hexdigest().encode() + b"\n" + body)
        _shrink(path.parent)


def put(path: Path, body: bytes) -> None:
    """Write a file whole or not at all: another process may read it, or write the same. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(body)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _path(kind: str, name: str | None) -> Path | None:
    folder = cache_folder()
    return folder / kind / f"{name}.{kind}" if folder is not None and name is not None else None


def _shrink(folder: Path) -> None:
    """If the folder is over the bound, delete the least recently used entries, down to three quarters of it."""
    with os.scandir(folder) as entries:
        files = [(entry.stat().st_mtime_ns, entry.stat().st_size, entry.path) for entry in entries if entry.is_file()]
    newest_first = sorted(files, reverse=True)
    sums = list(accumulate(size for _, size, _ in newest_first))
    for (_, _, path), so_far in zip(newest_first, sums, strict=True):
        if sums[-1] > MOST_BYTES and so_far > MOST_BYTES * 3 // 4:
            with contextlib.suppress(OSError):
                os.unlink(path)


# Records -------------------------------------------------------------------------------------------------------------


def packed(record: Any) -> bytes:
    """Return a record as bytes."""
    return json.dumps(
        asdict(record), default=lambda value: b64encode(value).decode() if type(value) is bytes else [*value]
    ).encode()


def unpacked(kind: type[T], body: bytes) -> T | None:
    """Return a packed record, or None for other bytes."""
    from cudabench.records.decode import Misfit, decode

    try:
        record: T = decode(kind, json.loads(body), "it")
    except (ValueError, RecursionError, Misfit):
        return None
    return record
