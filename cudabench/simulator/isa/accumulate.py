"""How tensor cores of compute capability 9.0 add: products and C are aligned to the largest exponent, cut, and summed.

Products are exact. All addends of one sum, L products and C, are shifted to the largest exponent among them and cut off
below F fraction bits; their sum is exact, and what does not fit the result's mantissa is cut off too (float32), or
rounded to nearest (float16). Fasi, Higham, Mikaitis and Pranesh, "Numerical behavior of NVIDIA tensor cores" (PeerJ
Comput. Sci. 2021), found the scheme; F and L are of this generation, held against an H100.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from cudabench.simulator.values import DTYPES, Array

F64: np.dtype[Any] = np.dtype(np.float64)


class Sum(NamedTuple):
    """How a type of A and B is summed: products at a time, fraction bits kept, bits of a float32 result's mantissa."""

    length: int
    fraction: int
    mantissa: int
    least: int  # the exponent of the type's subnormal numbers


SUMS = {
    "f16": Sum(16, 25, 23, -14),
    "bf16": Sum(16, 25, 23, -126),
    "tf32": Sum(8, 25, 23, -126),
    "e4m3": Sum(32, 13, 13, -6),
    "e5m2": Sum(32, 13, 13, -14),
}


_NOTHING = -4096  # the exponent of a zero, which aligns nothing
_LEAST = -400  # below that of every product
_BIAS, _MANTISSA = 1023, 52  # of float64
PIECE = 1 << 15  # results that are summed at a time, so that they stay in the cache


def exponents(x: Array, least: int) -> Array:
    """Return the exponents of float64 numbers as they are stored: of subnormals the least, of zeros far below."""
    stored = ((x.view(np.int64) >> _MANTISSA) & 0x7FF).astype(np.int16) - np.int16(_BIAS)
    return np.where(stored == -_BIAS, np.int16(_NOTHING), np.maximum(stored, np.int16(least)))


def _power(exponent: Array) -> Array:
    return ((exponent.astype(np.int64) + _BIAS) << _MANTISSA).view(F64)


def _last_bit(x: Array, top: int) -> int | None:
    """Return the exponent of the lowest bit that is set in numbers below 2^(top + 1): None for one below top - 40."""
    scaled = x * 2.0 ** (40 - top)
    whole = scaled.astype(np.int64)
    if not np.array_equal(whole, scaled):
        return None
    bits = int(np.bitwise_or.reduce(whole, axis=None))
    return (bits & -bits).bit_length() - 1 - 40 + top if bits else 1 << 14


def cut(x: Array, mantissa: int, least: int = -126) -> Array:
    """Return float64 numbers cut off to `mantissa` fraction bits, and to the subnormal numbers of float32."""
    found = (x.view(np.int64) & np.int64(-1 << (_MANTISSA - mantissa))).view(F64)
    tiny = np.abs(x) < 2.0**least
    if tiny.any():
        unit = 2.0 ** (least - mantissa)
        found[tiny] = np.trunc(x[tiny] / unit) * unit
    return found


def of_warp(a: Array, b: Array, c: Array, type_a: str, type_b: str, outer: str) -> Array:
    """Return A B + C as mma.sync gives it: tensor cores have no instruction of a warp for 8-bit floats.

    Those are converted to float16 and multiplied from zero, first the lower two of each register's four, and C is added
    at last.
    """
    if type_a not in ("e4m3", "e5m2"):
        return accumulated(a, b, c, type_a, type_b, outer)
    k = np.arange(a.shape[-1])
    order = np.concatenate([k[k % 4 < 2], k[k % 4 >= 2]])
    zero, how = np.zeros((1,) * c.ndim, c.dtype), SUMS["f16"]._replace(least=SUMS[type_a].least)
    return canonical_nan(accumulated(a[..., order], b[..., order, :], zero, type_a, type_b, outer, how) + c)


