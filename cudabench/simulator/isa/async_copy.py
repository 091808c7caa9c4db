"""cp.async (PTX ISA 9.7.9.25): copied at once, but raced with until its group is waited for."""

from __future__ import annotations

from copy import copy

import numpy as np

from cudabench.simulator.isa.access import MemoryOp
from cudabench.simulator.isa.bulk_copies import build_copy
from cudabench.simulator.isa.global_memory import load_global
from cudabench.simulator.isa.mbarrier import build_copies_arrive
from cudabench.simulator.isa.opcodes import instruction, refuse
from cudabench.simulator.isa.shared_memory import store_shared
from cudabench.simulator.isa.tensor_copies import build_tensor
from cudabench.simulator.machine import Machine
from cudabench.simulator.program.builder import Builder
from cudabench.simulator.program.code import Op, Refuse, Run
from cudabench.simulator.program.ptx import Immediate, Instruction
from cudabench.simulator.values import BOOL, UNSIGNED, Affine, Value, as_array

WIDE = 16  # bytes a lane of the copies that may ask for a sector twice


@instruction("cp")
def _cp(builder: Builder, ins: Instruction) -> Run | Op | None:
    """Build cp.async with its commit and wait, and cp.async.bulk."""
    words = ins.modifiers
    if "bulk" in words:
        if {"commit_group", "wait_group", "prefetch"} & set(words):
            return None  # every bulk copy has ended
        return (build_tensor if "tensor" in words else build_copy)(builder, ins)
    if "mbarrier" in words:
        return build_copies_arrive(builder, ins)
    if words[0] != "async":
        raise refuse(ins)
    if "commit_group" in words:
        return lambda machine: machine.shared_races.commit(machine.mask)
    if "wait_all" in words or "wait_group" in words:
        count = ins.operands[0].value if "wait_group" in words and isinstance(ins.operands[0], Immediate) else None
        return lambda machine: machine.shared_races.wait(count, machine.mask)
    return _copy(builder, ins)


def _copy(builder: Builder, ins: Instruction) -> Run:
    into, into_offset = builder.address(ins.operands[0])
    out_of, out_offset = builder.address(ins.operands[1])
    size = ins.operands[2]
    if not isinstance(size, Immediate):
        raise refuse(ins)
    given = None
    ignore: tuple[int, bool] | None = None
    if len(ins.operands) > 3 and not any("cache_hint" in word for word in ins.modifiers):
        operand = ins.operands[3]
        try:
            given = builder.source(operand, "u32")
        except Refuse:
            ignore = builder.predicate(operand)
        if given is not None and builder.width(given) == 1:
            ignore, given = (given, False), None
    words = size.value // 4
    load = MemoryOp(builder, "load", UNSIGNED[32], words, "global")
    store = MemoryOp(builder, "store", UNSIGNED[32], words, "shared")
    builder.shared_accesses[-1] = (store, into)
    parts = {count: _bytes(load, count) for count in range(1, size.value)}

    def run(machine: Machine) -> None:
        registers = machine.registers
        mask, warps = machine.mask, machine._warps
        amount: Value = Affine(size.value) if given is None else registers[given]
        if ignore is not None:
            skip = machine.array(ignore[0], BOOL)
            amount = np.where(skip != ignore[1], np.uint32(0), np.uint32(size.value))
        found = None
        some = None
        if type(amount) is not Affine or amount.coefficients is not None or amount.base < size.value:
            some = as_array(amount, UNSIGNED[32], machine.chunk)
            reads = some >= size.value
            machine.mask, machine._warps = reads if mask is None else mask & reads, -1
        if machine.mask is None or machine.mask.any():
            found = load_global(machine, load, registers[out_of], out_offset)
            if found is not None and size.value == WIDE:
                machine.counters.wide_copy(
                    load.numbers["global"], registers[out_of], out_offset, registers[into], into_offset,
                    machine.mask, machine.chunk,
                )  # fmt: skip
        data: list[Value] = [Affine(0)] * words if found is None else list(found)
        if some is not None:
            data = [np.where(some >= size.value, as_array(one, UNSIGNED[32], machine.chunk), 0) for one in data]
            shape = some.shape if mask is None else np.broadcast_shapes(mask.shape, some.shape)
            active = np.broadcast_to(some, shape)[True if mask is None else np.broadcast_to(mask, shape)]
            for count in sorted(parts.keys() & set(active.ravel().tolist())):
                lanes = some == count
                machine.mask, machine._warps = lanes if mask is None else mask & lanes, -1
                read = load_global(machine, parts[count], registers[out_of], out_offset)
                for place, byte in enumerate(read or ()):
                    word = data[place // 4] | byte.astype(np.uint32) << np.uint32(8 * (place % 4))
                    data[place // 4] = np.where(lanes, word, data[place // 4])
        machine.mask, machine._warps = mask, warps
        machine.shared_races.asynchronous = True
        store_shared(machine, store, registers[into], into_offset, data)
        machine.shared_races.asynchronous = False

    return run


def _bytes(load: MemoryOp, count: int) -> MemoryOp:
    """Return a copy's load as of its first bytes: what lies behind them is neither read nor has to be there."""
    part = copy(load)
    part.dtype, part.count, part.width, part.size = UNSIGNED[8], count, 1, count
    return part
