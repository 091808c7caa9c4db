"""Branches, exits, traps, barriers and fences (PTX ISA 9.7.12, 9.7.13.1)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cudabench.simulator.check.hazards import first_lane
from cudabench.simulator.clusters import ClusterBarrier
from cudabench.simulator.errors import KernelTrap
from cudabench.simulator.isa.access import source_place
from cudabench.simulator.isa.opcodes import instruction
from cudabench.simulator.isa.warp import collective
from cudabench.simulator.machine import Machine
from cudabench.simulator.program.builder import Builder
from cudabench.simulator.program.code import Barrier, Op, Refuse, Run
from cudabench.simulator.program.ptx import Immediate, Instruction, Symbol
from cudabench.simulator.values import Array, Value, broadcast


@instruction("bra")
def _bra(builder: Builder, ins: Instruction) -> Op:
    (target,) = ins.operands
    assert isinstance(target, Symbol)
    return Op(None, "branch", ins.location, labels=(target.name,))


@instruction("brx")
def _brx(builder: Builder, ins: Instruction) -> Op:
    index, table = ins.operands
    assert isinstance(table, Symbol)
    names = builder.frame.function.tables.get(table.name.partition("@")[0])
    if names is None:
        raise Refuse("indirect branches without a table")
    return Op(None, "table", ins.location, labels=names, selector=builder.source(index, "u32"))


@instruction("ret", "exit")
def _exit(builder: Builder, ins: Instruction) -> Op:
    return Op(None, "exit", ins.location)


@instruction("trap")
def _trap(builder: Builder, ins: Instruction) -> Op | Run:
    """Build a trap: one written in the source ends the launch with an error; one added by the compiler is a hazard."""
    location = ins.location if ins.location.line else builder.kernel.location
    if not ins.modifiers:
        return Op(lambda machine: machine.hazards.trap(machine, location), "exit", location)

    def run(machine: Machine) -> None:
        if machine.code.cooperative and not machine.grid_barrier:
            raise KernelTrap(
                f"kernel {machine.code.name} synchronises its grid at {source_place(machine, location)}, but the "
                "launch is not cooperative: launch it by cudaLaunchCooperativeKernel()."
            )
        chunk = machine.chunk
        _, (block, thread) = first_lane(machine.lanes(), chunk)
        raise KernelTrap(
            f"kernel {machine.code.name} executed a trap at {source_place(machine, location)} in block "
            f"{chunk.block_index(block)}, thread {chunk.thread_index(thread)}."
        )

    return run


# Functions that reduce the predicates in a block's lanes to one value.
_REDUCTIONS: dict[str, Callable[[Array, Array], Value]] = {
    "popc": lambda values, lanes: (values & lanes).sum(axis=1, keepdims=True).astype(np.uint32),
    "and": lambda values, lanes: (values | ~lanes).all(axis=1, keepdims=True),
    "or": lambda values, lanes: (values & lanes).any(axis=1, keepdims=True),
}


@instruction("bar", "barrier")
def _bar(builder: Builder, ins: Instruction) -> Op | Run | None:
    """Build bar.sync, bar.arrive, bar.red, their barrier.* forms, and bar.warp.sync."""
    words = [word for word in ins.modifiers if word not in ("cta", "aligned")]
    if "cluster" in words:
        if "arrive" in words:
            return lambda machine: machine.arrivals.arrive(machine)
        return Op(None, "barrier", ins.location, barrier=ClusterBarrier())
    if words and words[0] == "warp":
        return collective(builder, ins, lambda machine: None, builder.source(ins.operands[0], "b32"))
    kind = words[0] if words else "sync"
    operands = list(ins.operands)
    if kind == "red":
        target = builder.target(operands.pop(0))
        predicate = builder.predicate(operands.pop())
    number, count, *_ = [*(builder.source(operand, "u32") for operand in operands or [Immediate(0)]), None]
    barrier = Barrier(number, count, kind == "arrive")

    def reduction(machine: Machine, mask: Array | None) -> None:
        values = broadcast(machine.predicate(*predicate), machine.chunk.shape)
        result = _REDUCTIONS[words[1]](values, machine.chunk.lanes(mask))
        machine.mask = mask
        machine.registers[target] = result if mask is None else machine.merge(target, result)

    if kind == "red":
        barrier.reduce, barrier.reduces = reduction, (words[1], target, *predicate)
    return Op(None, "barrier", ins.location, barrier=barrier)


@instruction("membar", "fence")
def _fence(builder: Builder, ins: Instruction) -> Run | None:
    """Build a fence for the race checks. Simulated memory itself is always consistent, also after bulk copies."""
    if "tensormap:generic" in ins.modifiers or "tensormap" in ins.modifiers:
        raise Refuse("tensor maps (TMA)")
    wide = "cta" not in ins.modifiers
    builder.orders |= wide
    builder.fencing = True
    orders_proxies = any(word.startswith("async") for word in ins.modifiers)

    def fence(machine: Machine) -> None:
        if orders_proxies:
            machine.proxies.fence()
        machine.fence(wide)

    return fence


# The simulator ignores these instructions, as they do not change results.
instruction(
    "nanosleep", "discard", "applypriority", "prefetch", "prefetchu", "pmevent", "setmaxnreg", "griddepcontrol", "brkpt"
)(lambda builder, ins: None)
