"""Keeps results in the user's cache folder, so that a second command need not compile or decode again.

The file name of a result is a hash of everything that the result depends on. For NVRTC this is the text, the options,
the user's headers and the NVRTC library. Results of sources with computed includes (`#include MACRO`) are not cached.
Results of nvcc are not cached here either, because they also depend on the host's headers (PyCUDA has its own cache of
them). CUDABENCH_CACHE=off turns the cache off.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import pickle
import sys
import tempfile
from base64 import b64encode
from collections.abc import Callable
from dataclasses import asdict, astuple
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from cudabench.compile import includes
from cudabench.compile.record import Job
from cudabench.system import collector
from cudabench.system.folders import cache_folder
from cudabench.system.reading import check_regular

if TYPE_CHECKING:
    from cudabench.compile.nvrtc import Library

T = TypeVar("T")
MOST_BYTES = 256 << 20
# Folders of this package whose files affect how a text is compiled: these files choose the options, provide headers, or
# select the part of a file that is compiled.
_HERE = Path(__file__).parent
_FOLDERS = (_HERE, _HERE / "headers", _HERE.parent / "source", _HERE.parent / "source" / "headers")


def key(job: Job, library: Library) -> str | None:
    """Return the name under which the job's result is cached; None if the job cannot be cached."""
    included = includes.read(job)
    if not included.complete or (not library.bundles_headers and "#include" in job.source):
        return None  # the headers come from a toolkit, which can change although the library stays the same
    try:
        file = os.stat(library.path)
    except OSError:
        return None
    # The PTX contains the paths of the user's headers. The paths of headers in the current folder are relative, so the
    # key contains this folder.
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


@functools.lru_cache(maxsize=16)
def mark_of(folder: Path) -> tuple[tuple[str, int, int], ...]:
    """Return a fingerprint of a package folder: (name, size, modification time in ns) of each file, sorted."""
    with os.scandir(folder) as entries:
        files = [(entry.name, entry.stat()) for entry in entries if entry.is_file()]
    return tuple(sorted((name, file.st_size, file.st_mtime_ns) for name, file in files))


@functools.lru_cache(maxsize=8)
def version(*folders: Path) -> str:
    """Return a text that changes if Python or a file in one of these folders of the package changes."""
    return repr((sys.version, *map(mark_of, folders)))


def remembered(kind: str, name: str | None, make: Callable[[], T]) -> T:
    """Return the value that is cached under a kind and name; if there is none, that of `make()`, which is then cached.

    The value must consist of objects that pickle can write.
    """
    found = unpickled(kind, name)
    if found is not None:
        return found  # type: ignore[no-any-return]
    value = make()
    pickled(kind, name, value)
    return value


def pickled(kind: str, name: str | None, value: Any) -> None:
    """Put an object into the cache under a kind and name, for `unpickled`."""
    write(kind, name, pickle.dumps(value, pickle.HIGHEST_PROTOCOL))


def unpickled(kind: str, name: str | None) -> Any:
    """Return the cached object of a kind and name; None if it is missing or damaged."""
    body = read(kind, name, own=True)  # pickle runs what the file says
    try:
        with collector.paused():
            return None if body is None else pickle.loads(body)
    except Exception:  # damaged bytes may raise anything
        return None


def read(kind: str, name: str | None, *, own: bool = False) -> bytes | None:
    """Return the cached bytes of this kind (such as 'compiled') and name; None if they are missing or damaged.

    `own`: whether to ignore a file that belongs to another user.
    """
    path = _path(kind, name)
    if path is None:
        return None
    try:
        check_regular(path)  # other users may also write to this folder, so the path may be a pipe or a device
        if own and hasattr(os, "getuid") and path.stat().st_uid != os.getuid():
            return None
        digest, _, body = path.read_bytes().partition(b"\n")
    except OSError:
        return None
    with contextlib.suppress(OSError):
        if digest.decode(errors="replace") != hashlib.sha256(body).hexdigest():
            path.unlink()  # the file was truncated or overwritten
            return None
        os.utime(path)  # records this use: if the cache is full, the files with the oldest use are deleted first
    return body


def write(kind: str, name: str | None, body: bytes) -> None:
    """Put bytes into the cache under a kind and name. Errors, such as a read-only home folder, are ignored."""
    path = _path(kind, name)
    if path is None:
        return
    with contextlib.suppress(OSError):
        put(path, hashlib.sha256(body).hexdigest().encode() + b"\n" + body)
        _shrink(path.parent)


def put(path: Path, body: bytes) -> None:
    """Write a file atomically, because another process may read or write the same file meanwhile. Raises OSError."""
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
    """If the folder holds over MOST_BYTES, delete the least recently used files until three quarters of this remain."""
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
    """Return a dataclass instance as JSON bytes; fields of type bytes are encoded in base64."""
    return json.dumps(
        asdict(record), default=lambda value: b64encode(value).decode() if type(value) is bytes else [*value]
    ).encode()


def unpacked(kind: type[T], body: bytes) -> T | None:
    """Return the instance of `kind` that `packed` wrote, or None if the bytes are damaged."""
    from cudabench.records.decode import DecodeError, decode

    try:
        record: T = decode(kind, json.loads(body), "it")
    except (ValueError, RecursionError, DecodeError):
        return None
    return record
