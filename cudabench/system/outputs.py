"""Writes each output file completely or not at all; and checks, before anything runs, that the path of an output can be
written.

A regular file is replaced: the new file is written under another name in the same folder and then renamed, so that a
reader sees either the complete old file or the complete new file. If the path is a link, the link stays and its target
is replaced. Devices, pipes, and standard output under a name such as /dev/stdout are written directly.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
import stat
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from cudabench.errors import CudabenchError, UsageError

Fill = Callable[[IO[bytes]], object]

REPAIRS = {
    errno.EACCES: "name a place that you may write, or change its permissions",
    errno.EPERM: "name a place that you may write, or change its permissions",
    errno.EROFS: "the file system is read-only: name another place",
    errno.ENOSPC: "make room, or name another place",
    errno.EDQUOT: "make room, or name another place",
    errno.ENAMETOOLONG: "give it a shorter name",
    errno.ELOOP: "its links lead in a circle: name a file",
    errno.ENOTDIR: "a part of its path is a file: name another place",
    errno.ENOENT: "make its folder first",
    errno.EPIPE: "its reader has gone",
    errno.ENXIO: "it is a socket or an unused device: name a file",
}
MOST_SHOWN = 80  # a message shows at most this many characters of a path
MOST_LINKS = 40  # at most this many symbolic links are followed, as in Linux
_DESCRIPTOR = re.compile(r"/dev/fd/(\d+)|/proc/(?:self|thread-self|\d+)/fd/(\d+)")


@dataclass(frozen=True)
class OutputTarget:
    """What a path leads to. `file`: a regular file, or a name that does not exist yet; `descriptor`: an open descriptor
    of this process. If both are None, the target is a device or a pipe, which is opened by its name."""

    file: Path | None = None
    descriptor: int | None = None


# `_read`: the files that the command reads. `_replaced`: for each file that the command will write, the option and the
# path that name it. No file may be in both: a user who types `--json k.cu` instead of `--source k.cu` must not lose the
# source file. Two options must not write the same file. Only the command line is checked, not scripts that call
# cudabench.
_read: set[Path] = set()
_replaced: dict[Path, tuple[str, Path]] = {}
_in_command = False


def begin_command() -> None:
    """Start the checks for a new command line, and forget the files of an earlier one."""
    global _in_command
    _in_command = True
    _read.clear()
    _replaced.clear()


def note_read(path: str | Path) -> None:
    """Record that the command reads a file. Raises UsageError if an option of the command would replace the file."""
    if _in_command:
        file = Path(os.path.realpath(path))
        if file in _replaced and file not in _read:
            raise _conflict(*_replaced[file])
        _read.add(file)


def note_shards(folder: Path, names: Iterable[str]) -> None:
    """Record that the command has read the files `names` of a folder; there may be many.

    Raises UsageError if an option would replace one of them.
    """
    for name in {file.name for file in _replaced}.intersection(names):
        note_read(folder / name)


def note_continued(path: Path) -> None:
    """Record that the command continues a file: it may read the file, and write it again with more content."""
    _note_written(Path(os.path.realpath(path)))


def _note_written(file: Path) -> None:
    """Record that the command has written a file; from now on the command may read this file."""
    if file in _replaced:
        _read.add(file)


def _conflict(option: str, path: Path) -> UsageError:
    return UsageError(f"{option} {_short(path)} would replace a file that this command reads: name another file.")


def is_file(path: Path) -> bool:
    """Return whether a path is a regular file or does not exist yet, so that it can be written repeatedly.

    Raises CudabenchError for a path without a valid target.
    """
    return _target(path, str(path)).file is not None


def is_stdout(path: Path) -> bool:
    """Return whether a path names this process' standard output, as /dev/stdout does."""
    return _target(path, str(path)).descriptor == 1


def check_target(path: Path, option: str = "--json") -> None:
    """Raise CudabenchError if the path of an option cannot be written. The path is not opened, so this check can be
    made before anything runs."""
    label = f"{option} {_short(path)}"
    output_target = _target(path, label)
    if output_target.descriptor is not None:
        return
    target = output_target.file or path
    if target.is_dir():
        raise CudabenchError(f"{label} is a directory: name a file in it.")
    if target.exists() and not os.access(target, os.W_OK):
        raise CudabenchError(f"{label}: no permission to write it; name another file, or change its permissions.")
    if output_target.file is None:
        return
    folder = output_target.file.parent
    if not folder.is_dir():
        shown = folder if path.is_symlink() else path.parent
        raise CudabenchError(f"{label}: the folder {_short(shown)} does not exist; make it first.")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise CudabenchError(f"{label}: no permission to write in {_short(folder)}; name another folder.")
    if _in_command:
        if output_target.file in _read and output_target.file not in _replaced:
            raise _conflict(option, path)
        first_option, _ = _replaced.setdefault(output_target.file, (option, path))
        if first_option != option:
            raise UsageError(f"{option} {_short(path)} is the file that {first_option} writes too: name another file.")


