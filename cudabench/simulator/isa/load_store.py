"""Loads and stores (PTX ISA 9.7.9), also through generic addresses and of call parameters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from cudabench.simulator.isa.access import SPACES, Lanes, MemoryOp, only, space_of
from cudabench.simulator.isa.global_memory import load_constant, load_global, store_global
from cudabench.simulator.isa.local_memory import load_local, store_local
from cudabench.simulator.isa.mbarrier import arrive_bytes
from cudabench.simulator.isa.opcodes import instruction, items, refuse
from cudabench.simulator.isa.shared_memory import load_shared, store_shared
from cudabench.simulator.machine import Machine
from cudabench.simulator.memory import LOCAL_WINDOW, PARAMETER_WINDOW, SHARED_WINDOW, WINDOW, flat
from cudabench.simulator.program.builder import Builder
from cudabench.simulator.program.calls import composed
from cudabench.simulator.program.code import Refuse, Run
from cudabench.simulator.program.ptx import BITS, Address, Instruction, Operand
from cudabench.simulator.values import DTYPES, SIGNED, UNSIGNED, Affine, Array, Value, as_array, broadcast, canonical

_WINDOWS = (("shared", SHARED_WINDOW), ("local", LOCAL_WINDOW))
_LOAD = {
    "global": load_global, "shared": load_shared, "local": load_local, "const": load_constant, "param": load_global,
}  # fmt: skip
_STORE = {"global": store_global, "shared": store_shared, "local": store_local}
_ORDERS = frozenset(("relaxed", "acquire", "release", "volatile", "mmio"))
_HINTS = _ORDERS.union(
    SPACES, ("weak", "cta", "gpu", "sys", "ca", "cg", "cs", "lu", "cv", "nc", "wb", "wt", "unified", "v2", "v4", "v8")
)


def spaces(machine: Machine, address: Value, offset: int) -> list[tuple[str, int, Array]]:
    """Return (space, window start, lanes) of a generic access; lanes None means all active ones."""
    if type(address) is Affine:
        low, high = address.low + offset, address.high + offset
    else:
        low, high, _ = Lanes(machine, address, offset).extremes()
    for name, start in _WINDOWS:
        if low >= start - WINDOW // 2 and high < start + WINDOW:
            return [(name, start, None)]
    if low >= 1 << 39 or high < SHARED_WINDOW - WINDOW:
        return [("global", 0, None)]
    where = broadcast(flat(address, offset, machine.chunk), machine.chunk.shape)
    rest = machine.lanes()
    parts: list[tuple[str, int, Array]] = []
    for name, start in _WINDOWS:
        inside = (where >= start - WINDOW // 2) & (where < start + WINDOW) & rest
        if inside.any():
            parts.append((name, start, inside))
            rest = rest & ~inside
    if rest.any():
        parts.append(("global", 0, rest))
    return parts


def by_space(machine: Machine, space: str, address: Value, offset: int) -> Iterator[tuple[str, int, Array]]:
    """Yield (space, offset from the address into it, lanes) of an access, and let only those lanes act; lanes None
    means all active ones."""
    if space != "generic":
        yield space, offset, None
        return
    for name, start, lanes in spaces(machine, address, offset):
        with only(machine, lanes):
            yield name, offset - start, lanes


def load(machine: Machine, access: MemoryOp, space: str, address: Value, offset: int) -> list[Array] | None:
    """Return the elements that each lane reads."""
    total: list[Array] | None = None
    for name, place, lanes in by_space(machine, space, address, offset):
        part = _LOAD[name](machine, access, address, place)
        if part is not None:
            total = part if total is None else [np.where(lanes, n, o) for n, o in zip(part, total, strict=True)]
    return total


def store(machine: Machine, access: MemoryOp, space: str, address: Value, offset: int, data: list[Value]) -> None:
    """Write each lane's elements."""
    if space != "generic":
        _STORE[space](machine, access, address, offset, data)
        return
    for name, place, _ in by_space(machine, space, address, offset):
        _STORE[name](machine, access, address, place, data)


