"""`--expect NAME=...`: what an array must hold after the launch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cudabench.errors import UsageError
from cudabench.floats import to_bfloat16
from cudabench.userkernel.values import Array, load, numbers_of, shape_text


@dataclass(frozen=True)
class Expectation:
    """What an array must hold after the launch: an expression, or the content of a file."""

    name: str
    text: str
    path: str | None = None
    # The expression that stands on the left, where that is no array itself: np.sum(y).
    function: str = ""

    @property
    def option(self) -> str:
        """How errors call it."""
        return f"--expect '{self.function or self.name}={self.text}'"


def sides(text: str) -> tuple[str, str]:
    """Return the two sides of an expectation: the '=' stands outside all brackets and is no part of a comparison.

    Raises UsageError for a text that has none.
    """
    depth = 0
    for at, letter in enumerate(text):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "=" and depth == 0 and text[at + 1 : at + 2] != "=" and text[at - 1 : at] not in tuple("=<>!"):
            return text[:at].strip(), text[at + 1 :].strip()
    raise UsageError(f"--expect '{text}' is no NAME=VALUE: write --expect 'y=a*x+y0' or y=@FILE.npy.")


def loaded(expectation: Expectation) -> np.ndarray:
    """Return the content of an expectation's file, records as their bytes."""
    assert expectation.path is not None
    return numbers_of(load(expectation.path, expectation.option))


def fields_of(expectation: Expectation) -> np.dtype[Any] | None:
    """Return the type of the records that an expectation's file holds; None for plain numbers."""
    if expectation.path is None:
        return None
    kind = load(expectation.path, expectation.option).dtype
    return kind if kind.names else None


def leaves(array: np.ndarray, path: str) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the plain fields of an array of records, by name: p.a, p.inner.b. What pads them is left out."""
    if not array.dtype.names:
        yield path, np.ascontiguousarray(array)
        return
    for name in array.dtype.names:
        yield from leaves(array[name], f"{path}.{name}")


def conform(value: Any, array: Array, option: str, *, constant: bool) -> np.ndarray:
    """Return an expected value as the array's shape and type; UsageError where it is of others."""
    if isinstance(value, (tuple, list)):
        raise UsageError(f"{option} is a list of {len(value)} values: write np.array(...) or np.stack(...).")
    value = np.asarray(value)
    shape = shape_text(array.shape)
    if value.shape != array.shape:
        fills = constant and value.ndim == 0
        if not fills and not (value.ndim == 0 and array.shape == (1,)):
            have = f"has shape {shape_text(value.shape)}" if value.ndim else "is one number"
            hint = " Write np.reshape(...)." if value.size == int(np.prod(array.shape)) else ""
            raise UsageError(f"{option} {have}; {array.name} has shape {shape}.{hint}")
        value = np.broadcast_to(value, array.shape)
    if array.dtype == "bfloat16" and value.dtype != np.uint16:  # a file may hold the bits
        exact = conform(value, replace(array, dtype="float32"), option, constant=constant)
        return to_bfloat16(exact)
    kind = np.dtype(array.storage)
    if value.dtype == kind:
        return np.ascontiguousarray(value)
    whole = value.dtype.kind in "iub" and kind.kind in "iub"
    if not whole and not np.can_cast(value.dtype, kind, "same_kind"):
        repair = f"np.{array.dtype}(...)" if kind.kind in "iu" and value.dtype.kind == "f" else "np.real(...)"
        raise UsageError(f"{option} has type {value.dtype}; {array.name} is {array.dtype}: write {repair} around it.")
    if whole and kind.kind != "b":
        limits = np.iinfo(kind)
        if value.size and not (limits.min <= int(value.min()) and int(value.max()) <= limits.max):
            raise UsageError(
                f"{option} runs from {int(value.min())} to {int(value.max())}; {array.name}, {array.dtype}, holds "
                f"{limits.min} to {limits.max}: write np.{array.dtype}(...) around it to wrap as C does."
            )
    elif whole and value.dtype.kind != "b" and value.size and not {*np.unique(value)} <= {0, 1}:
        raise UsageError(f"{option} has other values than 0 and 1; {array.name} is bool: write a comparison.")
    with np.errstate(all="ignore"):
        return np.ascontiguousarray(value.astype(kind))
