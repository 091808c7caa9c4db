"""Moves, comparisons, selections and conversions (PTX ISA 9.7.6, 9.7.7 and 9.7.9)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from cudabench.simulator import values
from cudabench.simulator.isa import rounding
from cudabench.simulator.isa.bits import inverted
from cudabench.simulator.isa.fp8 import FORMATS, build_cvt_fp8
from cudabench.simulator.isa.integer import INTEGERS, elementwise
from cudabench.simulator.isa.opcodes import instruction, refuse
from cudabench.simulator.memory import LOCAL_WINDOW, PARAMETER_WINDOW, SHARED_WINDOW, WINDOW
from cudabench.simulator.program.builder import Builder
from cudabench.simulator.program.code import Run
from cudabench.simulator.program.ptx import BITS, Immediate, Instruction, Negated, Pair, Vector
from cudabench.simulator.values import BOOL, DTYPES, SIGNED, UNSIGNED, Affine, Array, Value, as_array, canonical, truth

if TYPE_CHECKING:
    from cudabench.simulator.machine import Machine


# Moves.


@instruction("mov")
def build_mov(builder: Builder, ins: Instruction) -> Run:
    """Build mov, also between a register and a vector of its pieces."""
    type_ = ins.modifiers[-1]
    into, out_of = ins.operands
    if type_ == "b128":
        raise refuse(ins)
    if isinstance(into, Vector):
        return _unpack(builder, into, out_of, type_)
    if isinstance(out_of, Vector):
        return _pack(builder, into, out_of, type_)
    target = builder.target(into)
    if isinstance(out_of, Negated):
        raise refuse(ins)
    source = builder.source(out_of, type_)
    if builder.width(target) == 32 and builder.width(source) == 64:
        # The 32-bit address of a shared variable.
        def narrow(machine: Machine) -> None:
            machine.put(target, resized(machine.registers[source], "u64", "u32", 32, machine))

        return narrow

    def run(machine: Machine) -> None:
        machine.put(target, machine.registers[source])

    return run


@instruction("createpolicy")
def build_createpolicy(builder: Builder, ins: Instruction) -> Run:
    """Build createpolicy: a number for the cache, which nothing that the simulator shows depends on."""
    target, policy = builder.target(ins.operands[0]), builder.immediate(Immediate(0), "u64")

    def run(machine: Machine) -> None:
        machine.put(target, machine.registers[policy])

    return run


def _unpack(builder: Builder, into: Vector, out_of: Any, type_: str) -> Run:
    bits = BITS[type_]
    piece = bits // len(into.items)
    source = builder.source(out_of, type_)
    targets = [builder.target(item) for item in into.items]
    wide, narrow = UNSIGNED[bits], UNSIGNED[piece]

    def run(machine: Machine) -> None:
        value = machine.array(source, wide)
        for place, target in enumerate(targets):
            machine.put(target, canonical((value >> wide.type(place * piece)).astype(narrow)))

    return run


def _pack(builder: Builder, into: Any, out_of: Vector, type_: str) -> Run:
    bits = BITS[type_]
    piece = bits // len(out_of.items)
    sources = [builder.source(item, f"b{piece}") for item in out_of.items]
    target = builder.target(into)
    wide, narrow = UNSIGNED[bits], UNSIGNED[piece]

    def run(machine: Machine) -> None:
        value = machine.array(sources[0], narrow).astype(wide)
        for place, source in enumerate(sources[1:], 1):
            value = value | (machine.array(source, narrow).astype(wide) << wide.type(place * piece))
        machine.put(target, canonical(value))

    return run


@instruction("cvta")
def build_cvta(builder: Builder, ins: Instruction) -> Run:
    """Build cvta: between an address in a state space and a generic one."""
    to = "to" in ins.modifiers
    space = next((word.partition(":")[0] for word in ins.modifiers if word.partition(":")[0] in _SPACES), "global")
    window = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW}.get(space, 0)
    target = builder.target(ins.operands[0])
    source = builder.source(ins.operands[1], "u64")
    shift = Affine(-window if to else window)
    narrow = builder.width(source) == 32

    def run(machine: Machine) -> None:
        value = machine.registers[source]
        if shift.base:
            if type(value) is Affine:
                value = values.add(value, shift, 64, machine.chunk)
            else:
                value = as_array(value, UNSIGNED[64], machine.chunk) + np.uint64(shift.base & 0xFFFFFFFFFFFFFFFF)
        elif narrow and type(value) is not Affine:
            value = as_array(value, UNSIGNED[32], machine.chunk).astype(np.uint64)
        machine.put(target, value)

    return run


_SPACES = ("global", "shared", "local", "const", "param")


@instruction("isspacep")
def build_isspacep(builder: Builder, ins: Instruction) -> Run:
    """Build isspacep: whether a generic address lies in a state space."""
    space = ins.modifiers[0].partition(":")[0]
    target = builder.target(ins.operands[0])
    source = builder.source(ins.operands[1], "u64")
    windows = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW, "param": PARAMETER_WINDOW}

    def run(machine: Machine) -> None:
        address = machine.array(source, UNSIGNED[64])
        start = windows.get(space)
        if start is not None:
            inside = (address >= np.uint64(start)) & (address < np.uint64(start + WINDOW))
        elif space == "const":
            inside = np.zeros(address.shape, dtype=bool)
            for region in machine.space.slots:
                if region.constant:
                    inside |= (address >= np.uint64(region.base)) & (address < np.uint64(region.end))
        else:
            inside = address >= np.uint64(1 << 39)
        machine.put(target, truth(inside))

    return run


# Comparisons.

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "eq": lambda x, y: x == y, "ne": lambda x, y: x != y, "lt": lambda x, y: x < y, "le": lambda x, y: x <= y,
    "gt": lambda x, y: x > y, "ge": lambda x, y: x >= y, "lo": lambda x, y: x < y, "ls": lambda x, y: x <= y,
    "hi": lambda x, y: x > y, "hs": lambda x, y: x >= y,
}  # fmt: skip
_UNORDERED = {"equ": "eq", "neu": "ne", "ltu": "lt", "leu": "le", "gtu": "gt", "geu": "ge"}
_BOOLEAN: dict[str, Callable[[Any, Any], Any]] = {
    "and": lambda x, y: x & y, "or": lambda x, y: x | y, "xor": lambda x, y: x ^ y,
}  # fmt: skip


def compare_arrays(name: str, real: bool) -> Callable[[Array, Array], Array]:
    """Return a comparison of PTX ISA 9.3.1; the ordered ones are false for NaN, those with u true."""
    if name == "num":
        return lambda x, y: ~(np.isnan(x) | np.isnan(y))
    if name == "nan":
        return lambda x, y: np.isnan(x) | np.isnan(y)
    if name in _UNORDERED:
        inner = _COMPARE[_UNORDERED[name]]
        return lambda x, y: inner(x, y) | np.isnan(x) | np.isnan(y)
    if name == "ne" and real:
        return lambda x, y: (x != y) & ~np.isnan(x) & ~np.isnan(y)
    return _COMPARE[name]


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
    name = ins.modifiers[0]
    if name not in _COMPARE and name not in _UNORDERED and name not in ("num", "nan"):
        raise refuse(ins)
    half = type_ in ("f16", "bf16")
    if type_ not in INTEGERS and type_ not in ("f32", "f64") and not half:
        raise refuse(ins)
    read = "b16" if half else type_
    first, second = (builder.source(operand, read) for operand in ins.operands[1:3])
    dtype = DTYPES[read]
    compare = compare_arrays(name, type_ not in INTEGERS)
    bits = BITS[type_]
    sign = values.signed if type_[0] == "s" else values.unsigned
    flush = "ftz" in ins.modifiers

    def run(machine: Machine) -> Value:
        x, y = machine.registers[first], machine.registers[second]
        if dtype.kind in "iu" and not half and type(x) is Affine and type(y) is Affine:
            p, q = sign(x, bits), sign(y, bits)
            if p is not None and q is not None:
                found = decide(name, p, q)
                if found is not None:
                    return found
        a, b = as_array(x, dtype, machine.chunk), as_array(y, dtype, machine.chunk)
        if half:
            a, b = ((rounding.from_bf16(v) if type_ == "bf16" else v.view(np.float16)) for v in (a, b))
        if flush:
            a, b = rounding.flush(a), rounding.flush(b)
        return truth(compare(a, b))

    return run


@instruction("setp")
def build_setp(builder: Builder, ins: Instruction) -> Run:
    """Build setp, with a second destination and a boolean operator."""
    type_ = ins.modifiers[-1]
    if type_ in ("f16x2", "bf16x2"):
        return _setp_pair(builder, ins, type_)
    into = ins.operands[0]
    complement: int | None = None
    if isinstance(into, Pair):
        complement = builder.target(into.second)
        into = into.first
    target = builder.target(into)
    compare = comparison(builder, ins, type_)
    boolean = next((_BOOLEAN[word] for word in ins.modifiers[1:] if word in _BOOLEAN), None)
    other, flip = builder.predicate(ins.operands[3]) if boolean is not None else (-1, False)
    if boolean is None and complement is None:

        def simple(machine: Machine) -> None:
            machine.put(target, compare(machine))

        return simple

    def run(machine: Machine) -> None:
        found = compare(machine)
        opposite = inverted(found)
        if boolean is not None:
            third = machine.registers[other]
            if flip:
                third = inverted(third)
            found, opposite = boolean(found, third), boolean(opposite, third)
        machine.put(target, found if type(found) is bool else truth(found))
        if complement is not None:
            machine.put(complement, opposite if type(opposite) is bool else truth(opposite))

    return run


def _setp_pair(builder: Builder, ins: Instruction, type_: str) -> Run:
    """Build setp.f16x2: one predicate for each half."""
    into = ins.operands[0]
    if not isinstance(into, Pair):
        raise refuse(ins)
    low, high = builder.target(into.first), builder.target(into.second)
    first, second = (builder.source(operand, "b32") for operand in ins.operands[1:3])
    compare = compare_arrays(ins.modifiers[0], True)

    def run(machine: Machine) -> None:
        for shift, target in ((0, low), (16, high)):
            x, y = (_half(machine, source, shift, type_) for source in (first, second))
            machine.put(target, truth(compare(x, y)))

    return run


@instruction("set")
def build_set(builder: Builder, ins: Instruction) -> Run:
    """Build set: a comparison as an integer (all ones) or a float (1.0)."""
    result, type_ = ins.modifiers[-2:]
    target = builder.target(ins.operands[0])
    if type_ in ("f16x2", "bf16x2"):
        return _set_pair(builder, ins, target, result, type_)
    compare = comparison(builder, ins, type_)
    boolean = next((_BOOLEAN[word] for word in ins.modifiers[1:] if word in _BOOLEAN), None)
    other, flip = builder.predicate(ins.operands[3]) if boolean is not None else (-1, False)
    bits = BITS[result]
    if result in ("f16", "bf16"):
        yes = 0x3C00 if result == "f16" else 0x3F80
    elif result == "f32":
        yes = 0x3F800000
    else:
        yes = (1 << bits) - 1
    dtype = UNSIGNED[bits]

    def run(machine: Machine) -> None:
        found = compare(machine)
        if boolean is not None:
            third = machine.registers[other]
            found = boolean(found, inverted(third) if flip else third)
        array = as_array(found, BOOL, machine.chunk)
        machine.put(target, canonical(np.where(array, dtype.type(yes), dtype.type(0))))

    return run


def _half(machine: Machine, source: int, shift: int, type_: str) -> Array:
    """Return the low (shift 0) or high (16) half of a packed pair of 16-bit floats as floats."""
    bits = (machine.array(source, UNSIGNED[32]) >> np.uint32(shift)).astype(np.uint16)
    return rounding.from_bf16(bits) if type_ == "bf16x2" else bits.view(np.float16)


def _set_pair(builder: Builder, ins: Instruction, target: int, result: str, type_: str) -> Run:
    first, second = (builder.source(operand, "b32") for operand in ins.operands[1:3])
    compare = compare_arrays(ins.modifiers[0], True)
    yes = {"f16x2": 0x3C00, "bf16x2": 0x3F80}.get(result, 0xFFFF)

    def run(machine: Machine) -> None:
        total: Any = np.uint32(0)
        for shift in (0, 16):
            x, y = (_half(machine, source, shift, type_) for source in (first, second))
            total = total | np.where(compare(x, y), np.uint32(yes << shift), np.uint32(0))
        machine.put(target, total)

    return run


@instruction("selp")
def build_selp(builder: Builder, ins: Instruction) -> Run:
    """Build selp: a where the predicate holds, else b."""
    type_ = ins.modifiers[-1]
    target = builder.target(ins.operands[0])
    first, second = (builder.source(operand, type_) for operand in ins.operands[1:3])
    condition, flip = builder.predicate(ins.operands[3])
    dtype = DTYPES[type_]

    def run(machine: Machine) -> None:
        registers = machine.registers
        chosen = registers[condition]
        if flip:
            chosen = inverted(chosen)
        if type(chosen) is bool:
            machine.put(target, registers[first if chosen else second])
            return
        x, y = registers[first], registers[second]
        machine.put(target, np.where(chosen, as_array(x, dtype, machine.chunk), as_array(y, dtype, machine.chunk)))

    return run


@instruction("slct")
def build_slct(builder: Builder, ins: Instruction) -> Run:
    """Build slct: a where c >= 0, else b."""
    type_, kind = ins.modifiers[-2:]
    target = builder.target(ins.operands[0])
    first, second = (builder.source(operand, type_) for operand in ins.operands[1:3])
    third = builder.source(ins.operands[3], kind)
    dtype = DTYPES[type_]

    def run(machine: Machine) -> None:
        chosen = machine.array(third, DTYPES[kind]) >= 0
        found = np.where(chosen, machine.array(first, dtype), machine.array(second, dtype))
        machine.put(target, canonical(found))

    return run


# Conversions.


def resized(value: Value, type_: str, result: str, width: int, machine: Machine) -> Value:
    """Return an integer converted between integer types and extended to a register of `width` bits."""
    bits, out = BITS[type_], BITS[result]
    if type(value) is Affine:
        if out > bits:
            found = values.signed(value, bits) if type_[0] == "s" else values.unsigned(value, bits)
            if found is not None:
                return found
        elif out < bits or width == out:
            narrowed = values.fit(value.base, value.coefficients, value.low, value.high, out, machine.chunk)
            if width == out:
                return narrowed if type(narrowed) is Affine else canonical(narrowed)
            if type(narrowed) is Affine:
                found = values.signed(narrowed, out) if result[0] == "s" else values.unsigned(narrowed, out)
                if found is not None:
                    return found
    array = as_array(value, DTYPES[type_], machine.chunk).astype(DTYPES[result])
    if width > out:
        array = array.astype((SIGNED if result[0] == "s" else UNSIGNED)[width])
    return canonical(array)


def round_integral(x: Array, mode: str) -> Array:
    """Return a float rounded to an integral value: rni, rzi, rmi or rpi."""
    return {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}[mode](x)


def float_to_int(x: Array, mode: str, result: str) -> Array:
    """Return a float as an integer: rounded, clamped to the type's range, NaN as PTX ISA 9.7.9 (cvt) says."""
    bits, sign = BITS[result], result[0] == "s"
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if sign else (0, (1 << bits) - 1)
    wide = x.dtype == np.float64 or bits == 64
    real = round_integral(x.astype(np.float64), mode)
    dtype = DTYPES[result]
    limit = float(high + 1)
    inside = (real >= low) & (real < limit)
    found = np.where(inside, real, 0.0)
    integer = found.astype(np.uint64 if bits == 64 and not sign else np.int64).astype(dtype)
    integer = np.where(real >= limit, dtype.type(high), np.where(real < low, dtype.type(low), integer))
    invalid = dtype.type(0) if not wide else dtype.type(low if sign else 1 << (bits - 1))
    return np.where(np.isnan(real), invalid, integer)