def canonical_nan(x: Array) -> Array:
    """Return floats with every NaN as the hardware makes it; in place."""
    x[np.isnan(x)] = np.array([0x7FFF if x.itemsize == 2 else 0x7FFFFFFF]).astype(f"u{x.itemsize}").view(x.dtype)[0]
    return x


def accumulated(a: Array, b: Array, c: Array, type_a: str, type_b: str, outer: str, how: Sum | None = None) -> Array:
    """Return A B + C in the type of C, for matrices (..., m, k), (..., k, n) and (..., m, n).

    how: the way to add, if not that of the types.
    """
    how = how or SUMS[type_a]
    x, y, total = a.astype(F64), b.astype(F64), c.astype(F64)
    finite = bool(np.isfinite(x).all() and np.isfinite(y).all() and np.isfinite(total).all())
    if not finite:
        plain = np.matmul(x, y) + total
        mends = ~np.isfinite(plain)
        x, y, total = (np.where(np.isfinite(part), part, 0.0) for part in (x, y, total))
    for start in range(0, x.shape[-1], how.length):
        part = slice(start, start + how.length)
        total = _step(x[..., :, part], y[..., part, :], total, how, SUMS[type_b].least, outer)
    found = total.astype(DTYPES[outer])
    if not finite:
        found = canonical_nan(np.where(mends, plain.astype(found.dtype), found))
    return found


def _step(x: Array, y: Array, c: Array, how: Sum, least_y: int, outer: str) -> Array:
    """Return C plus the products of one sum, rounded as the result is."""
    shape = np.broadcast_shapes((*x.shape[:-1], 1), (*y.shape[:-2], 1, y.shape[-1]), c.shape)
    x, y, c = np.ascontiguousarray(x), np.ascontiguousarray(y), np.broadcast_to(c, shape)
    exponents_x, exponents_y = exponents(x, how.least), exponents(y, least_y)
    exponents_c = exponents(np.ascontiguousarray(c), -14 if outer == "f16" else -126)
    tops = [max(int(part.max()), _LEAST) for part in (exponents_x, exponents_y, exponents_c)]
    top = max(tops[0] + tops[1], tops[2])
    lowest = [_last_bit(part, one) for part, one in zip((x, y, c), tops, strict=True)]
    if None not in lowest and min(lowest[0] + lowest[1], lowest[2]) >= top - how.fraction:  # type: ignore[operator, type-var]
        total = np.matmul(x, y) + c  # nothing is cut off
    else:
        total = np.empty(shape)
        rows = max(1, PIECE // (shape[-1] * shape[-2] * (shape[1] if len(shape) > 3 else 1)))
        for start in range(0, shape[0], rows):
            part = slice(start, start + rows)
            both = (each if len(each) == 1 else each[part] for each in (x, y, exponents_x, exponents_y))
            _aligned(both, c[part], exponents_c[part], how.fraction, total[part])
    return total.astype(np.float16).astype(F64) if outer == "f16" else cut(total, how.mantissa)


def _aligned(both: Iterable[Array], c: Array, ec: Array, fraction: int, total: Array) -> None:
    """Fill `total` with C plus products, each cut off to the same last bit; both: A and B, and their exponents."""
    x, y, ex, ey = both
    largest = ec.copy()
    sums: Array = np.empty(total.shape, np.int16)
    for k in range(x.shape[-1]):
        np.add(ex[..., :, k, None], ey[..., None, k, :], out=sums)
        np.maximum(largest, sums, out=largest)
    np.maximum(largest, np.int16(_LEAST), out=largest)  # where all are zero
    scale = _power(np.int16(fraction) - largest)
    np.multiply(c, scale, out=total)
    np.trunc(total, out=total)
    held = np.empty(total.shape)
    for k in range(x.shape[-1]):
        np.multiply(x[..., :, k, None], y[..., None, k, :], out=held)
        np.multiply(held, scale, out=held)
        np.trunc(held, out=held)
        np.add(total, held, out=total)
    np.multiply(total, _power(largest - np.int16(fraction)), out=total)
