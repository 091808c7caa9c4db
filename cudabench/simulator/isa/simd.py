"""SIMD video instructions: two 16-bit or four 8-bit integers in a register (PTX ISA 9.7.18).

Operands with a selection or mask of lanes (`%r1.b3210`) are refused.
"""

from __future__ import annotations

import numpy as np

from cudabench.simulator.isa.elementwise import COMPARE, elementwise, limits
from cudabench.simulator.isa.opcodes import instruction, refuse
from cudabench.simulator.isa.video import COMPUTE
from cudabench.simulator.program.builder import Builder
from cudabench.simulator.program.code import Run
from cudabench.simulator.program.ptx import Instruction
from cudabench.simulator.values import Array


def _average(a: Array, b: Array) -> Array:
    """Return the mean, halves away from zero."""
    total = a + b
    return (total + (total >= 0)) >> 1


_COMPUTE = {**COMPUTE, "vavrg": _average}


def lanes_of(words: Array, bits: int, signed: bool) -> Array:
    """Return the parts of 32-bit registers as numbers, (..., 32 / bits), the lowest first."""
    packed = np.ascontiguousarray(words)[..., None]
    return packed.view(np.dtype(f"{'i' if signed else 'u'}{bits // 8}")).astype(np.int64)


@instruction(*(f"{name}{count}" for name in (*_COMPUTE, "vset") for count in (2, 4)))
def _simd(builder: Builder, ins: Instruction) -> Run:
    """Build vadd2, vsub4 and their like; with .add the parts are added to c, else they take its place."""
    name, bits = ins.opcode[:-1], 32 // int(ins.opcode[-1])
    types = [word for word in ins.modifiers if word in ("u32", "s32")]
    if name == "vset":
        compute = COMPARE[next(word for word in ins.modifiers if word in COMPARE)]
        types.insert(0, "u32") if len(types) == 2 else None
    else:
        compute = _COMPUTE[name]
    # What a sum adds that does not fit its part is not specified.
    if len(types) != 3 or len(ins.operands) != 4 or ("add" in ins.modifiers and name in ("vadd", "vsub")):
        raise refuse(ins)
    result, type_a, type_b = types
    saturate, accumulate = "sat" in ins.modifiers, "add" in ins.modifiers

    def arrays(x: Array, y: Array, z: Array) -> Array:
        found = compute(lanes_of(x, bits, type_a == "s32"), lanes_of(y, bits, type_b == "s32")).astype(np.int64)
        if accumulate:
            return (found.sum(axis=-1) + z.astype(np.int64) & 0xFFFFFFFF).astype(np.uint32)
        if saturate:
            found = np.clip(found, *limits(f"{result[0]}{bits}"))
        return np.ascontiguousarray(found.astype(np.dtype(f"u{bits // 8}"))).view(np.uint32)[..., 0]

    return elementwise(builder, ins, ("b32", "b32", "b32"), "b32", arrays)
