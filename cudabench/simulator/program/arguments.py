"""Places the arguments of a launch in an address space, and writes the bytes of the kernel's parameters."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from cudabench.simulator.errors import LaunchError
from cudabench.simulator.memory import AddressSpace
from cudabench.simulator.program.code import Code
from cudabench.simulator.program.ptx import Variable
from cudabench.simulator.tensor_maps import Mapped, TensorMap, place_map
from cudabench.simulator.textures import FIRST_HANDLE, Texture
from cudabench.simulator.values import DTYPES, Array


class Struct(NamedTuple):
    """A struct that is passed by value and contains pointers.

    content: the struct's bytes. pointers: for each pointer in it (its offset in bytes, the name that messages use, the
    array that it points to).
    """

    content: bytes
    pointers: tuple[tuple[int, str, Array], ...]

    def pointing(self, addresses: Mapping[int, int]) -> bytes:
        """Return the struct's bytes with the pointers filled in; `addresses`: each array's address by `id(array)`."""
        content = bytearray(self.content)
        for offset, _, array in self.pointers:
            content[offset : offset + 8] = addresses[id(array)].to_bytes(8, "little")
        return bytes(content)


class Rows(NamedTuple):
    """The argument of a `float **` parameter: `number` pointers into one array, `pitch` bytes apart, one per row."""

    array: Array
    number: int
    pitch: int

    def table(self, base: int) -> Array:
        """Return the table of the pointers as a uint8 array; `base`: the array's address."""
        return (np.arange(self.number, dtype=np.uint64) * np.uint64(self.pitch) + np.uint64(base)).view(np.uint8)


@dataclass(slots=True)
class Placed:
    """The arguments of a launch, with their addresses.

    space: the address space with all arrays. parameters: the bytes of the kernel's parameters. textures, maps: the
    textures and tensor maps, keyed by the handle that the parameters contain. addresses: each array's address by
    `id(array)`. cooperative: whether the launch is cooperative, which matters if the kernel synchronises its grid.
    """

    space: AddressSpace
    parameters: bytes = b""
    textures: dict[int, Texture] = field(default_factory=dict)
    maps: dict[int, Mapped] = field(default_factory=dict)
    addresses: dict[int, int] = field(default_factory=dict)
    cooperative: bool = True


def place_arguments(
    code: Code, space: AddressSpace, arguments: Sequence[Any], names: Sequence[str] | None, beside: Mapping[str, Array]
) -> Placed:
    """Place the arguments of a launch in an address space, and return them with their addresses and bytes.

    names, beside: as in `launch.run`. Raises LaunchError if the arguments do not fit the kernel's parameters.
    """
    if len(arguments) != len(code.parameters):
        raise LaunchError(f"kernel {code.name} takes {len(code.parameters)} arguments, not {len(arguments)}.")
    titles = list(names) if names is not None else [f"argument {number}" for number in range(len(arguments))]
    if len(titles) != len(arguments):
        raise LaunchError(f"{len(titles)} names were given for {len(arguments)} arguments.")
    named = list(zip(titles, arguments, strict=True))
    arrays = [(title, value) for title, value in named if isinstance(value, np.ndarray)]
    for kind, suffix in ((Rows, ""), (TensorMap, " of a tensor map"), (Texture, "")):
        arrays += [(title + suffix, value.array) for title, value in named if isinstance(value, kind)]
    arrays += [(title, array) for item in arguments if isinstance(item, Struct) for _, title, array in item.pointers]
    addresses = place_arrays(space, arrays, tuple(beside.items()))
    placed = Placed(space, addresses=addresses)
    raw = bytearray(code.parameter_bytes)
    for (title, value), parameter in zip(named, code.parameters, strict=True):
        what = next((words for kind, words in _POINTERS.items() if isinstance(value, kind)), None)
        if what is not None and parameter.size != 8:
            raise LaunchError(f"argument '{title}' is {what}, but the kernel's parameter has {parameter.size} bytes.")
        if isinstance(value, TensorMap):
            piece = place_map(space, value, addresses[id(value.array)], parameter.size, placed.maps, title)
        elif what is None:
            piece = scalar_bytes(value.pointing(addresses) if isinstance(value, Struct) else value, parameter, title)
        else:
            address = addresses[id(value if isinstance(value, np.ndarray) else value.array)]
            if isinstance(value, Texture):
                handle = FIRST_HANDLE + 16 * len(placed.textures)
                placed.textures[handle] = replace(value, name=title, base=address)
                address = handle
            elif isinstance(value, Rows):
                address = space.place(f"the pointers to the rows of {title}", value.table(address), False).base
            piece = address.to_bytes(8, "little")
        offset = code.parameter_offsets[parameter.name]
        raw[offset : offset + parameter.size] = piece
    placed.parameters = bytes(raw)
    return placed


