"""Integer arithmetic (PTX ISA 9.7.1, 9.7.2).

Each instruction has two forms: on plain Python ints where all operands are uniform, and on arrays. Addition,
subtraction and multiplication by a uniform value also keep affine operands affine.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cudabench.simulator import values
from cudabench.simulator.isa.elementwise import computes, elementwise, integer_type, limits, python_int
from cudabench.simulator.isa.opcodes import instruction
from cudabench.simulator.machine import Machine
from cudabench.simulator.program.builder import Builder
from cudabench.simulator.program.code import Run
from cudabench.simulator.program.ptx import BITS, Instruction
from cudabench.simulator.values import DTYPES, SIGNED, UNSIGNED, Affine, Array, Value, as_array, canonical

_PACKED = ("u16x2", "s16x2")


def add_values(x: Value, y: Value, bits: int, machine: Machine) -> Value:
    """Return x + y modulo 2^bits."""
    if type(x) is Affine and type(y) is Affine:
        return values.add(x, y, bits, machine.chunk)
    dtype = UNSIGNED[bits]
    return canonical(as_array(x, dtype, machine.chunk) + as_array(y, dtype, machine.chunk))


def subtract_values(x: Value, y: Value, bits: int, machine: Machine) -> Value:
    """Return x - y modulo 2^bits."""
    if type(x) is Affine and type(y) is Affine:
        return values.add(x, _negated(y), bits, machine.chunk)
    dtype = UNSIGNED[bits]
    return canonical(as_array(x, dtype, machine.chunk) - as_array(y, dtype, machine.chunk))


def _negated(x: Affine) -> Affine:
    c = x.coefficients
    if c is None:
        return Affine(-x.base)
    return Affine(-x.base, (-c[0], -c[1], -c[2], -c[3], -c[4], -c[5]), -x.high, -x.low)


def multiply_values(x: Value, y: Value, bits: int, machine: Machine) -> Value:
    """Return x * y modulo 2^bits."""
    if type(x) is Affine and type(y) is Affine:
        if y.coefficients is None:
            return values.scale(x, python_int(y.base, f"s{bits}"), bits, machine.chunk)
        if x.coefficients is None:
            return values.scale(y, python_int(x.base, f"s{bits}"), bits, machine.chunk)
    dtype = UNSIGNED[bits]
    return canonical(as_array(x, dtype, machine.chunk) * as_array(y, dtype, machine.chunk))


def widened(value: Value, type_: str, machine: Machine) -> Value:
    """Return a 16- or 32-bit value extended to twice its width by the sign of the type."""
    bits = BITS[type_]
    if type(value) is Affine:
        found = values.signed(value, bits) if type_[0] == "s" else values.unsigned(value, bits)
        if found is not None:
            return found
    return as_array(value, DTYPES[type_], machine.chunk).astype((SIGNED if type_[0] == "s" else UNSIGNED)[2 * bits])


_SUMS: dict[str, tuple[Callable[[Value, Value, int, Machine], Value], Callable[..., Array]]] = {
    "add": (add_values, np.add),
    "sub": (subtract_values, np.subtract),
}


@instruction(*_SUMS)
def _add(builder: Builder, ins: Instruction) -> Run:
    combine, arrays = _SUMS[ins.opcode]
    if "cc" in ins.modifiers:
        return with_carry(builder, ins)
    if ins.modifiers[-1] in _PACKED:
        return packed(builder, ins, ins.modifiers[-1], arrays)
    if "sat" in ins.modifiers:
        bounds = limits("s32")
        return elementwise(
            builder, ins, ("s32", "s32"), "s32", lambda x, y: np.clip(arrays(x.astype(np.int64), y), *bounds)
        )
    type_ = integer_type(ins)
    target = builder.target(ins.operands[0])
    first, second = (builder.source(operand, type_) for operand in ins.operands[1:])
    bits = BITS[type_]

    def run(machine: Machine) -> None:
        registers = machine.registers
        machine.put(target, combine(registers[first], registers[second], bits, machine))

    return run


@instruction("neg")
def _neg(builder: Builder, ins: Instruction) -> Run:
    type_ = integer_type(ins)
    target, source = builder.target(ins.operands[0]), builder.source(ins.operands[1], type_)

    def run(machine: Machine) -> None:
        machine.put(target, subtract_values(Affine(0), machine.registers[source], BITS[type_], machine))

    return run


@instruction("addc", "subc", "madc")
def with_carry(builder: Builder, ins: Instruction) -> Run:
    """Build the extended-precision family: add.cc, addc, sub.cc, subc, mad.cc, madc (PTX ISA 9.7.2).

    The condition code is the carry of the adder: x - y is x + ~y + 1, which carries where it does not borrow. That is
    seen only where a kernel mixes the two (sub.cc, then addc), as the compiler does in 128-bit division.
    """
    type_ = ins.modifiers[-1]
    dtype = UNSIGNED[BITS[type_]]
    target = builder.target(ins.operands[0])
    sources = [builder.source(operand, type_) for operand in ins.operands[1:]]
    if "CC.CF" not in builder.frame.registers:
        builder.frame.registers["CC.CF"] = builder.new(1, False)
    carry = builder.frame.registers["CC.CF"]
    takes, gives = ins.opcode.endswith("c"), "cc" in ins.modifiers
    high, subtracts = "hi" in ins.modifiers, ins.opcode.startswith("sub")
    if takes:
        builder.uses.append(carry)
    if gives:
        builder.defs.append(carry)

    def run(machine: Machine) -> None:
        x, y, *rest = (machine.array(source, dtype) for source in sources)
        into = machine.array(carry, dtype) if takes else None
        if rest:
            x, y = (multiply_high(x, y, type_) if high else x * y), rest[0]
        if subtracts:
            y = ~y
            into = dtype.type(1) if into is None else into
        result = x + y
        out = result < x
        if into is not None:
            result = result + into
            out = out | (result < into)
        machine.put(target, canonical(result))
        if gives:
            machine.put(carry, values.truth(out))

    return run


def multiply_high(x: Array, y: Array, type_: str) -> Array:
    """Return the upper half of the product, as unsigned bits; x and y hold the type's bits."""
    bits = BITS[type_]
    sign = type_[0] == "s"
    if bits < 64:
        wide = (SIGNED if sign else UNSIGNED)[2 * bits]
        kind = (SIGNED if sign else UNSIGNED)[bits]
        product = x.view(kind).astype(wide) * y.view(kind).astype(wide)
        return (product >> wide.type(bits)).astype(UNSIGNED[bits])
    a, b = x.view(np.uint64), y.view(np.uint64)
    half, low = np.uint64(32), np.uint64(0xFFFFFFFF)
    a1, a0, b1, b0 = a >> half, a & low, b >> half, b & low
    middle = a1 * b0 + ((a0 * b0) >> half)
    result = a1 * b1 + (middle >> half) + ((a0 * b1 + (middle & low)) >> half)
    if sign:
        result = result - np.where(a >> np.uint64(63), b, np.uint64(0)) - np.where(b >> np.uint64(63), a, np.uint64(0))
    return result


