"""Encodes integer arithmetic, logic, shifts and bit fields for the native engine."""

from __future__ import annotations

from cudabench.simulator.isa.elementwise import INTEGERS
from cudabench.simulator.native.emit import Emit, NotEncoded, encodes, sign
from cudabench.simulator.program.ptx import BITS, Immediate, Instruction, Operand

SIGNED = 256  # a flag for signed types; the lower bits of the flags are the width of the type
_MODES = ("f4e", "b4e", "rc8", "ecl", "ecr", "rc16")  # modes of prmt, in the order of control_of() in integer_simd.cpp

# Instructions of one operation: its name, the types of its operands and of its result, and the flags of modifiers. In a
# name, {n} stands for the width of the instruction's type, {s} for its sign, and {k} for both. Of the types, t stands
# for this type, and w for this type in double width; d is a divisor of this type, which may not be 0; m is a u32 of
# which only the low five bits count if there is no modifier .clamp.
_OPERATIONS: dict[str, tuple[str, str, dict[str, int]]] = {
    "add": ("add.{n}", "t t t", {}), "sub": ("sub.{n}", "t t t", {}),
    "mul": ("mul.{n}", "t t t", {}), "mad": ("mad.{n}", "t t t t", {}),
    "mul.hi": ("mulhi.{k}", "t t t", {}), "mul.wide": ("mulwide.{k}", "t t w", {}),
    "div": ("div.{k}", "t d t", {}), "rem": ("rem.{k}", "t d t", {}),
    "abs": ("abs.{k}", "t t", {}), "sad": ("sad.{k}", "t t t t", {}),
    "min": ("min.{k}", "t t t", {}), "max": ("max.{k}", "t t t", {}),
    "and": ("and.{n}", "t t t", {}), "or": ("or.{n}", "t t t", {}), "xor": ("xor.{n}", "t t t", {}),
    "not": ("not.{n}", "t t", {}), "cnot": ("cnot.{n}", "t t", {}),
    "shl": ("shl.{n}", "t u32 t", {}), "shr": ("shr.{k}", "t u32 t", {}),
    "shf": ("shf", "b32 b32 u32 b32", {"l": 1, "clamp": 2}),
    "popc": ("popc.{n}", "t u32", {}), "clz": ("clz.{n}", "t u32", {}), "brev": ("brev.{n}", "t t", {}),
    "bfind": ("bfind.{k}", "t u32", {"shiftamt": 1}),
    "bfe": ("bfe.{k}", "t u32 u32 t", {}), "bfi": ("bfi.{n}", "t t u32 u32 t", {}),
    "bmsk": ("bmsk", "m m b32", {}), "szext": ("szext.{s}", "t m b32", {}),
    "fns": ("fns", "b32 u32 s32 b32", {}),
    "dp4a": ("dot", "b32 b32 b32 b32", {}), "dp2a": ("dot", "b32 b32 b32 b32", {"lo": 4, "hi": 12}),
}  # fmt: skip


def _source(emit: Emit, operand: Operand, kind: str, type_: str) -> int:
    """Return the register of a source operand; kind: as in `_OPERATIONS`; type_: the type of the instruction."""
    index = emit.source(operand, {"t": type_, "d": type_, "m": "u32"}.get(kind, kind))
    if kind == "d" and not isinstance(operand, Immediate):
        emit.op(f"nonzero.{BITS[type_]}", (), (index,))
    if kind == "m" and "clamp" not in emit.ins.modifiers:
        index = emit.then("and.32", 32, index, emit.builder.constant(31, 32))
    return index


@encodes(*_OPERATIONS)
def _operation(emit: Emit, ins: Instruction, form: str = "", more: int = 0) -> None:
    """Emit an instruction of one operation; if its type is packed, emit the operation for both halves.

    form: "" or a modifier that is a part of the key in `_OPERATIONS`; more: flags in addition to those of modifiers.
    """
    name, types, words = _OPERATIONS[ins.opcode + form]
    type_ = next(word for word in reversed(ins.modifiers) if word != "relu")
    element = type_.removesuffix("x2")
    if element not in INTEGERS:
        raise NotEncoded(ins.text)
    bits, parts = BITS[element], list[tuple[int, ...]]()
    name = name.format(n=bits, k=f"{sign(element)}{bits}", s=sign(element))
    flags = more + sum(words.get(word, 0) for word in ins.modifiers)
    *kinds, result = types.split()
    if element != type_:
        parts = [emit.halves(emit.source(operand, "b32"), 16) for operand in ins.operands[1:]]
    else:
        pairs = zip(ins.operands[1:], kinds, strict=True)
        parts = [(_source(emit, operand, kind, element),) for operand, kind in pairs]
    every = [*zip(*parts, strict=True)]
    if "relu" in ins.modifiers:
        every = [(emit.then(name, bits, *sources), emit.builder.constant(0, bits)) for sources in every]
        name = f"max.s{bits}"
    if element != type_:
        emit.write("pack.32.16", "b32", *(emit.then(name, bits, *sources) for sources in every))
        return
    result = {"t": element, "w": f"{element[0]}{2 * bits}"}.get(result, result)
    emit.write(name, result, *every[0], flags=flags)


