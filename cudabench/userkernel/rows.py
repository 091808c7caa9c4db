"""Arrays that a kernel takes as pointers to their rows: `float **a`."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from cudabench.errors import UsageError
from cudabench.records.launch import Rows
from cudabench.source.records import Kernel, Parameter
from cudabench.userkernel.conforming import shape_text
from cudabench.userkernel.values import Array


def of_pointers(parameter: Parameter) -> bool:
    """Return whether a parameter points at pointers to numbers or structs, as `float **a` does."""
    return parameter.pointer and parameter.type.endswith("*") and not parameter.type.endswith("**")


def row_of(parameter: Parameter) -> Parameter:
    """Return the parameter that one row would be: `float *a` for `float **a`."""
    return replace(parameter, type=parameter.type[:-1].rstrip(), element=parameter.element[:-1])


def rows_of(array: Array, parameter: Parameter, kernel: Kernel, where: str) -> Array:
    """Return an array that goes to the kernel as pointers to its rows. Raises UsageError where it has no rows."""
    if len(array.shape) < 2:
        raise UsageError(
            f"{where}: '{parameter}' in {kernel.signature} is an array of pointers, one to each row, and "
            f"{array.dtype}{shape_text(array.shape)} has no rows: give rows and columns, as in "
            f"--arg '{array.name}={array.dtype}[16,{array.shape[0]}]:random'."
        )
    pitch = math.prod(array.shape[1:]) * np.dtype(array.storage).itemsize
    return replace(array, view=Rows(array.name, array.shape[0], pitch))
