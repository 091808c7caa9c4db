"""Integer arithmetic, logic and shifts (PTX ISA 9.7.1, 9.7.2, 9.7.8).

Each instruction has two forms: on plain Python ints where all operands are uniform, and on arrays. Addition,
subtraction and multiplication by a uniform value also keep affine operands affine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cudabench.simulator import values
from cudabench.simulator.isa.opcodes import Run, instruction, refuse
from cudabench.simulator.program.lower import Builder
from cudabench.simulator.program.ptx import BITS, Instruction
from cudabench.simulator.values import DTYPES, SIGNED, UNSIGNED, Affine, Array, Value, as_array, canonical

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

    def run(machine: Any) -> None:
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


def add_values(x: Value, y: Value, bits: int, machine: Any) -> Value:
    """Return x + y modulo 2^bits."""
    if type(x) is Affine and type(y) is Affine:
        return values.add(x, y, bits, machine.chunk)
    dtype = UNSIGNED[bits]
    return canonical(as_array(x, dtype, machine.chunk) + as_array(y, dtype, machine.chunk))


def subtract_values(x: Value, y: Value, bits: int, machine: Any) -> Value:
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


def multiply_values(x: Value, y: Value, bits: int, machine: Any) -> Value:
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


def widened(value: Value, type_: str, machine: Any) -> Value:
    """Return a 16- or 32-bit value extended to twice its width by the sign of the type."""
    bits = BITS[type_]
    if type(value) is Affine:
        found = values.signed(value, bits) if type_[0] == "s" else values.unsigned(value, bits)
        if found is not None:
            return found
    return as_array(value, DTYPES[type_], machine.chunk).astype((SIGNED if type_[0] == "s" else UNSIGNED)[2 * bits])


# Addition, subtraction, multiplication.


def build_add(builder: Builder, ins: Instruction) -> Run:
    """Build add.type and add.cc.type."""
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


def build_sub(builder: Builder, ins: Instruction) -> Run:
    """Build sub.type and sub.cc.type."""
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

    def run(machine: Any) -> None:
        registers = machine.registers
        machine.put(target, combine(registers[first], registers[second], bits, machine))

    return run


def carry_register(builder: Builder) -> int:
    """Return the register of the condition code, which the .cc instructions share."""
    if "CC.CF" not in builder.frame.registers:
        builder.frame.registers["CC.CF"] = builder.new(1, False)
    return builder.frame.registers["CC.CF"]


def with_carry(builder: Builder, ins: Instruction) -> Run:
    """Build the extended-precision family: add.cc, addc, sub.cc, subc, mad.cc, madc (PTX ISA 9.7.2)."""
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

    def run(machine: Any) -> None:
        x, y, *rest = (machine.array(source, dtype) for source in sources)
        into = as_array(machine.registers[carry], dtype, machine.chunk) if takes else None
        if rest:
            x, y = (multiply_high(x, y, type_) if high else x * y), rest[0]
        if name in ("sub", "subc"):
            result = x - y
            out = x < y
            if into is not None:
                out = out | (result < into)
                result = result - into
        else:
            result = x + y
            out = result < x
            if into is not None:
                result = result + into
                out = out | (result < into)
        machine.put(target, canonical(result))
        if gives:
            machine.put(carry, values.truth(out))

    return run


instruction("addc", "subc", "madc")(with_carry)


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


def _multiply_form(builder: Builder, ins: Instruction) -> tuple[str, str, int]:
    form = next((word for word in ins.modifiers if word in ("lo", "hi", "wide")), "lo")
    type_ = ins.modifiers[-1]
    if type_ not in INTEGERS:
        raise refuse(ins)
    return form, type_, BITS[type_]


def product(x: Value, y: Value, form: str, type_: str, machine: Any) -> Value:
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


def build_mul(builder: Builder, ins: Instruction) -> Run:
    """Build mul.lo, mul.hi, mul.wide and mul24."""
    form, type_, _ = _multiply_form(builder, ins)
    target = builder.target(ins.operands[0])
    first, second = (builder.source(operand, type_) for operand in ins.operands[1:])

    def run(machine: Any) -> None:
        registers = machine.registers
        machine.put(target, product(registers[first], registers[second], form, type_, machine))

    return run


def build_mad(builder: Builder, ins: Instruction) -> Run:
    """Build mad.lo, mad.hi, mad.wide."""
    form, type_, bits = _multiply_form(builder, ins)
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

    def run(machine: Any) -> None:
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


# Division, remainder, extremes.


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


def build_div(builder: Builder, ins: Instruction) -> Run:
    """Build integer div."""
    type_ = ins.modifiers[-1]
    return elementwise(builder, ins, (type_, type_), type_, divide, _int_divide)


@instruction("rem")
def build_rem(builder: Builder, ins: Instruction) -> Run:
    """Build rem."""
    type_ = ins.modifiers[-1]
    return elementwise(
        builder, ins, (type_, type_), type_, remainder, lambda x, y: x - _int_divide(x, y) * y if y else x
    )


def build_min(builder: Builder, ins: Instruction) -> Run:
    """Build integer min and max, also of packed halves and with .relu."""
    type_ = ins.modifiers[-1]
    name = ins.opcode
    arrays = np.minimum if name == "min" else np.maximum
    if type_ in ("u16x2", "s16x2"):
        return packed(builder, ins, type_, arrays)
    scalars: Callable[..., int] = min if name == "min" else max
    if "relu" in ins.modifiers:
        return elementwise(
            builder, ins, (type_, type_), type_,
            lambda x, y: np.maximum(arrays(x, y), 0), lambda x, y: max(0, scalars(x, y)),
        )  # fmt: skip
    return elementwise(builder, ins, (type_, type_), type_, arrays, scalars)


def build_abs(builder: Builder, ins: Instruction) -> Run:
    """Build integer abs."""
    type_ = ins.modifiers[-1]
    return elementwise(builder, ins, (type_,), type_, np.abs, abs)


def build_neg(builder: Builder, ins: Instruction) -> Run:
    """Build integer neg."""
    type_ = ins.modifiers[-1]
    target = builder.target(ins.operands[0])
    source = builder.source(ins.operands[1], type_)
    bits = BITS[type_]

    def run(machine: Any) -> None:
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


# Logic and shifts.


def _logic(
    name: str, arrays: Callable[..., Array], scalars: Callable[..., int], predicates: Callable[..., Any]
) -> None:
    @instruction(name)
    def build(builder: Builder, ins: Instruction) -> Run:
        type_ = ins.modifiers[-1]
        if type_ != "pred":
            if name in ("or", "xor"):
                return _disjoint(builder, ins, elementwise(builder, ins, (type_, type_), type_, arrays, scalars))
            return elementwise(builder, ins, (type_, type_), type_, arrays, scalars)
        target = builder.target(ins.operands[0])
        sources = [builder.predicate(operand) for operand in ins.operands[1:]]
        (first, flip_first), (second, flip_second) = sources

        def run(machine: Any) -> None:
            x, y = machine.registers[first], machine.registers[second]
            if flip_first:
                x = inverted(x)
            if flip_second:
                y = inverted(y)
            found = predicates(x, y)
            machine.put(target, found if type(found) is bool else values.truth(found))

        return run


def inverted(value: Value) -> Value:
    """Return a predicate's opposite."""
    return not value if type(value) is bool else ~value


