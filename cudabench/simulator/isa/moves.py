"""Moves, comparisons, selections and conversions (PTX ISA 9.7.6, 9.7.7 and 9.7.9)."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cudabench.simulator import values
from cudabench.simulator.isa import rounding
from cudabench.simulator.isa.access import space_of
from cudabench.simulator.isa.bits import inverted
from cudabench.simulator.isa.elementwise import COMPARE, INTEGERS, computes, elementwise, in_parts, limits
from cudabench.simulator.isa.floating import from_halves, rounding_mode
from cudabench.simulator.isa.fp8 import FORMATS, build_cvt_fp8
from cudabench.simulator.isa.integer import resized
from cudabench.simulator.isa.opcodes import instruction, refuse, registers
from cudabench.simulator.machine import Machine
from cudabench.simulator.memory import LOCAL_WINDOW, PARAMETER_WINDOW, SHARED_WINDOW, WINDOW
from cudabench.simulator.program.builder import Builder
from cudabench.simulator.program.code import Run
from cudabench.simulator.program.ptx import BITS, Instruction, Negated, Pair, Vector
from cudabench.simulator.values import BOOL, DTYPES, UNSIGNED, Affine, Array, Value, as_array, canonical, truth

_PAIRS = ("f16x2", "bf16x2")

# Moves.


@instruction("mov")
def _mov(builder: Builder, ins: Instruction) -> Run:
    type_ = ins.modifiers[-1]
    into, out_of = ins.operands
    if type_ == "b128" or isinstance(out_of, Negated):
        raise refuse(ins)
    if isinstance(into, Vector):
        return _unpack(builder, into, out_of, type_)
    if isinstance(out_of, Vector):
        return _pack(builder, into, out_of, type_)
    target, source = registers(builder, ins, type_)
    if builder.width(target) == 32 and builder.width(source) == 64:
        # The 32-bit address of a shared variable.
        def narrow(machine: Machine) -> None:
            machine.put(target, resized(machine.registers[source], "u64", "u32", 32, machine.chunk))

        return narrow

    def run(machine: Machine) -> None:
        machine.put(target, machine.registers[source])

    return run


@instruction("createpolicy")
def _createpolicy(builder: Builder, ins: Instruction) -> Run:
    """Build a number for the cache, which nothing that the simulator shows depends on."""
    (target,) = registers(builder, ins)
    return lambda machine: machine.put(target, Affine(0))


def _unpack(builder: Builder, into: Vector, out_of: Any, type_: str) -> Run:
    piece = BITS[type_] // len(into.items)
    source = builder.source(out_of, type_)
    targets = [builder.target(item) for item in into.items]
    wide, narrow = UNSIGNED[BITS[type_]], UNSIGNED[piece]

    def run(machine: Machine) -> None:
        value = machine.array(source, wide)
        for place, target in enumerate(targets):
            machine.put(target, canonical((value >> wide.type(place * piece)).astype(narrow)))

    return run


def _pack(builder: Builder, into: Any, out_of: Vector, type_: str) -> Run:
    piece = BITS[type_] // len(out_of.items)
    sources = [builder.source(item, f"b{piece}") for item in out_of.items]
    target = builder.target(into)
    wide, narrow = UNSIGNED[BITS[type_]], UNSIGNED[piece]

    def run(machine: Machine) -> None:
        value = machine.array(sources[0], narrow).astype(wide)
        for place, source in enumerate(sources[1:], 1):
            value = value | (machine.array(source, narrow).astype(wide) << wide.type(place * piece))
        machine.put(target, canonical(value))

    return run


@instruction("cvta")
def _cvta(builder: Builder, ins: Instruction) -> Run:
    """Build the conversion between an address in a state space and a generic one."""
    window = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW}.get(space_of(ins), 0)
    target, source = registers(builder, ins, "u64")
    shift = Affine(-window if "to" in ins.modifiers else window)
    narrow = builder.width(source) == 32

    def run(machine: Machine) -> None:
        value = machine.registers[source]
        if shift.base and type(value) is Affine:
            value = values.add(value, shift, 64, machine.chunk)
        elif shift.base:
            value = as_array(value, UNSIGNED[64], machine.chunk) + np.uint64(shift.base & 0xFFFFFFFFFFFFFFFF)
        elif narrow and type(value) is not Affine:
            value = as_array(value, UNSIGNED[32], machine.chunk).astype(np.uint64)
        machine.put(target, value)

    return run


@instruction("isspacep")
def _isspacep(builder: Builder, ins: Instruction) -> Run:
    """Build the question whether a generic address lies in a state space."""
    space = space_of(ins)
    target, source = registers(builder, ins, "u64")
    start = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW, "param": PARAMETER_WINDOW}.get(space)

    def run(machine: Machine) -> None:
        address = machine.array(source, UNSIGNED[64])
        ends = [] if start is None else [(start, start + WINDOW)]
        if space == "const":
            ends = [(region.base, region.end) for region in machine.space.slots if region.constant]
        inside = np.zeros(address.shape, dtype=bool) if space != "global" else address >= np.uint64(1 << 39)
        for low, high in ends:
            inside |= (address >= np.uint64(low)) & (address < np.uint64(high))
        machine.put(target, truth(inside))

    return run


# Comparisons.

_UNORDERED = {"equ": "eq", "neu": "ne", "ltu": "lt", "leu": "le", "gtu": "gt", "geu": "ge"}
_OF_NAN: dict[str, Callable[[Array, Array], Array]] = {
    "num": lambda x, y: ~_unordered(x, y),
    "nan": lambda x, y: _unordered(x, y),
    "ne": lambda x, y: (x != y) & ~_unordered(x, y),
}
_BOOLEAN: dict[str, Callable[[Any, Any], Any]] = {"and": operator.and_, "or": operator.or_, "xor": operator.xor}


def _unordered(x: Array, y: Array) -> Array:
    return np.isnan(x) | np.isnan(y)


def compare_arrays(name: str, real: bool) -> Callable[[Array, Array], Array]:
    """Return a comparison of PTX ISA 9.3.1; the ordered ones are false for NaN, those with u true."""
    if name in _UNORDERED:
        inner = COMPARE[_UNORDERED[name]]
        return lambda x, y: inner(x, y) | _unordered(x, y)
    return _OF_NAN[name] if name in _OF_NAN and real else COMPARE[name]


def decide(name: str, x: Affine, y: Affine) -> bool | None:
    """Return what a comparison of affine values gives for all lanes, or None where it differs or is not known."""
    if name in ("gt", "ge", "hi", "hs"):
        x, y, name = y, x, {"gt": "lt", "ge": "le", "hi": "lt", "hs": "le"}[name]
    if name in ("lt", "lo"):
        return True if x.high < y.low else False if x.low >= y.high else None
    if name in ("le", "ls"):
        return True if x.high <= y.low else False if x.low > y.high else None
    if x.high < y.low or x.low > y.high:
        return name == "ne"
    if x.coefficients is None and y.coefficients is None:
        return (x.base == y.base) == (name == "eq")
    return None


def comparison(builder: Builder, ins: Instruction, type_: str) -> Callable[[Machine], Value]:
    """Return the function of the machine that compares operands 1 and 2 of setp or set."""
    name, whole = ins.modifiers[0], type_ in INTEGERS
    if name not in {**COMPARE, **_UNORDERED, **_OF_NAN} or not (whole or type_ in ("f32", "f64", "f16", "bf16")):
        raise refuse(ins)
    half = type_ in ("f16", "bf16")
    read = "b16" if half else type_
    first, second = (builder.source(operand, read) for operand in ins.operands[1:3])
    compare, dtype = compare_arrays(name, not whole), DTYPES[read]
    bits, signed, flush = BITS[type_], type_[0] == "s", "ftz" in ins.modifiers

    def run(machine: Machine) -> Value:
        x, y = machine.registers[first], machine.registers[second]
        if whole and type(x) is Affine and type(y) is Affine:
            p, q = values.by_sign(x, bits, signed), values.by_sign(y, bits, signed)
            if p is not None and q is not None:
                found = decide(name, p, q)
                if found is not None:
                    return found
        a, b = as_array(x, dtype, machine.chunk), as_array(y, dtype, machine.chunk)
        if half:
            a, b = from_halves(a, type_), from_halves(b, type_)
        if flush:
            a, b = rounding.flush(a), rounding.flush(b)
        return truth(compare(a, b))

    return run


def _halves(builder: Builder, ins: Instruction, one: int) -> Callable[[Machine], Array]:
    """Return the function of the machine that compares the lower and the upper halves of operands 1 and 2: it gives
    `one` in each half where the comparison holds."""
    sources = [builder.source(operand, "b32") for operand in ins.operands[1:3]]
    compare, type_ = compare_arrays(ins.modifiers[0], True), ins.modifiers[-1]

    def half(x: Array, y: Array) -> Array:
        return np.where(compare(from_halves(x, type_), from_halves(y, type_)), np.uint16(one), np.uint16(0))

    both = in_parts(half, 16, 32)
    return lambda machine: both(*[machine.array(source, UNSIGNED[32]) for source in sources])


def _third(builder: Builder, ins: Instruction) -> Callable[[Machine, Value], Value]:
    """Return what combines a comparison with a third operand, where the instruction names a boolean operator."""
    combine = next((_BOOLEAN[word] for word in ins.modifiers[1:] if word in _BOOLEAN), None)
    if combine is None:
        return lambda machine, found: found
    other, flip = builder.predicate(ins.operands[3])

    def combined(machine: Machine, found: Value) -> Value:
        third = machine.registers[other]
        found = combine(found, inverted(third) if flip else third)
        return found if type(found) is bool else truth(found)

    return combined


@instruction("setp")
def _setp(builder: Builder, ins: Instruction) -> Run:
    """Build a comparison, with a second destination for its opposite and a boolean operator."""
    into, type_ = ins.operands[0], ins.modifiers[-1]
    first, second = into if isinstance(into, Pair) else (into, None)
    target = builder.target(first)
    complement = None if second is None else builder.target(second)
    if type_ in _PAIRS:
        if complement is None:
            raise refuse(ins)
        halves = _halves(builder, ins, 1)

        def run_halves(machine: Machine) -> None:
            found = halves(machine)
            machine.put(target, truth(found & np.uint32(1) != 0))
            machine.put(complement, truth(found >> np.uint32(16) != 0))

        return run_halves
    compare, third = comparison(builder, ins, type_), _third(builder, ins)
    if complement is None and len(ins.operands) == 3:
        return lambda machine: machine.put(target, compare(machine))

    def run(machine: Machine) -> None:
        found = compare(machine)
        opposite = None if complement is None else third(machine, inverted(found))
        machine.put(target, third(machine, found))
        if complement is not None:
            machine.put(complement, opposite)

    return run


@instruction("set")
def _set(builder: Builder, ins: Instruction) -> Run:
    """Build a comparison as an integer (all ones) or a float (1.0)."""
    result, type_ = ins.modifiers[-2:]
    target = builder.target(ins.operands[0])
    ones = {"f16": 0x3C00, "bf16": 0x3F80, "f32": 0x3F800000}
    if type_ in _PAIRS:
        halves = _halves(builder, ins, ones.get(result[:-2], 0xFFFF))
        return lambda machine: machine.put(target, halves(machine))
    compare, third = comparison(builder, ins, type_), _third(builder, ins)
    dtype = UNSIGNED[BITS[result]]
    yes = dtype.type(ones.get(result, (1 << BITS[result]) - 1))

    def run(machine: Machine) -> None:
        found = as_array(third(machine, compare(machine)), BOOL, machine.chunk)
        machine.put(target, canonical(np.where(found, yes, dtype.type(0))))

    return run


@instruction("selp")
def _selp(builder: Builder, ins: Instruction) -> Run:
    type_ = ins.modifiers[-1]
    target, first, second = registers(builder, ins, type_, type_)
    condition, flip = builder.predicate(ins.operands[3])
    dtype = DTYPES[type_]

    def run(machine: Machine) -> None:
        chosen = machine.registers[condition]
        if flip:
            chosen = inverted(chosen)
        if type(chosen) is bool:
            machine.put(target, machine.registers[first if chosen else second])
        else:
            machine.put(target, np.where(chosen, machine.array(first, dtype), machine.array(second, dtype)))

    return run


@instruction("slct")
def _slct(builder: Builder, ins: Instruction) -> Run:
    type_, kind = ins.modifiers[-2:]
    return elementwise(builder, ins, (type_, type_, kind), type_, lambda x, y, z: np.where(z >= 0, x, y))


# Conversions.


_INTEGRAL: dict[str, Callable[[Array], Array]] = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


def float_to_int(x: Array, mode: str, result: str) -> Array:
    """Return a float as an integer: rounded, clamped to the type's range, NaN as PTX ISA 9.7.9 (cvt) says."""
    (low, high), dtype = limits(result), DTYPES[result]
    real, limit = _INTEGRAL[mode](x.astype(np.float64)), float(high + 1)
    inside = np.where((real >= low) & (real < limit), real, 0.0)
    integer = inside.astype(np.uint64 if dtype == np.uint64 else np.int64).astype(dtype)
    integer = np.where(real >= limit, dtype.type(high), np.where(real < low, dtype.type(low), integer))
    wide = x.dtype == np.float64 or dtype.itemsize == 8
    return np.where(np.isnan(real), dtype.type(low or high // 2 + 1 if wide else 0), integer)


def int_to_float(x: Array, mode: str, dtype: np.dtype[Any]) -> Array:
    """Return an integer as a float with the rounding mode."""
    if mode == "rn":
        # What float64 does not hold exactly is beyond the largest half.
        return x.astype(np.float64).astype(dtype) if dtype == np.float16 else x.astype(dtype)
    return rounding.directed(*rounding.two_halves(x), dtype, mode)


@instruction("cvt")
def _cvt(builder: Builder, ins: Instruction) -> Run:
    words = ins.modifiers
    if words[0] == "pack":
        return _cvt_pack(builder, ins)
    result, type_ = words[-2:]
    if result in FORMATS or type_ in FORMATS:
        return build_cvt_fp8(builder, ins)
    if result in _PAIRS and type_ == "f32":
        return _cvt_pair(builder, ins, result)
    known = (*INTEGERS, "f16", "bf16", "f32", "f64", "tf32")
    if result not in known or type_ not in known or len(ins.operands) != 2:
        raise refuse(ins)
    integral, mode = next((word for word in words if word in _INTEGRAL), None), rounding_mode(ins)
    saturate, flush, relu = any(w in ("sat", "satfinite") for w in words), "ftz" in words, "relu" in words
    if type_ in INTEGERS and result in INTEGERS:
        if saturate:
            (low, high), (least, most) = limits(result), limits(type_)
            return elementwise(builder, ins, (type_,), result, lambda x: np.clip(x, max(low, least), min(high, most)))
        target, source = registers(builder, ins, type_)
        width = builder.width(target)

        def resize(machine: Machine) -> None:
            machine.put(target, resized(machine.registers[source], type_, result, width, machine.chunk))

        return resize
    half = type_ in ("f16", "bf16")

    def convert(x: Array) -> Array:
        x = from_halves(x, type_) if half else x
        if flush and x.dtype == np.float32:
            x = rounding.flush(x)
        if result in INTEGERS:
            return float_to_int(x, integral or "rzi", result)
        return to_float(x, result, mode, integral, saturate, relu, flush)

    return elementwise(builder, ins, ("b16" if half else type_,), result, convert)


def to_float(x: Array, result: str, mode: str, integral: str | None, saturate: bool, relu: bool, flush: bool) -> Array:
    """Return integers or floats converted to a floating-point type (bf16 and tf32 as bits)."""
    if integral is not None:
        x = _INTEGRAL[integral](x)
    if relu:
        x = np.where(x > 0, x, x * 0 if x.dtype.kind != "f" else np.where(np.isnan(x), x, x.dtype.type(0)))
    if result == "bf16":
        return rounding.to_bf16(x if x.dtype.kind == "f" else rounding.odd_sum(*rounding.two_halves(x)), mode)
    if result == "tf32":
        # Round to nearest, ties away, to 10 bits of mantissa (rna), or to even (rn).
        bits = x.view(np.uint32)
        step = np.uint32(0x1000) if mode != "rn" else np.uint32(0xFFF) + ((bits >> np.uint32(13)) & np.uint32(1))
        found = np.where(np.isfinite(x), bits + step, bits)
        return found & np.uint32(0xFFFFE000)
    dtype = DTYPES[result]
    if x.dtype.kind != "f":
        found = int_to_float(x, mode, dtype)
    elif mode == "rn" or dtype.itemsize >= x.dtype.itemsize:
        found = x.astype(dtype)
    else:
        found = rounding.directed(x, np.zeros_like(x), dtype, mode)
    if flush and dtype == np.float32:
        found = rounding.flush(found)
    return rounding.saturate(found) if saturate else found


def _cvt_pair(builder: Builder, ins: Instruction, result: str) -> Run:
    """Build cvt.f16x2.f32 and cvt.bf16x2.f32: the first operand becomes the upper half."""
    mode, relu = rounding_mode(ins), "relu" in ins.modifiers

    def arrays(*operands: Array) -> Array:
        parts = (to_float(x, result[:-2], mode, None, False, relu, False).view(np.uint16) for x in operands)
        high, low = (part.astype(np.uint32) for part in parts)
        return low | high << np.uint32(16)

    return elementwise(builder, ins, ("f32", "f32"), "b32", arrays)


def _cvt_pack(builder: Builder, ins: Instruction) -> Run:
    """Build cvt.pack.sat: two integers, clamped, into the low bits, above them the low bits of c."""
    result, type_ = ins.modifiers[2:4]
    bits, mask = BITS[result], (1 << BITS[result]) - 1

    def arrays(x: Array, y: Array, above: Array | None = None) -> Array:
        a, b = (np.clip(part.astype(np.int64), *limits(result)) & mask for part in (x, y))
        found = (a << bits) | b
        if above is not None and bits < 16:
            found = found | (above.astype(np.int64) << (2 * bits))
        return (found & 0xFFFFFFFF).astype(np.uint32)

    return elementwise(builder, ins, (type_, type_, "b32")[: len(ins.operands) - 1], "b32", arrays)


@computes("szext", "t u32 t", words=True)
def _extended(words: Sequence[str], x: Array, length: Array) -> Array:
    """Return a value of so many bits extended by its sign or with zeros."""
    count = (np.minimum(length, 32) if "clamp" in words else length & np.uint32(31)).astype(np.int64)
    wide = x.astype(np.int64) & ((np.int64(1) << count) - 1)
    if x.dtype.kind == "i":
        sign = np.where(count > 0, (wide >> np.maximum(count - 1, 0)) & 1, 0)
        wide = wide - (sign << count)
    return wide.astype(x.dtype)
