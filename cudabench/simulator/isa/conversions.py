"""Conversions (PTX ISA 9.7.9.22): cvt and szext.

cvt also converts pairs of 8-bit floats (e4m3, e5m2). A conversion to 8 bits rounds to nearest even; values that are too
large, and infinity, become the largest finite value (.satfinite). A NaN becomes 0x7f in 8 bits and 0x7fff in 16 bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import ml_dtypes
import numpy as np

from cudabench.simulator.isa import rounding
from cudabench.simulator.isa.elementwise import INTEGERS, Function, computes, elementwise, limits
from cudabench.simulator.isa.floating import from_halves, rounding_mode
from cudabench.simulator.isa.opcodes import instruction, refuse
from cudabench.simulator.program.builder import Builder
from cudabench.simulator.program.code import Run
from cudabench.simulator.program.ptx import BITS, Instruction
from cudabench.simulator.values import DTYPES, UNSIGNED, Array

FORMATS = {"e4m3": np.dtype(ml_dtypes.float8_e4m3fn), "e5m2": np.dtype(ml_dtypes.float8_e5m2)}
_LARGEST = {"e4m3": 448.0, "e5m2": 57344.0}
_PAIRS = {  # for the types of results that are pairs: the types of the operands
    "f16x2": ("f32", "e4m3x2", "e5m2x2"), "bf16x2": ("f32",),
    **dict.fromkeys(("e4m3x2", "e5m2x2"), ("f32", "f16x2", "bf16x2")),
}  # fmt: skip
_INTEGRAL: dict[str, Callable[[Array], Array]] = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


def float_to_int(x: Array, mode: str, result: str) -> Array:
    """Return floats converted to the integer type `result`: rounded by `mode`, then clamped to the type's range.

    NaN becomes the value that PTX ISA 9.7.9 (cvt) specifies.
    """
    (low, high), dtype = limits(result), DTYPES[result]
    real, limit = _INTEGRAL[mode](x.astype(np.float64)), float(high + 1)
    inside = np.where((real >= low) & (real < limit), real, 0.0)
    integer = inside.astype(np.uint64 if dtype == np.uint64 else np.int64).astype(dtype)
    integer = np.where(real >= limit, dtype.type(high), np.where(real < low, dtype.type(low), integer))
    wide = x.dtype == np.float64 or dtype.itemsize == 8
    return np.where(np.isnan(real), dtype.type(low or high // 2 + 1 if wide else 0), integer)


def _narrowed(x: Array, type_: str) -> Array:
    """Return floats rounded to an 8-bit float type, as bits (uint8)."""
    limit = x.dtype.type(_LARGEST[type_])
    return np.where(np.isnan(x), np.uint8(0x7F), np.clip(x, -limit, limit).astype(FORMATS[type_]).view(np.uint8))


@instruction("cvt")
def _cvt(builder: Builder, ins: Instruction) -> Run:
    words = ins.modifiers
    if words[0] == "pack":
        return _cvt_pack(builder, ins)
    result, type_ = words[-2:]
    if result in _PAIRS or type_ in _PAIRS:
        return _cvt_pair(builder, ins)
    known = (*INTEGERS, "f16", "bf16", "f32", "f64", "tf32")
    if result not in known or type_ not in known or len(ins.operands) != 2:
        raise refuse(ins)
    saturate, flush = any(word in ("sat", "satfinite") for word in words), "ftz" in words
    if type_ in INTEGERS and result in INTEGERS:
        if saturate:
            (low, high), (least, most) = limits(result), limits(type_)
            return elementwise(builder, ins, (type_,), result, lambda x: np.clip(x, max(low, least), min(high, most)))
        return elementwise(builder, ins, (type_,), result, lambda x: x)
    read = "b16" if type_ in ("f16", "bf16") else type_
    return elementwise(builder, ins, (read,), result, _converter(ins, result, type_, saturate, flush))


def _converter(ins: Instruction, result: str, type_: str, saturate: bool, flush: bool) -> Function:
    """Return the function that converts numbers of a type, as a register holds them, to the type `result`."""
    integral, mode = next((word for word in ins.modifiers if word in _INTEGRAL), None), rounding_mode(ins)
    relu = "relu" in ins.modifiers
    plain = not (integral or saturate or flush or relu)

    def convert(x: Array) -> Array:
        if type_ in ("f16", "bf16"):
            x = from_halves(x, type_)
        elif type_ in FORMATS:
            x = x.view(FORMATS[type_]).astype(np.float16)
        if plain and (result, type_) == ("f32", "bf16"):
            return x  # `from_halves` has already converted x to float32
        if flush and x.dtype == np.float32:
            x = rounding.flush(x)
        if result in INTEGERS:
            return float_to_int(x, integral or "rzi", result)
        return to_float(x, result, mode, integral, saturate, relu, flush)

    return convert


def to_float(x: Array, result: str, mode: str, integral: str | None, saturate: bool, relu: bool, flush: bool) -> Array:
    """Return integers or floats converted to the floating-point type `result`, all but f16, f32 and f64 as bits."""
    if integral is not None:
        x = _INTEGRAL[integral](x)
    if relu:
        x = np.where(x > 0, x, x * 0 if x.dtype.kind != "f" else np.where(np.isnan(x), x, x.dtype.type(0)))
    if result in FORMATS:
        return _narrowed(x, result)
    if result == "bf16":
        return rounding.to_bf16(x if x.dtype.kind == "f" else rounding.odd_sum(*rounding.two_halves(x)), mode)
    if result == "tf32":
        # Round the mantissa to 10 bits, to nearest: ties go away from zero (rna) or to even (rn).
        bits = x.view(np.uint32)
        step = np.uint32(0x1000) if mode != "rn" else np.uint32(0xFFF) + ((bits >> np.uint32(13)) & np.uint32(1))
        converted = np.where(np.isfinite(x), bits + step, bits)
        converted = np.where(np.isnan(x), np.uint32(0x7FFFFFFF), converted) if mode == "rn" else converted
        return converted & np.uint32(0xFFFFE000)
    dtype = DTYPES[result]
    if x.dtype.kind != "f" and mode != "rn":
        converted = rounding.directed(*rounding.two_halves(x), dtype, mode)
    elif x.dtype.kind != "f" and dtype == np.float16:
        # Rounding twice is harmless: integers that float64 cannot represent exceed the largest half.
        converted = x.astype(np.float64).astype(dtype)
    elif mode == "rn" or dtype.itemsize >= x.dtype.itemsize:
        converted = x.astype(dtype)
    else:
        converted = rounding.directed(x, np.zeros_like(x), dtype, mode)
    converted = _with_nan(converted, x)
    if flush and dtype == np.float32:
        converted = rounding.flush(converted)
    return rounding.saturate(converted) if saturate else converted


def _with_nan(converted: Array, x: Array) -> Array:
    """Return `converted` with the NaNs that the hardware writes where x is NaN.

    A conversion from or to float64 keeps the upper bits of the NaN.
    """
    if x.dtype.kind != "f":
        return converted
    if converted.dtype == np.float16 and x.dtype == np.float64:
        wide = x.view(np.uint64)
        bits = wide >> np.uint64(48) & np.uint64(0x8000) | wide >> np.uint64(42) & np.uint64(0x3FF) | np.uint64(0x7E00)
        return np.where(np.isnan(x), bits.astype(np.uint16).view(np.float16), converted)
    if converted.dtype == np.float64:
        return rounding.with_nan(converted, converted)
    return converted if x.dtype == np.float64 else rounding.with_nan(converted)


def _cvt_pair(builder: Builder, ins: Instruction) -> Run:
    """Build a conversion to a pair, from a pair or from two float32, the first of which becomes the upper element."""
    words = ins.modifiers
    result, type_ = words[-2:]
    bits, single = BITS[result] // 2, type_ == "f32"
    known = type_ in _PAIRS.get(result, ()) and len(ins.operands) == 2 + single
    if {result[:-2], type_[:-2]} & FORMATS.keys():
        known &= "rn" in words and set(words[:-2]) <= {"rn", "satfinite", "relu"}
        known &= "satfinite" in words or result == "f16x2"
    if not known:
        raise refuse(ins)
    convert = _converter(ins, result[:-2], type_.removesuffix("x2"), False, False)
    out = UNSIGNED[2 * bits]

    def function(*parts: Array) -> Array:
        if not single:
            half = 4 * parts[0].itemsize
            parts = tuple((parts[0] >> parts[0].dtype.type(shift)).astype(UNSIGNED[half]) for shift in (half, 0))
        high, low = (convert(part).view(UNSIGNED[bits]).astype(out) for part in parts)
        return low | high << out.type(bits)

    return elementwise(builder, ins, ("f32", "f32") if single else (f"b{BITS[type_]}",), f"b{2 * bits}", function)


def _cvt_pack(builder: Builder, ins: Instruction) -> Run:
    """Build cvt.pack.sat: two clamped integers fill the low bits; operand c, if there is one, fills the bits above."""
    result, type_ = ins.modifiers[2:4]
    bits, mask = BITS[result], (1 << BITS[result]) - 1

    def arrays(x: Array, y: Array, above: Array | None = None) -> Array:
        a, b = (np.clip(part.astype(np.int64), *limits(result)) & mask for part in (x, y))
        packed = (a << bits) | b
        if above is not None and bits < 16:
            packed = packed | (above.astype(np.int64) << (2 * bits))
        return (packed & 0xFFFFFFFF).astype(np.uint32)

    return elementwise(builder, ins, (type_, type_, "b32")[: len(ins.operands) - 1], "b32", arrays)


@computes("szext", "t u32 t", words=True)
def _extended(words: Sequence[str], x: Array, length: Array) -> Array:
    """Return the low `length` bits of x, extended by their sign if x is signed, otherwise with zeros."""
    count = (np.minimum(length, 32) if "clamp" in words else length & np.uint32(31)).astype(np.int64)
    wide = x.astype(np.int64) & ((np.int64(1) << count) - 1)
    if x.dtype.kind == "i":
        sign = np.where(count > 0, (wide >> np.maximum(count - 1, 0)) & 1, 0)
        wide = wide - (sign << count)
    return wide.astype(x.dtype)
