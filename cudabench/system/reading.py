"""Opening what a user or a file names to be read: regular files, and what the shell has opened already; JSON in it.

A pipe that nobody writes never opens, a device may never end, and reading some devices does something. `<(command)` and
/dev/stdin are descriptors that the shell hands over; those are read.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from pathlib import Path
from typing import IO, Any

from cudabench.errors import CudabenchError, no_such_file
from cudabench.system import outputs

KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


_HALVES = re.compile("[\ud800-\udfff]")
MOST_DIGITS = 300  # of a whole number: with more it may be no float any longer


def parse_json(text: str | bytes) -> Any:
    """Return a document of JSON that others wrote; half a pair of surrogates, which is not a character, becomes U+FFFD.

    Raises json.JSONDecodeError, UnicodeDecodeError and RecursionError as json.loads does, and another ValueError for a
    whole number that no figure is.
    """
    found = json.loads(text, parse_int=_whole)
    spelled = re.search(rb"\\u[dD]", text) if isinstance(text, bytes) else re.search(r"\\u[dD]", text)
    return _as_characters(found) if spelled else found


def _as_characters(value: Any) -> Any:
    if isinstance(value, str):
        return _HALVES.sub("\ufffd", value)
    if isinstance(value, list):
        return [_as_characters(item) for item in value]
    if isinstance(value, dict):
        return {_as_characters(key): _as_characters(item) for key, item in value.items()}
    return value


def _whole(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"it has a number of {len(digits)} digits")
    return int(digits)


def check_regular(path: str | Path, *, handed_over: bool = False) -> None:
    """Raise OSError where a path leads to a pipe, a device or a socket; nothing is opened.

    Raises UsageError where an option of the command line is to replace the file. `handed_over`: descriptors of this
    process, as /dev/fd/63 of `<(command)`, may be any of those.
    """
    kind = KINDS.get(stat.S_IFMT(os.stat(path).st_mode))
    if kind is None:
        outputs.note_read(path)
    if kind is None or (handed_over and outputs.descriptor(Path(path)) is not None):
        return
    raise OSError(errno.EINVAL, f"it is {kind} and no regular file")


def open_bytes(path: str | Path) -> IO[bytes]:
    """Open a regular file, or what the shell has opened, to read bytes. Raises OSError as `open` does."""
    check_regular(path, handed_over=True)
    return open(path, "rb")


def content(path: str | Path, kind: str, what: str, most: int, too_large: str, label: str = "") -> bytes:
    """Return the bytes of a file that a user named, which `label` calls, if not its path.

    Raises CudabenchError where it cannot be read, or has more than `most` bytes; kind, such as '*.cu', and what, such
    as 'a .cu file', say which file would do.
    """
    label = label or str(path)
    try:
        with open_bytes(path) as stream:
            found = stream.read(most + 1)
    except FileNotFoundError:
        raise no_such_file(path, kind, label) from None
    except IsADirectoryError:
        raise CudabenchError(f"{label} is a directory: name {what} in it.") from None
    except OSError as error:
        raise CudabenchError(f"{label} cannot be read: {error.strerror or error}.") from None
    if len(found) > most:
        raise CudabenchError(f"{label} {too_large}")
    return found
