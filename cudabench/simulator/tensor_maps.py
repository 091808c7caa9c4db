"""Tensor maps: they tell the instruction cp.async.bulk.tensor where in an array the elements of a box are (CUDA driver
API, cuTensorMapEncodeTiled)."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from cudabench.simulator.errors import LaunchError
from cudabench.simulator.memory import AddressSpace, Region
from cudabench.simulator.values import Array

MAP_BYTES = 128
MAGIC = b"tensormp"  # the 128 bytes of a simulated map begin with this text, followed by the handle of the map
SWIZZLES = (0, 32, 64, 128)
CHUNK = 16  # a swizzle permutes pieces of this many bytes
MOST_BOX, MOST_SIZE, MOST_STRIDE = 256, 1 << 32, 1 << 40


@dataclass(frozen=True)
class TensorMap:
    """A tensor of one to five dimensions that bulk copies read or write tile by tile.

    `array`: the C-contiguous array that has the elements. `sizes`: the tensor's sides in elements, x first; by default
    the sides of the array. `strides`: the bytes from one element to the next along y, z and so on; by default the
    strides of the array. `box`: the sides of the box that one copy covers, x first. `steps`: for each dimension, the
    distance of the elements that are copied (traversal strides). `swizzle`: 0, 32, 64 or 128 bytes. `fill`: the value
    of elements outside of the tensor, "zeros" or "nan". `type`: the element type, if the array's dtype gives only its
    size.

    Raises LaunchError for arguments that cuTensorMapEncodeTiled refuses.
    """

    array: Array
    box: tuple[int, ...]
    sizes: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()
    swizzle: int = 0
    fill: str = "zeros"
    type: str = ""
    known: dict[int, Array] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        array = self.array
        sizes = self.sizes or tuple(array.shape[::-1])
        strides = self.strides or tuple(array.strides[-2::-1])
        fields = {"type": self.type or array.dtype.name, "sizes": sizes, "strides": strides}
        self.__dict__.update(fields, steps=self.steps or (1,) * len(sizes))
        reason = refusal(array.dtype.itemsize, sizes, strides, self.box, self.steps, self.swizzle)
        if reason:
            raise LaunchError(f"a tensor map cannot have {reason}.")

    @property
    def width(self) -> int:
        """The bytes of an element."""
        return int(self.array.dtype.itemsize)

    @cached_property
    def tile(self) -> tuple[int, ...]:
        """The sides of a tile in shared memory, in elements, x first. The step along x is not used, because
        cuTensorMapEncodeTiled ignores it for maps without interleaving."""
        return (self.box[0], *(-(-side // step) for side, step in zip(self.box[1:], self.steps[1:], strict=True)))

    @property
    def rows(self) -> int:
        """The number of rows of a tile; a row runs along x."""
        return int(np.prod(self.tile[1:], dtype=np.int64))

    @property
    def nbytes(self) -> int:
        """The bytes of a tile, as the copy's mbarrier counts them."""
        return self.rows * self.tile[0] * self.width

    @property
    def pitch(self) -> int:
        """The bytes from the start of one row of a tile in shared memory to the start of the next."""
        return max(self.tile[0] * self.width, self.swizzle)

    def chunks(self, start: int) -> Array:
        """Return where the 16-byte pieces of a tile are in shared memory, swizzled: an array of shape (rows, pieces of
        a row), in units of 16 bytes. `start`: the tile's offset in shared memory, in bytes."""
        if start not in self.known:
            pieces = self.tile[0] * self.width // CHUNK
            place = start + np.arange(self.rows)[:, None] * self.pitch + np.arange(pieces) * CHUNK
            mask = max(self.swizzle // CHUNK - 1, 0)
            self.known[start] = (place ^ ((place >> 7 & mask) << 4)) // CHUNK
        return self.known[start]

    def places(self, corner: tuple[int, ...]) -> tuple[Array, Array, slice]:
        """Return where the rows of the tile at `corner` (an element's index, x first) are in the array: (the byte
        offset of each row's first element, a bool for each row: whether it is inside of the tensor, the slice of a row
        that is inside)."""
        offset: Array = np.zeros(1, np.int64)
        inside: Array = np.ones(1, bool)
        for axis in range(1, len(self.sizes)):
            along = corner[axis] + np.arange(self.tile[axis], dtype=np.int64) * self.steps[axis]
            valid = (along >= 0) & (along < self.sizes[axis])
            offset = (along[:, None] * self.strides[axis - 1] + offset).reshape(-1)
            inside = (valid[:, None] & inside).reshape(-1)
        first = corner[0]
        low, high = max(0, -first), min(self.tile[0], self.sizes[0] - first)
        return offset + first * self.width, inside, slice(low, max(low, high))


class Mapped(NamedTuple):
    """A tensor map of a launch. `region`: the memory of its array. `base`: the array's address."""

    map: TensorMap
    region: Region
    base: int


def place_map(
    space: AddressSpace, tensor: TensorMap, base: int, size: int, maps: dict[int, Mapped], title: str
) -> bytes:
    """Add a tensor map to `maps`; return the bytes of the kernel parameter, which is the map or a pointer to it.

    `base`: the address of the map's array. `size`: the parameter's bytes, 128 for a map, 8 for a pointer; for any other
    size LaunchError is raised. `maps`: the launch's maps by handle. `title`: the parameter's name in messages.
    """
    region = space.nearest(base)
    assert region is not None
    handle = len(maps) + 1
    maps[handle] = Mapped(tensor, region, base)
    content = MAGIC + handle.to_bytes(8, "little") + bytes(MAP_BYTES - 16)
    if size == MAP_BYTES:
        return content
    if size != 8:
        raise LaunchError(f"argument '{title}' is a tensor map, but the kernel's parameter has {size} bytes.")
    return space.place(f"the tensor map {title}", np.frombuffer(content, np.uint8), False).base.to_bytes(8, "little")


def refusal(
    width: int, sizes: tuple[int, ...], strides: tuple[int, ...], box: tuple[int, ...], steps: tuple[int, ...],
    swizzle: int,
) -> str | None:  # fmt: skip
    """Return the reason why cuTensorMapEncodeTiled refuses a map, or None if it accepts the map.

    `width`: the bytes of an element; the other parameters are those of `TensorMap`.
    """
    rank = len(sizes)
    if not 1 <= rank <= 5:
        return f"{rank} dimensions: it has 1 to 5"
    if len(box) != rank or len(steps) != rank or len(strides) != rank - 1:
        return f"a box of {len(box)} sides and {len(strides)} strides over {rank} dimensions"
    row = box[0] * width
    faults = (
        (any(not 1 <= side <= MOST_BOX for side in box),
         f"a box of {' x '.join(map(str, box))}: a side is 1 to {MOST_BOX}"),
        (any(not 1 <= step <= 8 for step in steps), f"steps of {' x '.join(map(str, steps))}: one is 1 to 8"),
        (any(not 1 <= size <= MOST_SIZE for size in sizes),
         f"{' x '.join(map(str, sizes))} elements: a side is 1 to 2^32"),
        (row % CHUNK, f"rows of {box[0]} x {width} bytes in its box: they are a multiple of {CHUNK} bytes"),
        (any(stride % CHUNK or not 0 < stride < MOST_STRIDE for stride in strides),
         f"strides of {', '.join(map(str, strides))} bytes: they are multiples of {CHUNK} below 2^40"),
        (swizzle not in SWIZZLES, f"a swizzle of {swizzle} bytes: there are {', '.join(map(str, SWIZZLES))}"),
        (swizzle and row > swizzle, f"rows of {row} bytes in a box that is swizzled in {swizzle}"),
    )  # fmt: skip
    return next((text for refused, text in faults if refused), None)
