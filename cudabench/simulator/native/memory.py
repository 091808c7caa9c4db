"""Loads and stores in the native engine."""

from __future__ import annotations

from cudabench.simulator.isa.access import space_of
from cudabench.simulator.isa.load_store import element
from cudabench.simulator.isa.opcodes import items
from cudabench.simulator.memory import PARAMETER_WINDOW, WINDOW
from cudabench.simulator.native.emit import Emit, NotEncoded, encodes
from cudabench.simulator.program.ptx import BITS, Instruction
from cudabench.simulator.values import Affine


@encodes("ld", "ldu")
def _ld(emit: Emit, ins: Instruction) -> None:
    type_, dtype, count = element(ins)
    space, builder = space_of(ins), emit.builder
    bits = BITS[type_]
    if space == "param":
        register, offset = emit.address(ins.operands[1])
        place = builder.initial[register]
        if type(place) is not Affine or not PARAMETER_WINDOW <= place.base < PARAMETER_WINDOW + WINDOW:
            raise NotEncoded(ins.text)
        start = place.base + offset - PARAMETER_WINDOW
        for number, item in enumerate(items(ins.operands[0])):
            target = emit.target(item, bits, type_[0] == "s")
            emit.op(f"ld.param.{bits}", (target,), immediate=start + number * bits // 8)
        return
    if space != "global" or bits not in (32, 64) or emit.access is None:
        raise NotEncoded(ins.text)
    register, offset = emit.address(ins.operands[1])
    targets = tuple(emit.target(item, bits, type_[0] == "s") for item in items(ins.operands[0]))
    emit.op(f"ld.global.{bits}", targets, (emit.resized(register, 64),), immediate=offset, access=emit.access)


@encodes("st")
def _st(emit: Emit, ins: Instruction) -> None:
    type_, dtype, count = element(ins)
    bits = BITS[type_]
    if space_of(ins) != "global" or bits not in (32, 64) or emit.access is None:
        raise NotEncoded(ins.text)
    register, offset = emit.address(ins.operands[0])
    sources = tuple(emit.source(item, f"b{bits}") for item in items(ins.operands[1]))
    emit.op(
        f"st.global.{bits}", (), (emit.resized(register, 64), *sources), immediate=offset, access=emit.access
    )
