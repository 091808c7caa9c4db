"""`--arg NAME=VALUE` against a kernel's own signature: names, order, types, shapes; and the arrays that come of it."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from cudabench.errors import CudabenchError, UsageError, did_you_mean, no_such_file
from cudabench.floats import to_bfloat16
from cudabench.toolchain import source
from cudabench.toolchain.source import KernelSource, Parameter
from cudabench.userkernel import expressions

TYPES = (
    "float32", "float64", "float16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool",
    "complex64", "complex128", "bfloat16",
)  # fmt: skip
INITS = ("random", "zeros", "ones", "arange", "empty")
CONSTANTS = {"inf": math.inf, "nan": math.nan, "pi": math.pi, "true": True, "false": False}

# Types of CUDA's headers that NumPy lacks, by the type that holds their bits.
_BITS = {
    **dict.fromkeys(("__nv_bfloat16", "nv_bfloat16"), ("bfloat16", 1)),
    **dict.fromkeys(("__nv_bfloat162", "nv_bfloat162"), ("bfloat16", 2)),
    **dict.fromkeys(("__nv_fp8_e4m3", "__nv_fp8_e5m2"), ("uint8", 1)),
}
_SAME_BITS = {"bfloat16": ("uint16",), "int8": ("uint8",), "uint8": ("bool", "int8"), "bool": ("uint8",)}


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
    """An array: type, shape and how it starts, or the file that it is read from. `const`: no kernel may write it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    init: str
    path: str | None = None
    const: bool = False

    @property
    def nbytes(self) -> int:
        """The array's bytes."""
        return math.prod(self.shape) * np.dtype(self.storage).itemsize

    @property
    def storage(self) -> str:
        """The NumPy type that holds the elements: that of the bits for bfloat16."""
        return "uint16" if self.dtype == "bfloat16" else self.dtype

    def make(self, seed: int, index: int) -> np.ndarray:
        """Return the array; each has a stream of random numbers of its own, so one more does not change the others."""
        if self.path is not None:
            return np.ascontiguousarray(
                numbers_of(load(self.path, f"--arg {self.name}=@{self.path}")), dtype=self.dtype
            )
        if self.dtype == "bfloat16":
            return to_bfloat16(replace(self, dtype="float32").make(seed, index))
        kind = np.dtype(self.dtype)
        if self.init == "zeros":
            return np.zeros(self.shape, kind)
        if self.init == "ones":
            return np.ones(self.shape, kind)
        if self.init == "arange":
            return np.arange(math.prod(self.shape)).astype(kind).reshape(self.shape)
        return _random(np.random.default_rng([seed, index]), self.shape, kind)


@dataclass(frozen=True)
class Null:
    """A null pointer."""

    name: str

    @property
    def argument(self) -> Any:
        """The address."""
        return np.uint64(0)


Argument = Scalar | Array | Null


def _random(rng: np.random.Generator, shape: tuple[int, ...], kind: np.dtype[Any]) -> np.ndarray:
    """Floats in [0, 1), integers in [0, 100): sums and products of them stay in range."""
    if kind.kind == "c":
        half = np.dtype(f"f{kind.itemsize // 2}")
        return (_random(rng, shape, half) + 1j * _random(rng, shape, half)).astype(kind, copy=False)
    if kind.kind == "f":
        draw = np.float64 if kind.itemsize == 8 else np.float32
        numbers = rng.random(shape, dtype=draw)
        if kind.itemsize == 2:
            numbers = np.minimum(numbers, draw(1 - 2**-11))  # below 1 also when rounded
        return numbers.astype(kind, copy=False)
    if kind.kind == "b":
        return rng.integers(0, 2, shape, dtype=np.uint8).astype(bool)
    return rng.integers(0, 100, shape, dtype=kind.type)


# Reading -------------------------------------------------------------------------------------------------------------


