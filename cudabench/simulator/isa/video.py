"""Scalar video instructions: bytes, halves or words of registers, computed in 34 bits (PTX ISA 9.7.17)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cudabench.simulator.isa.elementwise import COMPARE, elementwise, limits
from cudabench.simulator.isa.opcodes import instruction, refuse
from cudabench.simulator.program.builder import Builder
from cudabench.simulator.program.code import Refuse, Run
from cudabench.simulator.program.ptx import Instruction, Negated, Operand, Symbol
from cudabench.simulator.values import Array

COMPUTE: dict[str, Callable[[Array, Array], Array]] = {
    "vadd": np.add, "vsub": np.subtract, "vabsdiff": lambda a, b: np.abs(a - b), "vmin": np.minimum, "vmax": np.maximum,
}  # fmt: skip
_SECOND: dict[str, Callable[[Array, Array], Array]] = {"add": np.add, "min": np.minimum, "max": np.maximum}
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


def _wrapped(found: Array) -> Array:
    return (found & 0xFFFFFFFF).astype(np.uint32)


@instruction(*COMPUTE, "vset", "vshl", "vshr")
def _video(builder: Builder, ins: Instruction) -> Run:
    """Build what puts a result into a part of c, or combines one of 32 bits with c."""
    words = ins.modifiers
    types = [word for word in words if word in _TYPES]
    compare = next((COMPARE[word] for word in words if word in COMPARE), None)
    if ins.opcode == "vset":
        types.insert(0, "u32")
    if len(types) != 3 or (compare is None) == (ins.opcode == "vset"):
        raise refuse(ins)
    place, a, b = (_Part(ins, *each) for each in zip(ins.operands, (type_ == "s32" for type_ in types), strict=False))
    if place.bits < 32 and "sat" in words:
        raise Refuse(f"instruction {ins.text} into a part of a register, which ptxas saturates as no manual says")
    merge, second = place.bits < 32, _SECOND.get(words[-1])
    last = ins.operands[3:]
    if len(last) != int(merge or second is not None) or (merge and second is not None):
        raise refuse(ins)
    compute = compare or COMPUTE.get(ins.opcode)

    def arrays(x: Array, y: Array, c: Array = None) -> Array:
        x, y = a.value(x), b.value(y)
        if compute is not None:
            found = compute(x, y).astype(np.int64)
        else:
            count = y & 31 if "wrap" in words else np.minimum(y & 0xFFFFFFFF, 32)
            found = x << count if ins.opcode == "vshl" else x >> count
        if "sat" in words:
            found = np.clip(found, *limits(types[0]))
        if merge:
            mask = (1 << place.bits) - 1
            return _wrapped((c & ~np.int64(mask << place.shift)) | ((found & mask) << place.shift))
        return _wrapped(found if second is None else second(found, place.value(c)))

    ins = ins._replace(operands=(place.operand, a.operand, b.operand, *last))
    return elementwise(builder, ins, ("b32",) * (2 + len(last)), "b32", arrays)


@instruction("vmad")
def _vmad(builder: Builder, ins: Instruction) -> Run:
    """Build a * b + c, or with `.po` plus one, shifted right by 7 or 15."""
    words = ins.modifiers
    types = [word for word in words if word in _TYPES]
    if len(types) != 3 or len(ins.operands) != 4:
        raise refuse(ins)
    # The sum is unsigned where both factors are and nothing is negated.
    signed = "s32" in types[1:] or any(isinstance(operand, Negated) for operand in ins.operands)
    signs = (types[1] == "s32", types[2] == "s32", signed)
    parts = [_Part(ins, *each) for each in zip(ins.operands[1:], signs, strict=True)]
    if parts[2].bits != 32:
        raise refuse(ins)
    if not signed and {"sat", "shr7", "shr15"} & set(words):
        raise Refuse(
            f"instruction {ins.text} of unsigned numbers, where ptxas takes c as signed and the manual does not"
        )
    shift = 7 if "shr7" in words else 15 if "shr15" in words else 0
    low, high = limits("s32" if signed else "u32")

    def arrays(*operands: Array) -> Array:
        # Sums have 66 bits.
        x, y, z = (part.value(operand).astype(object) for part, operand in zip(parts, operands, strict=True))
        found = (x * y + z + int("po" in words)) >> shift
        if "sat" in words:
            found = np.minimum(np.maximum(found, low), high)
        return _wrapped(found)

    ins = ins._replace(operands=(ins.operands[0], *(part.operand for part in parts)))
    return elementwise(builder, ins, ("b32",) * 3, "b32", arrays)
