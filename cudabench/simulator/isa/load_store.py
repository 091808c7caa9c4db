"""Loads and stores (PTX ISA 9.7.9), also through generic addresses and of call parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cudabench.simulator.isa.access import SPACES, Lanes, MemoryOp, space_of
from cudabench.simulator.isa.constant_memory import load_constant
from cudabench.simulator.isa.global_memory import load_global, store_global
from cudabench.simulator.isa.local_memory import load_local, store_local
from cudabench.simulator.isa.mbarrier import arrive_bytes
from cudabench.simulator.isa.opcodes import instruction, refuse
from cudabench.simulator.isa.shared_memory import load_shared, store_shared
from cudabench.simulator.memory import (
    LOCAL_WINDOW,
    PARAMETER_WINDOW,
    SHARED_WINDOW,
    WINDOW,
    flat,
)
from cudabench.simulator.program.builder import Builder
from cudabench.simulator.program.calls import composed
from cudabench.simulator.program.code import Refuse, Run
from cudabench.simulator.program.ptx import BITS, Address, Instruction, Vector
from cudabench.simulator.values import DTYPES, SIGNED, UNSIGNED, Affine, Array, Value, as_array, broadcast, canonical

if TYPE_CHECKING:
    from cudabench.simulator.machine import Machine


_STORAGE = {8: UNSIGNED[8], 16: UNSIGNED[16], 32: UNSIGNED[32], 64: UNSIGNED[64]}


def spaces(machine: Machine, address: Value, offset: int) -> list[tuple[str, int, Array | None]]:
    """Return (space, window start, lanes) of a generic access; lanes None means all active ones."""
    if type(address) is Affine:
        low, high = address.low + offset, address.high + offset
    else:
        lanes = Lanes(machine, address, offset)
        low, high, _ = lanes.extremes()
    for name, start in (("shared", SHARED_WINDOW), ("local", LOCAL_WINDOW)):
        if low >= start - WINDOW // 2 and high < start + WINDOW:
            return [(name, start, None)]
    if low >= 1 << 39 or high < SHARED_WINDOW - WINDOW:
        return [("global", 0, None)]
    where = broadcast(flat(address, offset, machine.chunk), machine.chunk.shape)
    active = machine.lanes()
    parts: list[tuple[str, int, Array | None]] = []
    rest = active
    for name, start in (("shared", SHARED_WINDOW), ("local", LOCAL_WINDOW)):
        inside = (where >= start - WINDOW // 2) & (where < start + WINDOW) & active
        if inside.any():
            parts.append((name, start, inside))
            rest = rest & ~inside
    if rest.any():
        parts.append(("global", 0, rest))
    return parts


_LOAD = {
    "global": load_global,
    "shared": load_shared,
    "local": load_local,
    "const": load_constant,
    "param": load_global,
}
_STORE = {"global": store_global, "shared": store_shared, "local": store_local}


def load(machine: Machine, access: MemoryOp, space: str, address: Value, offset: int) -> list[Array] | None:
    """Return the elements that each lane reads."""
    if space != "generic":
        return _LOAD[space](machine, access, address, offset)
    parts = spaces(machine, address, offset)
    if len(parts) == 1:
        name, start, _ = parts[0]
        return _LOAD[name](machine, access, address, offset - start)
    total: list[Array] | None = None
    mask, warps = machine.mask, machine._warps
    for name, start, lanes in parts:
        machine.mask, machine._warps = lanes, -1
        part = _LOAD[name](machine, access, address, offset - start)
        if part is not None:
            total = part if total is None else [np.where(lanes, n, o) for n, o in zip(part, total, strict=True)]  # type: ignore[arg-type]
    machine.mask, machine._warps = mask, warps
    return total


def store(machine: Machine, access: MemoryOp, space: str, address: Value, offset: int, data: list[Value]) -> None:
    """Write each lane's elements."""
    if space != "generic":
        _STORE[space](machine, access, address, offset, data)
        return
    parts = spaces(machine, address, offset)
    mask, warps = machine.mask, machine._warps
    for name, start, lanes in parts:
        if lanes is not None:
            machine.mask, machine._warps = lanes, -1
        _STORE[name](machine, access, address, offset - start, data)
    machine.mask, machine._warps = mask, warps


