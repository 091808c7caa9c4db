"""How an array starts: the words behind `TYPE[SHAPE]:`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from cudabench.errors import UsageError, did_you_mean, refuse
from cudabench.floats import to_bfloat16
from cudabench.source.brackets import closing, listed
from cudabench.system.confined import host_memory
from cudabench.userkernel import expressions
from cudabench.userkernel.conforming import conform
from cudabench.userkernel.evaluation import ExpressionError

WORDS = ("random", "zeros", "ones", "arange", "empty", "permutation", "integers")
CALLS = {"full": ("v",), "uniform": ("a", "b"), "normal": ("m", "s"), "integers": ("a", "b"), "linspace": ("a", "b")}
LISTED = (*WORDS[:5], "full(v)", "uniform(a,b)", "normal(m,s)", "integers(a,b)", "permutation", "linspace(a,b)")
CHUNK = 1 << 22  # elements that are drawn in double precision at once

# Whole numbers up to this are exact.
_EXACT = {"float16": 1 << 11, "bfloat16": 1 << 8, "float32": 1 << 24, "float64": 1 << 53}


@dataclass(frozen=True)
class Init:
    """How an array starts: a word, its numbers, or an expression over indices and scalars."""

    word: str
    numbers: tuple[Any, ...] = ()
    text: str = ""
    scalars: tuple[tuple[str, Any], ...] = ()

    def make(self, shape: tuple[int, ...], dtype: str, rng: np.random.Generator, where: str) -> np.ndarray:
        """Return the array, of the bits for bfloat16. Raises UsageError for an expression that does not give it."""
        if self.word == "expression":
            return self._computed(shape, dtype, where)
        if dtype == "bfloat16":
            return to_bfloat16(self.make(shape, "float32", rng, where))
        kind, count = np.dtype(dtype), math.prod(shape)
        if kind.kind == "c" and self.word in ("random", "uniform", "normal"):
            both, half = np.empty(shape, kind), f"float{4 * kind.itemsize}"
            both.real, both.imag = self.make(shape, half, rng, where), self.make(shape, half, rng, where)
            return both
        made: dict[str, Callable[[], np.ndarray]] = {
            "arange": lambda: np.arange(count).astype(kind),
            "linspace": lambda: np.linspace(self.numbers[0], self.numbers[1], count, dtype=kind),
            "permutation": lambda: rng.permutation(count).astype(kind),
            "uniform": lambda: self._drawn(count, kind, rng),
            "normal": lambda: self._drawn(count, kind, rng),
            "integers": lambda: _integers(self.numbers, shape, kind, rng),
            "random": lambda: _random(rng, shape, kind),
        }
        if self.word in made:
            return made[self.word]().reshape(shape)
        value = {"zeros": 0, "ones": 1}.get(self.word)
        with np.errstate(all="ignore"):
            return np.full(shape, self.numbers[0] if value is None else value, kind)

    def _drawn(self, count: int, kind: np.dtype[Any], rng: np.random.Generator) -> np.ndarray:
        made, (a, b) = np.empty(count, kind), self.numbers
        for start in range(0, made.size, CHUNK):
            part = made[start : start + CHUNK]
            with np.errstate(all="ignore"):
                if self.word == "normal":
                    part[:] = rng.normal(a, b, part.size)
                else:
                    share = rng.random(part.size)
                    part[:] = a * (1 - share) + b * share  # b - a need not be a number
                    part[part >= b] = np.nextafter(kind.type(b), kind.type(a))
        return made

    def _computed(self, shape: tuple[int, ...], dtype: str, where: str) -> np.ndarray:
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
    """Floats in [0, 1), integers in [0, 100): sums and products of them stay in range."""
    if kind.kind == "f":
        draw = np.float64 if kind.itemsize == 8 else np.float32
        numbers = rng.random(shape, dtype=draw)
        if kind.itemsize == 2:
            numbers = np.minimum(numbers, draw(1 - 2**-11))  # below 1 also when rounded
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


# Reading -------------------------------------------------------------------------------------------------------------


def read(text: str, dtype: str, shape: tuple[int, ...], where: str, scalars: Mapping[str, Any]) -> Init:
    """Return how an array of a type and shape starts."""
    text = text.strip()
    call = re.fullmatch(r"(\w+)\s*\((.*)\)", text, re.S)
    if text in WORDS:
        init = Init(text)
    elif call and call[1] in CALLS and closing(text, text.index("(")) == len(text) - 1:
        parts, wanted = listed(call[2]), CALLS[call[1]]
        numbers = [expressions.parse(one, where, scalars, label=f"{where}: '{one}'").evaluate(scalars) for one in parts]
        if len(numbers) != len(wanted):
            raise UsageError(
                f"{where}: {call[1]} takes {len(wanted)} number{'s' * (len(wanted) > 1)}, not {len(numbers)}: write "
                f"{call[1]}({','.join(wanted)})."
            )
        init = Init(call[1], tuple(one.item() if isinstance(one, np.generic) else one for one in numbers))
    else:
        if not text or (re.fullmatch(r"[^\W\d]\w*", text) and text not in scalars and not re.fullmatch(r"i\d", text)):
            raise UsageError(
                f"{where} does not say how the array starts: write ':' and one of {', '.join(LISTED)} behind the "
                f"shape.{did_you_mean(text, (*WORDS, *CALLS))}"
            )
        names = (*scalars, *(f"i{axis}" for axis in range(len(shape))))
        try:
            parsed = expressions.parse(text, where, names, arrays=True, label=where)
        except ExpressionError as error:
            meant = did_you_mean(call[1], CALLS) if call else ""
            raise UsageError(f"{error}{meant}") from None
        used = tuple((name, scalars[name]) for name in sorted(parsed.names) if name in scalars)
        # The corner shows what is wrong of it before anything runs.
        init = Init("expression", text=text, scalars=used)
        init.make(tuple(min(extent, 2) for extent in shape), dtype, np.random.default_rng(0), where)
        return init
    _check(init, dtype, shape, where)
    return init


def _check(init: Init, dtype: str, shape: tuple[int, ...], where: str) -> None:
    """Refuse numbers that the type cannot hold."""
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
        has_complex = any(isinstance(one, complex) for one in init.numbers)
        refuse(
            (
                init.word != "linspace" and (whole or dtype == "bool"),
                f"{where}: {init.word} gives fractions, {dtype} holds none: write integers(a,b).",
            ),
            (has_complex, f"{where}: {init.word} takes real numbers."),
            (
                not has_complex and not holds(*init.numbers),
                f"{where}: {init.word}({','.join(f'{one:g}' for one in init.numbers)}) is not possible: it takes "
                f"{wanted}.",
            ),
        )
    if init.word == "integers" and init.numbers:
        a, b = init.numbers
        if any((isinstance(one, float) and not one.is_integer()) or isinstance(one, complex) for one in (a, b)):
            raise UsageError(f"{where}: integers takes whole numbers.")
        least, most = (0, 2) if dtype == "bool" else (low, high + 1)
        if not max(least, -(1 << 63)) <= a < b <= min(most, 1 << 64):
            held = f"; {dtype} holds {low} to {high}" if whole else ""
            raise UsageError(f"{where}: integers({a},{b}) is not possible: it draws from a up to below b{held}.")
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
