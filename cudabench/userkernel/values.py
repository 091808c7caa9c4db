"""The arguments of a user's own kernel: numbers, arrays, structs and null pointers.

Also here: the initial contents of arrays (the text after `TYPE[SHAPE]:`), reading `.npy` files, the check that the
arrays fit in memory, and the check of expected values against an array's shape and type.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cudabench.errors import CudabenchError, UsageError, did_you_mean, no_such_file, refuse
from cudabench.floats import to_bfloat16
from cudabench.records.launch import ByValue, Rows, Surface, TensorMap, Texture
from cudabench.source.brackets import closing, listed
from cudabench.system.limited_process import host_memory
from cudabench.system.reading import check_regular
from cudabench.userkernel import expressions
from cudabench.userkernel.expressions import ExpressionError

# Shapes and types ----------------------------------------------------------------------------------------------------


def shape_text(shape: Sequence[int]) -> str:
    """Return a shape as text, such as '[64,32]'."""
    return f"[{','.join(map(str, shape))}]"


def storage(dtype: str) -> str:
    """Return the NumPy type in which an element type is stored: uint16 for bfloat16, else the type itself."""
    return "uint16" if dtype == "bfloat16" else dtype


def _repair(option: str, have: tuple[int, ...], wanted: tuple[int, ...]) -> str:
    """Return how to write the expression of an --expect so that it has the wanted shape, for a message; '' if the
    shapes do not show it."""
    text = re.match(r"--expect '\w+=(?!@)(.+)'$", option)
    if not text or not have:
        return ""
    axes = [axis for axis in range(len(have)) if have[:axis] + have[axis + 1 :] == wanted]
    if math.prod(have) == math.prod(wanted):
        return f": write np.reshape({text[1]},{list(wanted)})"
    if wanted == (1,):
        return f": for a sum write np.sum({text[1]})"
    if len(axes) == 1:
        return f": for sums write np.sum({text[1]},axis={axes[0]})"
    if len(have) == len(wanted) == 1 and have[0] % wanted[0] == 0:
        parts = [wanted[0], have[0] // wanted[0]]
        return f": for sums of {parts[1]} elements write np.sum(np.reshape({text[1]},{parts}),axis=1)"
    return ""


def conform(value: Any, name: str, shape: tuple[int, ...], dtype: str, option: str, *, constant: bool) -> np.ndarray:
    """Return a value as an array of this shape and element type. Raises UsageError if it cannot be converted.

    `name`: the array's name; `option`: the option with the value, for messages. `constant`: whether a single number
    fills the whole array.
    """
    if isinstance(value, (tuple, list)):
        raise UsageError(f"{option} is a list of {len(value)} values: write np.array(...) or np.stack(...).")
    value = np.asarray(value)
    wanted = shape_text(shape)
    if value.shape != shape:
        fills = constant and value.ndim == 0
        if not fills and not (value.ndim == 0 and shape == (1,)):
            have = f"has shape {shape_text(value.shape)}" if value.ndim else "is one number"
            raise UsageError(f"{option} {have}; {name} has shape {wanted}{_repair(option, value.shape, shape)}.")
        value = np.broadcast_to(value, shape)
    # an array of uint16 from a file already holds the bit patterns of bfloat16 numbers
    if dtype == "bfloat16" and value.dtype != np.uint16:
        return to_bfloat16(conform(value, name, shape, "float32", option, constant=constant))
    kind = np.dtype(storage(dtype))
    if value.dtype == kind:
        return np.ascontiguousarray(value)
    whole = value.dtype.kind in "iub" and kind.kind in "iub"
    if not whole and not np.can_cast(value.dtype, kind, "same_kind"):
        repair = f"np.{dtype}(...)" if kind.kind in "iu" and value.dtype.kind == "f" else "np.real(...)"
        raise UsageError(f"{option} has type {value.dtype}; {name} is {dtype}: write {repair} around it.")
    if whole and kind.kind != "b":
        limits = np.iinfo(kind)
        if value.size and not (limits.min <= int(value.min()) and int(value.max()) <= limits.max):
            raise UsageError(
                f"{option} has values from {int(value.min())} to {int(value.max())}; {name}, {dtype}, holds "
                f"{limits.min} to {limits.max}: write np.{dtype}(...) around it to wrap as C does."
            )
    elif whole and value.dtype.kind != "b" and value.size and not {*np.unique(value)} <= {0, 1}:
        raise UsageError(f"{option} has values other than 0 and 1; {name} is bool: write a comparison.")
    with np.errstate(all="ignore"):
        return np.ascontiguousarray(value.astype(kind))


# Initial contents of arrays ------------------------------------------------------------------------------------------

WORDS = ("random", "zeros", "ones", "arange", "empty", "permutation", "integers")
CALLS = {"full": ("v",), "uniform": ("a", "b"), "normal": ("m", "s"), "integers": ("a", "b"), "linspace": ("a", "b")}
LISTED = (*WORDS[:5], "full(v)", "uniform(a,b)", "normal(m,s)", "integers(a,b)", "permutation", "linspace(a,b)")
# at most this many random elements are generated at a time, in double precision, so that they need little memory
CHUNK = 1 << 22

# For each float type: the limit up to which every whole number is represented exactly.
_EXACT = {"float16": 1 << 11, "bfloat16": 1 << 8, "float32": 1 << 24, "float64": 1 << 53}


@dataclass(frozen=True)
class Init:
    """The rule for the initial content of an array: a word with numbers, or an expression.

    `word`: the word, such as 'uniform', or 'expression'. `numbers`: the numbers in brackets after the word. `text`: the
    expression, which may use the indices i0, i1, ... of an element and `scalars`: (name, value) of each number.
    """

    word: str
    numbers: tuple[Any, ...] = ()
    text: str = ""
    scalars: tuple[tuple[str, Any], ...] = ()

    def make(self, shape: tuple[int, ...], dtype: str, rng: np.random.Generator, where: str) -> np.ndarray:
        """Return the filled array; bfloat16 numbers are returned as their bit patterns (uint16).

        `rng`: the generator for random contents; `where`: the option as error messages show it. Raises UsageError for
        an expression whose value has another shape or type.
        """
        if self.word == "expression":
            return self._from_expression(shape, dtype, where)
        if dtype == "bfloat16":
            return to_bfloat16(self.make(shape, "float32", rng, where))
        kind, count = np.dtype(dtype), math.prod(shape)
        if kind.kind == "c" and self.word in ("random", "uniform", "normal"):
            both, half = np.empty(shape, kind), f"float{4 * kind.itemsize}"
            both.real, both.imag = self.make(shape, half, rng, where), self.make(shape, half, rng, where)
            return both
        makers: dict[str, Callable[[], np.ndarray]] = {
            "arange": lambda: np.arange(count).astype(kind),
            "linspace": lambda: np.linspace(self.numbers[0], self.numbers[1], count, dtype=kind),
            "permutation": lambda: rng.permutation(count).astype(kind),
            "uniform": lambda: self._from_distribution(count, kind, rng),
            "normal": lambda: self._from_distribution(count, kind, rng),
            "integers": lambda: _integers(self.numbers, shape, kind, rng),
            "random": lambda: _random(rng, shape, kind),
        }
        if self.word in makers:
            return makers[self.word]().reshape(shape)
        value = {"zeros": 0, "ones": 1}.get(self.word)
        with np.errstate(all="ignore"):
            return np.full(shape, self.numbers[0] if value is None else value, kind)

    def _from_distribution(self, count: int, kind: np.dtype[Any], rng: np.random.Generator) -> np.ndarray:
        drawn, (a, b) = np.empty(count, kind), self.numbers
        for start in range(0, drawn.size, CHUNK):
            part = drawn[start : start + CHUNK]
            with np.errstate(all="ignore"):
                if self.word == "normal":
                    part[:] = rng.normal(a, b, part.size)
                else:
                    share = rng.random(part.size)
                    part[:] = a * (1 - share) + b * share  # this form is used because b - a could overflow
                    part[part >= b] = np.nextafter(kind.type(b), kind.type(a))
        return drawn

    def _from_expression(self, shape: tuple[int, ...], dtype: str, where: str) -> np.ndarray:
        indices = {
            f"i{axis}": np.arange(extent).reshape([-1 if at == axis else 1 for at in range(len(shape))])
            for axis, extent in enumerate(shape)
        }
        values = {**dict(self.scalars), **indices}
        parsed = expressions.parse(self.text, where, values, arrays=True, label=where)
        value = parsed.evaluate(values, limit=host_memory())
        try:
            value = np.broadcast_to(np.asarray(value), shape)
        except ValueError:
            raise UsageError(f"{where} gives the shape {list(np.shape(value))}, not {list(shape)}.") from None
        return conform(value, "it", shape, dtype, where, constant=True)


def _random(rng: np.random.Generator, shape: tuple[int, ...], kind: np.dtype[Any]) -> np.ndarray:
    """Return random floats in [0, 1), or integers in [0, 100), so that sums and products stay in range."""
    if kind.kind == "f":
        draw = np.float64 if kind.itemsize == 8 else np.float32
        numbers = rng.random(shape, dtype=draw)
        if kind.itemsize == 2:
            # a larger number would become 1 when it is rounded to float16
            numbers = np.minimum(numbers, draw(1 - 2**-11))
        return numbers.astype(kind, copy=False)
    if kind.kind == "b":
        return rng.integers(0, 2, shape, dtype=np.uint8).astype(bool)
    return rng.integers(0, 100, shape, dtype=kind.type)


def _integers(
    bounds: tuple[Any, ...], shape: tuple[int, ...], kind: np.dtype[Any], rng: np.random.Generator
) -> np.ndarray:
    whole = kind.kind in "iu"
    low, high = bounds or ((np.iinfo(kind).min, int(np.iinfo(kind).max) + 1) if whole else (0, 2))
    return rng.integers(low, high, shape, dtype=kind.type if whole else np.int64).astype(kind, copy=False)


def is_start(text: str) -> bool:
    """Return whether a text is a word for an initial content, such as 'zeros' or 'uniform(0,1)'."""
    call = re.fullmatch(r"(\w+)\s*\(.*\)", text.strip(), re.S)
    return call[1] in CALLS if call else text.strip() in WORDS


def read_start(text: str, dtype: str, shape: tuple[int, ...], where: str, scalars: Mapping[str, Any]) -> Init:
    """Read the text of an array's initial content. Raises UsageError if the type and shape cannot have this content.

    `where`: the option as error messages show it; `scalars`: the numbers, by name, that expressions may use.
    """
    text = text.strip()
    call = re.fullmatch(r"(\w+)\s*\((.*)\)", text, re.S)
    if text in WORDS:
        init = Init(text)
    elif call and call[1] in CALLS and closing(text, text.index("(")) == len(text) - 1:
        parts, wanted = listed(call[2]), CALLS[call[1]]
        numbers = [
            expressions.parse(part, where, scalars, label=f"{where}: '{part}'").evaluate(scalars) for part in parts
        ]
        if len(numbers) != len(wanted):
            raise UsageError(
                f"{where}: {call[1]} takes {len(wanted)} number{'s' * (len(wanted) > 1)}, not {len(numbers)}: write "
                f"{call[1]}({','.join(wanted)})."
            )
        init = Init(call[1], tuple(number.item() if isinstance(number, np.generic) else number for number in numbers))
    else:
        if not text or (re.fullmatch(r"[^\W\d]\w*", text) and text not in scalars and not re.fullmatch(r"i\d", text)):
            raise UsageError(
                f"{where} has no initial content: write ':' and one of {', '.join(LISTED)} after the "
                f"shape.{did_you_mean(text, (*WORDS, *CALLS))}"
            )
        names = (*scalars, *(f"i{axis}" for axis in range(len(shape))))
        try:
            parsed = expressions.parse(text, where, names, arrays=True, label=where)
        except ExpressionError as error:
            suggestion = did_you_mean(call[1], CALLS) if call else ""
            raise UsageError(f"{error}{suggestion}") from None
        used = tuple((name, scalars[name]) for name in sorted(parsed.names) if name in scalars)
        # A small corner of the array is computed now, so that an error in the expression is reported before a kernel
        # runs.
        init = Init("expression", text=text, scalars=used)
        init.make(tuple(min(extent, 2) for extent in shape), dtype, np.random.default_rng(0), where)
        return init
    _check_start(init, dtype, shape, where)
    return init


def _check_start(init: Init, dtype: str, shape: tuple[int, ...], where: str) -> None:
    """Raise UsageError if the element type cannot hold the initial numbers, or the numbers are not possible."""
    whole = dtype.startswith(("int", "uint"))
    low, high = (np.iinfo(dtype).min, np.iinfo(dtype).max) if whole else (-math.inf, math.inf)
    ranges: dict[str, tuple[Callable[..., bool], str]] = {
        "uniform": (lambda a, b: a < b and math.isfinite(a) and math.isfinite(b), "finite a below b"),
        "normal": (lambda m, s: s >= 0 and math.isfinite(m) and math.isfinite(s), "a finite mean and s of at least 0"),
        "linspace": (lambda a, b: math.isfinite(a) and math.isfinite(b) and low <= min(a, b) and max(a, b) <= high,
                     f"two numbers that {dtype} holds"),
    }  # fmt: skip
    if init.word in ranges:
        holds, wanted = ranges[init.word]
        has_complex = any(isinstance(number, complex) for number in init.numbers)
        refuse(
            (
                init.word != "linspace" and (whole or dtype == "bool"),
                f"{where}: {init.word} gives fractions, which {dtype} cannot hold: write integers(a,b).",
            ),
            (has_complex, f"{where}: {init.word} takes real numbers."),
            (
                not has_complex and not holds(*init.numbers),
                f"{where}: {init.word}({','.join(f'{number:g}' for number in init.numbers)}) is not possible: it takes "
                f"{wanted}.",
            ),
        )
    if init.word == "integers" and init.numbers:
        a, b = init.numbers
        if any((isinstance(bound, float) and not bound.is_integer()) or isinstance(bound, complex) for bound in (a, b)):
            raise UsageError(f"{where}: integers takes whole numbers.")
        least, most = (0, 2) if dtype == "bool" else (low, high + 1)
        if not max(least, -(1 << 63)) <= a < b <= min(most, 1 << 64):
            held = f"; {dtype} holds {low} to {high}" if whole else ""
            raise UsageError(f"{where}: integers({a},{b}) is not possible: it takes a below b{held}.")
    if init.word == "full":
        (value,) = init.numbers
        real = not isinstance(value, complex)
        fraction = isinstance(value, float) and not value.is_integer()
        outside = real and not math.isnan(value) and not low <= value <= high
        held = "0 and 1" if dtype == "bool" else f"whole numbers from {low} to {high}"
        refuse(
            (not real and not dtype.startswith("complex"), f"{where}: {value} is complex, {dtype} is not."),
            (
                (whole and (fraction or outside)) or (dtype == "bool" and value not in (0, 1)),
                f"{where}: {dtype} holds {held}, not {value}.",
            ),
        )
    if init.word == "permutation":
        last = math.prod(shape) - 1
        most = high if whole else _EXACT.get(dtype, 1 if dtype == "bool" else 1 << 24)
        if last > most:
            raise UsageError(
                f"{where}: a permutation of {last + 1} numbers goes up to {last}, {dtype} to {most} exactly: use a "
                "wider type or a smaller shape."
            )


# The kinds of arguments ----------------------------------------------------------------------------------------------

TYPES = (
    "float32", "float64", "float16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool",
    "complex64", "complex128", "bfloat16",
)  # fmt: skip
CONSTANTS = {"inf": math.inf, "nan": math.nan, "pi": math.pi, "true": True, "false": False}


@dataclass(frozen=True)
class Scalar:
    """A number argument; `value`: the number that the kernel gets, already rounded to the type `dtype`."""

    name: str
    dtype: str
    value: Any

    @property
    def argument(self) -> Any:
        """The value as a NumPy scalar for a launch; float16 and bool become unsigned integers with the same bits."""
        number = np.dtype(self.dtype).type(self.value)
        bits = {"float16": np.uint16, "bool": np.uint8}.get(self.dtype)
        return number.view(bits) if bits else number


@dataclass(frozen=True)
class Array:
    """An array argument. `const`: whether kernels may only read the array.

    `init`: the kind of the initial content: a word such as 'zeros', or 'expression' or 'file'. `rule`: the rule for
    this content. `path`: the file with this content. `view`: the object that the kernel gets in place of the array's
    address: a texture, a surface or a tensor map over the array, or pointers to the array's rows.
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
        """The argument in a launch: the view, or the array's name, which stands for the array's address."""
        return self.view or self.name

    @property
    def nbytes(self) -> int:
        """The array's size in bytes."""
        return math.prod(self.shape) * np.dtype(self.storage).itemsize

    @property
    def storage(self) -> str:
        """The NumPy type in which the elements are stored: uint16 for bfloat16."""
        return storage(self.dtype)

    def make(self, seed: int, index: int) -> np.ndarray:
        """Return the array with its initial content; `index`: the position of this array in the list of arrays.

        `seed` and `index` choose the stream of random numbers, so the content does not depend on other arrays.
        """
        if self.path is not None:
            return np.ascontiguousarray(
                numbers_of(load(self.path, f"--arg {self.name}=@{self.path}")), dtype=self.dtype
            )
        rule, where = self.rule or Init(self.init), f"--arg {self.name}={self.dtype}{shape_text(self.shape)}"
        return rule.make(self.shape, self.dtype, np.random.default_rng([seed, index]), f"{where}:{rule.text}")


