"""Integer arithmetic (PTX ISA 9.7.1, 9.7.2)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cudabench.simulator.isa.elementwise import Function, computes, elementwise, in_parts, integer_type, limits
from cudabench.simulator.isa.opcodes import instruction, registers
from cudabench.simulator.machine import Machine
from cudabench.simulator.program.builder import Builder
from cudabench.simulator.program.code import Run
from cudabench.simulator.program.ptx import BITS, Immediate, Instruction
from cudabench.simulator.values import DTYPES, UNSIGNED, Array, as_array

_PACKED = ("u16x2", "s16x2")
_BY_ZERO = "divides an integer by zero, so that the result is undefined: divide only if the divisor is not 0"


_SUMS: dict[str, Function] = {"add": np.add, "sub": np.subtract}


def _saturated(builder: Builder, ins: Instruction, function: Callable[..., Array]) -> Run:
    """Build an s32 instruction with .sat: `function` is computed in 64 bits, and its result is clamped to s32."""

    def arrays(*operands: Array) -> Array:
        return np.clip(function(*(x.astype(np.int64) for x in operands)), *limits("s32"))

    return elementwise(builder, ins, ("s32",) * len(ins.operands[1:]), "s32", arrays)


@instruction(*_SUMS)
def _add(builder: Builder, ins: Instruction) -> Run:
    arrays = _SUMS[ins.opcode]
    if "cc" in ins.modifiers:
        return with_carry(builder, ins)
    if ins.modifiers[-1] in _PACKED:
        return packed(builder, ins, ins.modifiers[-1], arrays)
    if "sat" in ins.modifiers:
        return _saturated(builder, ins, arrays)
    type_ = integer_type(ins)
    return elementwise(builder, ins, (type_, type_), type_, arrays)


computes("neg", "t t")(np.negative)


@instruction("addc", "subc", "madc")
def with_carry(builder: Builder, ins: Instruction) -> Run:
    """Build the extended-precision instructions add.cc, addc, sub.cc, subc, mad.cc and madc (PTX ISA 9.7.2).

    The condition code CC.CF is the carry of the adder, also for a subtraction, which is x + ~y + 1: the carry is 1 if
    there is no borrow. This matters only if a kernel mixes subtraction and addition (sub.cc, then addc), as compilers
    do in 128-bit division.
    """
    type_ = ins.modifiers[-1]
    dtype, kind = UNSIGNED[BITS[type_]], DTYPES[type_]
    target, *sources = registers(builder, ins, type_, type_, type_)
    if "CC.CF" not in builder.frame.registers:
        builder.frame.registers["CC.CF"] = builder.new(1, False)
    carry = builder.frame.registers["CC.CF"]
    reads_carry, sets_carry = ins.opcode.endswith("c"), "cc" in ins.modifiers
    high, subtracts = "hi" in ins.modifiers, ins.opcode.startswith("sub")
    if reads_carry:
        builder.uses.append(carry)
    if sets_carry:
        builder.defs.append(carry)

    def run(machine: Machine) -> None:
        x, y, *rest = (machine.array(source, dtype) for source in sources)
        carry_in = machine.array(carry, dtype) if reads_carry else None
        if rest:
            x, y = (multiply_high(x.view(kind), y.view(kind)).view(dtype) if high else x * y), rest[0]
        if subtracts:
            y = ~y
            carry_in = dtype.type(1) if carry_in is None else carry_in
        result = x + y
        carry_out = result < x
        if carry_in is not None:
            result = result + carry_in
            carry_out = carry_out | (result < carry_in)
        machine.put(target, result)
        if sets_carry:
            machine.put(carry, carry_out)

    return run


def multiply_high(x: Array, y: Array) -> Array:
    """Return the upper half of the product of x and y; x, y and the result have the same type."""
    bits = x.dtype.itemsize * 8
    if bits < 64:
        wide = np.dtype(f"{x.dtype.kind}{bits // 4}")
        return (x.astype(wide) * y.astype(wide) >> wide.type(bits)).astype(x.dtype)
    a, b = x.view(np.uint64), y.view(np.uint64)
    half, low = np.uint64(32), np.uint64(0xFFFFFFFF)
    a1, a0, b1, b0 = a >> half, a & low, b >> half, b & low
    middle = a1 * b0 + ((a0 * b0) >> half)
    result = a1 * b1 + (middle >> half) + ((a0 * b1 + (middle & low)) >> half)
    if x.dtype.kind == "i":
        result = result - np.where(x < 0, b, np.uint64(0)) - np.where(y < 0, a, np.uint64(0))
    return result.view(x.dtype)


@instruction("mul", "mad")
def _mul(builder: Builder, ins: Instruction) -> Run:
    type_ = integer_type(ins)
    if "cc" in ins.modifiers:
        return with_carry(builder, ins)
    if "sat" in ins.modifiers:
        return _saturated(builder, ins, lambda x, y, z: (x * y >> 32) + z)
    result = f"{type_[0]}{2 * BITS[type_]}" if "wide" in ins.modifiers else type_
    multiply: Function = multiply_high if "hi" in ins.modifiers else np.multiply

    def arrays(x: Array, y: Array, *added: Array) -> Array:
        if result != type_:
            x, y = x.astype(DTYPES[result]), y.astype(DTYPES[result])
        return sum(added, multiply(x, y))

    return elementwise(builder, ins, (type_, type_, result)[: len(ins.operands) - 1], result, arrays)


def _bits24(x: Array) -> Array:
    if x.dtype.kind == "i":
        return ((x << np.int32(8)) >> np.int32(8)).astype(np.int64)
    return (x & np.uint32(0xFFFFFF)).astype(np.uint64)


@computes("mul24", "t t t", words=True)
@computes("mad24", "t t t t", words=True)
def _multiply24(words: tuple[str, ...], x: Array, y: Array, z: Array = 0) -> Array:
    wide = _bits24(x) * _bits24(y)
    return (wide >> wide.dtype.type(16 if "hi" in words else 0)).astype(x.dtype) + z


def divide(x: Array, y: Array) -> Array:
    """Return the quotient rounded toward zero.

    Division by zero gives all ones, as on GPUs; the PTX ISA does not specify this result.
    """
    zero = y == 0
    safe = np.where(zero, y.dtype.type(1), y)
    quotient = x // safe
    if x.dtype.kind == "i":
        quotient = quotient + ((x - quotient * safe != 0) & ((x < 0) != (safe < 0)))
    return np.where(zero, ~x.dtype.type(0), quotient)


def remainder(x: Array, y: Array) -> Array:
    """Return x - (x / y) * y, or x where y is zero."""
    return np.where(y == 0, x, x - divide(x, y) * y)


def _divides(opcode: str, arrays: Function) -> None:
    """Register a division, which reports divisors that are zero."""

    @instruction(opcode)
    def build(builder: Builder, ins: Instruction) -> Run:
        type_ = integer_type(ins)
        compute = elementwise(builder, ins, (type_, type_), type_, arrays)
        if isinstance(ins.operands[2], Immediate):
            return compute
        divisor = registers(builder, ins, type_, type_)[2]

        def run(machine: Machine) -> None:
            zero = as_array(machine.registers[divisor], DTYPES[type_]) == 0
            if zero.any():
                lanes = machine.chunk.real(machine.lanes() & zero)
                if lanes.any():
                    machine.hazards.report(machine, "undefined-value", ins.location, lanes, _BY_ZERO)
            compute(machine)

        return run


_divides("div", divide)
_divides("rem", remainder)
computes("abs", "t t")(np.abs)


@instruction("min", "max")
def _extreme(builder: Builder, ins: Instruction) -> Run:
    arrays = np.minimum if ins.opcode == "min" else np.maximum
    # The types alone: .relu may come before or after them.
    words = tuple(word for word in ins.modifiers if word != "relu")
    if words[-1] in _PACKED:
        return packed(builder, ins, words[-1], arrays)
    type_ = integer_type(ins._replace(modifiers=words))
    if "relu" in ins.modifiers:
        return elementwise(builder, ins, (type_, type_), type_, lambda x, y: np.maximum(arrays(x, y), 0))
    return elementwise(builder, ins, (type_, type_), type_, arrays)


def packed(builder: Builder, ins: Instruction, type_: str, combine: Callable[[Array, Array], Array]) -> Run:
    """Build an operation on both 16-bit halves of 32-bit registers."""
    kind = DTYPES[type_[:3]]

    def half(x: Array, y: Array) -> Array:
        result = combine(x.view(kind), y.view(kind))
        return (np.maximum(result, kind.type(0)) if "relu" in ins.modifiers else result).view(np.uint16)

    return elementwise(builder, ins, ("b32", "b32"), "b32", in_parts(half, 16, 32))


@computes("sad", "t t t t")
def _distance(x: Array, y: Array, z: Array) -> Array:
    unsigned = UNSIGNED[x.dtype.itemsize * 8]
    distance = np.where(x > y, x.view(unsigned) - y.view(unsigned), y.view(unsigned) - x.view(unsigned))
    return (distance + z.view(unsigned)).view(z.dtype)


def _piece(x: Array, index: int, bits: int, type_: str) -> Array:
    part = (x >> np.uint32(index * bits)).astype(UNSIGNED[bits])
    return part.view(DTYPES[f"{type_[0]}{bits}"]).astype(np.int64)


@computes("dp4a", "b32 b32 b32 b32", words=True)
@computes("dp2a", "b32 b32 b32 b32", words=True)
def _dot(words: tuple[str, ...], x: Array, y: Array, z: Array) -> Array:
    """Return z + a dot product: of four bytes of x and y, or of two halves of x and the lower or upper bytes of y."""
    first, second = words[-2:]
    halves, upper = words[0] in ("lo", "hi"), 2 if "hi" in words else 0
    total = z.astype(np.int64)
    for index in range(2 if halves else 4):
        total = total + _piece(x, index, 16 if halves else 8, first) * _piece(y, index + upper, 8, second)
    return total.astype(np.uint32)
