"""Conversions of 8-bit floats, e4m3 and e5m2, which come in pairs (PTX ISA 9.7.9.22, cvt).

Values go to 8 bits by rounding to nearest even; what is too large, infinity included, becomes the largest finite value
(.satfinite). A NaN becomes the one NaN 0x7f, and 0x7fff in 16 bits.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

from cudabench.simulator.isa.elementwise import elementwise
from cudabench.simulator.isa.floating import from_halves
from cudabench.simulator.isa.opcodes import refuse
from cudabench.simulator.program.builder import Builder
from cudabench.simulator.program.code import Run
from cudabench.simulator.program.ptx import Instruction
from cudabench.simulator.values import Array

FORMATS = {"e4m3x2": np.dtype(ml_dtypes.float8_e4m3fn), "e5m2x2": np.dtype(ml_dtypes.float8_e5m2)}
LARGEST = {"e4m3x2": 448.0, "e5m2x2": 57344.0}
_NAN, _HALF_NAN = np.uint16(0x7F), np.uint16(0x7FFF)


def narrowed(x: Array, type_: str, relu: bool) -> Array:
    """Return floats as the bits of an 8-bit float, in uint16."""
    dtype = FORMATS[type_]
    limit = LARGEST[type_]
    held = np.clip(x, x.dtype.type(-limit), x.dtype.type(limit))
    bits = held.astype(dtype).view(np.uint8).astype(np.uint16)
    if relu:
        bits = np.where(bits & np.uint16(0x80), np.uint16(0), bits)
    return np.where(np.isnan(x), _NAN, bits)


def widened(bits: Array, type_: str, relu: bool) -> Array:
    """Return the low byte, as an 8-bit float, as the bits of a float16."""
    half = bits.astype(np.uint8).view(FORMATS[type_]).astype(np.float16)
    found = half.view(np.uint16)
    if relu:
        found = np.where(found >> np.uint16(15), np.uint16(0), found)
    return np.where(np.isnan(half), _HALF_NAN, found)


def build_cvt_fp8(builder: Builder, ins: Instruction) -> Run:
    """Build cvt between two 8-bit floats and two float32, float16 or bfloat16; of two operands the first is above."""
    words = ins.modifiers
    result, type_ = words[-2:]
    relu = "relu" in words
    if "rn" not in words or set(words[:-2]) - {"rn", "satfinite", "relu"}:
        raise refuse(ins)
    if result == "f16x2":

        def widen(bits: Array) -> Array:
            low, high = (widened(bits >> np.uint16(shift), type_, relu).astype(np.uint32) for shift in (0, 8))
            return low | high << np.uint32(16)

        return elementwise(builder, ins, ("b16",), "b32", widen)
    operands = ("f32", "f32") if type_ == "f32" else ("b32",)
    known = result in FORMATS and type_ in ("f32", "f16x2", "bf16x2") and "satfinite" in words
    if not known or len(ins.operands) != 1 + len(operands):
        raise refuse(ins)

    def narrow(*parts: Array) -> Array:
        if type_ != "f32":
            parts = tuple(from_halves((parts[0] >> np.uint32(shift)).astype(np.uint16), type_) for shift in (16, 0))
        high, low = (narrowed(part, result, relu) for part in parts)
        return low | high << np.uint16(8)

    return elementwise(builder, ins, operands, "b16", narrow)