def write_whole(path: Path, content: bytes) -> None:
    """Write bytes to a path; see `write_with`."""
    write_with(path, lambda stream: stream.write(content))


def write_own_file(path: Path, content: bytes) -> None:
    """Write a file whose name cudabench chose, in a folder that others may write too.

    An existing file, link or pipe with this name is replaced; a link is never followed. Raises CudabenchError if the
    file cannot be written.
    """
    try:
        _replace(path, lambda stream: stream.write(content))
    except OSError as error:
        raise _unwritable(_short(path), error) from error


def write_with(path: Path, fill: Fill, label: str | None = None) -> None:
    """Write to a path the bytes that `fill` writes to a binary stream; a regular file is written completely or not at
    all.

    A new file gets the permissions of the file that it replaces. `label`: the path's name in messages. Raises
    CudabenchError if the path cannot be written. If `fill` raises another exception, the old file stays.
    """
    label = label or _short(path)
    output_target = _target(path, label)
    try:
        if output_target.file is not None:
            _replace(output_target.file, fill)
            _note_written(output_target.file)
            return
        # Collect the bytes first, because writers of arrays and pictures seek in their output, and pipes and devices
        # cannot seek.
        buffer = io.BytesIO()
        fill(buffer)
        _write_directly(path, output_target.descriptor, buffer.getbuffer())
    except OSError as error:
        raise _unwritable(label, error) from error


def _replace(target: Path, fill: Fill) -> None:
    old_status = target.lstat() if os.path.lexists(target) else None
    if old_status is not None and stat.S_ISDIR(old_status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if old_status is not None and not stat.S_ISREG(old_status.st_mode):
        old_status = None  # a link or pipe is replaced, and its permissions are not kept
    # Use a short temporary name, because the name of the file may be so long that no suffix can be appended.
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=".cudabench-", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as stream:
            fill(stream)
        if old_status is not None and hasattr(os, "chown"):
            with contextlib.suppress(OSError):
                os.chown(temporary, old_status.st_uid, old_status.st_gid)
        os.chmod(temporary, stat.S_IMODE(old_status.st_mode) if old_status else 0o666 & ~_umask())
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _write_directly(path: Path, descriptor: int | None, content: memoryview) -> None:
    own_stream = {1: sys.stdout, 2: sys.stderr}.get(descriptor or 0)
    if own_stream is not None:
        own_stream.flush()
    opened = os.dup(descriptor) if descriptor is not None else os.open(path, os.O_WRONLY)
    with os.fdopen(opened, "wb", buffering=0) as stream:
        while content:
            content = content[stream.write(content) :]


def _target(path: Path, label: str) -> OutputTarget:
    """Return the target of a path, without opening it. Raises CudabenchError for a path without a valid target."""
    try:
        number = descriptor(path)
        if number is not None:
            return OutputTarget(descriptor=number)
        with contextlib.suppress(FileNotFoundError):
            if stat.S_IFMT(os.stat(path).st_mode) not in (stat.S_IFREG, stat.S_IFDIR):
                return OutputTarget()
        return OutputTarget(file=Path(os.path.realpath(path)))
    except OSError as error:
        raise _unwritable(label, error) from error


def descriptor(path: Path) -> int | None:
    """Return the number of this process's open descriptor that a path such as /dev/stdout names, or None.

    Output must be written to the descriptor. If the path were opened by its name, a file that the shell opened for
    appending would be overwritten from its start.
    """
    text = os.path.abspath(path)
    for _ in range(MOST_LINKS):
        match = _DESCRIPTOR.fullmatch(text)
        if match:
            process = re.match(r"/proc/(\d+)/", text)
            if process and int(process[1]) != os.getpid():
                return None
            number = int(match[1] or match[2])
            os.fstat(number)  # raises an error if the descriptor is closed
            return number
        if not os.path.islink(text):
            return None
        text = os.path.normpath(os.path.join(os.path.dirname(text), os.readlink(text)))
    return None


def _unwritable(label: str, error: OSError) -> CudabenchError:
    why = error.strerror or str(error) or type(error).__name__
    repair = REPAIRS.get(error.errno or 0)
    return CudabenchError(f"{label} cannot be written: {why}{f'; {repair}' if repair else ''}.")


def _short(path: Path) -> str:
    text = str(path)
    return text if len(text) <= MOST_SHOWN else f"{text[: MOST_SHOWN // 2]}...{text[-MOST_SHOWN // 4 :]}"


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
