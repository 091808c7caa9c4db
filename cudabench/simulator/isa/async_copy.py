"""cp.async (PTX ISA 9.7.9.25): copied at once, but raced with until its group is waited for."""

from __future__ import annotations

from copy import copy

import numpy as np

from cudabench.simulator.isa.access import MemoryOp, only
from cudabench.simulator.isa.bulk_copies import build_copy
from cudabench.simulator.isa.global_memory import load_global
from cudabench.simulator.isa.mbarrier import build_copies_arrive
from cudabench.simulator.isa.opcodes import instruction, refuse
from cudabench.simulator.isa.shared_memory import store_shared
from cudabench.simulator.isa.tensor_copies import build_tensor
from cudabench.simulator.machine import Machine
from cudabench.simulator.program.builder import Builder
from cudabench.simulator.program.code import Op, Run
from cudabench.simulator.program.ptx import Immediate, Instruction
from cudabench.simulator.values import BOOL, UNSIGNED, Affine, Array, Value, as_array, broadcast

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
    # Behind the size may stand how many bytes are read, or a predicate under which none are.
    less = None if any("cache_hint" in word for word in ins.modifiers) else next(iter(ins.operands[3:]), size)
    if less is None or isinstance(less, Immediate):
        given, flip = builder.source(less or size, "u32"), False
    else:
        given, flip = builder.predicate(less)
    skips, words = builder.width(given) == 1, size.value // 4
    load = MemoryOp(builder, "load", UNSIGNED[32], words, "global")
    store = MemoryOp(builder, "store", UNSIGNED[32], words, "shared")
    builder.shared_accesses[-1] = (store, into)
    parts = {count: _bytes(load, count) for count in range(1, size.value)}

    def amounts(machine: Machine) -> list[tuple[int, Array | None]]:
        """Return how many bytes lanes read, all of them before less, with those lanes (None: the active ones)."""
        amount: Value = machine.registers[given]
        if skips:
            amount = np.where(machine.array(given, BOOL) != flip, np.uint32(0), np.uint32(size.value))
        if type(amount) is Affine and amount.coefficients is None and amount.base >= size.value:
            return [(size.value, None)]
        some = np.minimum(as_array(amount, UNSIGNED[32], machine.chunk), np.uint32(size.value))
        counts = set(broadcast(some, machine.chunk.shape)[machine.lanes()].tolist()) - {0}
        return [(count, some == count) for count in sorted(counts, key=lambda count: (count < size.value, count))]

    def run(machine: Machine) -> None:
        registers = machine.registers
        data: list[Value] = [Affine(0)] * words
        for count, lanes in amounts(machine):
            with only(machine, lanes):
                found = load_global(machine, parts.get(count, load), registers[out_of], out_offset)
                if found is not None and count == WIDE:
                    machine.counters.wide_copy(
                        load.numbers["global"], registers[out_of], out_offset, registers[into], into_offset,
                        machine.mask, machine.chunk,
                    )  # fmt: skip
            if found is None:
                continue
            if count < size.value:
                octets = [byte.astype(np.uint32) << np.uint32(8 * (place % 4)) for place, byte in enumerate(found)]
                found = [np.bitwise_or.reduce(octets[at : at + 4] or [np.uint32(0)]) for at in range(0, size.value, 4)]
            olds = (as_array(old, UNSIGNED[32], machine.chunk) for old in data)
            data = found if lanes is None else [np.where(lanes, *pair) for pair in zip(found, olds, strict=True)]
        machine.shared_races.asynchronous = True
        store_shared(machine, store, registers[into], into_offset, data)
        machine.shared_races.asynchronous = False

    return run


def _bytes(load: MemoryOp, count: int) -> MemoryOp:
    """Return a copy's load as of its first bytes: what lies behind them is neither read nor has to be there."""
    part = copy(load)
    part.dtype, part.count, part.width, part.size = UNSIGNED[8], count, 1, count
    return part
