"""Values held to the shape and type of an array: what an expression gave, or a file held."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cudabench.errors import UsageError
from cudabench.floats import to_bfloat16


def shape_text(shape: Sequence[int]) -> str:
    """Return a shape as the command line writes it: [64,32]."""
    return f"[{','.join(map(str, shape))}]"


def storage(dtype: str) -> str:
    """Return the NumPy type that holds elements of a type: that of the bits for bfloat16."""
    return "uint16" if dtype == "bfloat16" else dtype


def conform(value: Any, name: str, shape: tuple[int, ...], dtype: str, option: str, *, constant: bool) -> np.ndarray:
    """Return a value as an array of a name, shape and type; UsageError, which names the option, where it is of others.

    A constant fills the whole array.
    """
    if isinstance(value, (tuple, list)):
        raise UsageError(f"{option} is a list of {len(value)} values: write np.array(...) or np.stack(...).")
    value = np.asarray(value)
    wanted = shape_text(shape)
    if value.shape != shape:
        fills = constant and value.ndim == 0
        if not fills and not (value.ndim == 0 and shape == (1,)):
            have = f"has shape {shape_text(value.shape)}" if value.ndim else "is one number"
            hint = " Write np.reshape(...)." if value.size == int(np.prod(shape)) else ""
            raise UsageError(f"{option} {have}; {name} has shape {wanted}.{hint}")
        value = np.broadcast_to(value, shape)
    if dtype == "bfloat16" and value.dtype != np.uint16:  # a file may hold the bits
        exact = conform(value, name, shape, "float32", option, constant=constant)
        return to_bfloat16(exact)
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
                f"{option} runs from {int(value.min())} to {int(value.max())}; {name}, {dtype}, holds "
                f"{limits.min} to {limits.max}: write np.{dtype}(...) around it to wrap as C does."
            )
    elif whole and value.dtype.kind != "b" and value.size and not {*np.unique(value)} <= {0, 1}:
        raise UsageError(f"{option} has other values than 0 and 1; {name} is bool: write a comparison.")
    with np.errstate(all="ignore"):
        return np.ascontiguousarray(value.astype(kind))
