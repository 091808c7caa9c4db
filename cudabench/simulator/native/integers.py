"""Encodes integer arithmetic, logic, shifts and bit fields for the native engine."""

from __future__ import annotations

from cudabench.simulator.isa.elementwise import INTEGERS
from cudabench.simulator.native.emit import Emit, NotEncoded, encodes
from cudabench.simulator.native.scalar import plain, sign
from cudabench.simulator.program.ptx import BITS, Immediate, Instruction

SIGNED = 256  # a flag for signed types; the lower bits of the flags are the width of the type
_PACKED = ("u16x2", "s16x2")
_MODES = ("f4e", "b4e", "rc8", "ecl", "ecr", "rc16")  # modes of prmt, in the order of control_of() in integer_simd.cpp


# Instructions of one operation: its name, the types of its operands and of its result, and the flags of modifiers. In a
# name, {n} stands for the width of the instruction's type, and {k} for its sign and width. t stands for this type.
_SINGLE: dict[str, tuple[str, str, dict[str, int]]] = {
    "add": ("add.{n}", "t t t", {}), "sub": ("sub.{n}", "t t t", {}),
    "mul": ("mul.{n}", "t t t", {}), "mad": ("mad.{n}", "t t t t", {}),
    "div": ("div.{k}", "t t t", {}), "rem": ("rem.{k}", "t t t", {}),
    "abs": ("abs.{k}", "t t", {}), "sad": ("sad.{k}", "t t t t", {}),
    "min": ("min.{k}", "t t t", {}), "max": ("max.{k}", "t t t", {}),
    "and": ("and.{n}", "t t t", {}), "or": ("or.{n}", "t t t", {}), "xor": ("xor.{n}", "t t t", {}),
    "not": ("not.{n}", "t t", {}), "cnot": ("cnot.{n}", "t t", {}),
    "shl": ("shl.{n}", "t u32 t", {}), "shr": ("shr.{k}", "t u32 t", {}),
    "shf": ("shf", "b32 b32 u32 b32", {"l": 1, "clamp": 2}),
    "popc": ("popc.{n}", "t u32", {}), "clz": ("clz.{n}", "t u32", {}), "brev": ("brev.{n}", "t t", {}),
    "bfind": ("bfind.{k}", "t u32", {"shiftamt": 1}),
    "bfe": ("bfe.{k}", "t u32 u32 t", {}), "bfi": ("bfi.{n}", "t t u32 u32 t", {}),
    "fns": ("fns", "b32 u32 s32 b32", {}),
    "dp4a": ("dot", "b32 b32 b32 b32", {}), "dp2a": ("dot", "b32 b32 b32 b32", {"lo": 4, "hi": 12}),
}  # fmt: skip


def _integer(ins: Instruction) -> str:
    if ins.modifiers[-1] not in INTEGERS:
        raise NotEncoded(ins.text)
    return ins.modifiers[-1]


@encodes("abs", "sad", "cnot", "and", "or", "xor", "not", "shl", "shr", "shf", "popc", "clz", "brev", "bfind", "bfe")
@encodes("bfi", "fns")
def _single(emit: Emit, ins: Instruction, more: int = 0) -> None:
    """Emit an instruction of one operation; more: flags in addition to those of its modifiers."""
    name, types, flags = _SINGLE[ins.opcode]
    type_ = _integer(ins)
    *operands, result = [type_ if each == "t" else each for each in types.split()]
    name = name.format(n=BITS[type_], k=f"{sign(type_)}{BITS[type_]}")
    plain(emit, ins, name, operands, result, more + sum(flags.get(word, 0) for word in ins.modifiers))


@encodes("div", "rem")
def _divide(emit: Emit, ins: Instruction) -> None:
    if not isinstance(ins.operands[2], Immediate):
        type_ = _integer(ins)
        emit.op(f"nonzero.{BITS[type_]}", (), (emit.source(ins.operands[2], type_),))
    _single(emit, ins)


@encodes("dp4a", "dp2a")
def _dot(emit: Emit, ins: Instruction) -> None:
    first, second = ins.modifiers[-2:]
    _single(emit, ins, int(first[0] == "s") | 2 * (second[0] == "s"))


def _saturated(emit: Emit, ins: Instruction, wide: int) -> None:
    """Emit the end of an s32 instruction with .sat, which clamps its 64-bit result in register `wide` to s32."""
    clamped = emit.then("clamp.s64", 64, wide, flags=32 | SIGNED)
    emit.op("resize.u64.u32", (emit.target(ins.operands[0], 32),), (clamped,))


def _packed(emit: Emit, ins: Instruction, name: str) -> None:
    """Emit operation `name` on the lower and on the upper 16-bit halves of 32-bit registers."""
    parts = [emit.halves(emit.source(operand, "b32"), 16) for operand in ins.operands[1:]]
    results = [emit.then(name, 16, *halves) for halves in zip(*parts, strict=True)]
    if "relu" in ins.modifiers:
        zero = emit.builder.constant(0, 16)
        results = [emit.then("max.s16", 16, half, zero) for half in results]
    emit.op("pack.32.16", (emit.target(ins.operands[0], 32),), tuple(results))


@encodes("add", "sub")
def _add(emit: Emit, ins: Instruction) -> None:
    if "cc" in ins.modifiers:
        _with_carry(emit, ins)
    elif ins.modifiers[-1] in _PACKED:
        _packed(emit, ins, f"{ins.opcode}.16")
    elif "sat" in ins.modifiers:
        x, y = (emit.then("resize.s32.u64", 64, emit.source(operand, "s32")) for operand in ins.operands[1:])
        _saturated(emit, ins, emit.then(f"{ins.opcode}.64", 64, x, y))
    else:
        _single(emit, ins)


