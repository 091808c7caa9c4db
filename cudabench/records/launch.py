"""What a launch is made of: a source, functions with grids and blocks, and arguments that are more than numbers.

Blocks and grids are CUDA's, x first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Dim = tuple[int, int, int]
Size = Mapping[str, int]

WARP = 32
LARGE = 0x7F  # a byte of scratch memory besides: in a search for the largest NaN never shows, and 3e38 does
POISON = 0xFF  # a byte of memory that nobody has written: NaN in every floating-point type, -1 in signed integers


def cdiv(a: int, b: int) -> int:
    """Return a / b rounded up: how many blocks of b cover a."""
    return -(-a // b)


def dim3(values: Sequence[int]) -> Dim:
    """Return one to three numbers as a full (x, y, z), the missing ones 1."""
    x, y, z = (*values, 1, 1, 1)[:3]
    return (x, y, z)


def dim_text(dim: Sequence[int], least: int = 1) -> str:
    """Return a block or grid as '32 x 8', without trailing ones beyond the first `least` numbers."""
    values = list(dim)
    while len(values) > least and values[-1] == 1:
        values.pop()
    return " x ".join(str(value) for value in values)


@dataclass(frozen=True)
class TensorMap:
    """A CUtensorMap over a buffer, as an argument of a launch: by value, or (`pointer`) where it lies in memory.

    As cuTensorMapEncodeTiled has it, the fastest dimension first: sizes, box and steps in elements, strides in bytes
    for all dimensions but the first. swizzle: 0, 32, 64 or 128 bytes. fill: what lies beyond the array.
    """

    buffer: str
    dtype: str
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    steps: tuple[int, ...]
    swizzle: int = 0
    fill: Literal["zeros", "nan"] = "zeros"
    pointer: bool = False


@dataclass(frozen=True)
class Rows:
    """Pointers to the rows of a buffer as an argument of a launch: `count` of them, to places `pitch` bytes apart."""

    buffer: str
    count: int
    pitch: int


@dataclass(frozen=True)
class ByValue:
    """An argument that is a struct or vector: its bytes, and the alignment of its type.

    pointers: (offset in bytes, buffer) of its members that point at buffers.
    """

    content: bytes
    align: int
    pointers: tuple[tuple[int, str], ...] = ()

    def pointing(self, addresses: Mapping[str, int]) -> bytes:
        """Return the bytes with the addresses of the buffers in their places."""
        content = bytearray(self.content)
        for offset, buffer in self.pointers:
            content[offset : offset + 8] = addresses[buffer].to_bytes(8, "little")
        return bytes(content)


@dataclass(frozen=True)
class Source:
    """CUDA C++ text with the name that compiler messages show, and the folder whose headers it may include.

    `std` is the language ('c++20'), empty for the one that the compiler takes. `debug`: not optimised, so that arrays
    which would be held in registers lie in memory.
    """

    name: str
    text: str
    folder: str | None = None
    builtin: bool = True
    include: tuple[str, ...] = ()
    std: str = ""
    debug: bool = False

    @property
    def folders(self) -> list[str]:
        """Where headers are looked for."""
        return [*([self.folder] if self.folder else []), *self.include]


@dataclass(frozen=True)
class Unit:
    """What is compiled at once: a source with the macros that are defined for it."""

    source: Source
    defines: Mapping[str, str]


@dataclass(frozen=True)
class Texture:
    """A texture object over a buffer, as an argument of a launch.

    shape: the texture's, of as many elements as the buffer, with the channels (1, 2 or 4) as the last axis where there
    are several, and layers as the first. linear: memory that only tex1Dfetch reads. read: "element", or "normalized"
    for integers read as floats. normalized: coordinates run from 0 to 1. filter: point or linear. address: clamp, wrap,
    mirror or border.
    """

    buffer: str
    dtype: str
    shape: tuple[int, ...]
    channels: int = 1
    layered: bool = False
    filter: Literal["point", "linear"] = "point"
    address: Literal["clamp", "wrap", "mirror", "border"] = "clamp"
    normalized: bool = False
    read: Literal["element", "normalized"] = "element"
    linear: bool = False

    @property
    def nbytes(self) -> int:
        """The buffer's bytes."""
        import numpy as np

        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class Surface:
    """A surface object over a buffer, as an argument of a launch: read and written, its x in bytes.

    shape: the surface's, of as many elements as the buffer, with the channels (1, 2 or 4) as the last axis where there
    are several, and layers as the first. A texture over the same buffer reads what earlier launches wrote through it.
    """

    buffer: str
    dtype: str
    shape: tuple[int, ...]
    channels: int = 1
    layered: bool = False


@dataclass(frozen=True)
class Launch:
    """One kernel launch. Arguments are names of buffers, textures, surfaces or tensor maps over them, NumPy scalars, or
    structs as `ByValue`, in the order of the kernel's parameters.

    `unit` has the function; None means the case's own source. `cluster`: the blocks of a cluster, where the launch says
    them and not the kernel.
    """

    function: str
    grid: Dim
    block: Dim
    arguments: tuple[Any, ...]
    shared_bytes: int = 0
    unit: Unit | None = None
    cluster: Dim | None = None