def element(ins: Instruction) -> tuple[str, int]:
    """Return (element type, number of elements) of a load or store."""
    count = next((int(word[1:]) for word in ins.modifiers if word in ("v2", "v4", "v8")), 1)
    type_ = ins.modifiers[-1]
    if type_ not in DTYPES:
        raise refuse(ins)
    return type_, count


def known(builder: Builder, ins: Instruction) -> bool:
    """Refuse a load or store with a modifier that is no plain hint; return and note whether it may order blocks."""
    ordered = not _ORDERS.isdisjoint(ins.modifiers) and space_of(ins) in ("global", "generic")
    ordered = ordered and "cta" not in ins.modifiers
    builder.orders |= ordered
    prefixes = ("L1:", "L2:", "level:", "param:", "shared:", "cluster")
    if not all(word in _HINTS or word.startswith(prefixes) for word in ins.modifiers[:-1]):
        raise refuse(ins)
    return ordered


def unsigned(type_: str) -> str:
    """Return the type under which an element moves: a 16-bit float as its bits."""
    return "b16" if type_ == "f16" else type_


@instruction("ld", "ldu")
def _ld(builder: Builder, ins: Instruction) -> Run:
    ordered = known(builder, ins)
    type_, count = element(ins)
    space, into = space_of(ins), items(ins.operands[0])
    dtype = DTYPES[unsigned(type_)]
    if space == "param":
        found = _load_param(builder, ins, into, type_)
        if found is not None:
            return found
    targets = [builder.target(item) for item in into]
    address, offset = builder.address(ins.operands[1])
    # A pointer out of memory may point anywhere; a loaded index points nowhere.
    builder.pointer = 1 if dtype.itemsize == 8 else 0
    place = builder.initial[address]
    at_a_place = type(place) is Affine and PARAMETER_WINDOW <= place.base < PARAMETER_WINDOW + WINDOW
    if space == "param" and at_a_place:
        return _load_kernel_param(builder, targets, place.base + offset - PARAMETER_WINDOW, type_)
    access = MemoryOp(builder, "load", dtype, count, space)
    access.ordered, access.acquires = ordered, "acquire" in ins.modifiers
    builder.loads.append((access, address, tuple(targets)))
    access.strong = not _ORDERS.isdisjoint(ins.modifiers)
    if access.strong:
        builder.strong = access
    if "nc" in ins.modifiers or ins.opcode == "ldu":
        access.cached = "load"
        builder.cached.append((access, address))
    wide = [_extended(type_, builder.width(target)) for target in targets]
    if space != "generic" and len(targets) == 1 and wide[0] is None:
        read, (target,) = _LOAD[space], targets

        def run_one(machine: Machine) -> None:
            found = read(machine, access, machine.registers[address], offset)
            machine.put(target, Affine(0) if found is None else canonical(found[0]))

        return run_one

    def run(machine: Machine) -> None:
        found = load(machine, access, space, machine.registers[address], offset)
        for target, width, value in zip(targets, wide, found or [None] * len(targets), strict=True):
            if value is not None and width is not None:
                value = value.astype(width)
            machine.put(target, Affine(0) if value is None else canonical(value))

    return run


def _extended(type_: str, width: int) -> np.dtype[Any] | None:
    """Return what a loaded element is extended to for a register of so many bits; None where it fills it."""
    return (SIGNED if type_[0] == "s" else UNSIGNED)[width] if width > BITS[type_] else None


def _load_kernel_param(builder: Builder, targets: list[int], start: int, type_: str) -> Run:
    """Build ld.param of the kernel's own parameters at a fixed place: the same value for all lanes."""
    dtype = DTYPES[type_]
    width = dtype.itemsize
    builder.pointer = 1 << (1 + start) if width == 8 and len(targets) == 1 else (1 if width == 8 else 0)
    extended = [_extended(type_, builder.width(target)) for target in targets]

    def run(machine: Machine) -> None:
        for place, target in enumerate(targets):
            key = (start, place, type_)
            value = machine.parameter_values.get(key)
            if value is None:
                raw = machine.parameters.bytes[start + place * width : start + (place + 1) * width]
                array, wide = raw.view(dtype).reshape(1, 1), extended[place]
                if wide is not None and dtype.kind != "f":
                    array = array.astype(wide)
                value = machine.parameter_values[key] = canonical(array)
            machine.put(target, value)

    return run