def element(ins: Instruction) -> tuple[str, int]:
    """Return (element type, number of elements) of a load or store."""
    count = next((int(word[1:]) for word in ins.modifiers if word in ("v2", "v4", "v8")), 1)
    type_ = ins.modifiers[-1]
    if type_ == "b128":
        return "b64", 2 * count
    if type_ not in DTYPES:
        raise Refuse(f"instruction {ins.text}")
    return type_, count


_ORDERS = frozenset(["relaxed", "acquire", "release", "volatile", "mmio"])
_HINTS = (
    frozenset(
        [
            "weak",
            "cta",
            "gpu",
            "sys",
            "ca",
            "cg",
            "cs",
            "lu",
            "cv",
            "nc",
            "wb",
            "wt",
            "unified",
            "v2",
            "v4",
            "v8",
        ]
    )
    | frozenset(SPACES)
    | _ORDERS
)


def known(builder: Builder, ins: Instruction) -> bool:
    """Refuse a load or store with a modifier that is no plain hint; return and note whether it may order blocks."""
    ordered = not _ORDERS.isdisjoint(ins.modifiers) and space_of(ins) in ("global", "generic")
    ordered = ordered and "cta" not in ins.modifiers
    builder.orders |= ordered
    for word in ins.modifiers[:-1]:
        if word in _HINTS or word.startswith(("L1:", "L2:", "level:", "param:", "shared:", "cluster")):
            continue
        raise Refuse(f"instruction {ins.text}")
    return ordered


@instruction("ld", "ldu")
def build_ld(builder: Builder, ins: Instruction) -> Run:
    """Build ld."""
    ordered = known(builder, ins)
    type_, count = element(ins)
    space = space_of(ins)
    into = ins.operands[0]
    items = into.items if isinstance(into, Vector) else (into,)
    if type_ == "b64" and ins.modifiers[-1] == "b128":
        raise Refuse(f"instruction {ins.text}")
    dtype = DTYPES[type_]
    if dtype.kind == "f":
        dtype = _STORAGE[dtype.itemsize * 8] if dtype.itemsize == 2 else dtype
    if space == "param":
        found = _load_param(builder, ins, items, type_)
        if found is not None:
            return found
    targets = [builder.target(item) for item in items]
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
    wide = []
    for target in targets:
        width = builder.width(target)
        wide.append((SIGNED if type_[0] == "s" else UNSIGNED)[width] if width > BITS[type_] else None)

    if space != "generic" and len(targets) == 1 and wide[0] is None:
        read, (target,) = _LOAD[space], targets

        def run_one(machine: Machine) -> None:
            found = read(machine, access, machine.registers[address], offset)
            machine.put(target, Affine(0) if found is None else canonical(found[0]))

        return run_one

    def run(machine: Machine) -> None:
        found = load(machine, access, space, machine.registers[address], offset)
        for place, target in enumerate(targets):
            if found is None:
                machine.put(target, Affine(0))
                continue
            value = found[place]
            if wide[place] is not None:
                value = value.astype(wide[place])
            machine.put(target, canonical(value))

    return run


def _load_kernel_param(builder: Builder, targets: list[int], start: int, type_: str) -> Run:
    """Build ld.param of the kernel's own parameters at a fixed place: the same value for all lanes."""
    dtype = DTYPES[type_]
    width = dtype.itemsize
    builder.pointer = 1 << (1 + start) if width == 8 and len(targets) == 1 else (1 if width == 8 else 0)
    extended = [(SIGNED if type_[0] == "s" else UNSIGNED)[max(builder.width(target), 8 * width)] for target in targets]

    def run(machine: Machine) -> None:
        for place, target in enumerate(targets):
            key = (start, place, type_)
            value = machine.parameter_values.get(key)
            if value is None:
                raw = machine.parameters.bytes[start + place * width : start + (place + 1) * width]
                array = raw.view(dtype).reshape(1, 1)
                if dtype.kind != "f" and extended[place].itemsize > width:
                    array = array.astype(extended[place])
                value = machine.parameter_values[key] = canonical(array)
            machine.put(target, value)

    return run