@encodes("dp4a", "dp2a")
def _dot(emit: Emit, ins: Instruction) -> None:
    first, second = ins.modifiers[-2:]
    _operation(emit, ins, more=int(first[0] == "s") | 2 * (second[0] == "s"))


def _saturated(emit: Emit, wide: int) -> None:
    """Emit the end of an s32 instruction with .sat, which clamps its 64-bit result in register `wide` to s32."""
    emit.write("resize.u64.u32", "b32", emit.then("clamp.s64", 64, wide, flags=32 | SIGNED))


@encodes("add", "sub")
def _add(emit: Emit, ins: Instruction) -> None:
    if "cc" in ins.modifiers:
        _with_carry(emit, ins)
    elif "sat" in ins.modifiers:
        x, y = (emit.then("resize.s32.u64", 64, index) for index in emit.sources("s32"))
        _saturated(emit, emit.then(f"{ins.opcode}.64", 64, x, y))
    else:
        _operation(emit, ins)


@encodes("neg")
def _neg(emit: Emit, ins: Instruction) -> None:
    into, source = ins.operands
    _operation(emit, ins._replace(opcode="sub", operands=(into, Immediate(0), source)))


@encodes("addc", "subc", "madc")
def _with_carry(emit: Emit, ins: Instruction) -> None:
    type_ = ins.modifiers[-1]
    bits, carry = BITS[type_], emit.builder.frame.registers["CC.CF"]
    x, y, *rest = emit.sources(type_)
    if rest:
        name = f"mulhi.{sign(type_)}{bits}" if "hi" in ins.modifiers else f"mul.{bits}"
        x, y = emit.then(name, bits, x, y), rest[0]
    takes = carry if ins.opcode.endswith("c") else -1
    into = (emit.target(ins.operands[0], bits), carry if "cc" in ins.modifiers else -1)
    emit.op(f"addc.{bits}", into, (x, y, takes), flags=int(ins.opcode.startswith("sub")))


@encodes("mul", "mad")
def _mul(emit: Emit, ins: Instruction) -> None:
    type_ = ins.modifiers[-1]
    form = next((word for word in ins.modifiers if word in ("hi", "wide")), "")
    if "cc" in ins.modifiers:
        _with_carry(emit, ins)
    elif not form or ins.opcode == "mul":
        _operation(emit, ins, form and f".{form}")
    else:
        out = BITS[type_] * (1 + (form == "wide"))
        x, y = emit.sources(type_, 2)
        z = emit.source(ins.operands[3], f"{type_[0]}{out}")
        if "sat" in ins.modifiers:
            steps = emit.builder.constant(32, 32)
            product = emit.then("shr.s64", 64, emit.then("mulwide.s32", 64, x, y), steps)
            _saturated(emit, emit.then("add.64", 64, product, emit.then("resize.s32.u64", 64, z)))
            return
        product = emit.then(f"mul{form}.{sign(type_)}{BITS[type_]}", out, x, y)
        emit.write(f"add.{out}", f"{type_[0]}{out}", product, z)


@encodes("mul24", "mad24")
def _mul24(emit: Emit, ins: Instruction) -> None:
    type_ = ins.modifiers[-1]
    x, y, *rest = emit.sources(type_)
    product = emit.then(f"mul24.{sign(type_)}", 64, x, y)
    if "hi" in ins.modifiers:
        product = emit.then(f"shr.{sign(type_)}64", 64, product, emit.builder.constant(16, 32))
    high = emit.then("resize.u64.u32", 32, product)
    emit.write("add.32" if rest else "mov.32", "b32", high, *rest)


@encodes("lop3")
def _lop3(emit: Emit, ins: Instruction) -> None:
    table = ins.operands[4]
    if not isinstance(table, Immediate) or len(ins.modifiers) > 1:
        raise NotEncoded(ins.text)
    emit.write("lop3", "b32", *emit.sources("b32", 3), flags=table.value & 255)


@encodes("prmt")
def _permute(emit: Emit, ins: Instruction) -> None:
    mode = next((word for word in ins.modifiers if word in _MODES), None)
    x, y, control = emit.sources("b32")
    if mode is not None:
        control = emit.then("prmt.control", 32, control, flags=_MODES.index(mode))
    emit.write("prmt", "b32", x, y, control)