def _disjoint(builder: Builder, ins: Instruction, general: Run) -> Run:
    """Add instead where the operands share no bits, as compilers write `4*i | 1`: an affine value stays affine."""
    target = builder.target(ins.operands[0])
    first, second = (builder.source(operand, ins.modifiers[-1]) for operand in ins.operands[1:])
    bits = BITS[ins.modifiers[-1]]

    def run(machine: Any) -> None:
        x, y = machine.registers[first], machine.registers[second]
        if type(x) is not Affine or type(y) is not Affine or x.coefficients is None or y.coefficients is not None:
            general(machine)
            return
        step = x.base
        for coefficient in x.coefficients:
            step |= coefficient
        if x.low >= 0 and 0 <= y.base < (step & -step):
            machine.put(target, values.add(x, y, bits, machine.chunk))
        else:
            general(machine)

    return run


_logic("and", np.bitwise_and, lambda x, y: x & y, lambda x, y: x & y)
_logic("or", np.bitwise_or, lambda x, y: x | y, lambda x, y: x | y)
_logic("xor", np.bitwise_xor, lambda x, y: x ^ y, lambda x, y: x ^ y)


@instruction("not")
def build_not(builder: Builder, ins: Instruction) -> Run:
    """Build not."""
    type_ = ins.modifiers[-1]
    if type_ != "pred":
        return elementwise(builder, ins, (type_,), type_, np.invert, lambda x: ~x)
    target = builder.target(ins.operands[0])
    source, flip = builder.predicate(ins.operands[1])

    def run(machine: Any) -> None:
        value = machine.registers[source]
        machine.put(target, value if flip else inverted(value))

    return run


