"""Loads and stores (PTX ISA 9.7.9), also through generic addresses, and of the parameters of kernels and calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cudabench.simulator.isa.access import ORDERS, SPACES, MemoryOp, space_of
from cudabench.simulator.isa.mbarrier import arrive_bytes
from cudabench.simulator.isa.opcodes import instruction, items, refuse
from cudabench.simulator.isa.state_spaces import load, store
from cudabench.simulator.machine import Machine
from cudabench.simulator.memory import PARAMETER_WINDOW, WINDOW
from cudabench.simulator.program.builder import Builder
from cudabench.simulator.program.calls import composed, parts_of
from cudabench.simulator.program.code import Refuse, Run
from cudabench.simulator.program.ptx import BITS, Instruction, Operand
from cudabench.simulator.values import DTYPES, SIGNED, UNSIGNED, ZERO, Value, as_array

_HINTS = ORDERS.union(
    SPACES, ("weak", "cta", "gpu", "sys", "ca", "cg", "cs", "lu", "cv", "nc", "wb", "wt", "unified", "v2", "v4", "v8")
)


def element(ins: Instruction) -> tuple[str, np.dtype[Any], int]:
    """Return, for a load or store: the PTX element type, its dtype in registers (uint16 for f16), elements per lane."""
    count = next((int(word[1:]) for word in ins.modifiers if word in ("v2", "v4", "v8")), 1)
    type_ = ins.modifiers[-1]
    if type_ not in DTYPES:
        raise refuse(ins)
    return type_, DTYPES["b16" if type_ == "f16" else type_], count


def check_modifiers(ins: Instruction) -> None:
    """Raise Refuse if a load or store has an unknown modifier."""
    prefixes = ("L1:", "L2:", "level:", "param:", "shared:", "cluster")
    if not all(word in _HINTS or word.startswith(prefixes) for word in ins.modifiers[:-1]):
        raise refuse(ins)


@instruction("ld", "ldu")
def _ld(builder: Builder, ins: Instruction) -> Run:
    check_modifiers(ins)
    type_, dtype, count = element(ins)
    space, into = space_of(ins), items(ins.operands[0])
    variable = builder.call_parameter(ins.operands[1]) if space == "param" else None
    if variable is not None:
        return _load_param(builder, variable, ins.operands[1], into, type_)
    targets = [builder.target(item) for item in into]
    address, offset = builder.address(ins.operands[1])
    # A loaded value of 8 bytes may be a pointer to any memory; a smaller value is an index, not a pointer.
    builder.pointer = 1 if dtype.itemsize == 8 else 0
    place = builder.initial[address] or 0
    if space == "param" and PARAMETER_WINDOW <= place < PARAMETER_WINDOW + WINDOW:
        return _load_kernel_param(builder, targets, place + offset - PARAMETER_WINDOW, type_)
    access = MemoryOp(builder, "load", dtype, count, space)
    access.results = tuple(targets)
    builder.orders |= access.ordered
    if "nc" in ins.modifiers or ins.opcode == "ldu":
        access.cached = "load"
    writers = [_writer(builder, target, type_) for target in targets]

    def run(machine: Machine) -> None:
        loaded = load(machine, access, space, machine.registers[address], offset)
        for write, value in zip(writers, loaded or [ZERO] * len(writers), strict=True):
            write(machine, value)

    return run


def _writer(builder: Builder, target: int, type_: str) -> Callable[[Machine, Value], None]:
    """Return a function that writes a loaded element to a register, extended to the width of the register."""
    bits, width, kinds = BITS[type_], builder.width(target), SIGNED if type_[0] == "s" else UNSIGNED
    if width <= bits:
        return lambda machine, value: machine.put(target, value)
    return lambda machine, value: machine.put(target, as_array(value, kinds[bits]).astype(kinds[width]))


def _load_kernel_param(builder: Builder, targets: list[int], start: int, type_: str) -> Run:
    """Build ld.param of the kernel's parameters at byte offset `start`: all lanes get the same value."""
    dtype = DTYPES[type_]
    width = dtype.itemsize
    builder.pointer = 1 << (1 + start) if width == 8 and len(targets) == 1 else (1 if width == 8 else 0)
    writers = [_writer(builder, target, type_) for target in targets]

    def run(machine: Machine) -> None:
        for place, write in enumerate(writers):
            raw = machine.parameters.bytes[start + place * width : start + (place + 1) * width]
            write(machine, raw.view(dtype).reshape(1, 1))

    return run


def _load_param(builder: Builder, variable: str, place: Any, into: tuple[Operand, ...], type_: str) -> Run:
    """Build ld.param of a call's parameter, which the simulator keeps in one or several registers."""
    bits = BITS[type_]
    plans = []
    for index, item in enumerate(into):
        start = place.offset + index * bits // 8
        pieces = parts_of(builder, variable, start, bits) or [(builder.slot(variable, start, bits), bits, 0)]
        builder.uses.extend(slot for slot, _, _ in pieces)
        plans.append((_writer(builder, builder.target(item), type_), pieces))

    def run(machine: Machine) -> None:
        for write, pieces in plans:
            write(machine, composed(machine, bits, pieces))

    return run


def _store_param(builder: Builder, ins: Instruction, type_: str, sources: list[int]) -> Run:
    """Build st.param of a call's parameter, which the simulator keeps in registers."""
    place: Any = ins.operands[0]
    variable = builder.call_parameter(place)
    if variable is None:
        raise Refuse(f"instruction {ins.text} with this address")
    bits = BITS[type_]
    slots = [builder.slot(variable, place.offset + index * bits // 8, bits) for index in range(len(sources))]
    builder.defs.extend(slots)
    narrowing = [builder.width(source) > bits for source in sources]

    def run(machine: Machine) -> None:
        for slot, source, narrows in zip(slots, sources, narrowing, strict=True):
            value = machine.registers[source]
            machine.put(slot, as_array(value, UNSIGNED[bits]) if narrows else value)

    return run


@instruction("st")
def _st(builder: Builder, ins: Instruction) -> Run:
    """Build a store.

    st.async writes to the shared memory of a block of the cluster; a barrier in that memory then counts the bytes.
    """
    is_async = "async" in ins.modifiers
    if not is_async:
        check_modifiers(ins)
    (type_, dtype, count), space = element(ins), space_of(ins)
    if space == "const":
        raise refuse(ins)
    sources = [builder.source(item, type_) for item in items(ins.operands[1])]
    if space == "param":
        return _store_param(builder, ins, type_, sources)
    address, offset = builder.address(ins.operands[0])
    access = MemoryOp(builder, "store", dtype, count, space)
    builder.orders |= access.ordered
    barrier = builder.address(ins.operands[2]) if is_async else None
    builder.signs = access.ordered
    releases, wide = "release" in ins.modifiers, "cta" not in ins.modifiers

    def run(machine: Machine) -> None:
        if releases and (wide or machine.releases is not None):
            machine.fence(wide)
        registers = machine.registers
        store(machine, access, space, registers[address], offset, [registers[source] for source in sources])
        if barrier is not None:
            arrive_bytes(machine, *barrier, access.size)

    return run
