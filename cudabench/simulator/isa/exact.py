"""float64 multiply-add in whole numbers, for operands and results next to the ends of the format.

There the error terms of `rounding` under- or overflow: subnormal numbers, products below 2^-967, values near the
largest. A finite float is an integer times a power of two, so what is exact takes no more than Python's integers.
"""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np

from cudabench.simulator.values import Array

LEAST, MOST = 2.0**-960, 2.0**990  # between which products, and the halves of a split operand, are ordinary

Exact = tuple[int, int]  # (m, e) stands for m * 2^e


def _exact(x: float) -> Exact:
    numerator, denominator = x.as_integer_ratio()
    return numerator, 1 - denominator.bit_length()


def _fma(x: Exact, y: Exact, z: Exact) -> Exact:
    product, low = x[0] * y[0], x[1] + y[1]
    least = min(low, z[1])
    return (product << (low - least)) + (z[0] << (z[1] - least)), least


def rounded(value: Exact, mode: str) -> float:
    """Return m * 2^e as a float64, rounded to nearest (rn), toward zero (rz), down (rm) or up (rp)."""
    m, e = value
    if m == 0:
        return -0.0 if mode == "rm" else 0.0  # of a sum that cancels (IEEE 754, 6.3)
    sign, size = -1.0 if m < 0 else 1.0, abs(m)
    away = {"rn": True, "rz": False, "rm": m < 0, "rp": m > 0}[mode]  # what overflows, or lies between
    drop = max(size.bit_length() - 53, -1074 - e)
    if drop > 0:
        rest, half = size & (1 << drop) - 1, 1 << (drop - 1)
        size, e = size >> drop, e + drop
        size += (rest > half or (rest == half and size & 1)) if mode == "rn" else (rest != 0 and away)
    if size.bit_length() + e > 1024:
        return sign * (math.inf if away else sys.float_info.max)
    return sign * math.ldexp(size, e)


def mend_fma(result: Array, x: Array, y: Array, z: Array, product: Array, error: Array, mode: str) -> Array:
    """Return x * y + z of float64 arrays with those right that are not ordinary; product and error: Dekker's."""
    size = np.abs(product)
    odd = ~((size > LEAST) & (size < MOST) & np.isfinite(error)) | ~(np.abs(result) < MOST)
    if not odd.any():
        return result
    zero = ((x == 0) | (y == 0)) & (np.abs(z) < MOST)
    where = odd & finite(x, y, z) & ~zero
    if not where.any():
        return result
    columns: Any = [np.broadcast_to(argument, where.shape)[where].tolist() for argument in (x, y, z)]
    result = np.array(np.broadcast_to(result, where.shape))
    result[where] = [rounded(_fma(*map(_exact, row)), mode) for row in zip(*columns, strict=True)]
    return result


def finite(*arguments: Array) -> Array:
    """Return where all of some arrays are finite."""
    return np.logical_and.reduce(np.broadcast_arrays(*map(np.isfinite, arguments)))