def named(text: str, option: str, example: str) -> tuple[str, str]:
    """Return the two sides of NAME=VALUE. Raises UsageError where the text is none."""
    name, equals, value = text.partition("=")
    name, value = name.strip(), value.strip()
    if not equals or not re.fullmatch(r"[^\W\d]\w*", name) or not value:
        raise UsageError(f"{option} '{text}' is no NAME=VALUE: write {option} {example}.")
    return name, value


def load(path: str, option: str) -> np.ndarray:
    """Return the array of a `.npy` file, mapped where it can be; CudabenchError where there is no plain array."""
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise no_such_file(path, "*.npy", option) from None
    except IsADirectoryError:
        raise CudabenchError(f"{option} is a directory: name a .npy file in it.") from None
    except (ValueError, EOFError, OSError) as error:
        if ("pickle" in str(error) or "Python objects" in str(error)) and _magic(path):
            raise CudabenchError(
                f"{option} holds Python objects, which only unpickling reads, and a pickle can run any program: save a "
                "plain array of numbers."
            ) from None
        reason = getattr(error, "strerror", None) or "it is cut off or no file of numpy.save"
        raise CudabenchError(f"{option} is no .npy file that can be read: {reason}.") from None
    if not isinstance(array, np.ndarray):
        raise CudabenchError(f"{option} is an archive of several arrays: save one with numpy.save.")
    return array


def numbers_of(array: np.ndarray) -> np.ndarray:
    """Return an array of records as its bytes; any other as it is."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8) if array.dtype.kind == "V" else array


def _magic(path: str) -> bool:
    with open(path, "rb") as stream:
        return stream.read(6) == b"\x93NUMPY"


def read(
    texts: Sequence[str], kernel: KernelSource, aliases: Mapping[str, str], known: Mapping[str, Any], example: str
) -> tuple[Argument, ...]:
    """Return the arguments of a kernel, in the order of its parameters.

    `known` are further numbers that shapes may use; `example` is a line that would be right. Scalars are read first,
    so a shape may name one that stands behind it. Raises UsageError for whatever does not fit the signature.
    """
    given = [named(text, "--arg", "n=4096 or --arg 'x=float32[n]:random'") for text in texts]
    check_names([name for name, _ in given], kernel, example)
    scalars: dict[str, Any] = {**CONSTANTS, **known}
    found: dict[str, Argument] = {}
    pairs = list(zip(given, kernel.parameters, strict=True))
    for (name, value), parameter in pairs:
        if not parameter.pointer:
            scalar = _scalar(name, value, parameter, kernel, aliases, scalars)
            found[name] = scalar
            scalars[name] = scalar.value
    for (name, value), parameter in pairs:
        if parameter.pointer:
            found[name] = _array(name, value, parameter, kernel, aliases, scalars)
    check_memory([one for one in found.values() if isinstance(one, Array)])
    return tuple(found[name] for name, _ in given)


def check_names(names: Sequence[str], kernel: KernelSource, example: str) -> None:
    """Raise UsageError where the names are not the kernel's parameters in their order; it prints the signature."""
    wanted = [parameter.name for parameter in kernel.parameters]
    doubled = next((name for at, name in enumerate(names) if name in names[:at]), None)
    if doubled:
        raise UsageError(f"--arg {doubled}=... is given twice: keep one.")
    if len(names) == len(wanted) and all(not w or n == w for n, w in zip(names, wanted, strict=True)):
        return
    unknown = next((name for name in names if name not in wanted), None)
    missing = [name for name in wanted if name and name not in names]
    if unknown and all(wanted):
        what = f"has no parameter '{unknown}'.{did_you_mean(unknown, missing or wanted)} It"
    elif len(names) != len(wanted):
        what = ""
    else:
        raise UsageError(
            f"{kernel.signature}: the arguments stand in another order ({', '.join(names)}); give each --arg in the "
            f"order of the parameters, such as: {example}"
        )
    plural, verb = "s" * (len(wanted) != 1), "is" if len(names) == 1 else "are"
    count = f"takes {len(wanted)} argument{plural}, {len(names)} {verb} given"
    lacks = f" ({', '.join(missing)} missing)" if missing and len(names) < len(wanted) else ""
    raise UsageError(f"{kernel.signature} {what} {count}{lacks}; write: {example}".replace("  ", " "))


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


