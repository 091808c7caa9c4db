"""Compiles of NVRTC, kept in the user's cache folder, so that a second command does not pay the compiler.

An entry's name is a hash of all that its content depends on: the text, the options, the headers of the user's own, the
library. A source whose headers the text does not show is not cached, nor what nvcc makes, which depends on the host's
headers too (on a GPU PyCUDA has a cache for it). CUDABENCH_CACHE=off turns the cache off.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import tempfile
import types
import typing
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import astuple, fields, is_dataclass
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union, cast, get_args, get_origin

from cudabench.compile import includes, toolkit
from cudabench.compile.record import Compiled, Job
from cudabench.system.reading import check_regular

if TYPE_CHECKING:
    from cudabench.compile.nvrtc import Library

T = TypeVar("T")
MOST_BYTES = 256 << 20
# What a compile depends on of this package: its options, the headers that it brings, how a part of a file is made.
_HERE = Path(__file__).parent
_FOLDERS = (_HERE, _HERE / "headers", _HERE.parent / "source", _HERE.parent / "source" / "headers")


def key(job: Job, library: Library) -> str | None:
    """Return the name of a job's entry, None where the job cannot be cached."""
    included = includes.read(job)
    if not included.complete or (not library.bundles_headers and "#include" in job.source):
        return None  # a toolkit's headers change without the library
    try:
        file = os.stat(library.path)
    except OSError:
        return None
    # Headers of the user's own are named in the PTX, in short where they are in this folder.
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
    """Return what marks the version of a folder of the package, whose options and headers are part of what is made."""
    with os.scandir(folder) as entries:
        files = [(entry.name, entry.stat()) for entry in entries if entry.is_file()]
    return tuple(sorted((name, file.st_size, file.st_mtime_ns) for name, file in files))


def load(name: str | None) -> Compiled | None:
    """Return an entry, None where there is none that is whole."""
    body = read("compiled", name)
    return None if body is None else unpacked(Compiled, body)


def store(name: str | None, compiled: Compiled) -> None:
    """Keep an entry; where that cannot be, such as in a home that is read-only, nothing happens."""
    write("compiled", name, packed(compiled))


def read(kind: str, name: str | None) -> bytes | None:
    """Return what was kept under a name of a kind, None where there is none that is whole."""
    path = _path(kind, name)
    if path is None:
        return None
    try:
        check_regular(path)  # in a folder that others write, too
        digest, _, body = path.read_bytes().partition(b"\n")
    except OSError:
        return None
    with contextlib.suppress(OSError):
        if digest.decode(errors="replace") != hashlib.sha256(body).hexdigest():
            path.unlink()  # cut short or overwritten
            return None
        os.utime(path)  # the oldest goes first, and this one was just used
    return body


def write(kind: str, name: str | None, body: bytes) -> None:
    """Keep bytes; where that cannot be, such as in a home that is read-only, nothing happens."""
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
    folder = toolkit.cache_folder()
    return folder / kind / f"{name}.{kind}" if folder is not None and name is not None else None


def _shrink(folder: Path) -> None:
    """Delete what was not used for longest, down to three quarters of the bound, once the folder is over it."""
    with os.scandir(folder) as entries:
        files = [(entry.stat().st_mtime_ns, entry.stat().st_size, entry.path) for entry in entries if entry.is_file()]
    total = sum(size for _, size, _ in files)
    if total <= MOST_BYTES:
        return
    for _, size, path in sorted(files):
        if total <= MOST_BYTES * 3 // 4:
            break
        with contextlib.suppress(OSError):
            os.unlink(path)
            total -= size


# Records -------------------------------------------------------------------------------------------------------------


def packed(record: Any) -> bytes:
    """Return a record of fields as bytes."""
    return json.dumps(_plain(record)).encode()


def unpacked(kind: type[T], body: bytes) -> T | None:
    """Return the record that was packed, None where it cannot be one."""
    try:
        record: T = _record(kind, json.loads(body))
    except (ValueError, LookupError, TypeError, AttributeError):
        return None
    return record


def _plain(value: Any) -> Any:
    """Return records as lists of their fields."""
    if is_dataclass(value):
        return [_plain(getattr(value, one.name)) for one in fields(value)]
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, (tuple, frozenset)):
        return [_plain(one) for one in value]
    return b64encode(value).decode() if isinstance(value, bytes) else value


@functools.cache
def _types(record: Any) -> tuple[Any, ...]:
    hints = typing.get_type_hints(record)
    return tuple(hints[one.name] for one in fields(record))


def _record(kind: Any, value: Any) -> Any:
    """Return a value of a type; ValueError for another's."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return None if value is None else _record(inner[0], value)
    if is_dataclass(kind):
        return cast(Any, kind)(*(_record(one, part) for one, part in zip(_types(cast(Any, kind)), value, strict=True)))
    if origin is tuple:
        own = repeat(inner[0], len(value)) if inner[-1] is Ellipsis else inner
        return tuple(_record(one, part) for one, part in zip(own, value, strict=True))
    if origin is frozenset:
        return frozenset(_record(str, part) for part in value)
    if origin is Mapping:
        return {str(name): _record(inner[1], part) for name, part in value.items()}
    if kind is bytes:
        return b64decode(value, validate=True)
    if value not in inner if origin is Literal else not isinstance(value, kind):
        raise ValueError
    return value