def product(x: Value, y: Value, form: str, type_: str, machine: Machine) -> Value:
    """Return mul.lo, mul.hi or mul.wide of two register values."""
    bits = BITS[type_]
    if form == "lo":
        return multiply_values(x, y, bits, machine)
    if form == "wide":
        return multiply_values(widened(x, type_, machine), widened(y, type_, machine), 2 * bits, machine)
    if type(x) is Affine and type(y) is Affine and x.coefficients is None and y.coefficients is None:
        return Affine(python_int((python_int(x.base, type_) * python_int(y.base, type_)) >> bits, type_))
    dtype = UNSIGNED[bits]
    chunk = machine.chunk
    return canonical(multiply_high(as_array(x, dtype, chunk), as_array(y, dtype, chunk), type_))


@instruction("mul", "mad")
def _mul(builder: Builder, ins: Instruction) -> Run:
    type_ = integer_type(ins)
    if "cc" in ins.modifiers:
        return with_carry(builder, ins)
    if "sat" in ins.modifiers:
        bounds = limits("s32")
        return elementwise(
            builder, ins, ("s32", "s32", "s32"), "s32",
            lambda x, y, z: np.clip(((x.astype(np.int64) * y) >> 32) + z, *bounds),
        )  # fmt: skip
    form = next((word for word in ins.modifiers if word in ("lo", "hi", "wide")), "lo")
    out = (2 if form == "wide" else 1) * BITS[type_]
    target = builder.target(ins.operands[0])
    types = (type_, type_, f"{type_[0]}{out}")
    first, second, *added = (builder.source(*each) for each in zip(ins.operands[1:], types, strict=False))

    def run(machine: Machine) -> None:
        registers = machine.registers
        value = product(registers[first], registers[second], form, type_, machine)
        if added:
            value = add_values(value, registers[added[0]], out, machine)
        machine.put(target, value)

    return run


