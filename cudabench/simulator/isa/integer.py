"""Integer arithmetic (PTX ISA 9.7.1, 9.7.2).

Each instruction has two forms: on plain Python ints where all operands are uniform, and on arrays. Addition,
subtraction and multiplication by a uniform value also keep affine operands affine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from cudabench.simulator import values
from cudabench.simulator.isa.opcodes import instruction, refuse
from cudabench.simulator.program.builder import Builder
from cudabench.simulator.program.code import Run
from cudabench.simulator.program.ptx import BITS, Instruction
from cudabench.simulator.values import DTYPES, SIGNED, UNSIGNED, Affine, Array, Value, as_array, canonical

if TYPE_CHECKING:
    from cudabench.simulator.machine import Machine


# The types of the operands; floating-point instructions of the same names are in `floating`.
INTEGERS = frozenset(f"{sign}{bits}" for sign in "usb" for bits in (8, 16, 32, 64))
_U32 = UNSIGNED[32]


def python_int(value: int, type_: str) -> int:
    """Return an integer wrapped to what a PTX type holds."""
    bits = BITS[type_]
    value &= (1 << bits) - 1
    return value - (1 << bits) if type_[0] == "s" and value >> (bits - 1) else value


def elementwise(
    builder: Builder,
    ins: Instruction,
    types: tuple[str, ...],
    result: str,
    arrays: Callable[..., Array],
    scalars: Callable[..., int] | None = None,
) -> Run:
    """Return the run of an integer instruction: `arrays` on NumPy arrays, `scalars` on uniform operands."""
    target = builder.target(ins.operands[0])
    sources = tuple(builder.source(operand, type_) for operand, type_ in zip(ins.operands[1:], types, strict=True))
    dtypes = tuple(DTYPES[type_] for type_ in types)
    width = builder.width(target)
    out = DTYPES[result]
    wide = UNSIGNED[width] if width > BITS[result] and width <= 64 else None
    if wide is not None and result[0] == "s":
        wide = SIGNED[width]

    def run(machine: Machine) -> None:
        registers = machine.registers
        if scalars is not None:
            numbers = []
            for source, type_ in zip(sources, types, strict=True):
                value = registers[source]
                if type(value) is not Affine or value.coefficients is not None:
                    break
                numbers.append(python_int(value.base, type_))
            else:
                machine.put(target, Affine(python_int(scalars(*numbers), result)))
                return
        found = arrays(*[as_array(registers[s], d, machine.chunk) for s, d in zip(sources, dtypes, strict=True)])
        if found.dtype != out:
            found = found.astype(out)
        if wide is not None:
            found = found.astype(wide)
        machine.put(target, canonical(found))

    return run


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
            return values.scale(x, _small(y.base, bits), bits, machine.chunk)
        if x.coefficients is None:
            return values.scale(y, _small(x.base, bits), bits, machine.chunk)
    dtype = UNSIGNED[bits]
    return canonical(as_array(x, dtype, machine.chunk) * as_array(y, dtype, machine.chunk))


def _small(value: int, bits: int) -> int:
    """Return the residue of smallest size: -1 rather than 2^32 - 1 keeps products affine."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def widened(value: Value, type_: str, machine: Machine) -> Value:
    """Return a 16- or 32-bit value extended to twice its width by the sign of the type."""
    bits = BITS[type_]
    if type(value) is Affine:
        found = values.signed(value, bits) if type_[0] == "s" else values.unsigned(value, bits)
        if found is not None:
            return found
    return as_array(value, DTYPES[type_], machine.chunk).astype((SIGNED if type_[0] == "s" else UNSIGNED)[2 * bits])


@instruction("add")
def build_add(builder: Builder, ins: Instruction) -> Run:
    """Build add of integers, also add.cc."""
    if "cc" in ins.modifiers:
        return with_carry(builder, ins)
    type_ = ins.modifiers[-1]
    if type_ in ("u16x2", "s16x2"):
        return packed(builder, ins, type_, np.add)
    if "sat" in ins.modifiers:
        return elementwise(
            builder, ins, ("s32", "s32"), "s32",
            lambda x, y: np.clip(x.astype(np.int64) + y, -(2**31), 2**31 - 1),
            lambda x, y: max(-(2**31), min(2**31 - 1, x + y)),
        )  # fmt: skip
    return _binary(builder, ins, type_, add_values)


