"""Correctly rounded arithmetic that NumPy lacks: fused multiply-add, directed rounding, narrow formats.

Results are computed in a wider precision or as an exact sum of two floats (Knuth's TwoSum, Dekker's product), and then
rounded once. Near the limits of float64, the rounding error of a product may under- or overflow. There, a multiply-add
is computed exactly with Python integers, as a finite float is an integer times a power of two.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from cudabench import floats
from cudabench.simulator.values import Array

F32: np.dtype[Any] = np.dtype(np.float32)
F64: np.dtype[Any] = np.dtype(np.float64)
# If the size of a product is in this range, `two_product` does not overflow or underflow.
LEAST, MOST = 2.0**-960, 2.0**990

Exact = tuple[int, int]  # (m, e) stands for m * 2^e
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
    return _mend_fma(np.where(np.isfinite(sums) & (high != 0), sums, high + z), x, y, z, high, low, "rn")


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


def _product_rest(near: Array, x: Array, y: Array) -> Array:
    (x, along), (y, across) = np.frexp(x), np.frexp(y)
    product, error = two_product(x, y)
    return (product - np.ldexp(near, -(along + across))) + error


def _quotient_rest(near: Array, x: Array, y: Array) -> Array:
    (x, along), (y, across) = np.frexp(x), np.frexp(y)
    product, error = two_product(np.ldexp(near, across - along), y)
    return ((x - product) - error) * np.copysign(1.0, y)


def _root_rest(near: Array, x: Array) -> Array:
    x, along = np.frexp(x)
    product, error = two_product(np.ldexp(near, -(along >> 1)), np.ldexp(near, -(along >> 1)))
    return (np.ldexp(x, along & 1) - product) - error


# Keyed by name: the operation on float64, and a function of its rounded result `near` and its operands. This function
# returns a number with the sign of the exact result minus `near`; it computes with mantissas, so that nothing overflows
# or underflows.
_OPERATIONS: dict[str, tuple[Callable[..., Array], Callable[..., Array]]] = {
    "add": (np.add, lambda near, x, y: two_sum(x, y)[1]),
    "mul": (np.multiply, _product_rest),
    "div": (np.divide, _quotient_rest),
    "sqrt": (np.sqrt, _root_rest),
}


def rounded(name: str, mode: str, *arguments: Array) -> Array:
    """Return the result of operation `name` (add, mul, div or sqrt), rounded by `mode` (rz, rm or rp)."""
    operation, rest_of = _OPERATIONS[name]
    wide = [argument.astype(F64) for argument in arguments]
    near = operation(*wide)
    rest = rest_of(near, *wide)
    finite = _finite(*wide) & ((wide[-1] != 0) | (name != "div"))
    rest = np.where(np.isfinite(rest), rest, np.where(np.isinf(near) & finite, -near, 0.0))
    result = directed(near, rest, arguments[0].dtype, mode)
    if name == "add" and mode == "rm":
        return np.where(_cancelled(near, rest, *wide), result.dtype.type(-0.0), result)
    return result


def fma(x: Array, y: Array, z: Array, mode: str) -> Array:
    """Return x * y + z with one rounding by `mode` (rz, rm or rp)."""
    product, error = two_product(x.astype(F64), y.astype(F64))
    high, low = two_sum(product, z.astype(F64))
    low = odd_sum(np.where(np.isfinite(low), low, 0), np.where(np.isfinite(error), error, 0))
    total, low = two_sum(high, low)
    # If the total is 0, keep `high`: adding 0 would turn -0 into 0.
    high, low = np.where(total == 0, high, total), np.where(np.isfinite(total), low, 0)
    result = directed(high, low, x.dtype, mode)
    if mode == "rm":
        result = np.where(_cancelled(high, low, product, z), x.dtype.type(-0.0), result)
    return _mend_fma(result, x, y, z, product, error, mode) if x.dtype == F64 else result


def _cancelled(high: Array, low: Array, x: Array, y: Array) -> Array:
    """Return a mask of the exact zeros among the sums of x and y, which become -0 when rounding down (IEEE 754, 6.3).

    Sums of two zeros of one sign are not included.
    """
    return (high == 0) & (low == 0) & ~((x == 0) & (y == 0) & (np.signbit(x) == np.signbit(y)))


def _exact(x: float) -> Exact:
    numerator, denominator = x.as_integer_ratio()
    return numerator, 1 - denominator.bit_length()


def _fused(x: Exact, y: Exact, z: Exact) -> Exact:
    product, low = x[0] * y[0], x[1] + y[1]
    least = min(low, z[1])
    return (product << (low - least)) + (z[0] << (z[1] - least)), least


def _nearest(value: Exact, mode: str) -> float:
    """Return m * 2^e as a float64, rounded to nearest (rn), toward zero (rz), down (rm) or up (rp)."""
    m, e = value
    if m == 0:
        return -0.0 if mode == "rm" else 0.0  # the sign of a sum that cancels (IEEE 754, 6.3)
    sign, size = -1.0 if m < 0 else 1.0, abs(m)
    outward = {"rn": True, "rz": False, "rm": m < 0, "rp": m > 0}[mode]  # whether inexact values round away from zero
    drop = max(size.bit_length() - 53, -1074 - e)
    if drop > 0:
        rest, half = size & (1 << drop) - 1, 1 << (drop - 1)
        size, e = size >> drop, e + drop
        size += (rest > half or (rest == half and size & 1)) if mode == "rn" else (rest != 0 and outward)
    if size.bit_length() + e > 1024:
        return sign * (math.inf if outward else sys.float_info.max)
    return sign * math.ldexp(size, e)


def _mend_fma(result: Array, x: Array, y: Array, z: Array, product: Array, error: Array, mode: str) -> Array:
    """Return `result`, computed again with integers where its computation may over- or underflow.

    product, error: what `two_product` returns for x and y.
    """
    size = np.abs(product)
    suspect = ~((size > LEAST) & (size < MOST) & np.isfinite(error)) | ~(np.abs(result) < MOST)
    if not suspect.any():
        return result
    # A product of finite numbers is treated as finite, even if it overflows.
    result = np.where(np.isinf(z) & _finite(x, y), z, result)
    zero = ((x == 0) | (y == 0)) & (np.abs(z) < MOST)
    chosen = suspect & _finite(x, y, z) & ~zero
    if not chosen.any():
        return result
    columns: Any = [np.broadcast_to(argument, chosen.shape)[chosen].tolist() for argument in (x, y, z)]
    result = np.array(np.broadcast_to(result, chosen.shape))
    result[chosen] = [_nearest(_fused(*map(_exact, row)), mode) for row in zip(*columns, strict=True)]
    return result


def _finite(*arguments: Array) -> Array:
    """Return a mask that is true where all arrays are finite."""
    return np.logical_and.reduce(np.broadcast_arrays(*map(np.isfinite, arguments)))


# Formats that NumPy lacks.


def from_bf16(bits: Array) -> Array:
    """Return bfloat16 numbers, given by their bits (uint16), as float32."""
    return floats.from_bfloat16(bits)


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

    For float32 it is always 0x7fffffff. For float64 it is the last operand that is NaN, made quiet; if none is NaN,
    it is 0xfff8000000000000.
    """
    nan = np.isnan(result)
    if not nan.any():
        return result
    if result.dtype == F32:
        return np.where(nan, np.uint32(0x7FFFFFFF).view(F32), result)
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
