"""Arithmetic, moves, comparisons and selections in the native engine."""

from __future__ import annotations

from cudabench.simulator.native.emit import Emit, NotEncoded, encodes
from cudabench.simulator.program.ptx import BITS, Instruction, Vector


@encodes("mov")
def _mov(emit: Emit, ins: Instruction) -> None:
    into, out_of = ins.operands
    bits = BITS[ins.modifiers[-1]]
    if isinstance(into, Vector) or isinstance(out_of, Vector):
        raise NotEncoded(ins.text)
    emit.op(f"mov.{bits}", (emit.target(into, bits),), (emit.source(out_of, f"b{bits}" if bits > 1 else "pred"),))


@encodes("cvta")
def _cvta(emit: Emit, ins: Instruction) -> None:
    if "global" not in ins.modifiers:
        raise NotEncoded(ins.text)
    emit.op("mov.64", (emit.target(ins.operands[0], 64),), (emit.source(ins.operands[1], "u64"),))


def _plain(emit: Emit, ins: Instruction, name: str, type_: str, result: str) -> None:
    """Emit an operation whose sources all have one type."""
    sources = tuple(emit.source(operand, type_) for operand in ins.operands[1:])
    emit.op(name, (emit.target(ins.operands[0], BITS[result], result[0] == "s"),), sources)


@encodes("add")
def _add(emit: Emit, ins: Instruction) -> None:
    type_ = ins.modifiers[-1]
    if len(ins.modifiers) > 1:
        raise NotEncoded(ins.text)
    _plain(emit, ins, "add.f32" if type_ == "f32" else f"add.{BITS[type_]}", type_, type_)


@encodes("mul", "mad")
def _mul(emit: Emit, ins: Instruction) -> None:
    type_ = ins.modifiers[-1]
    if ins.opcode == "mul" and ins.modifiers == ("wide", "s32"):
        _plain(emit, ins, "mul.wide.s32", type_, "s64")
    elif ins.opcode == "mad" and ins.modifiers[:-1] == ("lo",) and BITS[type_] == 32:
        _plain(emit, ins, "mad.lo.32", type_, type_)
    else:
        raise NotEncoded(ins.text)


@encodes("setp")
def _setp(emit: Emit, ins: Instruction) -> None:
    if len(ins.modifiers) != 2 or len(ins.operands) != 3:
        raise NotEncoded(ins.text)
    _plain(emit, ins, f"setp.{ins.modifiers[0]}.{ins.modifiers[1]}", ins.modifiers[1], "pred")
