"""float64 arithmetic in whole numbers, for operands and results next to the ends of the format.

There the error terms of `rounding` under- or overflow: subnormal numbers, products below 2^-967, values near the
largest. A finite float is an integer times a power of two, so what is exact takes no more than Python's integers.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from cudabench.simulator.values import Array, broadcast

LEAST, MOST = 2.0**-960, 2.0**990  # between which products, and the halves of a split operand, are ordinary
_STICKY = 128  # bits of a quotient or a root; what is beyond them sets the last one

Exact = tuple[int, int]  # (m, e) stands for m * 2^e


def _exact(x: float) -> Exact:
    numerator, denominator = x.as_integer_ratio()
    return numerator, 1 - denominator.bit_length()


def _fma(x: Exact, y: Exact, z: Exact) -> Exact:
    product, low = x[0] * y[0], x[1] + y[1]
    least = min(low, z[1])
    return (product << (low - least)) + (z[0] << (z[1] - least)), least


def _product(x: Exact, y: Exact) -> Exact:
    return x[0] * y[0], x[1] + y[1]


def _divide(x: Exact, y: Exact) -> Exact:
    shift = _STICKY + y[0].bit_length()
    quotient, rest = divmod(abs(x[0]) << shift, abs(y[0]))
    return (1 if (x[0] < 0) == (y[0] < 0) else -1) * (quotient << 1 | (rest != 0)), x[1] - y[1] - shift - 1


def _root(x: Exact) -> Exact:
    shift = 2 * _STICKY + (x[1] & 1)
    size = x[0] << shift
    root = math.isqrt(size)
    return root << 1 | (root * root != size), (x[1] - shift) // 2 - 1


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


def _mend(result: Array, where: Array, function: Callable[..., Exact], mode: str, *arguments: Array) -> Array:
    """Return the result with the chosen elements found anew; they are finite."""
    if not where.any():
        return result
    shape = np.broadcast_shapes(where.shape, *(argument.shape for argument in arguments))
    chosen = np.broadcast_to(where, shape)
    columns: Any = [broadcast(argument, shape)[chosen].tolist() for argument in arguments]
    result = np.array(np.broadcast_to(result, shape))
    result[chosen] = [rounded(function(*map(_exact, row)), mode) for row in zip(*columns, strict=True)]
    return result


def mend_product(result: Array, x: Array, y: Array, error: Array, mode: str) -> Array:
    """Return the products of float64 arrays with those right that are not ordinary; error: what Dekker's leaves."""
    odd = _odd(result, error)
    return _mend(result, odd & _finite(x, y) & (x != 0) & (y != 0), _product, mode, x, y) if odd.any() else result


def mend_fma(result: Array, x: Array, y: Array, z: Array, product: Array, error: Array, mode: str) -> Array:
    """Return x * y + z of float64 arrays with those right that are not ordinary; product and error: Dekker's."""
    odd = _odd(product, error) | ~(np.abs(result) < MOST)
    if not odd.any():
        return result
    zero = ((x == 0) | (y == 0)) & (np.abs(z) < MOST)
    return _mend(result, odd & _finite(x, y, z) & ~zero, _fma, mode, x, y, z)


def mend_quotient(result: Array, x: Array, y: Array, mode: str) -> Array:
    """Return the quotients of float64 arrays with those right that are not ordinary."""
    ordinary = np.ones((1, 1), dtype=bool)
    for value in (x, y, result):
        size = np.abs(value)
        ordinary = ordinary & (size > LEAST) & (size < MOST)
    odd = ~ordinary & _finite(x, y) & (x != 0) & (y != 0)
    return _mend(result, odd, _divide, mode, x, y)


def mend_root(result: Array, x: Array, mode: str) -> Array:
    """Return the square roots of float64 arrays with those right that are not ordinary."""
    return _mend(result, (x > 0) & np.isfinite(x) & ~((x > LEAST) & (x < MOST)), _root, mode, x)


def _odd(product: Array, error: Array) -> Array:
    """Return where the error of a product is no float, or was not found."""
    size = np.abs(product)
    return ~((size > LEAST) & (size < MOST) & np.isfinite(error))


def _finite(*arguments: Array) -> Array:
    return np.logical_and.reduce(np.broadcast_arrays(*map(np.isfinite, arguments)))