@instruction("sub")
def build_sub(builder: Builder, ins: Instruction) -> Run:
    """Build sub of integers, also sub.cc."""
    if "cc" in ins.modifiers:
        return with_carry(builder, ins)
    type_ = ins.modifiers[-1]
    if type_ in ("u16x2", "s16x2"):
        return packed(builder, ins, type_, np.subtract)
    if "sat" in ins.modifiers:
        return elementwise(
            builder, ins, ("s32", "s32"), "s32",
            lambda x, y: np.clip(x.astype(np.int64) - y, -(2**31), 2**31 - 1),
            lambda x, y: max(-(2**31), min(2**31 - 1, x - y)),
        )  # fmt: skip
    return _binary(builder, ins, type_, subtract_values)


def _binary(builder: Builder, ins: Instruction, type_: str, combine: Callable[[Value, Value, int, Any], Value]) -> Run:
    if type_ not in INTEGERS:
        raise refuse(ins)
    target = builder.target(ins.operands[0])
    first, second = (builder.source(operand, type_) for operand in ins.operands[1:])
    bits = BITS[type_]

    def run(machine: Machine) -> None:
        registers = machine.registers
        machine.put(target, combine(registers[first], registers[second], bits, machine))

    return run


def carry_register(builder: Builder) -> int:
    """Return the register of the condition code, which the .cc instructions share."""
    if "CC.CF" not in builder.frame.registers:
        builder.frame.registers["CC.CF"] = builder.new(1, False)
    return builder.frame.registers["CC.CF"]


@instruction("addc", "subc", "madc")
def with_carry(builder: Builder, ins: Instruction) -> Run:
    """Build the extended-precision family: add.cc, addc, sub.cc, subc, mad.cc, madc (PTX ISA 9.7.2).

    The condition code is the carry of the adder: x - y is x + ~y + 1, which carries where it does not borrow. That is
    seen only where a kernel mixes the two (sub.cc, then addc), as the compiler does in 128-bit division.
    """
    type_ = ins.modifiers[-1]
    bits = BITS[type_]
    dtype = UNSIGNED[bits]
    name = ins.opcode
    target = builder.target(ins.operands[0])
    sources = [builder.source(operand, type_) for operand in ins.operands[1:]]
    carry = carry_register(builder)
    takes, gives = name in ("addc", "subc", "madc"), "cc" in ins.modifiers
    high = "hi" in ins.modifiers
    if takes:
        builder.uses.append(carry)
    if gives:
        builder.defs.append(carry)

    def run(machine: Machine) -> None:
        x, y, *rest = (machine.array(source, dtype) for source in sources)
        into = as_array(machine.registers[carry], dtype, machine.chunk) if takes else None
        if rest:
            x, y = (multiply_high(x, y, type_) if high else x * y), rest[0]
        if name in ("sub", "subc"):
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


def _multiply_form(ins: Instruction) -> tuple[str, str, int]:
    form = next((word for word in ins.modifiers if word in ("lo", "hi", "wide")), "lo")
    type_ = ins.modifiers[-1]
    if type_ not in INTEGERS:
        raise refuse(ins)
    return form, type_, BITS[type_]


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


@instruction("mul")
def build_mul(builder: Builder, ins: Instruction) -> Run:
    """Build mul.lo, mul.hi, mul.wide and mul24."""
    form, type_, _ = _multiply_form(ins)
    target = builder.target(ins.operands[0])
    first, second = (builder.source(operand, type_) for operand in ins.operands[1:])

    def run(machine: Machine) -> None:
        registers = machine.registers
        machine.put(target, product(registers[first], registers[second], form, type_, machine))

    return run


@instruction("mad")
def build_mad(builder: Builder, ins: Instruction) -> Run:
    """Build mad.lo, mad.hi, mad.wide."""
    form, type_, bits = _multiply_form(ins)
    if "cc" in ins.modifiers:
        return with_carry(builder, ins)
    if "sat" in ins.modifiers:
        return elementwise(
            builder, ins, ("s32", "s32", "s32"), "s32",
            lambda x, y, z: np.clip(((x.astype(np.int64) * y) >> 32) + z, -(2**31), 2**31 - 1),
        )  # fmt: skip
    out = 2 * bits if form == "wide" else bits
    target = builder.target(ins.operands[0])
    first, second = (builder.source(operand, type_) for operand in ins.operands[1:3])
    third = builder.source(ins.operands[3], f"{type_[0]}{out}")

    def run(machine: Machine) -> None:
        registers = machine.registers
        value = product(registers[first], registers[second], form, type_, machine)
        machine.put(target, add_values(value, registers[third], out, machine))

    return run


def _bits24(x: Array, type_: str) -> Array:
    if type_ == "s32":
        return ((x << np.int32(8)) >> np.int32(8)).astype(np.int64)
    return (x & np.uint32(0xFFFFFF)).astype(np.uint64)