def host_memory() -> int:
    """Return the bytes of memory that this machine, or the container, has free."""
    limits = []
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                limits.append(int(line.split()[1]) * 1024)
        limits.append(int(Path("/sys/fs/cgroup/memory.max").read_text()))
    except (OSError, ValueError):  # no Linux, or no limit ('max')
        pass
    if not limits:
        try:
            limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
        except (AttributeError, ValueError, OSError):
            limits.append(expressions.DEFAULT_LIMIT)
    return min(limits)


# Scalars -------------------------------------------------------------------------------------------------------------


def _scalar(
    name: str,
    text: str,
    parameter: Parameter,
    kernel: KernelSource,
    aliases: Mapping[str, str],
    scalars: Mapping[str, Any],
) -> Scalar:
    where = f"--arg {name}={text}"
    wanted = source.numpy_dtype(parameter.type, aliases)
    if "(" in parameter.type:
        raise UsageError(f"{where}: {kernel.signature} takes a function, which no command line can give.")
    if "[" in text or text.startswith("@"):
        if wanted is None:
            raise UsageError(f"{where}: {_by_value(parameter, kernel)}")
        raise UsageError(
            f"{where} is an array; {kernel.signature} takes one number: write --arg {name}={_number_like(wanted)}."
        )
    explicit, colon, rest = text.partition(":")
    if colon:
        _check_type(explicit.strip(), where)
        if wanted is not None and explicit.strip() != wanted:
            raise UsageError(
                f"{where}: {name} is {parameter.type} in {kernel.signature}: write --arg {name}={wanted}:{rest} or "
                f"{name}={rest}."
            )
        wanted = explicit.strip()
        if wanted == "bfloat16":
            raise UsageError(f"{where}: {_by_value(parameter, kernel)}")
    if wanted is None or np.dtype(wanted).kind == "c":
        if wanted or source.vector_type(parameter.type, aliases) or _looks_like_struct(parameter.type, aliases):
            raise UsageError(f"{where}: {_by_value(parameter, kernel)}")
        raise UsageError(
            f"{where}: the type of '{parameter}' in {kernel.signature} is not known here: write it down, as in "
            f"--arg {name}=int32:{rest or text}."
        )
    value = expressions.parse(rest if colon else text, where, scalars).evaluate(scalars)
    return Scalar(name, wanted, _fitting(value, wanted, where, parameter))


def _by_value(parameter: Parameter, kernel: KernelSource) -> str:
    return (
        f"{kernel.signature} takes '{parameter}' by value, a struct or vector; only numbers can be given by value: "
        "write a __global__ function beside it that takes the members as numbers."
    )


def _looks_like_struct(ctype: str, aliases: Mapping[str, str]) -> bool:
    return ctype in ("dim3", "uint3") or aliases.get(ctype, ctype).startswith(("struct ", "class ", "union "))


def _number_like(dtype: str) -> str:
    return "2.5" if np.dtype(dtype).kind in "fc" else "4096"


def _fitting(value: Any, dtype: str, where: str, parameter: Parameter) -> Any:
    """Return a number as the type holds it; refuse what it cannot hold."""
    kind = np.dtype(dtype)
    if isinstance(value, tuple) or np.ndim(value):
        raise UsageError(f"{where} is no single number: write one, as in {_number_like(dtype)}.")
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, complex) and kind.kind != "c":
        raise UsageError(f"{where} is complex; '{parameter}' takes a real number.")
    if kind.kind in "iub":
        if isinstance(value, float):
            if not value.is_integer():
                raise UsageError(
                    f"{where} is no whole number, {value:g}; '{parameter}' takes one: use //, cdiv, floor or ceil."
                )
            value = int(value)
        low, high = (0, 1) if kind.kind == "b" else (np.iinfo(kind).min, np.iinfo(kind).max)
        if not low <= value <= high:
            raise UsageError(f"{where} is {int(value)}; '{parameter}' holds {low} to {high}.")
        return bool(value) if kind.kind == "b" else int(value)
    with np.errstate(over="ignore"):
        held = kind.type(value)
    if np.isinf(held) and np.isfinite(value):
        raise UsageError(f"{where} is over the largest number of '{parameter}', {np.finfo(kind).max:g}.")
    return held.item()


