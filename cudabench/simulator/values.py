"""Register values over a chunk of blocks.

A chunk is a box of the grid: `blocks` x `threads` lanes, threads padded to whole warps. A register's value is an array
of shape (1, 1), (1, threads), (blocks, 1) or (blocks, threads): an axis along which the value does not vary may have
length 1. The value of a predicate is a bool array of such a shape. Other registers are bit patterns; each instruction
interprets them as its type says.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

# An ndarray. For type checkers it is Any, because NumPy's stubs distinguish shapes and scalars (differently in each
# release), and the interpreter mixes these by broadcasting.
Array = Any
Index3 = tuple[int, int, int]
Key = tuple[Hashable, ...]  # identifies an access, pattern or interval

UNSIGNED: dict[int, np.dtype[Any]] = {bits: np.dtype(f"u{bits // 8}") for bits in (8, 16, 32, 64)}
SIGNED: dict[int, np.dtype[Any]] = {bits: np.dtype(f"i{bits // 8}") for bits in (8, 16, 32, 64)}
INT64: np.dtype[Any] = np.dtype(np.int64)
BOOL: np.dtype[Any] = np.dtype(np.bool_)

# The NumPy dtype for each PTX type; bf16, float8 and packed types are kept as unsigned integers.
DTYPES: dict[str, np.dtype[Any]] = {
    "f16": np.dtype(np.float16), "f32": np.dtype(np.float32), "f64": np.dtype(np.float64),
    "bf16": UNSIGNED[16], "f16x2": UNSIGNED[32], "bf16x2": UNSIGNED[32], "u16x2": UNSIGNED[32], "s16x2": UNSIGNED[32],
    "tf32": UNSIGNED[32], "f32x2": UNSIGNED[64], "pred": BOOL,
    "e4m3": UNSIGNED[8], "e5m2": UNSIGNED[8], "e4m3x2": UNSIGNED[16], "e5m2x2": UNSIGNED[16],
    **{f"u{bits}": dtype for bits, dtype in UNSIGNED.items()},
    **{f"b{bits}": dtype for bits, dtype in UNSIGNED.items()},
    **{f"s{bits}": dtype for bits, dtype in SIGNED.items()},
}  # fmt: skip

_EVERY: Array = np.ones((1, 1), dtype=bool)
_EVERY.flags.writeable = False


def active_warps(mask: Array) -> Array:
    """Return a flat bool array: for each warp, whether any of its lanes is active.

    mask: the active lanes, of shape (..., 32 * warps).
    """
    # Eight lanes are one word; this is ten times as fast as `any` over the lanes.
    words = np.ascontiguousarray(mask).reshape(-1, 32).view(np.uint64).T
    return (words[0] | words[1] | words[2] | words[3]) != 0


def split(yes: Array, mask: Array | None) -> tuple[Any, Any]:
    """Return two masks: the lanes of `mask` that are in `yes`, and its other lanes; False instead of an empty mask."""
    if mask is None:
        lanes = np.count_nonzero(yes)
        if lanes == yes.size:
            return None, False
        return (yes, ~yes) if lanes else (False, None)
    no = mask & ~yes
    yes = mask & yes
    if not np.count_nonzero(no):
        return mask, False
    return (yes, no) if np.count_nonzero(yes) else (False, mask)


def joined(x: Array, y: Array, root: Array | None) -> Array | None:
    """Return the union of two masks; if it has all lanes, return `root`, the chunk's mask of all lanes, itself."""
    merged = x | y
    if root is None:
        return None if np.count_nonzero(merged) == merged.size else merged
    return root if (merged | ~root).all() else merged


