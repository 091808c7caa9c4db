"""Correctly rounded arithmetic that NumPy lacks: fused multiply-add, directed rounding, narrow formats.

Results are computed in a wider precision or as an exact sum of two floats (Knuth's TwoSum, Dekker's product), and then
rounded once. Near the limits of float64, the rounding error of a product may under- or overflow. There, and for
directed rounding of float64, the result is computed exactly with fractions.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from cudabench import floats
from cudabench.simulator.values import Array

F32: np.dtype[Any] = np.dtype(np.float32)
F64: np.dtype[Any] = np.dtype(np.float64)
# If the size of a product is in this range, `two_product` does not overflow or underflow.
LEAST, MOST = 2.0**-960, 2.0**990

_ROOT_BITS = 1200  # enough bits after the point for the exact square of each float64 and for the bits of its root
_SPLITTER = 134217729.0  # 2^27 + 1
_HALFWAY = np.uint64(0x10000000)
_SMALLEST = np.float32(1.17549435e-38)
_LOW29 = np.uint64(0x1FFFFFFF)


def two_sum(x: Array, y: Array) -> tuple[Array, Array]:
    """Return (s, e) with s = x + y rounded and s + e = x + y exactly."""
    total = x + y
    part = total - x
    return total, (x - (total - part)) + (y - part)


def two_product(x: Array, y: Array) -> tuple[Array, Array]:
    """Return (p, e) with p = x * y rounded and p + e = x * y exactly, for float64 without over- or underflow."""
    product = x * y
    big = x * _SPLITTER
    x1 = big - (big - x)
    x0 = x - x1
    big = y * _SPLITTER
    y1 = big - (big - y)
    y0 = y - y1
    return product, ((x1 * y1 - product) + x1 * y0 + x0 * y1) + x0 * y0


def odd_sum(x: Array, y: Array) -> Array:
    """Return x + y rounded to odd: the last bit of an inexact result is 1.

    If it is then rounded to fewer bits, the second result is the correctly rounded sum.
    """
    total, error = two_sum(x, y)
    bits = total.view(np.int64)
    even = (error != 0) & ((bits & 1) == 0) & np.isfinite(total)
    # Step toward the exact sum: away from zero if the error has the sign of the sum.
    step = np.where((error > 0) == (total > 0), 1, -1)
    return np.where(even, bits + step, bits).view(np.float64)


def fma32(x: Array, y: Array, z: Array) -> Array:
    """Return x * y + z with one rounding, for float32 arrays that broadcast.

    The product is exact in float64. Where the float64 sum is halfway between two float32 values, or the result is
    subnormal, the rounding error of that sum decides the result; these few results are computed again by `odd_sum`.
    """
    total = np.asarray(np.multiply(x, y, dtype=F64) + z)
    result = total.astype(F32)
    suspect = ((total.view(np.uint64) & _LOW29) == _HALFWAY) | (np.abs(result) < _SMALLEST)
    suspect &= (total != 0) & np.isfinite(total)
    if suspect.any():
        a, b, c = (np.broadcast_to(value, result.shape)[suspect].astype(F64) for value in (x, y, z))
        result[suspect] = odd_sum(a * b, c).astype(F32)
    return result


def fma64(x: Array, y: Array, z: Array) -> Array:
    """Return x * y + z with one rounding, for float64 arrays that broadcast.

    The method is that of Boldo and Melquiond (IEEE Trans. Comp. 2008).
    """
    high, low = two_product(x, y)
    top, rest = two_sum(z, low)
    head, tail = two_sum(high, top)
    sums = head + odd_sum(tail, rest)
    result = np.where(np.isfinite(sums) & (high != 0), sums, high + z)
    size = np.abs(high)
    suspect = ~((size > LEAST) & (size < MOST) & np.isfinite(low)) | ~(np.abs(result) < MOST)
    suspect &= ~(((x == 0) | (y == 0)) & (np.abs(z) < MOST))
    if suspect.any():
        operands = (np.broadcast_to(value, suspect.shape)[suspect] for value in (x, y, z))
        result[suspect] = _exactly("fma", "rn", *operands)
    return result


def directed(high: Array, low: Array, dtype: np.dtype[Any], mode: str) -> Array:
    """Return high + low rounded to `dtype` toward zero (rz), minus infinity (rm) or plus infinity (rp).

    Only the sign of `low` is used where `high` is a value of `dtype`.
    """
    near = high.astype(dtype)
    back = near.astype(high.dtype)
    # Two masks: where the exact value is above the nearest float, and where the exact value is below the nearest float.
    above = (back < high) | ((back == high) & (low > 0))
    below = (back > high) | ((back == high) & (low < 0))
    infinite = np.isinf(near) & np.isfinite(high)
    down = np.nextafter(near, dtype.type(-np.inf))
    up = np.nextafter(near, dtype.type(np.inf))
    lowers, raises = below & ((near > 0) | (mode == "rm")), above & ((near < 0) | (mode == "rp"))
    result = np.where(lowers & (mode != "rp"), down, np.where(raises & (mode != "rm"), up, near))
    if infinite.any():
        largest = np.finfo(dtype).max
        limit = {"rm": np.where(near > 0, largest, near), "rp": np.where(near < 0, -largest, near)}
        result = np.where(infinite, limit.get(mode, np.copysign(largest, near)), result)
    # A value that is rounded to zero keeps its sign.
    return np.where(result == 0, np.copysign(result, np.where(high == 0, near, high)), result).astype(dtype)


def _root(x: Fraction) -> Fraction:
    """Return a number that is rounded to float64 as the square root of x is."""
    whole = int(x * 4**_ROOT_BITS)
    root = math.isqrt(whole)
    return Fraction(2 * root + (root * root != whole), 2 << _ROOT_BITS)


def _fused(x: Array, y: Array, z: Array) -> Array:
    """Return x * y + z; a product of finite numbers is treated as finite, even if it overflows."""
    return np.where(np.isinf(z) & np.isfinite(x) & np.isfinite(y), z, x * y + z)


# Keyed by name: the operation on float64, the operation on fractions, and a function of the result on float64 and of
# operands that are float32 numbers. This function returns a number with the sign of the exact result minus that result.
_OPERATIONS: dict[str, tuple[Callable[..., Array], Callable[..., Fraction], Callable[..., Array]]] = {
    "add": (np.add, operator.add, lambda near, x, y: two_sum(x, y)[1]),
    "mul": (np.multiply, operator.mul, lambda near, x, y: np.zeros_like(near)),
    "div": (np.divide, operator.truediv, lambda near, x, y: _missing(x, near, y) * np.copysign(1.0, y)),
    "sqrt": (np.sqrt, _root, lambda near, x: _missing(x, near, near)),
    "fma": (_fused, lambda x, y, z: x * y + z, lambda near, x, y, z: two_sum(x * y, z)[1]),
}


_SUMS = ("add", "fma")  # if a sum cancels, it is -0 when rounding down (IEEE 754, 6.3)


def _missing(x: Array, y: Array, z: Array) -> Array:
    """Return x - y * z, with one rounding after the exact product."""
    product, error = two_product(y, z)
    return (x - product) - error


def rounded(name: str, mode: str, *arguments: Array) -> Array:
    """Return the result of operation `name` (add, mul, div, sqrt or fma), rounded by `mode` (rz, rm or rp)."""
    dtype = arguments[0].dtype
    if dtype == F64:
        return _exactly(name, mode, *arguments)
    wide = [argument.astype(F64) for argument in arguments]
    near = _OPERATIONS[name][0](*wide)
    rest = _OPERATIONS[name][2](near, *wide)
    rest = np.where(np.isfinite(rest), rest, 0.0)
    result = directed(near, rest, dtype, mode)
    if mode != "rm" or name not in _SUMS:
        return result
    cancels = np.signbit(math.prod(wide[:-1])) != np.signbit(wide[-1])
    return np.where((near == 0) & (rest == 0) & cancels, dtype.type(-0.0), result)


def _exactly(name: str, mode: str, *arguments: Array) -> Array:
    """Return the result of an operation on float64 numbers, computed exactly with fractions and then rounded."""
    plain, exact, _ = _OPERATIONS[name]
    toward = {"rz": 0.0, "rm": -math.inf, "rp": math.inf}.get(mode)

    def compute(near: float, *operands: float) -> float:
        undefined = math.isnan(near) or (name == "div" and operands[1] == 0)
        if undefined or not all(map(math.isfinite, operands)):
            return near
        value = exact(*map(Fraction, operands))
        if not value:
            cancels = math.copysign(1.0, math.prod(operands[:-1])) != math.copysign(1.0, operands[-1])
            return -0.0 if mode == "rm" and name in _SUMS and cancels else near
        try:
            near = float(value)
        except OverflowError:
            near = math.inf if value > 0 else -math.inf
        beyond = {"rz": abs(near) > abs(value), "rm": near > value, "rp": near < value}.get(mode, False)
        return near if toward is None or not beyond else float(np.nextafter(near, toward))

    computed = np.frompyfunc(compute, len(arguments) + 1, 1)(plain(*arguments), *arguments)
    return np.asarray(computed, dtype=F64)


# Formats that NumPy lacks.


def to_bf16(x: Array, mode: str = "rn") -> Array:
    """Return float32 or float64 values rounded to bfloat16; the result holds their bits (uint16)."""
    if x.dtype == F64:
        # Round to odd in float32 first: then the second rounding, to bfloat16, is correct.
        near = x.astype(F32)
        bits = near.view(np.uint32)
        inexact = (near.astype(F64) != x) & ((bits & np.uint32(1)) == 0) & np.isfinite(near)
        step = np.where(np.abs(near.astype(F64)) < np.abs(x), 1, -1).astype(np.int64)
        x = np.where(inexact, bits.astype(np.int64) + step, bits).astype(np.uint32).view(F32)
    x = np.asarray(x, dtype=F32)
    bits = x.view(np.uint32)
    if mode == "rn":
        upper = floats.to_bfloat16(x).astype(np.uint32)
    else:
        up = (bits & np.uint32(0xFFFF) != 0) & (np.signbit(x) == (mode == "rm")) & (mode != "rz")
        upper = (bits >> np.uint32(16)) + up.astype(np.uint32)
    return np.where(np.isnan(x), np.uint32(0x7FFF), upper).astype(np.uint16)


def two_halves(x: Array) -> tuple[Array, Array]:
    """Return integers as sums of two float64: (s, e), where s is x rounded, and s + e is exactly x."""
    x = x.astype(np.int64 if x.dtype.kind == "i" else np.uint64)
    low = x & x.dtype.type(0xFFFFFFFF)
    return two_sum((x - low).astype(F64), low.astype(F64))


def with_nan(result: Array, *operands: Array) -> Array:
    """Return `result` with each NaN replaced by the NaN that the hardware gives (measured on an H100).

    For float16 it is always 0x7fff, and for float32 0x7fffffff. For float64 it is the last operand that is NaN, made
    quiet; if none is NaN, it is 0xfff8000000000000.
    """
    nan = np.isnan(result)
    if not nan.any():
        return result
    if result.dtype != F64:
        single = np.uint32(0x7FFFFFFF) if result.dtype == F32 else np.uint16(0x7FFF)
        return np.where(nan, single.view(result.dtype), result)
    bits = np.uint64(0xFFF8000000000000)
    for operand in operands:
        bits = np.where(np.isnan(operand), operand.view(np.uint64) | np.uint64(1 << 51), bits)
    return np.where(nan, bits.view(F64), result)


def flush(x: Array) -> Array:
    """Return x with each subnormal replaced by a zero of the same sign (.ftz)."""
    tiny = np.abs(x) < np.finfo(x.dtype).tiny
    if tiny.any():
        return np.where(tiny, np.copysign(x.dtype.type(0), x), x)
    return x


def saturate(x: Array) -> Array:
    """Return x clamped to [0, 1]; NaN becomes 0 (.sat)."""
    return np.where(x > 0, np.minimum(x, x.dtype.type(1)), x.dtype.type(0)).astype(x.dtype)
