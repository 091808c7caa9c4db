"""Video instructions, scalar and SIMD (PTX ISA 9.7.17 and 9.7.18).

A scalar instruction takes bytes, halves or words of registers and computes in 34 bits. A SIMD instruction takes two
16-bit or four 8-bit integers in a register; the simulator refuses it if it selects or masks parts (`%r1.b3210`).
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from cudabench.simulator.isa.elementwise import COMPARE, elementwise, limits
from cudabench.simulator.isa.opcodes import instruction, refuse
from cudabench.simulator.program.builder import Builder
from cudabench.simulator.program.code import Refuse, Run
from cudabench.simulator.program.ptx import Instruction, Negated, Operand, Symbol
from cudabench.simulator.values import Array

Compute = Callable[[Array, Array], Array]
_COMPUTE: dict[str, Compute] = {
    "vadd": np.add, "vsub": np.subtract, "vabsdiff": lambda a, b: np.abs(a - b), "vmin": np.minimum, "vmax": np.maximum,
}  # fmt: skip
_AVERAGE: dict[str, Compute] = {"vavrg": lambda a, b: (a + b + (a + b >= 0)) >> 1}  # rounds halves away from zero
_SECOND: dict[str, Compute] = {"add": np.add, "min": np.minimum, "max": np.maximum}
_TYPES = ("u32", "s32")
_SELECTION = re.compile(r"([^@]+)\.([bh])(\d+)(@.*)?")


class _Part:
    """The part of its register that an operand selects: `%r1.b2`, `%r1.h0`, or the whole register.

    If the destination is an upper half, the lower half of the result is written to it, as in the manual and in ptxas
    13.5; ptxas 13.0 writes the upper half of the result.
    """

    def __init__(self, ins: Instruction, operand: Operand, signed: bool) -> None:
        self.negated, self.signed = isinstance(operand, Negated), signed
        self.operand, self.shift, self.bits = Symbol(operand.name) if isinstance(operand, Negated) else operand, 0, 32
        selection = _SELECTION.fullmatch(getattr(operand, "name", ""))
        if selection is not None:
            base, kind, number, scope = selection.groups("")
            self.operand, self.bits = Symbol(base + scope), 8 if kind == "b" else 16
            self.shift = self.bits * int(number)
        if self.shift >= 32:
            raise refuse(ins)

    def value(self, words: Array) -> Array:
        """Return the selected part of 32-bit register values, as numbers (int64)."""
        part = words.astype(np.int64) >> self.shift & ((1 << self.bits) - 1)
        if self.signed:
            half = np.int64(1 << (self.bits - 1))
            part = (part ^ half) - half
        return -part if self.negated else part


def _wrapped(x: Array) -> Array:
    return (x & 0xFFFFFFFF).astype(np.uint32)


def _types_and_function(ins: Instruction, name: str) -> tuple[list[str], Compute | None]:
    """Return the types of [result, a, b], and the function of a and b that the instruction computes.

    The function is None for shifts and vmad.
    """
    types, compute = [word for word in ins.modifiers if word in _TYPES], {**_COMPUTE, **_AVERAGE}.get(name)
    if name == "vset":
        types.insert(0, "u32")
        compute = next((COMPARE[word] for word in ins.modifiers if word in COMPARE), None)
    if len(types) != 3 or (name == "vset" and compute is None):
        raise refuse(ins)
    return types, compute


@instruction(*_COMPUTE, "vset", "vshl", "vshr")
def _video(builder: Builder, ins: Instruction) -> Run:
    """Build a scalar video instruction.

    If the destination is a part of a register, the result replaces this part of operand c. Otherwise the result has 32
    bits and may be combined with c.
    """
    words = ins.modifiers
    types, compute = _types_and_function(ins, ins.opcode)
    place, a, b = (_Part(ins, *part) for part in zip(ins.operands, (type_ == "s32" for type_ in types), strict=False))
    merge, second, addend = place.bits < 32, _SECOND.get(words[-1]), ins.operands[3:]
    if merge and "sat" in words:
        raise Refuse(f"instruction {ins.text} into a part of a register, whose saturation by ptxas is undocumented")
    if len(addend) != int(merge or second is not None) or (merge and second is not None):
        raise refuse(ins)

    def arrays(x: Array, y: Array, c: Array = None) -> Array:
        x, y = a.value(x), b.value(y)
        if compute is not None:
            result = compute(x, y).astype(np.int64)
        else:
            count = y & 31 if "wrap" in words else np.minimum(y & 0xFFFFFFFF, 32)
            result = x << count if ins.opcode == "vshl" else x >> count
        if "sat" in words:
            result = np.clip(result, *limits(types[0]))
        if merge:
            mask = (1 << place.bits) - 1
            return _wrapped((c & ~np.int64(mask << place.shift)) | ((result & mask) << place.shift))
        return _wrapped(result if second is None else second(result, place.value(c)))

    ins = ins._replace(operands=(place.operand, a.operand, b.operand, *addend))
    return elementwise(builder, ins, ("b32",) * (2 + len(addend)), "b32", arrays)


@instruction("vmad")
def _vmad(builder: Builder, ins: Instruction) -> Run:
    """Build vmad: a * b + c, plus one with `.po`, then shifted right by 7 or 15 with `.shr7` or `.shr15`."""
    words, (types, _) = ins.modifiers, _types_and_function(ins, ins.opcode)
    # The sum is unsigned if both factors are unsigned and no operand is negated.
    signed = "s32" in types[1:] or any(isinstance(operand, Negated) for operand in ins.operands)
    signs = (types[1] == "s32", types[2] == "s32", signed)
    parts = [_Part(ins, *part) for part in zip(ins.operands[1:], signs, strict=False)]
    if len(parts) != 3 or parts[2].bits != 32:
        raise refuse(ins)
    if not signed and {"sat", "shr7", "shr15"} & set(words):
        raise Refuse(
            f"instruction {ins.text} of unsigned numbers, where ptxas takes c as signed and the manual does not"
        )
    shift = 7 if "shr7" in words else 15 if "shr15" in words else 0
    low, high = limits("s32" if signed else "u32")

    def arrays(*operands: Array) -> Array:
        # Sums need 66 bits, so they are computed with Python integers.
        x, y, z = (part.value(operand).astype(object) for part, operand in zip(parts, operands, strict=True))
        result = (x * y + z + int("po" in words)) >> shift
        return _wrapped(np.minimum(np.maximum(result, low), high) if "sat" in words else result)

    ins = ins._replace(operands=(ins.operands[0], *(part.operand for part in parts)))
    return elementwise(builder, ins, ("b32",) * 3, "b32", arrays)


def _lanes_of(words: Array, bits: int, type_: str) -> Array:
    """Return the parts of 32-bit register values as numbers, of shape (..., 32 / bits), the lowest part first."""
    packed = np.ascontiguousarray(words)[..., None]
    return packed.view(np.dtype(f"{'i' if type_ == 's32' else 'u'}{bits // 8}")).astype(np.int64)


@instruction(*(f"{name}{count}" for name in (*_COMPUTE, *_AVERAGE, "vset") for count in (2, 4)))
def _simd(builder: Builder, ins: Instruction) -> Run:
    """Build a SIMD video instruction, such as vadd2 or vsub4; with .add, the result is c plus the sum of all parts."""
    name, bits = ins.opcode[:-1], 32 // int(ins.opcode[-1])
    (result, type_a, type_b), compute = _types_and_function(ins, name)
    # Instructions with .add are refused for vadd and vsub: the manual does not specify the sum of results that do not
    # fit in their part.
    if compute is None or len(ins.operands) != 4 or ("add" in ins.modifiers and name in ("vadd", "vsub")):
        raise refuse(ins)

    def arrays(x: Array, y: Array, z: Array) -> Array:
        parts = compute(_lanes_of(x, bits, type_a), _lanes_of(y, bits, type_b)).astype(np.int64)
        if "add" in ins.modifiers:
            return _wrapped(parts.sum(axis=-1) + z.astype(np.int64))
        if "sat" in ins.modifiers:
            parts = np.clip(parts, *limits(f"{result[0]}{bits}"))
        return np.ascontiguousarray(parts.astype(np.dtype(f"u{bits // 8}"))).view(np.uint32)[..., 0]

    return elementwise(builder, ins, ("b32", "b32", "b32"), "b32", arrays)