@instruction("cnot")
def build_cnot(builder: Builder, ins: Instruction) -> Run:
    """Build cnot: C's `!`."""
    type_ = ins.modifiers[-1]
    return elementwise(builder, ins, (type_,), type_, lambda x: x == 0, lambda x: int(x == 0))


@instruction("lop3")
def build_lop3(builder: Builder, ins: Instruction) -> Run:
    """Build lop3: any logic function of three operands, given by its table of truth."""
    if len(ins.modifiers) > 1 and "BOOL" in "".join(ins.modifiers).upper():
        raise refuse(ins)
    table = ins.operands[4].value  # type: ignore[union-attr]

    def combine(x: Any, y: Any, z: Any) -> Any:
        found = None
        for case in range(8):
            if table >> case & 1:
                term = (x if case & 4 else ~x) & (y if case & 2 else ~y) & (z if case & 1 else ~z)
                found = term if found is None else found | term
        return x & ~x if found is None else found

    return elementwise(builder, ins._replace(operands=ins.operands[:4]), ("b32", "b32", "b32"), "b32", combine, combine)


@instruction("shl")
def build_shl(builder: Builder, ins: Instruction) -> Run:
    """Build shl: amounts beyond the width give 0."""
    type_ = ins.modifiers[-1]
    bits = BITS[type_]
    target = builder.target(ins.operands[0])
    source, amount = builder.source(ins.operands[1], type_), builder.source(ins.operands[2], "u32")
    dtype = UNSIGNED[bits]

    def run(machine: Any) -> None:
        x, y = machine.registers[source], machine.registers[amount]
        if type(y) is Affine and y.coefficients is None:
            steps = y.base & 0xFFFFFFFF
            if type(x) is Affine:
                machine.put(target, values.scale(x, 1 << steps, bits, machine.chunk) if steps < bits else Affine(0))
                return
            value = as_array(x, dtype, machine.chunk)
            machine.put(target, canonical(value << dtype.type(steps)) if steps < bits else Affine(0))
            return
        machine.put(target, canonical(shift_left(as_array(x, dtype, machine.chunk), machine.array(amount, _U32))))

    return run


def shift_left(x: Array, amount: Array) -> Array:
    """Return x << amount, 0 for amounts beyond the width; x unsigned, amount uint32."""
    bits = x.dtype.itemsize * 8
    return np.where(amount < bits, x << (amount & np.uint32(bits - 1)).astype(x.dtype), x.dtype.type(0))


def shift_right(x: Array, amount: Array) -> Array:
    """Return x >> amount, filled with the sign; amounts beyond the width count as the width."""
    bits = x.dtype.itemsize * 8
    if x.dtype.kind == "i":
        return x >> np.minimum(amount, bits - 1).astype(x.dtype)
    return np.where(amount < bits, x >> (amount & np.uint32(bits - 1)).astype(x.dtype), x.dtype.type(0))


@instruction("shr")
def build_shr(builder: Builder, ins: Instruction) -> Run:
    """Build shr."""
    type_ = ins.modifiers[-1]
    return elementwise(builder, ins, (type_, "u32"), type_, shift_right, lambda x, y: x >> min(y, 64))


@instruction("shf")
def build_shf(builder: Builder, ins: Instruction) -> Run:
    """Build shf: funnel shifts of {c, b} (here high, low)."""
    left, clamp = "l" in ins.modifiers, "clamp" in ins.modifiers

    def arrays(low: Array, high: Array, amount: Array) -> Array:
        steps = (np.minimum(amount, 32) if clamp else amount & np.uint32(31)).astype(np.uint64)
        both = (high.astype(np.uint64) << np.uint64(32)) | low
        found = (both << steps) >> np.uint64(32) if left else both >> steps
        return found.astype(np.uint32)

    return elementwise(builder, ins, ("b32", "b32", "u32"), "b32", arrays)


