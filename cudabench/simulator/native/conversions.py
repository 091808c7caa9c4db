"""Encodes conversions (cvt) for the native engine."""

from __future__ import annotations

from cudabench.simulator.isa.elementwise import INTEGERS
from cudabench.simulator.isa.floating import ROUNDINGS, rounding_mode
from cudabench.simulator.native.emit import Emit, NotEncoded, encodes, sign
from cudabench.simulator.native.floats import FLUSH, RELU, SATURATE, modifier_flags
from cudabench.simulator.native.integers import SIGNED
from cudabench.simulator.program.ptx import BITS, Instruction

# Modes that round to integers; each has the number of the same direction in ROUNDINGS.
_INTEGRAL = {"rni": 0, "rzi": 1, "rmi": 2, "rpi": 3}
_HALVES = ("f16", "bf16")
_REALS = (*_HALVES, "f32", "f64")


@encodes("cvt")
def _cvt(emit: Emit, ins: Instruction) -> None:
    words = ins.modifiers
    result, type_ = words[-2:]
    if words[0] == "pack":
        _pack(emit, ins)
        return
    if result in ("f16x2", "bf16x2") and type_ == "f32":
        _pair(emit, ins, result)
        return
    if len(ins.operands) != 2 or not {result, type_} <= {*INTEGERS, *_REALS, "tf32"} or type_ == "tf32":
        raise NotEncoded(ins.text)
    if type_ in INTEGERS:
        if result in INTEGERS:
            _resize(emit, ins, result, type_)
        else:
            _from_integer(emit, ins, result, type_)
    elif result in INTEGERS:
        _to_integer(emit, ins, result, type_)
    else:
        _between_floats(emit, ins, result, type_)


def _flags(ins: Instruction) -> int:
    mode = 0 if "rna" in ins.modifiers else ROUNDINGS.index(rounding_mode(ins))
    return mode | modifier_flags(ins) | SATURATE * ("satfinite" in ins.modifiers)


def _resize(emit: Emit, ins: Instruction, result: str, type_: str) -> None:
    bits, out = BITS[type_], BITS[result]
    value = emit.source(ins.operands[1], type_)
    if "sat" in ins.modifiers or "satfinite" in ins.modifiers:
        wide = value if bits == 64 else emit.then(f"resize.{sign(type_)}{bits}.u64", 64, value)
        flags = out | SIGNED * (result[0] == "s")
        value = emit.then("clamp.u64" if bits == 64 and type_[0] != "s" else "clamp.s64", 64, wide, flags=flags)
        bits, type_ = 64, "u64"
    kind = sign(type_) if out > bits else "u"
    name = f"mov.{bits}" if bits == out else f"resize.{kind}{bits}.u{out}"
    emit.write(name, result, value)


def _widened(emit: Emit, ins: Instruction, type_: str) -> tuple[int, str]:
    """Return the register and the type of the float operand; a 16-bit float is first converted to float32."""
    if type_ in _HALVES:
        return emit.then(f"cvt.f32.{type_}", 32, emit.source(ins.operands[1], "b16")), "f32"
    return emit.source(ins.operands[1], type_), type_


def _to_integer(emit: Emit, ins: Instruction, result: str, type_: str) -> None:
    mode = next((_INTEGRAL[word] for word in ins.modifiers if word in _INTEGRAL), _INTEGRAL["rzi"])
    flags = mode | FLUSH * ("ftz" in ins.modifiers and type_ in ("f32", "bf16"))
    value, kind = _widened(emit, ins, type_)
    emit.write(f"cvt.{sign(result)}{BITS[result]}.{kind}", result, value, flags=flags)


def _from_integer(emit: Emit, ins: Instruction, result: str, type_: str) -> None:
    bits, flags = BITS[type_], _flags(ins)
    value = emit.source(ins.operands[1], type_)
    if any(word in _INTEGRAL for word in ins.modifiers) or flags & RELU or result == "tf32":
        raise NotEncoded(ins.text)
    if bits < 32:
        value = emit.then(f"resize.{sign(type_)}{bits}.u32", 32, value)
    kind = f"{sign(type_)}{max(bits, 32)}"
    if result in _HALVES:
        if (bits == 64 and (result == "bf16" or flags & 3)) or flags & FLUSH:
            raise NotEncoded(ins.text)
        value = emit.then(f"cvt.f64.{kind}", 64, value)
        kind, flags = "f64", flags & ~SATURATE if result == "bf16" else flags
    emit.write(_name(result, kind, flags), result, value, flags=flags)


def _name(result: str, type_: str, flags: int) -> str:
    """Return the name of the operation that converts a number of `type_` to the float type `result`."""
    return f"directed.f16.{type_}" if result == "f16" and flags & 3 else f"cvt.{result}.{type_}"


def _between_floats(emit: Emit, ins: Instruction, result: str, type_: str) -> None:
    flags = _flags(ins)
    integral = next((_INTEGRAL[word] for word in ins.modifiers if word in _INTEGRAL), None)
    if (type_ == "f16" or result in _HALVES) and flags & FLUSH:
        raise NotEncoded(ins.text)
    if (result, type_) == ("f64", "f16"):
        value, kind = emit.source(ins.operands[1], "b16"), "f16"
    else:
        value, kind = _widened(emit, ins, type_)
    if integral is not None:
        if result != type_ or flags & RELU:
            raise NotEncoded(ins.text)
        value = emit.then(f"round.{kind}", BITS[kind], value, flags=integral | (flags & FLUSH))
    if result == "tf32":
        if kind != "f32" or flags & (RELU | FLUSH):
            raise NotEncoded(ins.text)
        emit.write("tf32", result, value, flags=int(rounding_mode(ins) == "rn"))
        return
    if result == "bf16":
        flags &= ~SATURATE
    if result != "bf16" and BITS[result] >= (16 if type_ == "f16" else BITS[kind]):
        flags &= ~3
    if result == kind and type_ == "bf16" and not flags and integral is None:
        emit.write("mov.32", result, value)  # a NaN keeps its bits
    else:  # "finish" is for float32 to float32, or float64 to float64
        name = f"finish.{kind}" if result == kind else _name(result, kind, flags)
        emit.write(name, result, value, flags=flags)


def _pair(emit: Emit, ins: Instruction, result: str) -> None:
    flags = _flags(ins) & ~(SATURATE | FLUSH)
    name = _name(result[:-2], "f32", flags)
    high, low = (emit.then(name, 16, index, flags=flags) for index in emit.sources("f32"))
    emit.write("pack.32.16", result, low, high)


def _pack(emit: Emit, ins: Instruction) -> None:
    """Emit cvt.pack.sat: two clamped integers fill the low bits; operand c, if there is one, fills the bits above."""
    result, type_ = ins.modifiers[2:4]
    bits, constant = BITS[result], emit.builder.constant
    parts = []
    for index in emit.sources(type_, 2):
        wide = emit.then(f"resize.{sign(type_)}32.u64", 64, index)
        wide = emit.then("clamp.s64", 64, wide, flags=bits | SIGNED * (result[0] == "s"))
        parts.append(emit.then("and.64", 64, wide, constant((1 << bits) - 1, 64)))
    packed = emit.then("or.64", 64, emit.then("shl.64", 64, parts[0], constant(bits, 32)), parts[1])
    if len(ins.operands) > 3 and bits < 16:
        above = emit.then("resize.u32.u64", 64, emit.source(ins.operands[3], "b32"))
        packed = emit.then("or.64", 64, packed, emit.then("shl.64", 64, above, constant(2 * bits, 32)))
    emit.write("resize.u64.u32", "b32", packed)
