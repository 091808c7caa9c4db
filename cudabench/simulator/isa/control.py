"""Control flow and barriers (PTX ISA 9.7.12, 9.7.13.1): how an instruction ends or parks its lanes."""

from __future__ import annotations

from typing import Any

import numpy as np

from cudabench.simulator.clusters import ClusterBarrier
from cudabench.simulator.errors import KernelTrap
from cudabench.simulator.isa.access import source_place
from cudabench.simulator.isa.opcodes import instruction
from cudabench.simulator.isa.warp import collective
from cudabench.simulator.machine import Machine
from cudabench.simulator.program.builder import Builder
from cudabench.simulator.program.code import Barrier, Op, Refuse, Run
from cudabench.simulator.program.ptx import Immediate, Instruction, Symbol
from cudabench.simulator.values import BOOL, Array, broadcast, truth


@instruction("bra")
def _bra(builder: Builder, ins: Instruction) -> Op:
    op = Op(None, "branch", ins.location)
    target = ins.operands[0]
    assert isinstance(target, Symbol)
    op.labels = (target.name,)
    return op


@instruction("brx")
def _brx(builder: Builder, ins: Instruction) -> Op:
    index, table = ins.operands
    assert isinstance(table, Symbol)
    op = Op(None, "table", ins.location)
    names = builder.frame.function.tables.get(table.name.partition("@")[0])
    if names is None:
        raise Refuse("indirect branches without a table")
    op.labels = names
    op.selector = builder.source(index, "u32")
    return op


@instruction("ret", "exit")
def _exit(builder: Builder, ins: Instruction) -> Op:
    return Op(None, "exit", ins.location)


@instruction("trap", "brkpt")
def _trap(builder: Builder, ins: Instruction) -> Op | Run | None:
    """Build a trap: one that the source asks for ends the launch with an error, one of the compiler's is a hazard."""
    if ins.opcode == "brkpt":
        return None
    location = ins.location if ins.location.line else builder.kernel.location
    if not ins.modifiers:
        return Op(lambda machine: machine.hazards.trap(machine, location), "exit", location)

    def run(machine: Machine) -> None:
        chunk = machine.chunk
        block, thread = divmod(int(np.argmax(machine.lanes())), chunk.threads)
        place = source_place(machine, location)
        raise KernelTrap(
            f"kernel {machine.code.name} executed a trap at {place} in block {chunk.block_index(block)}, "
            f"thread {chunk.thread_index(thread)}."
        )

    return run


@instruction("bar", "barrier")
def _bar(builder: Builder, ins: Instruction) -> Op | Run | None:
    """Build bar.sync, bar.arrive, bar.red, their barrier.* forms, and bar.warp.sync."""
    words = [word for word in ins.modifiers if word not in ("cta", "aligned")]
    if "cluster" in words:
        if "arrive" in words:
            return lambda machine: machine.arrivals.arrive(machine)
        op = Op(None, "barrier", ins.location)
        op.barrier = ClusterBarrier()
        return op
    if words and words[0] == "warp":
        return collective(builder, ins, lambda machine: None, builder.source(ins.operands[0], "b32"))
    kind = words[0] if words else "sync"
    operands = list(ins.operands)
    target = None
    if kind == "red":
        target = builder.target(operands.pop(0))
        predicate, flip = builder.predicate(operands.pop())
    number = builder.source(operands[0] if operands else Immediate(0), "u32")
    count = builder.source(operands[1], "u32") if len(operands) > 1 else None
    op = Op(None, "barrier", ins.location)
    barrier = op.barrier = Barrier(number, count, kind == "arrive")
    if target is not None:
        place = target

        def reduction(machine: Machine, mask: Array | None) -> None:
            values = broadcast(machine.array(predicate, BOOL), machine.chunk.shape) ^ flip
            lanes = broadcast(np.True_ if mask is None else mask, machine.chunk.shape)
            result: Any
            if words[1] == "popc":
                result = (values & lanes).sum(axis=1, keepdims=True).astype(np.uint32)
            elif words[1] == "and":
                result = truth((values | ~lanes).all(axis=1, keepdims=True))
            else:
                result = truth((values & lanes).any(axis=1, keepdims=True))
            machine.mask = mask
            machine.registers[place] = result if mask is None else machine.merge(place, result)

        barrier.reduction = reduction
    return op


@instruction("membar", "fence")
def _fence(builder: Builder, ins: Instruction) -> Run | None:
    """Build a fence: memory is always consistent here, also what bulk copies write, but what a kernel may rely
    on depends on them."""
    if "tensormap:generic" in ins.modifiers or "tensormap" in ins.modifiers:
        raise Refuse("tensor maps (TMA)")
    wide = "cta" not in ins.modifiers
    builder.orders |= wide
    builder.fencing = True
    of_proxies = any(word.startswith("async") for word in ins.modifiers)

    def fence(machine: Machine) -> None:
        if of_proxies:
            machine.proxies.fence()
        machine.fence(wide)

    return fence


@instruction(
    "nanosleep", "discard", "applypriority", "prefetch", "prefetchu", "pmevent", "setmaxnreg", "griddepcontrol"
)
def _nothing(builder: Builder, ins: Instruction) -> Run | None:
    """Build hints, which change nothing that the simulator shows."""
    return None