@encodes("neg")
def _neg(emit: Emit, ins: Instruction) -> None:
    into, source = ins.operands
    _add(emit, ins._replace(opcode="sub", operands=(into, Immediate(0), source)))


@encodes("addc", "subc", "madc")
def _with_carry(emit: Emit, ins: Instruction) -> None:
    type_ = ins.modifiers[-1]
    bits, carry = BITS[type_], emit.builder.frame.registers["CC.CF"]
    x, y, *rest = (emit.source(operand, type_) for operand in ins.operands[1:])
    if rest:
        name = f"mulhi.{sign(type_)}{bits}" if "hi" in ins.modifiers else f"mul.{bits}"
        x, y = emit.then(name, bits, x, y), rest[0]
    takes = carry if ins.opcode.endswith("c") else -1
    into = (emit.target(ins.operands[0], bits), carry if "cc" in ins.modifiers else -1)
    emit.op(f"addc.{bits}", into, (x, y, takes), flags=int(ins.opcode.startswith("sub")))


@encodes("mul", "mad")
def _mul(emit: Emit, ins: Instruction) -> None:
    type_ = _integer(ins)
    bits, kind = BITS[type_], f"{sign(type_)}{BITS[type_]}"
    form = next((word for word in ins.modifiers if word in ("lo", "hi", "wide")), "lo")
    if "cc" in ins.modifiers:
        _with_carry(emit, ins)
    elif form == "lo":
        _single(emit, ins)
    elif ins.opcode == "mul":
        result = type_ if form == "hi" else f"{type_[0]}{2 * bits}"
        plain(emit, ins, f"mul{form}.{kind}", (type_, type_), result)
    else:
        out = bits if form == "hi" else 2 * bits
        x, y = (emit.source(operand, type_) for operand in ins.operands[1:3])
        z = emit.source(ins.operands[3], f"{type_[0]}{out}")
        if "sat" in ins.modifiers:
            steps = emit.builder.constant(32, 32)
            product = emit.then("shr.s64", 64, emit.then("mulwide.s32", 64, x, y), steps)
            _saturated(emit, ins, emit.then("add.64", 64, product, emit.then("resize.s32.u64", 64, z)))
            return
        product = emit.then(f"mul{form}.{kind}", out, x, y)
        emit.op(f"add.{out}", (emit.target(ins.operands[0], out, type_[0] == "s"),), (product, z))


@encodes("mul24", "mad24")
def _mul24(emit: Emit, ins: Instruction) -> None:
    type_ = _integer(ins)
    x, y, *rest = (emit.source(operand, type_) for operand in ins.operands[1:])
    product = emit.then(f"mul24.{sign(type_)}", 64, x, y)
    if "hi" in ins.modifiers:
        product = emit.then(f"shr.{sign(type_)}64", 64, product, emit.builder.constant(16, 32))
    high = emit.then("resize.u64.u32", 32, product)
    name, sources = ("add.32", (high, rest[0])) if rest else ("mov.32", (high,))
    emit.op(name, (emit.target(ins.operands[0], 32),), sources)


@encodes("min", "max")
def _extreme(emit: Emit, ins: Instruction) -> None:
    words = tuple(word for word in ins.modifiers if word != "relu")
    if words[-1] in _PACKED:
        _packed(emit, ins, f"{ins.opcode}.{words[-1][:3]}")
        return
    if "relu" not in ins.modifiers:
        _single(emit, ins)
        return
    type_ = _integer(ins._replace(modifiers=words))
    bits, name = BITS[type_], f"{ins.opcode}.{sign(type_)}{BITS[type_]}"
    result = emit.then(name, bits, *(emit.source(operand, type_) for operand in ins.operands[1:]))
    emit.op(f"max.s{bits}", (emit.target(ins.operands[0], bits, True),), (result, emit.builder.constant(0, bits)))


@encodes("lop3")
def _lop3(emit: Emit, ins: Instruction) -> None:
    *operands, table = ins.operands
    if not isinstance(table, Immediate) or len(ins.modifiers) > 1:
        raise NotEncoded(ins.text)
    plain(emit, ins._replace(operands=tuple(operands)), "lop3", ("b32",) * 3, "b32", table.value & 255)


@encodes("bmsk")
def _mask(emit: Emit, ins: Instruction) -> None:
    start, length = (emit.source(operand, "u32") for operand in ins.operands[1:])
    if "clamp" not in ins.modifiers:
        least = emit.builder.constant(31, 32)
        start, length = (emit.then("and.32", 32, index, least) for index in (start, length))
    emit.op("bmsk", (emit.target(ins.operands[0], 32),), (start, length))


@encodes("szext")
def _szext(emit: Emit, ins: Instruction) -> None:
    type_ = _integer(ins)
    value, length = emit.source(ins.operands[1], type_), emit.source(ins.operands[2], "u32")
    if "clamp" not in ins.modifiers:
        length = emit.then("and.32", 32, length, emit.builder.constant(31, 32))
    emit.op(f"szext.{sign(type_)}", (emit.target(ins.operands[0], 32),), (value, length))


@encodes("prmt")
def _permute(emit: Emit, ins: Instruction) -> None:
    mode = next((word for word in ins.modifiers if word in _MODES), None)
    x, y, control = (emit.source(operand, "b32") for operand in ins.operands[1:])
    if mode is not None:
        control = emit.then("prmt.control", 32, control, flags=_MODES.index(mode))
    emit.op("prmt", (emit.target(ins.operands[0], 32),), (x, y, control))
