"""Element types that NumPy lacks, held as their bits and converted by ml_dtypes, which loads at the first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


def from_bfloat16(bits: np.ndarray) -> np.ndarray:
    """Return bfloat16 bits (uint16) as float32, which holds them exactly."""
    import ml_dtypes
    import numpy as np

    wide: np.ndarray = bits.view(ml_dtypes.bfloat16).astype(np.float32)
    return wide


def to_bfloat16(array: np.ndarray) -> np.ndarray:
    """Return numbers as bfloat16 bits (uint16), by way of float32, to the nearest, ties to even; NaN stays NaN."""
    import ml_dtypes
    import numpy as np

    with np.errstate(over="ignore"):
        return array.astype(np.float32).astype(ml_dtypes.bfloat16).view(np.uint16)
