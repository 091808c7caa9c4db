"""Addresses in the shared memory of a cluster's blocks: mapa and getctarank (PTX ISA 9.7.9.23, 9.7.9.24)."""

from __future__ import annotations

import numpy as np

from cudabench.simulator.clusters import RANK_SHIFT, REMOTE, members
from cudabench.simulator.isa.opcodes import instruction, registers
from cudabench.simulator.machine import Machine
from cudabench.simulator.program.builder import Builder
from cudabench.simulator.program.code import Run
from cudabench.simulator.program.ptx import BITS, Instruction
from cudabench.simulator.values import UNSIGNED, canonical


@instruction("mapa")
def _mapa(builder: Builder, ins: Instruction) -> Run:
    """Build the address of the same place in the memory of the block of a rank."""
    type_ = ins.modifiers[-1]
    dtype = UNSIGNED[BITS[type_]]
    target, source, rank = registers(builder, ins, type_, "u32")
    kept = dtype.type(~np.uint64(0x1F << RANK_SHIFT) & np.uint64(np.iinfo(dtype).max))

    def run(machine: Machine) -> None:
        ranks, address = machine.array(rank, UNSIGNED[32]).astype(dtype), machine.array(source, dtype)
        part = (ranks + dtype.type(1)) << dtype.type(RANK_SHIFT)
        if machine.plan.cluster is None:
            part = np.where(ranks == 0, dtype.type(0), part)  # without clusters each block is one, of rank 0
        machine.put(target, (address & kept) | part)

    return run


@instruction("getctarank")
def _getctarank(builder: Builder, ins: Instruction) -> Run:
    """Build the rank of the block in whose memory an address lies."""
    type_ = ins.modifiers[-1]
    target, source = registers(builder, ins, type_)

    def run(machine: Machine) -> None:
        address = machine.array(source, UNSIGNED[BITS[type_]]).astype(np.int64)
        part = address & (0x20 * REMOTE - 1)
        found = members(machine)
        own = np.zeros((1, 1), np.int64) if found is None else found.rank.reshape(-1, 1)
        machine.put(target, canonical(np.where(part < REMOTE, own, (part >> RANK_SHIFT) - 1).astype(np.uint32)))

    return run