def int_to_float(x: Array, mode: str, dtype: np.dtype[Any]) -> Array:
    """Return an integer as a float with the rounding mode."""
    if mode == "rn":
        # What float64 does not hold exactly is beyond the largest half.
        return x.astype(np.float64).astype(dtype) if dtype == np.float16 else x.astype(dtype)
    high = x.astype(np.float64)
    # The exact remainder of the conversion to float64; near 2^63 the way back would overflow.
    safe = np.abs(high) < 2.0**62
    back = np.where(safe, high, 0.0).astype(x.dtype)
    low = np.where(safe, (x - back).astype(np.int64).astype(np.float64), 0.0)
    if not safe.all():
        exact = [int(value) - int(near) for value, near in zip(x[~safe].tolist(), high[~safe].tolist(), strict=True)]
        low[~safe] = exact
    return rounding.directed(high, low, dtype, mode)


@instruction("cvt")
def build_cvt(builder: Builder, ins: Instruction) -> Run:
    """Build cvt."""
    words = ins.modifiers
    if words[0] == "pack":
        return _cvt_pack(builder, ins)
    result, type_ = words[-2:]
    if result in FORMATS or type_ in FORMATS:
        return build_cvt_fp8(builder, ins)
    if result in ("f16x2", "bf16x2") and type_ == "f32":
        return _cvt_pair(builder, ins, result)
    known = (*INTEGERS, "f16", "bf16", "f32", "f64", "tf32")
    if result not in known or type_ not in known or len(ins.operands) != 2:
        raise refuse(ins)
    target = builder.target(ins.operands[0])
    integral = next((word for word in words if word in ("rni", "rzi", "rmi", "rpi")), None)
    mode = next((word for word in words if word in ("rn", "rz", "rm", "rp")), "rn")
    saturate, flush, relu = any(w in ("sat", "satfinite") for w in words), "ftz" in words, "relu" in words
    width = builder.width(target)
    if type_ in INTEGERS and result in INTEGERS:
        source = builder.source(ins.operands[1], type_)
        if not saturate:

            def resize(machine: Machine) -> None:
                machine.put(target, resized(machine.registers[source], type_, result, width, machine))

            return resize
        bits = BITS[result]
        low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if result[0] == "s" else (0, (1 << bits) - 1)
        info = np.iinfo(DTYPES[type_])

        def clamp(machine: Machine) -> None:
            x = machine.array(source, DTYPES[type_])
            x = np.clip(x, max(low, int(info.min)), min(high, int(info.max))).astype(DTYPES[result])
            machine.put(target, canonical(x.astype((SIGNED if result[0] == "s" else UNSIGNED)[width])))

        return clamp
    source = builder.source(ins.operands[1], "b16" if type_ in ("f16", "bf16") else type_)
    read = UNSIGNED[16] if type_ == "bf16" else DTYPES[type_]

    def run(machine: Machine) -> None:
        x = machine.array(source, read)
        if type_ == "bf16":
            x = rounding.from_bf16(x)
        if flush and x.dtype == np.float32:
            x = rounding.flush(x)
        if result in INTEGERS:
            found = float_to_int(x, integral or "rzi", result)
            if width > BITS[result]:
                found = found.astype((SIGNED if result[0] == "s" else UNSIGNED)[width])
            machine.put(target, canonical(found))
            return
        machine.put(target, to_float(x, result, mode, integral, saturate, relu, flush))

    return run


