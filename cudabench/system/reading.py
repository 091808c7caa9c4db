"""Opens files that a user names for reading, and parses JSON.

Only regular files and descriptors that the shell opened, such as /dev/stdin or `<(command)`, are read. Other pipes and
devices are refused: opening a pipe without a writer never returns, a device may have no end, and reading some devices
has side effects.
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

KINDS = {stat.S_IFIFO: "a pipe", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device", stat.S_IFSOCK: "a socket"}


_HALVES = re.compile("[\ud800-\udfff]")
MOST_DIGITS = 300  # a whole number with more digits may be too large for a float


def parse_json(text: str | bytes) -> Any:
    """Parse a JSON document that another program may have written. In strings, a lone surrogate (which is not a
    character) becomes U+FFFD.

    Raises json.JSONDecodeError, UnicodeDecodeError and RecursionError as json.loads does, and ValueError for a whole
    number with more than MOST_DIGITS digits.
    """
    document = json.loads(text, parse_int=_integer)
    spelled = re.search(rb"\\u[dD]", text) if isinstance(text, bytes) else re.search(r"\\u[dD]", text)
    return _as_characters(document) if spelled else document


def _as_characters(value: Any) -> Any:
    if isinstance(value, str):
        return _HALVES.sub("\ufffd", value)
    if isinstance(value, list):
        return [_as_characters(item) for item in value]
    if isinstance(value, dict):
        return {_as_characters(key): _as_characters(item) for key, item in value.items()}
    return value


def _integer(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"it has a number of {len(digits)} digits")
    return int(digits)


def check_regular(path: str | Path, *, handed_over: bool = False) -> None:
    """Raise OSError if a path is a pipe, a device or a socket; the path is not opened.

    Also raises UsageError if an option of the command line would replace the file. `handed_over`: whether descriptors
    that the shell gave this process, such as /dev/fd/63 for `<(command)`, may be of any kind.
    """
    kind = KINDS.get(stat.S_IFMT(os.stat(path).st_mode))
    if kind is None:
        outputs.note_read(path)
    if kind is None or (handed_over and outputs.descriptor(Path(path)) is not None):
        return
    raise OSError(errno.EINVAL, f"it is {kind}, not a regular file")


def open_bytes(path: str | Path) -> IO[bytes]:
    """Open a regular file, or a descriptor that the shell opened, to read bytes.

    Raises OSError, as `open` and `check_regular` do.
    """
    check_regular(path, handed_over=True)
    return open(path, "rb")


def content(path: str | Path, kind: str, what: str, most: int, too_large: str, label: str = "") -> bytes:
    """Return the bytes of a file that a user named.

    Raises CudabenchError if the file cannot be read or has more than `most` bytes. The other arguments are for
    messages: `label` is the file's name (by default its path), `kind` a pattern such as '*.cu' and `what` words such as
    'a .cu file' for the expected file, `too_large` the end of the sentence about a file that is too large.
    """
    label = label or str(path)
    try:
        with open_bytes(path) as stream:
            data = stream.read(most + 1)
    except FileNotFoundError:
        raise no_such_file(path, kind, label) from None
    except IsADirectoryError:
        raise CudabenchError(f"{label} is a directory: name {what} in it.") from None
    except OSError as error:
        raise CudabenchError(f"{label} cannot be read: {error.strerror or error}.") from None
    if len(data) > most:
        raise CudabenchError(f"{label} {too_large}")
    return data
