"""What a kernel of the user's own gets: numbers, arrays and null pointers; how arrays start, `.npy` files, memory."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from cudabench.errors import CudabenchError, UsageError, no_such_file
from cudabench.records.launch import ByValue, Rows, Surface, TensorMap, Texture
from cudabench.system.confined import host_memory
from cudabench.system.reading import check_regular
from cudabench.userkernel.conforming import shape_text, storage
from cudabench.userkernel.inits import Init

TYPES = (
    "float32", "float64", "float16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool",
    "complex64", "complex128", "bfloat16",
)  # fmt: skip
CONSTANTS = {"inf": math.inf, "nan": math.nan, "pi": math.pi, "true": True, "false": False}


@dataclass(frozen=True)
class Scalar:
    """A number: `value` is as the kernel gets it, a float32 rounded to one."""

    name: str
    dtype: str
    value: Any

    @property
    def argument(self) -> Any:
        """The value as a NumPy scalar that packs into a launch: half and bool as their bits."""
        number = np.dtype(self.dtype).type(self.value)
        bits = {"float16": np.uint16, "bool": np.uint8}.get(self.dtype)
        return number.view(bits) if bits else number


@dataclass(frozen=True)
class Array:
    """An array: type, shape and how it starts, or the file that it is read from. `const`: no kernel may write it.

    `init` is the word, "expression" or "file"; `rule` says the rest where a word alone does not. `view` is what a
    launch gets in place of the buffer: a texture, a surface or a tensor map over it, or pointers to its rows.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    init: str
    path: str | None = None
    const: bool = False
    rule: Init | None = None
    view: Texture | Surface | TensorMap | Rows | None = None

    @property
    def argument(self) -> Any:
        """What a launch gets: the name of the buffer, or what is made of it."""
        return self.view or self.name

    @property
    def nbytes(self) -> int:
        """The array's bytes."""
        return math.prod(self.shape) * np.dtype(self.storage).itemsize

    @property
    def storage(self) -> str:
        """The NumPy type that holds the elements: that of the bits for bfloat16."""
        return storage(self.dtype)

    def make(self, seed: int, index: int) -> np.ndarray:
        """Return the array; each has a stream of random numbers of its own, so one more does not change the others."""
        if self.path is not None:
            return np.ascontiguousarray(
                numbers_of(load(self.path, f"--arg {self.name}=@{self.path}")), dtype=self.dtype
            )
        rule, where = self.rule or Init(self.init), f"--arg {self.name}={self.dtype}{shape_text(self.shape)}"
        return rule.make(self.shape, self.dtype, np.random.default_rng([seed, index]), f"{where}:{rule.text}")


@dataclass(frozen=True)
class Null:
    """A null pointer."""

    name: str

    @property
    def argument(self) -> Any:
        """The address."""
        return np.uint64(0)


@dataclass(frozen=True)
class Record:
    """A struct or vector by value: its bytes and alignment. `members` are its numbers, `p_a` for p.a.

    pointers: (offset, array) of its members that point at arrays; arrays: those of them that no other argument is.
    """

    name: str
    content: bytes
    align: int
    members: tuple[tuple[str, Any], ...] = ()
    pointers: tuple[tuple[int, str], ...] = ()
    arrays: tuple[Array, ...] = ()

    @property
    def numbers(self) -> dict[str, Any]:
        """What expressions may name of it."""
        return dict(self.members)

    @property
    def argument(self) -> ByValue:
        """The bytes as a launch takes them."""
        return ByValue(self.content, self.align, self.pointers)


@dataclass(frozen=True)
class BufferView:
    """A texture, surface or tensor map over the array of another argument: what a launch gets."""

    name: str
    argument: Texture | Surface | TensorMap


def arrays_of(arguments: Iterable[Argument]) -> tuple[Array, ...]:
    """Return the arrays of arguments, those that a struct points at with it."""
    found: list[Array] = []
    for one in arguments:
        found += [one] if isinstance(one, Array) else one.arrays if isinstance(one, Record) else []
    return tuple(found)


Argument = Scalar | Array | Null | Record | BufferView


# Files ---------------------------------------------------------------------------------------------------------------


def load(path: str, option: str) -> np.ndarray:
    """Return the array of a `.npy` file, mapped where it can be; CudabenchError where there is no plain array."""
    try:
        check_regular(path)  # it is mapped
        if _start(path) == b"PK":
            raise CudabenchError(f"{option} is an archive of several arrays: save one with numpy.save.")
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except CudabenchError:
        raise
    except FileNotFoundError:
        raise no_such_file(path, "*.npy", option) from None
    except IsADirectoryError:
        raise CudabenchError(f"{option} is a directory: name a .npy file in it.") from None
    except Exception as error:  # whatever a file makes of NumPy
        if ("pickle" in str(error) or "Python objects" in str(error)) and _start(path) == b"\x93N":
            raise CudabenchError(
                f"{option} holds Python objects, which only unpickling reads, and a pickle can run any program: save a "
                "plain array of numbers."
            ) from None
        reason = getattr(error, "strerror", None) or "it is cut off or not a file of numpy.save"
        raise CudabenchError(f"{option} cannot be read as a .npy file: {reason}.") from None
    loaded: np.ndarray = array
    return loaded


def numbers_of(array: np.ndarray) -> np.ndarray:
    """Return an array of records as its bytes; any other as it is."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8) if array.dtype.kind == "V" else array


def _start(path: str) -> bytes:
    with open(path, "rb") as stream:
        return stream.read(2)


# Memory --------------------------------------------------------------------------------------------------------------


def check_memory(arrays: Iterable[Array]) -> None:
    """Raise UsageError where the arrays cannot be in this machine's memory, before any of them is made."""
    arrays, most = list(arrays), host_memory()
    total = sum(array.nbytes for array in arrays)
    if total > most and arrays:
        largest = max(arrays, key=lambda array: array.nbytes)
        shape = ",".join(map(str, largest.shape))
        raise UsageError(
            f"--arg {largest.name}={largest.dtype}[{shape}] takes {largest.nbytes / 1e9:.1f} GB, all arrays together "
            f"{total / 1e9:.1f} GB; this machine has {most / 1e9:.1f} GB of memory free: use a smaller shape."
        )
