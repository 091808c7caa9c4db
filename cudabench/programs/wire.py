"""The messages between a program's CUDA runtime and this process: little endian, packed.

A request is its kind, its number of bytes and its payload; the answer is a status (a CUresult), a number of bytes and a
payload. A text is its length and its bytes.
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
    """The kinds of requests."""

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


class Reader:
    """Reads a payload from its beginning."""

    def __init__(self, payload: bytes) -> None:
        self._payload, self._at = payload, 0

    def take(self, layout: str) -> tuple[Any, ...]:
        """Return the values of a layout of `struct`."""
        form = _form(layout)
        values = form.unpack_from(self._payload, self._at)
        self._at += form.size
        return values

    def number(self, letter: str = "I") -> int:
        """Return one number, of four bytes by default."""
        return int(self.take(letter)[0])

    def raw(self, nbytes: int) -> bytes:
        """Return bytes."""
        content = self._payload[self._at : self._at + nbytes]
        self._at += nbytes
        return content

    def text(self) -> str:
        """Return a text."""
        return self.raw(self.number()).decode("utf-8", "replace")


def text(content: str) -> bytes:
    """Return a text as a payload has it."""
    raw = content.encode()
    return _U32.pack(len(raw)) + raw


def packed(layout: str, *values: Any) -> bytes:
    """Return values by a layout of `struct`."""
    return _form(layout).pack(*values)


def answer(status: int, payload: bytes = b"") -> bytes:
    """Return an answer."""
    return ANSWER.pack(status, len(payload)) + payload
