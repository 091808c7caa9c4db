"""PyTorch's packed accessors: a tensor's address, sizes and strides, which a kernel takes by value."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass

from cudabench.errors import UsageError
from cudabench.source.records import Parameter
from cudabench.source.words import listed_words
from cudabench.userkernel.conforming import shape_text
from cudabench.userkernel.values import Array, Record

_NAME = re.compile(r"(?:(?:torch|at)\s*::\s*)?(?:Generic)?PackedTensorAccessor(32|64)?\s*<(.*)>", re.S)


@dataclass(frozen=True)
class Accessor:
    """What a packed accessor is of: the element's type in C++, the number of dimensions, the bytes of an index."""

    element: str
    dimensions: int
    index_bytes: int

    def parameter(self, name: str) -> Parameter:
        """Return the pointer that takes the same array."""
        const = "const" in self.element.split()
        return Parameter(name, " ".join(word for word in self.element.split() if word != "const"), True, const)

    def record(self, array: Array) -> Record:
        """Return the accessor's bytes for an array in C's order: the address, then sizes and strides in elements."""
        if len(array.shape) != self.dimensions:
            has = f"{len(array.shape)} dimension{'s' * (len(array.shape) != 1)}"
            raise UsageError(
                f"--arg {array.name}={array.dtype}{shape_text(array.shape)} has {has}; the "
                f"accessor takes {self.dimensions}: write --arg '{array.name}={self.example(array.dtype)}'."
            )
        strides: list[int] = []
        step = 1
        for extent in reversed(array.shape):
            strides.insert(0, step)
            step *= extent
        kind = "i" if self.index_bytes == 4 else "q"
        numbers = struct.pack(f"<{2 * self.dimensions}{kind}", *array.shape, *strides)
        return Record(array.name, bytes(8) + numbers, 8, pointers=((0, array.name),), arrays=(array,))

    def example(self, dtype: str) -> str:
        """Return a value as the command line writes it."""
        side = {1: 4096, 2: 64}.get(self.dimensions, 8)
        return f"{dtype}[{','.join([str(side)] * self.dimensions)}]:random"


def accessor_of(parameter: Parameter) -> Accessor | None:
    """Return what a parameter's type is an accessor of, other names followed; None for any other type."""
    match = _NAME.fullmatch(parameter.meaning or parameter.type)
    if match is None:
        return None
    parts = listed_words(match[2])
    if len(parts) < 2 or not parts[1].isdigit() or not 1 <= int(parts[1]) <= 8:
        return None
    narrow = match[1] == "32" or (not match[1] and parts[3:4] == ["int"])
    return Accessor(parts[0], int(parts[1]), 4 if narrow else 8)
