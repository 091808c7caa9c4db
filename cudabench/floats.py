"""Converts numbers to and from bfloat16. NumPy lacks this type, so arrays contain bfloat16 numbers as bit patterns of
type uint16. The package ml_dtypes, imported at the first use, converts them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


def from_bfloat16(bits: np.ndarray) -> np.ndarray:
    """Return bfloat16 bit patterns (uint16) as float32 numbers; the conversion is exact."""
    import ml_dtypes
    import numpy as np

    wide: np.ndarray = bits.view(ml_dtypes.bfloat16).astype(np.float32)
    return wide


def to_bfloat16(array: np.ndarray) -> np.ndarray:
    """Return numbers as bfloat16 bit patterns (uint16).

    The numbers are first converted to float32, then rounded to the nearest bfloat16, ties to even; NaN stays NaN.
    """
    import ml_dtypes
    import numpy as np

    with np.errstate(over="ignore"):
        return array.astype(np.float32).astype(ml_dtypes.bfloat16).view(np.uint16)