def _bits24(x: Array) -> Array:
    if x.dtype.kind == "i":
        return ((x << np.int32(8)) >> np.int32(8)).astype(np.int64)
    return (x & np.uint32(0xFFFFFF)).astype(np.uint64)


@computes("mul24", "t t t", words=True)
@computes("mad24", "t t t t", words=True)
def _multiply24(words: tuple[str, ...], x: Array, y: Array, z: Array = 0) -> Array:
    found = _bits24(x) * _bits24(y)
    return (found >> found.dtype.type(16 if "hi" in words else 0)).astype(x.dtype) + z


def divide(x: Array, y: Array) -> Array:
    """Return the quotient rounded toward zero; division by zero gives all ones, as GPUs do (PTX ISA leaves it open)."""
    zero = y == 0
    safe = np.where(zero, y.dtype.type(1), y)
    if x.dtype.kind == "u":
        return np.where(zero, ~x.dtype.type(0), x // safe)
    quotient = x // safe
    quotient = quotient + ((x - quotient * safe != 0) & ((x < 0) != (safe < 0)))
    return np.where(zero, x.dtype.type(-1), quotient)


def remainder(x: Array, y: Array) -> Array:
    """Return x - (x / y) * y; by zero it gives x."""
    return np.where(y == 0, x, x - divide(x, y) * y)


def _int_divide(x: int, y: int) -> int:
    if y == 0:
        return -1
    quotient = abs(x) // abs(y)
    return quotient if (x < 0) == (y < 0) else -quotient


computes("div", "t t t", _int_divide)(divide)
computes("rem", "t t t", lambda x, y: x - _int_divide(x, y) * y if y else x)(remainder)
computes("abs", "t t", abs)(np.abs)


@instruction("min", "max")
def _extreme(builder: Builder, ins: Instruction) -> Run:
    arrays, scalars = (np.minimum, min) if ins.opcode == "min" else (np.maximum, max)
    words = tuple(word for word in ins.modifiers if word != "relu")  # which stands before the type or after it
    if words[-1] in _PACKED:
        return packed(builder, ins, words[-1], arrays)
    type_ = integer_type(ins._replace(modifiers=words))
    if "relu" in ins.modifiers:
        return elementwise(builder, ins, (type_, type_), type_, lambda x, y: np.maximum(arrays(x, y), 0))
    return elementwise(builder, ins, (type_, type_), type_, arrays, scalars)


def packed(builder: Builder, ins: Instruction, type_: str, combine: Callable[[Array, Array], Array]) -> Run:
    """Build an operation on both 16-bit halves of 32-bit registers."""
    kind = SIGNED[16] if type_[0] == "s" else UNSIGNED[16]
    relu = "relu" in ins.modifiers

    def arrays(x: Array, y: Array) -> Array:
        halves = []
        for shift in (0, 16):
            a, b = ((v >> np.uint32(shift)).astype(np.uint16).view(kind) for v in (x, y))
            half = combine(a, b)
            if relu:
                half = np.maximum(half, kind.type(0))
            halves.append(half.view(np.uint16).astype(np.uint32))
        return halves[0] | (halves[1] << np.uint32(16))

    return elementwise(builder, ins, ("b32", "b32"), "b32", arrays)


@computes("sad", "t t t t", lambda x, y, z: abs(x - y) + z)
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
    """Return z + the dot product of four bytes, or of two halves and the lower or upper two bytes."""
    first, second = words[-2:]
    halves, upper = words[0] in ("lo", "hi"), 2 if "hi" in words else 0
    total = z.astype(np.int64)
    for index in range(2 if halves else 4):
        total = total + _piece(x, index, 16 if halves else 8, first) * _piece(y, index + upper, 8, second)
    return total.astype(np.uint32)