def _load_param(builder: Builder, ins: Instruction, into: tuple[Operand, ...], type_: str) -> Run | None:
    """Build ld.param of a call's parameter, which is a register here; None for the kernel's own parameters."""
    place = ins.operands[1]
    if not isinstance(place, Address) or place.base is None:
        return None
    variable = builder.param_name(place.base)
    if variable is None:
        return None
    bits = BITS[type_]
    slots = builder.slots.get(variable, {})
    plans = []
    for index, item in enumerate(into):
        start = place.offset + index * bits // 8
        exact = slots.get((start, bits))
        if exact is None and not any(s < start + bits // 8 and s + w // 8 > start for s, w in slots):
            exact = builder.slot(variable, start, bits)
        pieces = [
            (slot, width, (offset - start) * 8)
            for (offset, width), slot in slots.items()
            if exact is None and offset < start + bits // 8 and offset + width // 8 > start
        ]
        builder.uses.extend([slot for slot, _, _ in pieces] if exact is None else [exact])
        target = builder.target(item)
        plans.append((target, _extended(type_, builder.width(target)), exact, pieces))

    def run(machine: Machine) -> None:
        for target, wide, exact, pieces in plans:
            value = machine.registers[exact] if exact is not None else composed(machine, bits, pieces)
            if wide is not None and type(value) is not Affine:
                value = as_array(value, DTYPES[type_], machine.chunk).astype(wide)
            machine.put(target, value)

    return run


def _store_async(builder: Builder, ins: Instruction) -> Run:
    """Build st.async: a store to a block of the cluster, whose barrier learns of its bytes."""
    words = tuple(word for word in ins.modifiers if word != "async" and not word.startswith("mbarrier"))
    type_, count = element(ins)
    sources = [builder.source(item, type_) for item in items(ins.operands[1])]
    into, into_offset = builder.address(ins.operands[0])
    access = MemoryOp(builder, "store", DTYPES[type_], count, space_of(ins._replace(modifiers=words)))
    address, offset = builder.address(ins.operands[2])

    def run(machine: Machine) -> None:
        store_shared(machine, access, machine.registers[into], into_offset, [machine.registers[s] for s in sources])
        arrive_bytes(machine, address, offset, access.size)

    return run


def _store_param(builder: Builder, ins: Instruction, type_: str, sources: list[int]) -> Run:
    """Build st.param of a call's parameter, which is a register here."""
    place = ins.operands[0]
    variable = builder.param_name(place.base) if isinstance(place, Address) and place.base else None
    if variable is None or not isinstance(place, Address):
        raise Refuse(f"instruction {ins.text} with this address")
    bits = BITS[type_]
    slots = [builder.slot(variable, place.offset + index * bits // 8, bits) for index in range(len(sources))]
    builder.defs.extend(slots)
    narrowing = [builder.width(source) > bits for source in sources]

    def run(machine: Machine) -> None:
        for slot, source, less in zip(slots, sources, narrowing, strict=True):
            value = machine.registers[source]
            machine.put(slot, canonical(as_array(value, UNSIGNED[bits], machine.chunk)) if less else value)

    return run


@instruction("st")
def _st(builder: Builder, ins: Instruction) -> Run:
    if "async" in ins.modifiers:
        return _store_async(builder, ins)
    ordered = known(builder, ins)
    type_, count = element(ins)
    space = space_of(ins)
    if space == "const":
        raise refuse(ins)
    sources = [builder.source(item, type_) for item in items(ins.operands[1])]
    if space == "param":
        return _store_param(builder, ins, type_, sources)
    address, offset = builder.address(ins.operands[0])
    access = MemoryOp(builder, "store", DTYPES[unsigned(type_)], count, space)
    access.ordered, access.strong = ordered, not _ORDERS.isdisjoint(ins.modifiers)
    builder.signs = ordered
    releases, wide = "release" in ins.modifiers, "cta" not in ins.modifiers

    def run(machine: Machine) -> None:
        if releases and (wide or machine.releases is not None):
            machine.fence(wide)
        registers = machine.registers
        store(machine, access, space, registers[address], offset, [registers[source] for source in sources])

    return run
