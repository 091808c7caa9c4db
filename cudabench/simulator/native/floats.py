"""Encodes floating-point arithmetic for the native engine."""

from __future__ import annotations

from cudabench.simulator.isa.floating import FLOATS, ROUNDINGS, rounding_mode
from cudabench.simulator.native.emit import Emit, NotEncoded, encodes
from cudabench.simulator.program.ptx import BITS, Instruction

# Flags, with the same values as in lanes.hpp.
FLUSH, SATURATE, RELU, PASS_NAN, BY_SIZE, SIGN_BY_XOR = 4, 8, 16, 32, 64, 128
_WORDS = {"ftz": FLUSH, "sat": SATURATE, "relu": RELU}
_EXTREMES = {"NaN": PASS_NAN, "abs": BY_SIZE, "xorsign": SIGN_BY_XOR}
_DIRECTED = ("add", "sub", "mul", "div", "sqrt", "rcp", "fma", "mad")


def modifier_flags(ins: Instruction) -> int:
    """Return the flags for an instruction's modifiers .ftz, .sat and .relu."""
    return sum(flag for word, flag in _WORDS.items() if word in ins.modifiers)


def _operands(emit: Emit, type_: str) -> list[int]:
    return [*emit.sources(type_ if type_ in ("f32", "f64") else f"b{BITS[type_]}")]


def _emit(emit: Emit, ins: Instruction, name: str, flags: int) -> None:
    """Emit floating-point operation `name`; for f32x2, emit it for each of the two float32 in a 64-bit register."""
    type_ = ins.modifiers[-1]
    sources, bits = _operands(emit, type_), BITS[type_]
    # Subtract as the NumPy engine does, so that NaNs are equal.
    if name == "sub" and flags & 3 and type_ in ("f32", "f64"):
        name, sources[1] = "add", emit.then(f"neg.{type_}", bits, sources[1])
    if type_ not in ("f32", "f64", "f32x2"):
        flags &= ~FLUSH  # 16-bit denormals are normal in the wider type that computes
        if flags & 3:
            raise NotEncoded(ins.text)
    if type_ != "f32x2":
        emit.write(f"{name}.{type_}", type_, *sources, flags=flags)
        return
    parts = [emit.halves(source, 32) for source in sources]
    results = (emit.then(f"{name}.f32", 32, *each, flags=flags) for each in zip(*parts, strict=True))
    emit.write("pack.64.32", type_, *results)


@encodes(
    "add", "sub", "mul", "div", "sqrt", "rcp", "rsqrt", "abs", "neg", "copysign", "sin", "cos", "ex2", "lg2", "tanh",
    "fma", "mad", types=FLOATS,
)  # fmt: skip
def _arithmetic(emit: Emit, ins: Instruction) -> None:
    type_, opcode = ins.modifiers[-1], "fma" if ins.opcode == "mad" else ins.opcode
    if type_ == "f64" and {"approx", "ftz"} <= set(ins.modifiers):
        emit.write(f"{opcode}.upper.f64", "f64", *emit.sources("f64"))
        return
    mode = ROUNDINGS.index(rounding_mode(ins)) if ins.opcode in _DIRECTED else 0
    _emit(emit, ins, opcode, mode | modifier_flags(ins))


@encodes("min", "max", types=FLOATS)
def _extreme(emit: Emit, ins: Instruction) -> None:
    type_ = ins.modifiers[-1]
    flags = sum(flag for word, flag in _EXTREMES.items() if word in ins.modifiers)
    sources = _operands(emit, type_)
    if len(sources) > 2:
        if flags & SIGN_BY_XOR:
            raise NotEncoded(ins.text)
        sources = [emit.then(f"{ins.opcode}.{type_}", BITS[type_], *sources[:2], flags=flags), sources[2]]
    emit.write(f"{ins.opcode}.{type_}", type_, *sources, flags=flags | modifier_flags(ins))


@encodes("testp", types=("f32", "f64"))
def _testp(emit: Emit, ins: Instruction) -> None:
    emit.write(f"testp.{ins.modifiers[0]}.{ins.modifiers[-1]}", "pred", *emit.sources(ins.modifiers[-1]))
