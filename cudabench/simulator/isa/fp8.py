"""Conversions of 8-bit floats, e4m3 and e5m2, which come in pairs (PTX ISA 9.7.9.22, cvt).

Values go to 8 bits by rounding to nearest even; what is too large, infinity included, becomes the largest finite value
(.satfinite). A NaN becomes the one NaN 0x7f, and 0x7fff in 16 bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np

from cudabench.simulator.isa import rounding
from cudabench.simulator.isa.opcodes import refuse
from cudabench.simulator.program.builder import Builder
from cudabench.simulator.program.code import Run
from cudabench.simulator.program.ptx import Instruction
from cudabench.simulator.values import DTYPES, UNSIGNED, Array, canonical

if TYPE_CHECKING:
    from cudabench.simulator.machine import Machine

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
    target = builder.target(ins.operands[0])
    if result == "f16x2":
        packed = builder.source(ins.operands[1], "b16")

        def widen(machine: Machine) -> None:
            bits = machine.array(packed, UNSIGNED[16])
            low, high = (widened(bits >> np.uint16(shift), type_, relu).astype(np.uint32) for shift in (0, 8))
            machine.put(target, canonical(low | high << np.uint32(16)))

        return widen
    if result not in FORMATS or type_ not in ("f32", "f16x2", "bf16x2") or "satfinite" not in words:
        raise refuse(ins)
    read = "f32" if type_ == "f32" else "b32"
    sources = [builder.source(operand, read) for operand in ins.operands[1:]]
    if len(sources) != (2 if type_ == "f32" else 1):
        raise refuse(ins)

    def narrow(machine: Machine) -> None:
        if type_ == "f32":
            high, low = (machine.array(source, DTYPES["f32"]) for source in sources)
        else:
            bits = machine.array(sources[0], UNSIGNED[32])
            halves = [(bits >> np.uint32(shift)).astype(np.uint16) for shift in (0, 16)]
            low, high = (h.view(np.float16) if type_ == "f16x2" else rounding.from_bf16(h) for h in halves)
        found = narrowed(low, result, relu) | narrowed(high, result, relu) << np.uint16(8)
        machine.put(target, canonical(found))

    return narrow
