"""The parts of a launch: a source, functions with grids and blocks, and arguments such as textures and structs.

Blocks and grids are tuples (x, y, z), as in CUDA.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Dim = tuple[int, int, int]
Size = Mapping[str, int]

WARP = 32
# Bytes that fill memory before a kernel writes to the memory. 0xFF makes NaN in every floating-point type, and -1 in
# signed integers. 0x7F makes about 3e38 in float32. A kernel that searches for the largest value may ignore NaN, but it
# finds this number.
LARGE = 0x7F
POISON = 0xFF


def cdiv(a: int, b: int) -> int:
    """Return a / b rounded up: how many blocks of b elements cover a elements."""
    return -(-a // b)


def dim3(values: Sequence[int]) -> Dim:
    """Return one to three numbers as (x, y, z); missing numbers are 1."""
    x, y, z = (*values, 1, 1, 1)[:3]
    return (x, y, z)


def dim_text(dim: Sequence[int], least: int = 1) -> str:
    """Return a block or grid as text, such as '32 x 8'. Ones at the end are left out, but at least `least` numbers are
    shown."""
    values = list(dim)
    while len(values) > least and values[-1] == 1:
        values.pop()
    return " x ".join(str(value) for value in values)


@dataclass(frozen=True)
class TensorMap:
    """A launch argument: a CUtensorMap over a buffer, passed by value or, with `pointer`, by its address.

    The fields are those of cuTensorMapEncodeTiled, with the dimension that is contiguous in memory first. `sizes`,
    `box` and `steps` (element strides): in elements. `strides`: in bytes, for all dimensions but the first. `swizzle`:
    0, 32, 64 or 128 bytes. `fill`: the value of elements beyond the array.
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
    """A launch argument: an array of `count` pointers to the rows of a buffer; the rows are `pitch` bytes apart."""

    buffer: str
    count: int
    pitch: int


@dataclass(frozen=True)
class ByValue:
    """A launch argument: a struct or a vector. `content`: its bytes; `align`: the alignment of its C++ type, in bytes.

    `pointers`: for each member that points to a buffer, its offset in bytes and the buffer's name.
    """

    content: bytes
    align: int
    pointers: tuple[tuple[int, str], ...] = ()

    def pointing(self, addresses: Mapping[str, int]) -> bytes:
        """Return the bytes, with the buffers' addresses in the members that are pointers."""
        content = bytearray(self.content)
        for offset, buffer in self.pointers:
            content[offset : offset + 8] = addresses[buffer].to_bytes(8, "little")
        return bytes(content)


@dataclass(frozen=True)
class Source:
    """A CUDA C++ source. `name`: its name in compiler messages; `folder`, `include`: the folders with its headers.

    `builtin`: whether the source is a file of this package in `kernels_cu/`. `std`: the language standard, such as
    'c++20'; empty for the compiler's default. `debug`: whether to compile without optimisation, so that arrays are in
    memory and not in registers.
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
    """The input of one compilation: a source, and the macros that are defined on the compiler's command line."""

    source: Source
    defines: Mapping[str, str]


@dataclass(frozen=True)
class Texture:
    """A launch argument: a texture object over a buffer.

    `shape`: the texture's shape, with as many elements as the buffer; layers are the first axis, and channels, if there
    are 2 or 4, the last. `linear`: whether it is linear memory, which only tex1Dfetch reads. `read`: "element", or
    "normalized" if integers are read as floats. `normalized`: whether coordinates run from 0 to 1. `filter`: the filter
    mode. `address`: the address mode, for coordinates outside the texture.
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
        """The size of the buffer in bytes."""
        import numpy as np

        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class Surface:
    """A launch argument: a surface object over a buffer. Kernels read and write it with x in bytes.

    `shape`: the surface's shape, with as many elements as the buffer; layers are the first axis, and channels, if there
    are 2 or 4, the last. A texture over the same buffer reads what earlier launches wrote through the surface.
    """

    buffer: str
    dtype: str
    shape: tuple[int, ...]
    channels: int = 1
    layered: bool = False


@dataclass(frozen=True)
class Launch:
    """One kernel launch. `arguments`, in the order of the kernel's parameters: each is the name of a buffer, an object
    over a buffer (texture, surface, tensor map, `Rows`), a NumPy scalar, or a struct as `ByValue`.

    `unit`: the source that contains the function; None for the case's own source. `cluster`: the blocks of a cluster
    (x, y, z); None if the launch does not set them.
    """

    function: str
    grid: Dim
    block: Dim
    arguments: tuple[Any, ...]
    shared_bytes: int = 0
    unit: Unit | None = None
    cluster: Dim | None = None
