"""How tensor cores of compute capability 9.0 add: products and C are aligned to the largest exponent, cut, and summed.

Products are exact. All addends of one sum, L products and C, are shifted to the largest exponent among them and cut off
below F fraction bits; their sum is exact, and what does not fit the result's mantissa is cut off too (float32), or
rounded to nearest (float16). Fasi, Higham, Mikaitis and Pranesh, "Numerical behavior of NVIDIA tensor cores" (PeerJ
Comput. Sci. 2021), found the scheme; F and L are of this generation, held against an H100.
"""

from __future__ import annotations

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


def exponents(x: Array, least: int) -> Array:
    """Return the exponents of numbers as they are stored: of subnormals and zeros the least."""
    return np.maximum(np.frexp(x)[1] - 1, least).astype(np.int32)


def _last_bit(x: Array) -> int | None:
    """Return the exponent of the lowest bit that is set in any of the numbers; None where all are zero."""
    some = x[x != 0]
    if not some.size:
        return None
    mantissa, exponent = np.frexp(some)
    whole = np.ldexp(mantissa, 53).astype(np.int64)
    lowest = np.frexp((whole & -whole).astype(F64))[1] - 1
    return int((exponent - 53 + lowest).min())


def cut(x: Array, mantissa: int, least: int = -126) -> Array:
    """Return float64 numbers cut off to `mantissa` fraction bits, and to the subnormal numbers of float32."""
    unit = exponents(x, least) - mantissa
    with np.errstate(invalid="ignore"):
        return np.ldexp(np.trunc(np.ldexp(x, -unit)), unit)


def accumulated(a: Array, b: Array, c: Array, type_a: str, type_b: str, outer: str) -> Array:
    """Return A B + C in the type of C, for matrices (..., m, k), (..., k, n) and (..., m, n)."""
    how = SUMS[type_a]
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
        found = np.where(mends, plain.astype(found.dtype), found)
        found[np.isnan(found)] = np.array([0x7FFF if outer == "f16" else 0x7FFFFFFF]).astype(
            f"u{found.dtype.itemsize}"
        ).view(found.dtype)[0]
    return found


def _step(x: Array, y: Array, c: Array, how: Sum, least_y: int, outer: str) -> Array:
    """Return C plus the products of one sum, rounded as the result is."""
    exponents_x, exponents_y = exponents(x, how.least), exponents(y, least_y)
    exponents_c = exponents(c, -14 if outer == "f16" else -126)
    top = max(int(exponents_x.max()) + int(exponents_y.max()), int(exponents_c.max()))
    lowest_x, lowest_y, lowest_c = _last_bit(x), _last_bit(y), _last_bit(c)
    lowest = [lowest_c] if lowest_c is not None else []
    if lowest_x is not None and lowest_y is not None:
        lowest.append(lowest_x + lowest_y)
    if not lowest or min(lowest) >= top - how.fraction:  # nothing is cut off
        total = np.matmul(x, y) + c
    else:
        total = _aligned(x, y, c, exponents_x, exponents_y, exponents_c, how.fraction)
    return total if outer == "f16" else cut(total, how.mantissa)


def _aligned(x: Array, y: Array, c: Array, ex: Array, ey: Array, ec: Array, fraction: int) -> Array:
    shape = np.broadcast_shapes(x.shape[:-1] + (1,), y.shape[:-2] + (1, y.shape[-1]), c.shape)
    largest = np.broadcast_to(ec, shape).copy()
    depth = x.shape[-1]
    for k in range(depth):
        np.maximum(largest, ex[..., :, k, None] + ey[..., None, k, :], out=largest)
    scale = np.ldexp(1.0, fraction - largest)
    total = np.trunc(c * scale)
    held = np.empty(shape)
    for k in range(depth):
        np.multiply(x[..., :, k, None], y[..., None, k, :], out=held)
        held *= scale
        np.trunc(held, out=held)
        total += held
    return np.ldexp(total, largest - fraction)