@instruction("mul24", "mad24")
def build_mul24(builder: Builder, ins: Instruction) -> Run:
    """Build mul24 and mad24: products of the low 24 bits."""
    type_ = ins.modifiers[-1]
    shift = 16 if "hi" in ins.modifiers else 0
    count = 2 if ins.opcode == "mul24" else 3

    def arrays(x: Array, y: Array, z: Array | None = None) -> Array:
        found = (_bits24(x, type_) * _bits24(y, type_)) >> (np.int64 if type_ == "s32" else np.uint64)(shift)
        found = found.astype(DTYPES[type_])
        return found if z is None else found + z

    return elementwise(builder, ins, (type_,) * count, type_, arrays)


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


@instruction("div")
def build_div(builder: Builder, ins: Instruction) -> Run:
    """Build integer div."""
    type_ = ins.modifiers[-1]
    if type_ not in INTEGERS:
        raise refuse(ins)
    return elementwise(builder, ins, (type_, type_), type_, divide, _int_divide)


@instruction("rem")
def build_rem(builder: Builder, ins: Instruction) -> Run:
    """Build rem."""
    type_ = ins.modifiers[-1]
    return elementwise(
        builder, ins, (type_, type_), type_, remainder, lambda x, y: x - _int_divide(x, y) * y if y else x
    )


@instruction("min", "max")
def build_min(builder: Builder, ins: Instruction) -> Run:
    """Build integer min and max, also of packed halves and with .relu, which stands before the type or after it."""
    type_ = next(word for word in reversed(ins.modifiers) if word != "relu")
    name = ins.opcode
    arrays = np.minimum if name == "min" else np.maximum
    if type_ in ("u16x2", "s16x2"):
        return packed(builder, ins, type_, arrays)
    if type_ not in INTEGERS:
        raise refuse(ins)
    scalars: Callable[..., int] = min if name == "min" else max
    if "relu" in ins.modifiers:
        return elementwise(
            builder, ins, (type_, type_), type_,
            lambda x, y: np.maximum(arrays(x, y), 0), lambda x, y: max(0, scalars(x, y)),
        )  # fmt: skip
    return elementwise(builder, ins, (type_, type_), type_, arrays, scalars)


@instruction("abs")
def build_abs(builder: Builder, ins: Instruction) -> Run:
    """Build integer abs."""
    type_ = ins.modifiers[-1]
    if type_ not in INTEGERS:
        raise refuse(ins)
    return elementwise(builder, ins, (type_,), type_, np.abs, abs)


@instruction("neg")
def build_neg(builder: Builder, ins: Instruction) -> Run:
    """Build integer neg."""
    type_ = ins.modifiers[-1]
    if type_ not in INTEGERS:
        raise refuse(ins)
    target = builder.target(ins.operands[0])
    source = builder.source(ins.operands[1], type_)
    bits = BITS[type_]

    def run(machine: Machine) -> None:
        machine.put(target, subtract_values(Affine(0), machine.registers[source], bits, machine))

    return run


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


@instruction("sad")
def build_sad(builder: Builder, ins: Instruction) -> Run:
    """Build sad: z + |x - y|."""
    type_ = ins.modifiers[-1]

    def arrays(x: Array, y: Array, z: Array) -> Array:
        unsigned = UNSIGNED[x.dtype.itemsize * 8]
        distance = np.where(x > y, x.view(unsigned) - y.view(unsigned), y.view(unsigned) - x.view(unsigned))
        return (distance + z.view(unsigned)).view(z.dtype)

    return elementwise(builder, ins, (type_,) * 3, type_, arrays, lambda x, y, z: abs(x - y) + z)


@instruction("dp4a", "dp2a")
def build_dp(builder: Builder, ins: Instruction) -> Run:
    """Build dp4a (four bytes) and dp2a (two 16-bit by two bytes), added to the accumulator."""
    first, second = [word for word in ins.modifiers if word in ("u32", "s32")][-2:]
    upper = 2 if "hi" in ins.modifiers else 0
    wide = ins.opcode == "dp2a"

    def piece(x: Array, index: int, bits: int, type_: str) -> Array:
        part = (x >> np.uint32(index * bits)).astype(UNSIGNED[bits])
        return part.view(SIGNED[bits] if type_ == "s32" else UNSIGNED[bits]).astype(np.int64)

    def arrays(x: Array, y: Array, z: Array) -> Array:
        total = z.astype(np.int64)
        for index in range(2 if wide else 4):
            total = total + piece(x, index, 16 if wide else 8, first) * piece(y, index + upper, 8, second)
        return total.astype(np.uint32)

    return elementwise(builder, ins, ("b32", "b32", "b32"), "b32", arrays)
