"""A B + C as the tensor cores of compute capability 9.0 compute it.

Products are exact. Each sum has L products and C as its addends. All addends are aligned to the largest exponent among
them and truncated to F fraction bits. The sum of these is exact; it is then truncated to a float32 or rounded to the
nearest float16. This scheme is described by Fasi, Higham, Mikaitis and Pranesh, "Numerical behavior of NVIDIA tensor
cores" (PeerJ Comput. Sci. 2021); the values of F and L for compute capability 9.0 were checked on an H100.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from cudabench.simulator.isa.rounding import F64, with_nan
from cudabench.simulator.values import DTYPES, Array


class Sum(NamedTuple):
    """How tensor cores sum products of one type of A and B."""

    length: int  # L: how many products are added at once
    fraction: int  # F: how many fraction bits of each addend are kept
    mantissa: int  # how many mantissa bits a float32 result keeps
    least: int  # the exponent of the type's subnormal numbers


SUMS = {
    "f16": Sum(16, 25, 23, -14),
    "bf16": Sum(16, 25, 23, -126),
    "tf32": Sum(8, 25, 23, -126),
    "e4m3": Sum(32, 13, 13, -6),
    "e5m2": Sum(32, 13, 13, -14),
}


_NOTHING = -4096  # stands for the exponent of zero; less than every real exponent
_LEAST = -400  # less than the exponent of every product
_BIAS, _MANTISSA = 1023, 52  # exponent bias and mantissa bits of float64
PIECE = 1 << 15  # so many results are summed at a time, which fit the CPU's cache


def exponents(x: Array, least: int) -> Array:
    """Return the exponents of float64 numbers (int16), at least `least` as for subnormals; _NOTHING for zeros."""
    stored = ((x.view(np.int64) >> _MANTISSA) & 0x7FF).astype(np.int16) - np.int16(_BIAS)
    return np.where(stored == -_BIAS, np.int16(_NOTHING), np.maximum(stored, np.int16(least)))


def _power(exponent: Array) -> Array:
    return ((exponent.astype(np.int64) + _BIAS) << _MANTISSA).view(F64)


def _last_bit(x: Array, top: int) -> int | None:
    """Return the exponent of the lowest bit set in any of the numbers; None if it is below `top - 40`.

    All numbers are below 2^(top + 1). If all are zero, the exponent is 2^14.
    """
    scaled = x * 2.0 ** (40 - top)
    whole = scaled.astype(np.int64)
    if not np.array_equal(whole, scaled):
        return None
    bits = int(np.bitwise_or.reduce(whole, axis=None))
    return (bits & -bits).bit_length() - 1 - 40 + top if bits else 1 << 14


def cut(x: Array, mantissa: int, least: int = -126) -> Array:
    """Return float64 numbers truncated to `mantissa` fraction bits.

    Numbers below 2^least are truncated to multiples of 2^(least - mantissa), as subnormals of float32 are.
    """
    truncated = (x.view(np.int64) & np.int64(-1 << (_MANTISSA - mantissa))).view(F64)
    tiny = np.abs(x) < 2.0**least
    if tiny.any():
        unit = 2.0 ** (least - mantissa)
        truncated[tiny] = np.trunc(x[tiny] / unit) * unit
    return truncated


def of_warp(a: Array, b: Array, c: Array, type_a: str, type_b: str, outer: str) -> Array:
    """Return A B + C as mma.sync computes it.

    The hardware has no tensor core instruction of a warp for 8-bit floats. It converts them to float16 and sums their
    products from zero: first those of the lower two of the four numbers in each register, then those of the upper two.
    It adds C at the end.
    """
    if type_a not in ("e4m3", "e5m2"):
        return accumulated(a, b, c, type_a, type_b, outer)
    k = np.arange(a.shape[-1])
    order = np.concatenate([k[k % 4 < 2], k[k % 4 >= 2]])
    zero, rule = np.zeros((1,) * c.ndim, c.dtype), SUMS["f16"]._replace(least=SUMS[type_a].least)
    return with_nan(accumulated(a[..., order], b[..., order, :], zero, type_a, type_b, outer, rule) + c)


def accumulated(a: Array, b: Array, c: Array, type_a: str, type_b: str, outer: str, how: Sum | None = None) -> Array:
    """Return A B + C in the type of C, for matrices of shapes (..., m, k), (..., k, n) and (..., m, n).

    how: the parameters of the sum; by default those of `type_a`.
    """
    how = how or SUMS[type_a]
    x, y, total = a.astype(F64), b.astype(F64), c.astype(F64)
    finite = bool(np.isfinite(x).all() and np.isfinite(y).all() and np.isfinite(total).all())
    if not finite:
        plain = np.matmul(x, y) + total
        special = ~np.isfinite(plain)
        x, y, total = (np.where(np.isfinite(part), part, 0.0) for part in (x, y, total))
    for start in range(0, x.shape[-1], how.length):
        part = slice(start, start + how.length)
        total = _step(x[..., :, part], y[..., part, :], total, how, SUMS[type_b].least, outer)
    result = total.astype(DTYPES[outer])
    if not finite:
        result = with_nan(np.where(special, plain.astype(result.dtype), result))
    return result


def _step(x: Array, y: Array, c: Array, rule: Sum, least_y: int, outer: str) -> Array:
    """Return C plus the products of one sum, truncated or rounded to the result's precision, in float64."""
    shape = np.broadcast_shapes((*x.shape[:-1], 1), (*y.shape[:-2], 1, y.shape[-1]), c.shape)
    x, y, c = np.ascontiguousarray(x), np.ascontiguousarray(y), np.broadcast_to(c, shape)
    exponents_x, exponents_y = exponents(x, rule.least), exponents(y, least_y)
    exponents_c = exponents(np.ascontiguousarray(c), -14 if outer == "f16" else -126)
    tops = [max(int(part.max()), _LEAST) for part in (exponents_x, exponents_y, exponents_c)]
    top = max(tops[0] + tops[1], tops[2])
    lowest = [_last_bit(part, upper) for part, upper in zip((x, y, c), tops, strict=True)]
    if None not in lowest and min(lowest[0] + lowest[1], lowest[2]) >= top - rule.fraction:  # type: ignore[operator, type-var]
        total = np.matmul(x, y) + c  # no addend loses bits, so an ordinary sum gives the same result
    else:
        total = np.empty(shape)
        rows = max(1, PIECE // math.prod(shape[1:]))
        for start in range(0, shape[0], rows):
            arrays = (x, y, exponents_x, exponents_y, c, exponents_c)
            parts = (array if len(array) == 1 else array[start : start + rows] for array in arrays)
            total[start : start + rows] = _aligned(parts, rule.fraction)
    return total.astype(np.float16).astype(F64) if outer == "f16" else cut(total, rule.mantissa)


def _aligned(operands: Iterable[Array], fraction: int) -> Array:
    """Return C plus the products, all truncated at the same bit; operands: A, B, their exponents, C, its exponents."""
    x, y, ex, ey, c, ec = operands
    largest = ec
    for k in range(x.shape[-1]):
        largest = np.maximum(largest, ex[..., :, k, None] + ey[..., None, k, :])
    # A lower limit, because the exponent of zero is too small for `_power`.
    largest = np.maximum(largest, np.int16(_LEAST))
    scale = _power(np.int16(fraction) - largest)
    total = np.trunc(c * scale)
    for k in range(x.shape[-1]):
        total += np.trunc(x[..., :, k, None] * y[..., None, k, :] * scale)
    return total * _power(largest - np.int16(fraction))
