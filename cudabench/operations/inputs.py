"""Arrays of problems: seeded inputs, the same on every machine for a seed, and how their elements round."""

from __future__ import annotations

import numpy as np

from cudabench.records.planned import Problem

Arrays = dict[str, np.ndarray]


def random_array(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Return random elements: floats in [0, 1), integers over their whole range.

    Random, because constant data is compressed by some devices' memory and draws less power.
    """
    kind = np.dtype(dtype)
    if kind.kind == "f":
        draw = np.dtype(np.float64) if kind.itemsize == 8 else np.dtype(np.float32)
        return rng.random(shape, dtype=draw.type).astype(kind, copy=False)
    limits = np.iinfo(kind)
    return rng.integers(limits.min, limits.max, shape, dtype=kind.type, endpoint=True)


def itemsize(problem: Problem) -> int:
    """Return the bytes of an element."""
    return np.dtype(problem.dtype).itemsize


def unit(problem: Problem) -> float:
    """Return by what part of itself a float of the problem's type rounds at most."""
    return float(np.finfo(problem.dtype).eps) / 2
