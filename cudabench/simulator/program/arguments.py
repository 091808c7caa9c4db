"""The bytes and addresses of a launch's arguments."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cudabench.simulator.errors import LaunchError
from cudabench.simulator.memory import AddressSpace
from cudabench.simulator.values import Array

if TYPE_CHECKING:
    pass


_FORMATS = {
    "u8": "B", "s8": "b", "b8": "B", "u16": "H", "s16": "h", "b16": "H", "u32": "I", "s32": "i", "b32": "I",
    "u64": "Q", "s64": "q", "b64": "Q", "f16": "e", "f32": "f", "f64": "d",
}  # fmt: skip


class Parameter(NamedTuple):
    """A parameter of a kernel: its PTX name and type (`b8` for a struct by value), size and alignment in bytes."""

    name: str
    type: str
    size: int
    align: int


class Struct(NamedTuple):
    """A struct by value with pointers inside: its bytes, and (offset, title, array) of what they point at."""

    content: bytes
    pointers: tuple[tuple[int, str, Array], ...]

    def pointing(self, addresses: Mapping[int, int]) -> bytes:
        """Return the bytes with the arrays' addresses, given by the arrays' ids, in their places."""
        content = bytearray(self.content)
        for offset, _, array in self.pointers:
            content[offset : offset + 8] = addresses[id(array)].to_bytes(8, "little")
        return bytes(content)


class Rows(NamedTuple):
    """Pointers to the rows of an array, so many of them, `pitch` bytes apart: what a kernel takes as `float **`."""

    array: Array
    number: int
    pitch: int

    def table(self, base: int) -> Array:
        """Return the bytes of the pointers, given the array's address."""
        return (np.arange(self.number, dtype=np.uint64) * np.uint64(self.pitch) + np.uint64(base)).view(np.uint8)


def scalar_bytes(value: Any, parameter: Parameter, name: str) -> bytes:
    """Return the bytes of a scalar argument."""
    if isinstance(value, (bytes, bytearray, np.void)):
        raw = value.tobytes() if isinstance(value, np.void) else bytes(value)
        if len(raw) != parameter.size:
            raise LaunchError(
                f"argument '{name}' has {len(raw)} bytes, but the kernel's parameter has {parameter.size}."
            )
        return raw
    if isinstance(value, np.generic) and (
        parameter.type[0] == "b" or (parameter.type[0] != "f") != (value.dtype.kind != "f")
    ):
        raw = value.tobytes()
        if len(raw) == parameter.size and parameter.type[0] == "b":
            return raw
    if isinstance(value, np.generic):
        value = value.item()
    if value is None:
        value = 0
    if isinstance(value, bool):
        value = int(value)
    letter = _FORMATS.get(parameter.type)
    if letter is None or struct.calcsize("<" + letter) != parameter.size:
        if parameter.size in (1, 2, 4, 8) and isinstance(value, int):
            return (value & ((1 << (8 * parameter.size)) - 1)).to_bytes(parameter.size, "little")
        raise LaunchError(f"argument '{name}' is a struct of {parameter.size} bytes: pass it as bytes, not {value!r}.")
    if parameter.type[0] == "f":
        if not isinstance(value, (int, float)):
            raise LaunchError(f"argument '{name}' must be a number, not {value!r}.")
        try:
            return struct.pack("<" + letter, float(value))
        except OverflowError:
            return struct.pack("<" + letter, float("inf") if value > 0 else float("-inf"))
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int):
        raise LaunchError(f"argument '{name}' must be an integer, not {value!r}.")
    bits = parameter.size * 8
    # C's int reaches PTX as .u32: both readings of the bits are accepted.
    if not -(1 << (bits - 1)) <= value < 1 << bits:
        raise LaunchError(f"argument '{name}' = {value} does not fit into {bits} bits.")
    return (value & ((1 << bits) - 1)).to_bytes(parameter.size, "little")


def place_arrays(
    space: AddressSpace, arrays: Sequence[tuple[str, Array]], beside: Sequence[tuple[str, Array]] = ()
) -> dict[int, int]:
    """Give each array addresses and return them by id; arrays that share memory share a region.

    They lie in the order of `beside`, which are there whether a launch has them as arguments or not, and behind that in
    their own: where the host has them is no matter, so that a launch is the same in every process.
    """
    extents = []
    for rank, (name, array) in enumerate((*beside, *arrays) if beside else arrays):
        flags = array.flags
        if not flags.c_contiguous:
            raise LaunchError(f"array '{name}' is not C-contiguous: pass numpy.ascontiguousarray of it.")
        if array.dtype.hasobject:
            raise LaunchError(f"array '{name}' has dtype {array.dtype}, which has no bytes a kernel could use.")
        # Of two names for one array that of an argument stands.
        start = array.__array_interface__["data"][0]
        extents.append((start, -array.nbytes, rank < len(beside), rank, name, array, flags.writeable))
    extents.sort()  # the ranks differ
    wholes: list[_Whole] = []
    end = 0
    for start, size, _, rank, name, array, writable in extents:
        if size and wholes and start - size <= end:
            whole = wholes[-1]
            whole.rank = min(whole.rank, rank)
            whole.writable = whole.writable or writable
            whole.parts.append((id(array), start))
        else:
            wholes.append(_Whole(rank, start, name, array, writable))
            end = start - size
    wholes.sort(key=_RANK)
    addresses: dict[int, int] = {}
    for whole in wholes:
        array = whole.array
        data = array.reshape(-1).view(np.uint8) if array.size else np.empty(0, np.uint8)
        region = space.place(whole.name, data, whole.writable)
        region.element, region.shape = array.dtype.itemsize, array.shape
        base = addresses[id(array)] = region.base
        for part, start in whole.parts:
            addresses[part] = base + start - whole.start
    return addresses


class _Whole:
    """An array in the host's memory that lies in no other: its place in the order, its first byte, what lies in it."""

    __slots__ = ("array", "name", "parts", "rank", "start", "writable")

    def __init__(self, rank: int, start: int, name: str, array: Array, writable: bool) -> None:
        self.rank, self.start, self.name, self.array, self.writable = rank, start, name, array, writable
        self.parts: list[tuple[int, int]] = []


_RANK = attrgetter("rank")