# Bit fields.


@instruction("bfe")
def build_bfe(builder: Builder, ins: Instruction) -> Run:
    """Build bfe: a field of c bits from bit b, extended by its sign for signed types."""
    type_ = ins.modifiers[-1]
    bits = BITS[type_]
    unsigned = UNSIGNED[bits]

    def arrays(x: Array, start: Array, length: Array) -> Array:
        start, length = (start & np.uint32(255)).astype(np.int64), (length & np.uint32(255)).astype(np.int64)
        bare = x.view(unsigned)
        raw = np.where(start < bits, bare >> np.minimum(start, bits - 1).astype(unsigned), unsigned.type(0))
        # Bits of the field beyond the register take the sign, too.
        inside = np.clip(np.minimum(length, bits - start), 0, bits)
        ones = np.where(
            inside < bits,
            (unsigned.type(1) << np.minimum(inside, bits - 1).astype(unsigned)) - unsigned.type(1),
            ~unsigned.type(0),
        )
        field = raw & ones
        if type_[0] == "s":
            last = np.minimum(start + length - 1, bits - 1)
            sign = np.where(
                length == 0, unsigned.type(0), (bare >> np.maximum(last, 0).astype(unsigned)) & unsigned.type(1)
            )
            field = np.where(sign != 0, field | ~ones, field)
        return field.view(x.dtype)

    return elementwise(builder, ins, (type_, "u32", "u32"), type_, arrays)


@instruction("bfi")
def build_bfi(builder: Builder, ins: Instruction) -> Run:
    """Build bfi: insert the low d bits of a into b from bit c."""
    type_ = ins.modifiers[-1]
    bits = BITS[type_]
    dtype = UNSIGNED[bits]

    def arrays(x: Array, y: Array, start: Array, length: Array) -> Array:
        start, length = start & np.uint32(255), length & np.uint32(255)
        ones = np.where(
            length < bits, (dtype.type(1) << np.minimum(length, bits - 1).astype(dtype)) - dtype.type(1), ~dtype.type(0)
        )
        field = shift_left(np.broadcast_to(ones, np.broadcast_shapes(ones.shape, start.shape)), start)
        return (y & ~field) | (shift_left(x, start) & field)

    return elementwise(builder, ins, (type_, type_, "u32", "u32"), type_, arrays)


@instruction("bmsk")
def build_bmsk(builder: Builder, ins: Instruction) -> Run:
    """Build bmsk: a mask of b bits from bit a."""
    clamp = "clamp" in ins.modifiers

    def arrays(start: Array, length: Array) -> Array:
        if not clamp:
            start, length = start & np.uint32(31), length & np.uint32(31)
        ones = np.where(length < 32, (np.uint32(1) << (length & np.uint32(31))) - np.uint32(1), np.uint32(0xFFFFFFFF))
        return shift_left(ones, start)

    return elementwise(builder, ins, ("u32", "u32"), "b32", arrays)


def count_bits(x: Array) -> Array:
    """Return the number of set bits; x unsigned."""
    if hasattr(np, "bitwise_count"):
        return np.bitwise_count(x).astype(np.uint32)
    table = np.array([bin(value).count("1") for value in range(256)], dtype=np.uint32)
    return table[np.ascontiguousarray(x)[..., None].view(np.uint8)].sum(axis=-1, dtype=np.uint32)


def leading_zeros(x: Array) -> Array:
    """Return the number of zero bits above the highest set bit; x unsigned."""
    bits = x.dtype.itemsize * 8
    step = 1
    while step < bits:
        x = x | (x >> x.dtype.type(step))
        step *= 2
    return np.uint32(bits) - count_bits(x)


@instruction("popc")
def build_popc(builder: Builder, ins: Instruction) -> Run:
    """Build popc."""
    return elementwise(builder, ins, (ins.modifiers[-1],), "u32", count_bits, lambda x: bin(x).count("1"))


@instruction("clz")
def build_clz(builder: Builder, ins: Instruction) -> Run:
    """Build clz."""
    type_ = ins.modifiers[-1]
    return elementwise(builder, ins, (type_,), "u32", leading_zeros, lambda x: BITS[type_] - x.bit_length())