@dataclass(frozen=True)
class Null:
    """A null pointer argument."""

    name: str

    @property
    def argument(self) -> Any:
        """The address for a launch: 0."""
        return np.uint64(0)


@dataclass(frozen=True)
class Record:
    """A struct or vector argument, by value; `content`: the bytes of the value; `align`: the alignment in bytes.

    members: (name, value) of each number in the struct; p.a has the name `p_a`. pointers: (offset, name of the array)
    of each member that points to an array. arrays: the arrays to which members point and which are not arguments.
    """

    name: str
    content: bytes
    align: int
    members: tuple[tuple[str, Any], ...] = ()
    pointers: tuple[tuple[int, str], ...] = ()
    arrays: tuple[Array, ...] = ()

    @property
    def numbers(self) -> dict[str, Any]:
        """The numbers in the struct, keyed by the names that expressions use for them."""
        return dict(self.members)

    @property
    def argument(self) -> ByValue:
        """The struct's bytes and pointers, for a launch."""
        return ByValue(self.content, self.align, self.pointers)


@dataclass(frozen=True)
class BufferView:
    """An argument that is a texture, surface or tensor map over the array of another argument."""

    name: str
    argument: Texture | Surface | TensorMap


def arrays_of(arguments: Iterable[Argument]) -> tuple[Array, ...]:
    """Return the arrays among the arguments, and the arrays that only pointers in struct arguments use."""
    arrays: list[Array] = []
    for argument in arguments:
        arrays += [argument] if isinstance(argument, Array) else argument.arrays if isinstance(argument, Record) else []
    return tuple(arrays)