def with_numbers(placed: Placed, code: Code, arguments: Sequence[Any], names: Sequence[str] | None) -> Placed:
    """Return `placed` with its numbers replaced by the numbers among `arguments`.

    All arguments must be arrays or numbers, and the arrays must be the same as in `placed`.
    """
    raw = bytearray(placed.parameters)
    for number, (value, parameter) in enumerate(zip(arguments, code.parameters, strict=True)):
        if not isinstance(value, np.ndarray):
            offset, title = code.parameter_offsets[parameter.name], names[number] if names else f"argument {number}"
            raw[offset : offset + parameter.size] = scalar_bytes(value, parameter, title)
    if raw == placed.parameters:
        return placed
    return Placed(placed.space, bytes(raw), addresses=placed.addresses)


_POINTERS = {np.ndarray: "an array", Rows: "an array of pointers", Texture: "a texture or surface"}


def scalar_bytes(value: Any, parameter: Variable, name: str) -> bytes:
    """Return the bytes of a number, or of a struct that is passed as bytes; `name`: the argument's name in messages."""
    if isinstance(value, (bytes, bytearray, np.void)):
        raw = value.tobytes() if isinstance(value, np.void) else bytes(value)
        if len(raw) != parameter.size:
            raise LaunchError(
                f"argument '{name}' has {len(raw)} bytes, but the kernel's parameter has {parameter.size}."
            )
        return raw
    if isinstance(value, np.generic):
        if parameter.type[0] == "b" and value.nbytes == parameter.size:
            return value.tobytes()
        value = value.item()
    if value is None or isinstance(value, bool):
        value = int(value or 0)
    dtype = DTYPES.get(parameter.type)
    if dtype is None or dtype.itemsize != parameter.size:
        if parameter.size in (1, 2, 4, 8) and isinstance(value, int):
            return (value & ((1 << (8 * parameter.size)) - 1)).to_bytes(parameter.size, "little")
        raise LaunchError(f"argument '{name}' is a struct of {parameter.size} bytes: pass it as bytes, not {value!r}.")
    if dtype.kind == "f":
        return _float_bytes(value, dtype.char, name)
    return _integer_bytes(value, parameter, name)


def _float_bytes(value: Any, letter: str, name: str) -> bytes:
    """Return the bytes of a floating-point argument; a number out of the type's range becomes an infinity."""
    if not isinstance(value, (int, float)):
        raise LaunchError(f"argument '{name}' must be a number, not {value!r}.")
    try:
        return struct.pack("<" + letter, float(value))
    except OverflowError:
        return struct.pack("<" + letter, float("inf") if value > 0 else float("-inf"))


def _integer_bytes(value: Any, parameter: Variable, name: str) -> bytes:
    """Return the bytes of an integer argument."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int):
        raise LaunchError(f"argument '{name}' must be an integer, not {value!r}.")
    bits = parameter.size * 8
    # PTX has .u32 also for C's int, so the number may be in the range of the signed or of the unsigned type.
    if not -(1 << (bits - 1)) <= value < 1 << bits:
        raise LaunchError(f"argument '{name}' = {value} does not fit into {bits} bits.")
    return (value & ((1 << bits) - 1)).to_bytes(parameter.size, "little")


def place_arrays(
    space: AddressSpace, arrays: Sequence[tuple[str, Array]], beside: Sequence[tuple[str, Array]] = ()
) -> dict[int, int]:
    """Place each array in the address space, and return its address by `id(array)`.

    Arrays that overlap in the host's memory share one region. The arrays of `beside`, which are placed even if the
    launch does not use them, come first; then `arrays` in their order. The order does not depend on the addresses on
    the host, so a launch gets the same addresses in every process.
    """
    extents = []
    for rank, (name, array) in enumerate((*beside, *arrays) if beside else arrays):
        if not array.flags.c_contiguous:
            raise LaunchError(f"array '{name}' is not C-contiguous: pass numpy.ascontiguousarray of it.")
        if array.dtype.hasobject:
            raise LaunchError(f"array '{name}' has dtype {array.dtype}, which has no bytes a kernel could use.")
        # `rank < len(beside)` sorts an argument before an equal array of `beside`: the region gets the argument's name.
        extents.append((array.__array_interface__["data"][0], -array.nbytes, rank < len(beside), rank, name, array))
    # Groups of arrays that overlap: an outermost array, then those inside it.
    wholes: list[list[tuple[int, int, bool, int, str, Array]]] = []
    end = 0
    for extent in sorted(extents):  # ranks are unique, so the arrays themselves are never compared
        start, size, *_ = extent
        if size and wholes and start - size <= end:
            wholes[-1].append(extent)
        else:
            wholes.append([extent])
            end = start - size
    wholes.sort(key=lambda whole: min(rank for _, _, _, rank, _, _ in whole))
    addresses: dict[int, int] = {}
    for whole in wholes:
        first, _, _, _, name, array = whole[0]
        data = array.reshape(-1).view(np.uint8) if array.size else np.empty(0, np.uint8)
        region = space.place(name, data, any(part.flags.writeable for *_, part in whole), host=first)
        region.element, region.shape = array.dtype.itemsize, array.shape
        addresses.update((id(part), region.base + start - first) for start, *_, part in whole)
    return addresses
