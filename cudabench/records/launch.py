"""The parts of a launch: a source, functions with grids and blocks, and arguments such as textures and structs.

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
LARGE = 0x7F  # a second fill byte of scratch memory: a search for the largest value skips NaN, but finds 3e38
POISON = 0xFF  # the byte of unwritten memory: NaN in every floating-point type, -1 in signed integers


def cdiv(a: int, b: int) -> int:
    """Return a / b rounded up: how many blocks of size b cover a."""
    return -(-a // b)


def dim3(values: Sequence[int]) -> Dim:
    """Return one to three numbers as (x, y, z); missing numbers are 1."""
    x, y, z = (*values, 1, 1, 1)[:3]
    return (x, y, z)


def dim_text(dim: Sequence[int], least: int = 1) -> str:
    """Return a block or grid as '32 x 8': trailing 1s after the first `least` numbers are left out."""
    values = list(dim)
    while len(values) > least and values[-1] == 1:
        values.pop()
    return " x ".join(str(value) for value in values)


@dataclass(frozen=True)
class TensorMap:
    """A CUtensorMap over a buffer, as an argument of a launch: by value or, with `pointer`, by its address.

    As for cuTensorMapEncodeTiled, the fastest dimension first: sizes, box and steps in elements, strides in bytes
    for all dimensions but the first. swizzle: 0, 32, 64 or 128 bytes. fill: the value beyond the array.
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
    """An array of `count` pointers to the rows of a buffer, `pitch` bytes apart, as an argument of a launch."""

    buffer: str
    count: int
    pitch: int


@dataclass(frozen=True)
class ByValue:
    """An argument that is a struct or vector: its bytes, and the alignment of its type.

    pointers: (offset in bytes, buffer) for each member that points at a buffer.
    """

    content: bytes
    align: int
    pointers: tuple[tuple[int, str], ...] = ()

    def pointing(self, addresses: Mapping[str, int]) -> bytes:
        """Return the bytes with the buffers' addresses filled in."""
        content = bytearray(self.content)
        for offset, buffer in self.pointers:
            content[offset : offset + 8] = addresses[buffer].to_bytes(8, "little")
        return bytes(content)


@dataclass(frozen=True)
class Source:
    """CUDA C++ text, its name in compiler messages, and the folder whose headers it may include.

    `std` is the language ('c++20'), empty for the compiler's default. `debug`: compile without optimisation, so that
    arrays are in memory and not in registers.
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
        """The folders that are searched for headers."""
        return [*([self.folder] if self.folder else []), *self.include]


@dataclass(frozen=True)
class Unit:
    """A unit of compilation: a source with the macros that are defined for it."""

    source: Source
    defines: Mapping[str, str]


@dataclass(frozen=True)
class Texture:
    """A texture object over a buffer, as an argument of a launch.

    shape: the texture's shape, with as many elements as the buffer; layers are the first axis, several channels (2 or
    4) the last. linear: memory that only tex1Dfetch reads. read: "element", or "normalized" for integers read as
    floats. normalized: coordinates run from 0 to 1. filter: point or linear. address: clamp, wrap, mirror or border.
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
    """A surface object over a buffer, as an argument of a launch. Kernels read and write it with x in bytes.

    shape: the surface's shape, with as many elements as the buffer; layers are the first axis, several channels (2 or
    4) the last. A texture over the same buffer reads what earlier launches wrote through the surface.
    """

    buffer: str
    dtype: str
    shape: tuple[int, ...]
    channels: int = 1
    layered: bool = False


@dataclass(frozen=True)
class Launch:
    """One kernel launch. Arguments, in the order of the kernel's parameters, are names of buffers, objects over buffers
    (textures, surfaces, tensor maps), NumPy scalars, or structs as `ByValue`.

    `unit` contains the function; None means the case's own source. `cluster`: the blocks of a cluster, if the launch
    sets them and not the kernel.
    """

    function: str
    grid: Dim
    block: Dim
    arguments: tuple[Any, ...]
    shared_bytes: int = 0
    unit: Unit | None = None
    cluster: Dim | None = None