Argument = Scalar | Array | Null | Record | BufferView


# Files ---------------------------------------------------------------------------------------------------------------


def load(path: str, option: str) -> np.ndarray:
    """Open a `.npy` file as a memory-mapped array. Raises CudabenchError if it is not a plain array."""
    try:
        check_regular(path)  # only regular files can be mapped into memory
        if _start(path) == b"PK":
            raise CudabenchError(f"{option} is an archive of several arrays: save one with numpy.save.")
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except CudabenchError:
        raise
    except FileNotFoundError:
        raise no_such_file(path, "*.npy", option) from None
    except IsADirectoryError:
        raise CudabenchError(f"{option} is a directory: name a .npy file in it.") from None
    except Exception as error:  # NumPy raises many different exceptions for a damaged file
        if ("pickle" in str(error) or "Python objects" in str(error)) and _start(path) == b"\x93N":
            raise CudabenchError(
                f"{option} holds Python objects, and reading a pickle can run any program: save a "
                "plain array of numbers."
            ) from None
        reason = getattr(error, "strerror", None) or "it is cut off or not a file of numpy.save"
        raise CudabenchError(f"{option} cannot be read as a .npy file: {reason}.") from None
    loaded: np.ndarray = array
    return loaded


def numbers_of(array: np.ndarray) -> np.ndarray:
    """Return an array of records as its bytes (uint8, one dimension); return other arrays unchanged."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8) if array.dtype.kind == "V" else array


def _start(path: str) -> bytes:
    with open(path, "rb") as stream:
        return stream.read(2)


# Memory --------------------------------------------------------------------------------------------------------------


def check_memory(arrays: Iterable[Array]) -> None:
    """Raise UsageError if the arrays together do not fit in the free memory of this machine."""
    arrays, most = list(arrays), host_memory()
    total = sum(array.nbytes for array in arrays)
    if total > most and arrays:
        largest = max(arrays, key=lambda array: array.nbytes)
        shape = ",".join(map(str, largest.shape))
        raise UsageError(
            f"--arg {largest.name}={largest.dtype}[{shape}] takes {largest.nbytes / 1e9:.1f} GB, all arrays together "
            f"{total / 1e9:.1f} GB; this machine has {most / 1e9:.1f} GB of memory free: use a smaller shape."
        )