@instruction("bfind")
def build_bfind(builder: Builder, ins: Instruction) -> Run:
    """Build bfind: the highest set bit (for negative values the highest clear one), all ones if there is none."""
    type_ = ins.modifiers[-1]
    bits = BITS[type_]
    shift = "shiftamt" in ins.modifiers

    def arrays(x: Array) -> Array:
        unsigned = x.view(UNSIGNED[bits])
        if type_[0] == "s":
            unsigned = np.where(x < 0, ~unsigned, unsigned)
        zeros = leading_zeros(unsigned)
        place = zeros if shift else np.uint32(bits - 1) - zeros
        return np.where(zeros == bits, np.uint32(0xFFFFFFFF), place)

    return elementwise(builder, ins, (type_,), "u32", arrays)


@instruction("brev")
def build_brev(builder: Builder, ins: Instruction) -> Run:
    """Build brev: bits in reverse order."""
    type_ = ins.modifiers[-1]
    bits = BITS[type_]

    def arrays(x: Array) -> Array:
        step = bits // 2
        mask = (1 << bits) - 1
        while step:
            mask ^= (mask << step) & ((1 << bits) - 1)
            low = x.dtype.type(mask)
            x = ((x >> x.dtype.type(step)) & low) | ((x & low) << x.dtype.type(step))
            step //= 2
        return x

    return elementwise(builder, ins, (type_,), type_, arrays)


@instruction("fns")
def build_fns(builder: Builder, ins: Instruction) -> Run:
    """Build fns: the n-th set bit from a base bit, upward or downward."""

    def arrays(mask: Array, base: Array, offset: Array) -> Array:
        mask, base, offset = np.broadcast_arrays(mask, base, offset)
        result = np.full(mask.shape, 0xFFFFFFFF, dtype=np.uint32)
        left = np.where(offset == 0, 1, np.abs(offset)).astype(np.int64)
        step = np.where(offset < 0, -1, 1)
        place = base.astype(np.int64)
        for _ in range(32):
            inside = (place >= 0) & (place < 32)
            is_set = inside & ((mask >> np.clip(place, 0, 31).astype(np.uint32)) & np.uint32(1)).astype(bool)
            left = left - is_set
            hit = is_set & (left == 0)
            result[hit] = place[hit].astype(np.uint32)
            place = np.where(offset == 0, -1, place + step)
        return result

    return elementwise(builder, ins, ("b32", "u32", "s32"), "b32", arrays)


@instruction("prmt")
def build_prmt(builder: Builder, ins: Instruction) -> Run:
    """Build prmt: pick four of the eight bytes of two registers (PTX ISA 9.7.9.7)."""
    mode = next((word for word in ins.modifiers if word in ("f4e", "b4e", "rc8", "ecl", "ecr", "rc16")), "")

    def selectors(control: Array) -> list[Array]:
        low = control & np.uint32(3)
        if mode == "":
            return [(control >> np.uint32(4 * place)) & np.uint32(15) for place in range(4)]
        if mode == "f4e":
            return [low + np.uint32(place) for place in range(4)]
        if mode == "b4e":
            return [(low - np.uint32(place)) & np.uint32(7) for place in range(4)]
        if mode == "rc8":
            return [low] * 4
        if mode == "ecl":
            return [np.maximum(low, place).astype(np.uint32) for place in range(4)]
        if mode == "ecr":
            return [np.minimum(low, place).astype(np.uint32) for place in range(4)]
        return [((low & np.uint32(1)) << np.uint32(1)) + np.uint32(place & 1) for place in range(4)]

    def arrays(x: Array, y: Array, control: Array) -> Array:
        both = (y.astype(np.uint64) << np.uint64(32)) | x
        result: Any = np.uint32(0)
        for place, selector in enumerate(selectors(control)):
            byte = ((both >> ((selector & np.uint32(7)).astype(np.uint64) * np.uint64(8))) & np.uint64(255)).astype(
                np.uint32
            )
            copies = np.where(byte & np.uint32(128), np.uint32(255), np.uint32(0))
            byte = np.where(selector & np.uint32(8), copies, byte)
            result = result | (byte << np.uint32(8 * place))
        return result

    return elementwise(builder, ins, ("b32", "b32", "b32"), "b32", arrays)
