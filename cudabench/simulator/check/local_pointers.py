"""Finds threads that use a pointer to a local variable of another thread.

A pointer to local memory has the same value in all threads, and each thread reaches its own memory through it. So a
thread that reads such a pointer from shared or global memory, where another thread stored it, does not reach the other
thread's variable.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from cudabench.simulator.memory import LOCAL_WINDOW, WINDOW, flat
from cudabench.simulator.program.code import LOCAL_BIT, SYMBOL_BIT, Code
from cudabench.simulator.program.flow import closure
from cudabench.simulator.values import UNSIGNED, Array, Chunk, as_array, broadcast

if TYPE_CHECKING:
    from cudabench.simulator.check.races import LogEntry
    from cudabench.simulator.machine import Machine

LINES = "lines of local pointers"  # key in `Code.encoded`
POINTER = 8  # bytes of an address
_MEMORY = ("ld", "ldu", "st", "atom", "red")


def pointer_lines(code: Code) -> frozenset[int]:
    """Return the PTX lines of the loads that may read a pointer to local memory from other memory, and whose value is
    used as an address; none if the kernel stores no such pointer."""
    if LINES not in code.encoded:
        code.encoded[LINES] = _pointer_lines(code)
    lines: frozenset[int] = code.encoded[LINES]
    return lines


def _pointer_lines(code: Code) -> frozenset[int]:
    ops = [op for block in code.blocks for op in block.ops]
    local = {index for op in ops if (op.pointer or 0) >> LOCAL_BIT & ((1 << SYMBOL_BIT) - 1) for index in op.defs}
    if not local:
        return frozenset()
    steps = [(op.uses, op.defs) for op in ops if op.opcode not in _MEMORY or op.address < 0]
    pointers = {index for index in closure(local, steps) if code.widths[index] == 8 * POINTER}
    if not any(
        op.opcode == "st" and op.address >= 0 and op.address not in pointers and not pointers.isdisjoint(op.uses)
        for op in ops
    ):
        return frozenset()
    addresses = {op.address for op in ops if op.address >= 0}
    return frozenset(
        op.line.ptx_line
        for op in ops
        if op.opcode == "ld" and op.address >= 0 and not addresses.isdisjoint(closure(op.defs, steps))
    )


class LocalPointers:
    """The threads of a chunk that stored pointers to their local memory; `lines`: see `pointer_lines`."""

    def __init__(self, chunk: Chunk, lines: frozenset[int]) -> None:
        self.chunk, self.lines = chunk, lines
        # By start address of a memory: for each pointer-sized place, the lane that stored a pointer there plus 1, or 0.
        self.owners: dict[int, Array] = {}

    def log(
        self, machine: Machine, entry: LogEntry, base: int, size: int, own: bool, name: Callable[[int], str]
    ) -> None:
        """Record a store, or report the lanes that load another thread's pointer.

        base, size: the start and the bytes of the memory; own: whether each block has its own. name: a function that
        returns the name of a byte of the memory.
        """
        access, chunk = entry.access, self.chunk
        if access.width != POINTER or access.kind == "atomic":
            return
        if access.kind == "load" and access.location.ptx_line not in self.lines:
            return
        places = -(-size // POINTER)
        owners = self.owners.setdefault(base, np.zeros(places * (chunk.blocks if own else 1), np.int32))
        lanes = chunk.real(entry.mask)
        rows, threads = np.nonzero(lanes)
        starts = broadcast(flat(entry.address, entry.offset - base), chunk.shape)[lanes] // POINTER
        first_numbers = starts + rows * (places if own else 0)
        if access.kind == "store" and len(entry.data) < access.count:  # a bulk copy
            owners[first_numbers[:, None] + np.arange(access.count)] = 0
            return
        for place in range(access.count):
            numbers = first_numbers + place
            if access.kind == "store":
                values = broadcast(as_array(entry.data[place], UNSIGNED[64]), chunk.shape)[lanes]
                pointing = (values >= LOCAL_WINDOW) & (values < LOCAL_WINDOW + WINDOW)
                owners[numbers] = np.where(pointing, rows * chunk.threads + threads + 1, 0)
                continue
            owner = owners[numbers]
            foreign = (owner > 0) & (owner != rows * chunk.threads + threads + 1)
            if foreign.any():
                wrong: Array = np.zeros(chunk.shape, bool)
                wrong[lanes] = foreign
                first = int(np.argmax(foreign))
                spot = name(int(starts[first] + place) * POINTER)
                machine.hazards.report(
                    machine, "out-of-bounds", access.location, wrong, f"reads from {spot} a pointer to a local "
                    f"variable of thread {chunk.thread_index((int(owner[first]) - 1) % chunk.threads)} and uses it as "
                    "an address, but each thread reaches only its own local memory: pass the value, or put the "
                    "variable into shared memory",
                )  # fmt: skip
