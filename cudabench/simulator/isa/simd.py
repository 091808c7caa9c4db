"""SIMD video instructions: two 16-bit or four 8-bit integers in a register (PTX ISA 9.7.18).

Operands with a selection or mask of lanes (`%r1.b3210`) are refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from cudabench.simulator.isa.opcodes import instruction, refuse
from cudabench.simulator.program.builder import Builder
from cudabench.simulator.program.code import Run
from cudabench.simulator.program.ptx import Instruction
from cudabench.simulator.values import UNSIGNED, Array, canonical

if TYPE_CHECKING:
    from cudabench.simulator.machine import Machine

_COMPARE: dict[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip


def _average(a: Array, b: Array) -> Array:
    """Return the mean, halves away from zero."""
    total = a + b
    return (total + (total >= 0)) >> 1


_COMPUTE: dict[str, Callable[[Array, Array], Array]] = {
    "vadd": lambda a, b: a + b, "vsub": lambda a, b: a - b, "vabsdiff": lambda a, b: np.abs(a - b),
    "vavrg": _average, "vmin": np.minimum, "vmax": np.maximum,
}  # fmt: skip


def lanes_of(words: Array, bits: int, signed: bool) -> Array:
    """Return the parts of 32-bit registers as numbers, (..., 32 / bits), the lowest first."""
    packed = np.ascontiguousarray(words)[..., None]
    return packed.view(np.dtype(f"{'i' if signed else 'u'}{bits // 8}")).astype(np.int64)


@instruction(*(f"{name}{count}" for name in (*_COMPUTE, "vset") for count in (2, 4)))
def build_simd(builder: Builder, ins: Instruction) -> Run:
    """Build vadd2, vsub4 and their like; with .add the parts are added to c, else they take its place."""
    name, bits = ins.opcode[:-1], 32 // int(ins.opcode[-1])
    types = [word for word in ins.modifiers if word in ("u32", "s32")]
    if name == "vset":
        compute = _COMPARE[next(word for word in ins.modifiers if word in _COMPARE)]
        types.insert(0, "u32") if len(types) == 2 else None
    else:
        compute = _COMPUTE[name]
    # What a sum adds that does not fit its part is not specified.
    if len(types) != 3 or len(ins.operands) != 4 or ("add" in ins.modifiers and name in ("vadd", "vsub")):
        raise refuse(ins)
    result, type_a, type_b = types
    target = builder.target(ins.operands[0])
    first, second, third = (builder.source(operand, "b32") for operand in ins.operands[1:])
    saturate, accumulate = "sat" in ins.modifiers, "add" in ins.modifiers
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if result == "s32" else (0, (1 << bits) - 1)

    def run(machine: Machine) -> None:
        a = lanes_of(machine.array(first, UNSIGNED[32]), bits, type_a == "s32")
        b = lanes_of(machine.array(second, UNSIGNED[32]), bits, type_b == "s32")
        found = compute(a, b).astype(np.int64)
        if accumulate:
            total = found.sum(axis=-1) + machine.array(third, UNSIGNED[32]).astype(np.int64)
            machine.put(target, canonical((total & 0xFFFFFFFF).astype(np.uint32)))
            return
        if saturate:
            found = np.clip(found, low, high)
        packed = np.ascontiguousarray(found.astype(np.dtype(f"u{bits // 8}"))).view(np.uint32)[..., 0]
        machine.put(target, canonical(packed))

    return run