class Chunk:
    """A box of blocks that run together.

    `origin`, `extent`: the box's first block and its sides, in blocks (x, y, z). `block`: the sides of a thread block,
    in threads. `threads`: the threads of a block, padded to whole warps. `axes`: six arrays, threadIdx x, y, z of shape
    (1, threads) and the position x, y, z of the block in the box, of shape (blocks, 1). `root`: the mask of the lanes
    that are not padding, None if there is no padding. Everywhere, the mask None means all lanes.
    """

    def __init__(self, grid: Index3, block: Index3, origin: Index3, extent: Index3) -> None:
        self.grid, self.block, self.origin, self.extent = grid, block, origin, extent
        self.real_threads = block[0] * block[1] * block[2]
        self.threads = -(-self.real_threads // 32) * 32
        self.warps = self.threads // 32
        self.blocks = extent[0] * extent[1] * extent[2]
        self.shape = (self.blocks, self.threads)
        thread = np.arange(self.threads, dtype=np.int64)
        thread[self.real_threads :] = 0
        number = np.arange(self.blocks, dtype=np.int64)
        self.axes: tuple[Array, ...] = (
            (thread % block[0]).reshape(1, -1),
            (thread // block[0] % block[1]).reshape(1, -1),
            (thread // (block[0] * block[1])).reshape(1, -1),
            (number % extent[0]).reshape(-1, 1),
            (number // extent[0] % extent[1]).reshape(-1, 1),
            (number // (extent[0] * extent[1])).reshape(-1, 1),
        )
        real = (np.arange(self.threads) < self.real_threads).reshape(1, -1)
        self.root: Array = None if real.all() else real

    def lanes(self, mask: Array | None) -> Array:
        """Return a mask broadcast to shape (blocks, threads); do not write to the result."""
        return broadcast(_EVERY if mask is None else mask, self.shape)

    def real(self, mask: Array | None) -> Array:
        """Return a mask broadcast to shape (blocks, threads), without the padding lanes of each block's last warp."""
        lanes = self.lanes(mask)
        return lanes if self.root is None else lanes & self.root

    def of_warps(self, lanes: Array) -> Array:
        """Return a mask of shape (blocks, threads): all lanes of the warps that have a lane in the mask `lanes`."""
        return np.repeat(active_warps(lanes).reshape(self.blocks, self.warps), 32, axis=1)

    def reverse(self, along: Array) -> None:
        """Reverse the order of the blocks along some of the axes x, y, z."""
        places = zip(self.axes[3:], self.extent, along, strict=True)
        self.axes = *self.axes[:3], *(count - 1 - axis if turned else axis for axis, count, turned in places)

    def block_indices(self) -> tuple[Array, Array, Array]:
        """Return blockIdx x, y and z of all blocks of the chunk, as three arrays of shape (blocks,)."""
        x, y, z = (first + axis.reshape(-1) for first, axis in zip(self.origin, self.axes[3:], strict=True))
        return x, y, z

    def block_index(self, number: int) -> Index3:
        """Return blockIdx of the block with this number in the chunk."""
        x, y, z = (int(axis[number]) for axis in self.block_indices())
        return x, y, z

    def block_numbers(self) -> Array:
        """Return the number in the grid of each block of the chunk, of shape (blocks,)."""
        x, y, z = self.block_indices()
        return x + self.grid[0] * (y + self.grid[1] * z)

    def thread_index(self, number: int) -> tuple[int, int, int]:
        """Return threadIdx of the thread with this number in its block."""
        x, rest = number % self.block[0], number // self.block[0]
        return (x, rest % self.block[1], rest // self.block[1])


# The bits of an unwritten register. They are NaN as a float of any type, and far out of bounds as an address.
UNDEFINED = {bits: int("FFAD" * 4, 16) >> (64 - bits) for bits in (16, 32, 64)}

Value = Array  # the value of a register


def uniform(value: int | None, bits: int) -> Array:
    """Return the value of a register of `bits` bits (1 for a predicate) that is `value` in all lanes.

    The value is taken modulo 2^bits; None is the value of an unwritten register.
    """
    value = UNDEFINED.get(bits, 0) if value is None else value
    if bits == 1:
        return np.array([[bool(value)]])
    return np.array([[value & ((1 << bits) - 1)]], UNSIGNED.get(bits, UNSIGNED[64]))


ZERO = uniform(0, 64)


def as_array(value: Value, dtype: np.dtype[Any]) -> Array:
    """Return a register's value as an array of the dtype. The bits are reinterpreted; of a wider register the low bits
    are used."""
    if value.dtype == dtype:
        return value
    size = value.dtype.itemsize
    if size == dtype.itemsize:
        return value.view(dtype)
    return value.view(UNSIGNED[size * 8]).astype(UNSIGNED[dtype.itemsize * 8]).view(dtype)


def undefined_lanes(value: Value) -> Array:
    """Return a bool array that broadcasts to all lanes: whether a register is unwritten in the lane."""
    bits = 8 * value.dtype.itemsize
    return value.view(UNSIGNED[bits]) == UNDEFINED.get(bits, -1)


def broadcast(array: Array, shape: tuple[int, int]) -> Array:
    """Return np.broadcast_to(array, shape), computed faster for two axes; do not write to the result."""
    own = array.shape
    if own == shape:
        return array
    if len(own) == 2 and array.flags.c_contiguous:
        down, along = array.strides
        return np.ndarray(shape, array.dtype, array, 0, (down if own[0] > 1 else 0, along if own[1] > 1 else 0))
    return np.broadcast_to(array, shape)


def changes(first: Array, *others: Array) -> Array:
    """Return a mask: for each row, whether it differs from the row before; True for the first row.

    Each argument is one column of the rows.
    """
    changed = np.ones(len(first), np.bool_)
    np.not_equal(first[1:], first[:-1], out=changed[1:])
    for column in others:
        changed[1:] |= column[1:] != column[:-1]
    return changed


def different(values: Array) -> Array:
    """Return the distinct integers of an array in ascending order, as np.unique does.

    np.unique would import numpy.ma on its first call, and its hash table takes 10 to 80 times as long.
    """
    ordered = np.sort(values, axis=None)
    return ordered[changes(ordered)]
