"""The format of the messages between a program's CUDA runtime and this process: little endian, without padding.

A request has its kind, the number of payload bytes, and the payload. The answer has a status (a CUresult), the number
of payload bytes, and the payload. A launch has no answer, so that the program can go on; FINISH asks for the results of
the launches before it. A text is stored as its length (4 bytes) and its UTF-8 bytes.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from functools import lru_cache
from typing import Any

HEADER = struct.Struct("<II")
ANSWER = struct.Struct("<iI")
_U32 = struct.Struct("<I")


@lru_cache(64)
def _form(layout: str) -> struct.Struct:
    return struct.Struct(f"<{layout}")


class Kind(IntEnum):
    """The kinds of requests that a program's CUDA runtime sends."""

    HELLO = 1
    LOAD = 2
    UNLOAD = 3
    FIND = 4
    LAUNCH = 5
    MEMORY = 6
    TEXTURE = 7
    TENSOR_MAP = 8
    FINDING = 9
    END = 10
    FINISH = 11


class Reader:
    """Reads the values of a payload one after another."""

    def __init__(self, payload: bytes) -> None:
        self._payload, self._at = payload, 0

    def take(self, layout: str) -> tuple[Any, ...]:
        """Return the next values; `layout`: the types of the values in the notation of `struct`, such as 'iQ'."""
        form = _form(layout)
        values = form.unpack_from(self._payload, self._at)
        self._at += form.size
        return values

    def number(self, letter: str = "I") -> int:
        """Return the next number; `letter`: the number's type in `struct`, by default unsigned with 4 bytes."""
        return int(self.take(letter)[0])

    def raw(self, nbytes: int) -> bytes:
        """Return the next `nbytes` bytes."""
        content = self._payload[self._at : self._at + nbytes]
        self._at += nbytes
        return content

    def rest(self) -> bytes:
        """Return all bytes that are left."""
        return self.raw(len(self._payload) - self._at)

    def text(self) -> str:
        """Return the next text."""
        return self.raw(self.number()).decode("utf-8", "replace")


def text(content: str) -> bytes:
    """Return the bytes of a text in a payload."""
    raw = content.encode()
    return _U32.pack(len(raw)) + raw


def packed(layout: str, *values: Any) -> bytes:
    """Return the bytes of values in a payload; `layout`: the types of the values in the notation of `struct`."""
    return _form(layout).pack(*values)


def answer(status: int, payload: bytes = b"") -> bytes:
    """Return the bytes of an answer."""
    return ANSWER.pack(status, len(payload)) + payload