def _load_param(builder: Builder, ins: Instruction, items: tuple[Any, ...], type_: str) -> Run | None:
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
    for index, item in enumerate(items):
        start = place.offset + index * bits // 8
        exact = slots.get((start, bits))
        if exact is None and not any(s < start + bits // 8 and s + w // 8 > start for s, w in slots):
            exact = builder.slot(variable, start, bits)
        pieces = []
        if exact is not None:
            builder.uses.append(exact)
        else:
            for (offset, width), slot in slots.items():
                if offset < start + bits // 8 and offset + width // 8 > start:
                    pieces.append((slot, width, (offset - start) * 8))
                    builder.uses.append(slot)
        target = builder.target(item)
        plans.append((target, builder.width(target), exact, tuple(pieces)))
    source, extend = DTYPES[type_], type_[0] == "s"

    def run(machine: Machine) -> None:
        for target, width, exact, pieces in plans:
            value = machine.registers[exact] if exact is not None else composed(machine, bits, pieces)
            if width > bits and type(value) is not Affine:
                value = as_array(value, source, machine.chunk).astype((SIGNED if extend else UNSIGNED)[width])
            machine.put(target, value)

    return run


def build_store_async(builder: Builder, ins: Instruction) -> Run:
    """Build st.async: a store to a block of the cluster, whose barrier learns of its bytes."""
    words = tuple(word for word in ins.modifiers if word != "async" and not word.startswith("mbarrier"))
    type_, count = element(ins)
    out_of = ins.operands[1]
    sources = [builder.source(item, type_) for item in (out_of.items if isinstance(out_of, Vector) else (out_of,))]
    into, into_offset = builder.address(ins.operands[0])
    dtype = DTYPES[type_]
    access = MemoryOp(builder, "store", dtype, count, space_of(ins._replace(modifiers=words)))
    address, offset = builder.address(ins.operands[2])

    def run(machine: Machine) -> None:
        store(machine, access, "shared", machine.registers[into], into_offset, [machine.registers[s] for s in sources])
        arrive_bytes(machine, address, offset, access.size)

    return run


@instruction("st")
def build_st(builder: Builder, ins: Instruction) -> Run:
    """Build st."""
    if "async" in ins.modifiers:
        return build_store_async(builder, ins)
    if "bulk" in ins.modifiers:
        raise refuse(ins)
    ordered = known(builder, ins)
    type_, count = element(ins)
    space = space_of(ins)
    out_of = ins.operands[1]
    items = out_of.items if isinstance(out_of, Vector) else (out_of,)
    if type_ == "b64" and ins.modifiers[-1] == "b128":
        raise Refuse(f"instruction {ins.text}")
    sources = [builder.source(item, type_) for item in items]
    place = ins.operands[0]
    if space == "param":
        variable = builder.param_name(place.base) if isinstance(place, Address) and place.base else None
        if variable is None or not isinstance(place, Address):
            raise Refuse(f"instruction {ins.text} with this address")
        bits = BITS[type_]
        slots = [builder.slot(variable, place.offset + index * bits // 8, bits) for index in range(len(items))]
        builder.defs.extend(slots)
        narrowing = [builder.width(source) > bits for source in sources]

        def assign(machine: Machine) -> None:
            for slot, source, less in zip(slots, sources, narrowing, strict=True):
                value = machine.registers[source]
                if less:
                    value = canonical(as_array(value, UNSIGNED[bits], machine.chunk))
                machine.put(slot, value)

        return assign
    if space == "const":
        raise Refuse(f"instruction {ins.text}")
    address, offset = builder.address(place)
    dtype = DTYPES[type_]
    if dtype.kind == "f" and dtype.itemsize == 2:
        dtype = UNSIGNED[16]
    access = MemoryOp(builder, "store", dtype, count, space)
    access.ordered, access.strong = ordered, not _ORDERS.isdisjoint(ins.modifiers)
    builder.signs = ordered
    releases, wide = "release" in ins.modifiers, "cta" not in ins.modifiers
    if space != "generic" and len(sources) == 1 and not releases:
        write, (source,) = _STORE[space], sources

        def run_one(machine: Machine) -> None:
            write(machine, access, machine.registers[address], offset, [machine.registers[source]])

        return run_one

    def run(machine: Machine) -> None:
        if releases and (wide or machine.releases is not None):
            machine.fence(wide)
        registers = machine.registers
        store(machine, access, space, registers[address], offset, [registers[source] for source in sources])

    return run
