"""Logic, shifts and bit fields (PTX ISA 9.7.1.15 and on, 9.7.8), popc to prmt."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from cudabench.simulator import values
from cudabench.simulator.isa.integer import elementwise
from cudabench.simulator.isa.opcodes import instruction, refuse
from cudabench.simulator.isa.warp import _U32
from cudabench.simulator.program.builder import Builder
from cudabench.simulator.program.code import Run
from cudabench.simulator.program.ptx import BITS, Instruction
from cudabench.simulator.values import UNSIGNED, Affine, Array, Value, as_array, canonical

if TYPE_CHECKING:
    from cudabench.simulator.machine import Machine


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

        def run(machine: Machine) -> None:
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

    def run(machine: Machine) -> None:
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

    def run(machine: Machine) -> None:
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

    def run(machine: Machine) -> None:
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
