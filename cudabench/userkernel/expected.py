"""`--expect NAME=...`: what an array must hold after the launch."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from cudabench.errors import UsageError
from cudabench.userkernel.values import load, numbers_of


@dataclass(frozen=True)
class Expectation:
    """What an array must hold after the launch: an expression, or the content of a file."""

    name: str
    text: str
    path: str | None = None
    # The expression that stands on the left, where that is not an array itself: np.sum(y).
    function: str = ""

    @property
    def option(self) -> str:
        """How errors call it."""
        return f"--expect '{self.function or self.name}={self.text}'"


def sides(text: str) -> tuple[str, str]:
    """Return the two sides of an expectation: the '=' stands outside all brackets and is not part of a comparison."""
    depth = 0
    for at, letter in enumerate(text):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "=" and depth == 0 and text[at + 1 : at + 2] != "=" and text[at - 1 : at] not in tuple("=<>!"):
            return text[:at].strip(), text[at + 1 :].strip()
    body = re.sub(r"^\s*lambda\b[^:]*:\s*", "", text)
    if body != text:
        raise UsageError(
            f"--expect '{text}' is a function, and takes an expression of the arguments by their names: write --expect "
            f"'NAME={body}', where NAME is the array that the kernel writes."
        )
    raise UsageError(f"--expect '{text}' is not NAME=VALUE: write --expect 'y=a*x+y0' or y=@FILE.npy.")


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