# Arrays --------------------------------------------------------------------------------------------------------------


def _array(
    name: str,
    text: str,
    parameter: Parameter,
    kernel: KernelSource,
    aliases: Mapping[str, str],
    scalars: Mapping[str, Any],
) -> Argument:
    where = f"--arg {name}={text}"
    wanted = like(parameter, aliases)
    if parameter.type.endswith("*"):
        raise UsageError(f"{where}: {kernel.signature} takes a pointer to pointers, which no argument can be.")
    if text in ("null", "nullptr"):
        return Null(name)
    if text.startswith("@"):
        array = numbers_of(load(text[1:], where))
        dtype, shape, init = array.dtype.newbyteorder("=").name, tuple(array.shape) or (1,), "file"
        if dtype not in TYPES:
            raise UsageError(f"{where} holds {array.dtype}, which no kernel takes: save one of {', '.join(TYPES)}.")
        if not array.size:
            raise UsageError(f"{where} is empty, {shape_text(shape)}: a kernel needs at least one element.")
    else:
        match = re.fullmatch(r"(\w+)\s*\[(.*)\]\s*(?::\s*(\w*))?", text, re.S)
        if not match:
            raise UsageError(
                f"{where} is no array; {kernel.signature} takes a pointer: write --arg '{name}={wanted}[n]:random' or "
                f"--arg {name}=@FILE.npy."
            )
        dtype, init = match[1], match[3] or ""
        _check_type(dtype, where)
        shape = _extents(match[2], where, scalars)
        if init not in INITS:
            raise UsageError(
                f"{where} does not say how the array starts: write ':' and one of {', '.join(INITS)} behind the shape."
                f"{did_you_mean(init, INITS)}"
            )
        if init == "empty" and parameter.const:
            raise UsageError(
                f"{where}: {name} is const in {kernel.signature}, so 'empty' would leave it poison: use random, zeros, "
                "ones or arange."
            )
    array_ = Array(name, dtype, shape, init, text[1:] if init == "file" else None, parameter.const)
    check_fit(array_, parameter, kernel, aliases, where)
    return array_


def shape_text(shape: Sequence[int]) -> str:
    """Return a shape as the command line writes it: [64,32]."""
    return f"[{','.join(map(str, shape))}]"


def _extents(text: str, where: str, scalars: Mapping[str, Any]) -> tuple[int, ...]:
    value = expressions.parse(text or "''", where, scalars).evaluate(scalars) if text.strip() else ()
    extents = value if isinstance(value, tuple) else (value,)
    if not 1 <= len(extents) <= 8:
        raise UsageError(
            f"{where}: the shape [{text}] has {len(extents)} numbers; it takes 1 to 8, as in [n] or [n,m]."
        )
    return tuple(whole(extent, f"{where}: the shape [{text}]") for extent in extents)


def whole(value: Any, what: str, least: int = 1) -> int:
    """Return a number as a whole one; UsageError for one that is none or too small."""
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        value = int(value)
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool):
        raise UsageError(f"{what} gives {value}, no whole number: use // or cdiv(a,b) for /.")
    if value < least:
        raise UsageError(f"{what} gives {value}; at least {least} is needed.")
    return int(value)


def _check_type(dtype: str, where: str) -> None:
    if dtype not in TYPES:
        meant = source.numpy_dtype(dtype)
        hint = f" Write {meant} for C's {dtype}." if meant else did_you_mean(dtype, TYPES)
        raise UsageError(f"{where}: '{dtype}' is no type; there are {', '.join(TYPES)}.{hint}")


