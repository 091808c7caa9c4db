"""Constant memory: address checks, counts, the data. No kernel writes it, so there are no races."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudabench.simulator.isa.access import Lanes, MemoryOp
from cudabench.simulator.isa.global_memory import find, gathered, slots_of
from cudabench.simulator.values import Array, Value

if TYPE_CHECKING:
    from cudabench.simulator.machine import Machine


def load_constant(machine: Machine, access: MemoryOp, address: Value, offset: int) -> list[Array] | None:
    """Return the elements that each lane reads from constant memory, or None where no lane may read."""
    lanes = Lanes(machine, address, offset)
    regions = find(machine, access, lanes)
    if not regions:
        return None
    number = access.numbers["constant"]
    machine.counters.constant(
        number, lanes.address, access.size, lanes.exact(machine), machine.warps, machine.chunk, slots_of(regions)
    )
    return gathered(access, lanes, regions)