def to_float(x: Array, result: str, mode: str, integral: str | None, saturate: bool, relu: bool, flush: bool) -> Array:
    """Return integers or floats converted to a floating-point type (bf16 and tf32 as bits)."""
    if integral is not None:
        x = round_integral(x, integral)
    if relu:
        x = np.where(x > 0, x, x * 0 if x.dtype.kind != "f" else np.where(np.isnan(x), x, x.dtype.type(0)))
    if result == "bf16":
        return rounding.to_bf16(x if x.dtype.kind == "f" else rounding.odd_float(x), mode)
    if result == "tf32":
        # Round to nearest, ties away, to 10 bits of mantissa (rna), or to even (rn).
        bits = x.view(np.uint32)
        step = np.uint32(0x1000) if mode != "rn" else np.uint32(0xFFF) + ((bits >> np.uint32(13)) & np.uint32(1))
        found = np.where(np.isfinite(x), bits + step, bits)
        return (found & np.uint32(0xFFFFE000)).view(np.float32)
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
    target = builder.target(ins.operands[0])
    high, low = (builder.source(operand, "f32") for operand in ins.operands[1:3])
    mode = next((word for word in ins.modifiers if word in ("rn", "rz")), "rn")
    relu = "relu" in ins.modifiers
    half = result[:-2]

    def run(machine: Machine) -> None:
        parts = []
        for source in (low, high):
            part = to_float(machine.array(source, DTYPES["f32"]), half, mode, None, False, relu, False)
            parts.append(part.view(np.uint16).astype(np.uint32))
        machine.put(target, parts[0] | (parts[1] << np.uint32(16)))

    return run