def _pointee(parameter: Parameter, aliases: Mapping[str, str]) -> tuple[str, int] | None:
    """Return the NumPy type behind a pointer and how many of it make an element; None for a struct or unknown type."""
    ctype = parameter.type.partition("[")[0]  # a pointer to an array
    dtype = source.numpy_dtype(ctype, aliases)
    if dtype:
        return dtype, 1
    bare = ctype
    for _ in range(8):
        bare = aliases.get(bare, bare)
    return source.vector_type(ctype, aliases) or _BITS.get(bare)


def like(parameter: Parameter, aliases: Mapping[str, str]) -> str:
    """Return the NumPy type of an array for a pointer; bytes where there is none."""
    pointee = _pointee(parameter, aliases)
    return pointee[0] if pointee else "float32" if parameter.type == "void" else "uint8"


def check_fit(array: Array, parameter: Parameter, kernel: KernelSource, aliases: Mapping[str, str], where: str) -> None:
    """Raise UsageError where a pointer cannot take an array: another type, or a part of a vector is left over."""
    if parameter.type == "void":
        return
    pointee = _pointee(parameter, aliases)
    if pointee is None:
        if array.dtype != "uint8":
            raise UsageError(
                f"{where}: {kernel.signature} takes a pointer to {parameter.type}, which NumPy does not have: give its "
                f"bytes, as in --arg '{array.name}=uint8[n*BYTES]:zeros' or --arg {array.name}=@FILE.npy of uint8 or "
                f"of records; where it is another name of a number, say so with -D, as in -D {parameter.type}=float."
            )
        return
    dtype, count = pointee
    fits = {dtype, *_SAME_BITS.get(dtype, ())}
    if (dtype, count) in (
        ("float32", 2),
        ("float64", 2),
    ) and array.dtype == f"complex{128 if dtype[-2:] == '64' else 64}":
        return
    if array.dtype not in fits:
        raise UsageError(
            f"{where}: {array.name} is '{parameter}' in {kernel.signature}: give {dtype}[...], not {array.dtype}."
        )
    if math.prod(array.shape) % count:
        raise UsageError(
            f"{where}: {math.prod(array.shape)} elements of {array.dtype} make no whole number of {parameter.type}, "
            f"which holds {count}: use a multiple of {count}."
        )


# Several kernels -----------------------------------------------------------------------------------------------------


def shared(
    arguments: Sequence[Argument], first: KernelSource, kernels: Sequence[KernelSource], aliases: Mapping[str, str]
) -> tuple[tuple[Argument, ...], list[tuple[str, ...]]]:
    """Return the arguments for several kernels, and for each kernel the names in the order of its parameters.

    `first` is the kernel that the arguments were read for. One whose parameters have the same names takes them by name,
    any other by position. An array is const where all kernels call it so. Raises UsageError for a
    kernel that the arguments do not fit.
    """
    by_name = {argument.name: argument for argument in arguments}
    orders = []
    for kernel in kernels:
        if kernel is first:
            orders.append(tuple(by_name))
            continue
        names = [parameter.name for parameter in kernel.parameters]
        order = tuple(names) if set(names) == set(by_name) else tuple(by_name)
        if len(names) != len(order):
            raise UsageError(
                f"{kernel.signature} takes {len(names)} arguments and {first.signature} {len(order)}: kernels that are "
                "compared share one set of arguments; run it by itself."
            )
        for name, parameter in zip(order, kernel.parameters, strict=True):
            argument = by_name[name]
            where = f"{kernel.signature} cannot take {name} of {first.signature}"
            if parameter.pointer == isinstance(argument, Scalar):
                raise UsageError(
                    f"{where}: it wants {'an array' if parameter.pointer else 'a number'}; run it by itself."
                )
            if isinstance(argument, Array):
                check_fit(argument, parameter, kernel, aliases, where)
                if argument.const and not parameter.const:
                    by_name[name] = replace(argument, const=False)
            elif isinstance(argument, Scalar):
                wanted = source.numpy_dtype(parameter.type, aliases)
                if wanted not in (None, argument.dtype):
                    raise UsageError(f"{where}: it wants {wanted}, not {argument.dtype}; run it by itself.")
        orders.append(order)
    return tuple(by_name.values()), orders
