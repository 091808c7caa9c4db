"""Scalar video instructions: bytes, halves or words of registers, computed in 34 bits (PTX ISA 9.7.17)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from cudabench.simulator.isa.opcodes import instruction, refuse
from cudabench.simulator.program.builder import Builder
from cudabench.simulator.program.code import Refuse, Run
from cudabench.simulator.program.ptx import Instruction, Negated, Operand, Symbol
from cudabench.simulator.values import UNSIGNED, Array, canonical

if TYPE_CHECKING:
    from cudabench.simulator.machine import Machine

_COMPARE: dict[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip
_COMPUTE: dict[str, Callable[[Array, Array], Array]] = {
    "vadd": lambda a, b: a + b, "vsub": lambda a, b: a - b, "vabsdiff": lambda a, b: np.abs(a - b),
    "vmin": np.minimum, "vmax": np.maximum,
}  # fmt: skip
_SECOND: dict[str, Callable[[Array, Array], Array]] = {"min": np.minimum, "max": np.maximum}
_TYPES = ("u32", "s32")


class _Part:
    """What an operand selects of its register: `%r1.b2`, `%r1.h0`, or all of it.

    Into an upper half goes the result's lower half, as the manual says and ptxas 13.5 does; 13.0 takes the upper one.
    """

    def __init__(self, ins: Instruction, operand: Operand, signed: bool) -> None:
        self.operand, self.shift, self.bits, self.signed = operand, 0, 32, signed
        self.negated = isinstance(operand, Negated)
        name = getattr(operand, "name", "")
        base, _, selector = name.partition("@")[0].rpartition(".")
        if base and selector[:1] in ("b", "h") and selector[1:].isdigit():
            self.bits = 8 if selector[0] == "b" else 16
            self.shift = self.bits * int(selector[1:])
            if self.shift >= 32:
                raise refuse(ins)
            self.operand = Symbol(base + name[name.index("@") :] if "@" in name else base)
        elif self.negated:
            self.operand = Symbol(name)

    def value(self, words: Array) -> Array:
        """Return the selected part of 32-bit registers as numbers."""
        part = words.astype(np.int64) >> self.shift & ((1 << self.bits) - 1)
        if self.signed:
            half = np.int64(1 << (self.bits - 1))
            part = (part ^ half) - half
        return -part if self.negated else part


def _finish(ins: Instruction, signed: bool, place: _Part, last: int, second: str) -> Callable[[Machine, Array], Array]:
    """Return what saturates a result, then puts it into a part of c or combines it with c."""
    low, high = (-(1 << 31), (1 << 31) - 1) if signed else (0, (1 << 32) - 1)
    saturate, merge = "sat" in ins.modifiers, place.bits < 32

    def run(machine: Machine, found: Array) -> Array:
        if saturate:
            found = np.clip(found, low, high)
        if last < 0:
            return (found & 0xFFFFFFFF).astype(np.uint32)
        c = machine.array(last, UNSIGNED[32]).astype(np.int64)
        if merge:
            mask = (1 << place.bits) - 1
            return ((c & ~(mask << place.shift)) | ((found & mask) << place.shift)).astype(np.uint32)
        if signed:
            c = (c ^ np.int64(1 << 31)) - np.int64(1 << 31)
        total = found + c if second == "add" else _SECOND[second](found, c)
        return (total & 0xFFFFFFFF).astype(np.uint32)

    return run


def _last(builder: Builder, ins: Instruction, place: _Part) -> tuple[int, str]:
    """Return (register of c or -1, the second operation): a part of d is merged into c, a whole one combined."""
    second = next((word for word in ins.modifiers[-1:] if word in ("add", "min", "max")), "")
    if len(ins.operands) == 3 and not second and place.bits == 32:
        return -1, ""
    if len(ins.operands) != 4 or bool(second) == (place.bits < 32):
        raise refuse(ins)
    return builder.source(ins.operands[3], "b32"), second


@instruction(*_COMPUTE, "vset", "vshl", "vshr")
def build_video(builder: Builder, ins: Instruction) -> Run:
    """Build vadd, vsub, vabsdiff, vmin, vmax, vset, vshl and vshr."""
    types = [word for word in ins.modifiers if word in _TYPES]
    compare = next((word for word in ins.modifiers if word in _COMPARE), None)
    if ins.opcode == "vset":
        types.insert(0, "u32")
    if len(types) != 3 or (compare is None) == (ins.opcode == "vset"):
        raise refuse(ins)
    result, first, second = types
    place = _Part(ins, ins.operands[0], result == "s32")
    if place.bits < 32 and "sat" in ins.modifiers:
        raise Refuse(f"instruction {ins.text} into a part of a register, which ptxas saturates as no manual says")
    a, b = _Part(ins, ins.operands[1], first == "s32"), _Part(ins, ins.operands[2], second == "s32")
    sources = [builder.source(part.operand, "b32") for part in (a, b)]
    last, more = _last(builder, ins, place)
    target = builder.target(place.operand)
    finish = _finish(ins, result == "s32", place, last, more)
    wrap, left = "wrap" in ins.modifiers, ins.opcode == "vshl"

    def run(machine: Machine) -> None:
        x, y = (part.value(machine.array(index, UNSIGNED[32])) for part, index in zip((a, b), sources, strict=True))
        if compare is not None:
            found = _COMPARE[compare](x, y).astype(np.int64)
        elif ins.opcode in _COMPUTE:
            found = _COMPUTE[ins.opcode](x, y)
        else:
            count = y & 31 if wrap else np.minimum(y & 0xFFFFFFFF, 32)
            found = x << count if left else x >> count
        machine.put(target, canonical(finish(machine, found)))

    return run


@instruction("vmad")
def build_vmad(builder: Builder, ins: Instruction) -> Run:
    """Build vmad: a * b + c, or with `.po` plus one, shifted right by 7 or 15."""
    types = [word for word in ins.modifiers if word in _TYPES]
    if len(types) != 3 or len(ins.operands) != 4:
        raise refuse(ins)
    # The sum is unsigned where both factors are and nothing is negated.
    signed = "s32" in types[1:] or any(isinstance(operand, Negated) for operand in ins.operands)
    a, b, c = (
        _Part(ins, operand, kind)
        for operand, kind in zip(ins.operands[1:], (types[1] == "s32", types[2] == "s32", signed), strict=True)
    )
    if c.bits != 32:
        raise refuse(ins)
    if not signed and {"sat", "shr7", "shr15"} & set(ins.modifiers):
        raise Refuse(
            f"instruction {ins.text} of unsigned numbers, where ptxas takes c as signed and the manual does not"
        )
    target = builder.target(ins.operands[0])
    sources = [builder.source(part.operand, "b32") for part in (a, b, c)]
    shift = 7 if "shr7" in ins.modifiers else 15 if "shr15" in ins.modifiers else 0
    extra = 1 if "po" in ins.modifiers else 0
    saturate = "sat" in ins.modifiers
    low, high = (-(1 << 31), (1 << 31) - 1) if signed else (0, (1 << 32) - 1)

    def run(machine: Machine) -> None:
        x, y, z = (
            part.value(machine.array(index, UNSIGNED[32])).astype(object)  # sums have 66 bits
            for part, index in zip((a, b, c), sources, strict=True)
        )
        found = (x * y + z + extra) >> shift
        if saturate:
            found = np.minimum(np.maximum(found, low), high)
        machine.put(target, canonical((found & 0xFFFFFFFF).astype(np.uint32)))

    return run