def _cvt_pack(builder: Builder, ins: Instruction) -> Run:
    """Build cvt.pack.sat: two integers, clamped, into the low bits, above them the low bits of c."""
    result, type_ = ins.modifiers[2:4]
    bits = BITS[result]
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if result[0] == "s" else (0, (1 << bits) - 1)
    target = builder.target(ins.operands[0])
    first, second = (builder.source(operand, type_) for operand in ins.operands[1:3])
    third = builder.source(ins.operands[3], "b32") if len(ins.operands) > 3 else None

    def run(machine: Machine) -> None:
        a, b = (np.clip(machine.array(s, DTYPES[type_]).astype(np.int64), low, high) for s in (first, second))
        mask = (1 << bits) - 1
        found = ((a & mask) << bits) | (b & mask)
        if third is not None and bits < 16:
            found = found | (machine.array(third, UNSIGNED[32]).astype(np.int64) << (2 * bits))
        machine.put(target, canonical((found & 0xFFFFFFFF).astype(np.uint32)))

    return run


@instruction("szext")
def build_szext(builder: Builder, ins: Instruction) -> Run:
    """Build szext: extend a value of b bits by its sign or with zeros."""
    type_ = ins.modifiers[-1]
    clamp = "clamp" in ins.modifiers

    def arrays(x: Array, length: Array) -> Array:
        count = (np.minimum(length, 32) if clamp else length & np.uint32(31)).astype(np.int64)
        wide = x.astype(np.int64) & ((np.int64(1) << count) - 1)
        if type_ == "s32":
            sign = np.where(count > 0, (wide >> np.maximum(count - 1, 0)) & 1, 0)
            wide = wide - (sign << count)
        return wide.astype(DTYPES[type_])

    return elementwise(builder, ins, (type_, "u32"), type_, arrays)
