"""The operations: one module each, imported when it is used, so that `--help` does not import NumPy.

A new operation is a module here that defines `OPERATION`, a chapter in `kernels_cu/` and a line in `SUMMARIES`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cudabench.records.plan import Operation

SUMMARIES = {
    "transpose": "Matrix transpose, from one element a thread to 16-byte accesses near copy speed.",
    "matmul": "Matrix product, from one element a thread to tensor cores.",
    "matvec": "Matrix times vector, from a thread a row to several rows or a part of a row a warp.",
    "distance": "Distance of two vectors: a reduction, from two passes to one.",
    "pi": "Pi by the midpoint rule, bound by arithmetic instead of memory.",
    "solve": "Linear system by elimination, from four launches a column to panels of a cluster.",
    "grayscale": "Colour picture to grey, from one pixel a thread to 16-byte accesses.",
    "blur": "Mean over a square neighbourhood, from one pixel a thread to sliding sums.",
    "vecadd": "Vector addition, the smallest kernel that streams.",
    "lookup": "Random reads of a small table: global, constant, shared and texture memory.",
}


def get(name: str) -> Operation:
    """Return the operation with this name. Raises UsageError for an unknown name."""
    from cudabench.errors import UsageError, did_you_mean

    if name not in SUMMARIES:
        hint = did_you_mean(name, SUMMARIES)
        raise UsageError(f"unknown operation '{name}'; use one of {', '.join(SUMMARIES)}.{hint}")
    operation: Operation = import_module(f"cudabench.operations.{name}").OPERATION
    return operation
