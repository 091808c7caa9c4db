"""Atomic operations (PTX ISA 9.7.13.5 to 9.7.13.7). The result is as if lane after lane executed them, in order.

If no lane needs the old value, one NumPy scatter such as `np.add.at` updates the memory for all lanes. Otherwise the
lanes are sorted by address, and executed in rounds with at most one lane for each address.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cudabench.simulator.check.grid_races import keeps_value
from cudabench.simulator.count.atomics import served
from cudabench.simulator.errors import KernelTrap
from cudabench.simulator.isa.access import MemoryOp, source_place, space_of
from cudabench.simulator.isa.elementwise import REDUCE
from cudabench.simulator.isa.floating import compute_halves, largest, smallest
from cudabench.simulator.isa.mbarrier import arrive_bytes
from cudabench.simulator.isa.opcodes import instruction, refuse
from cudabench.simulator.isa.state_spaces import REACH, by_space
from cudabench.simulator.machine import Machine
from cudabench.simulator.memory import elements_of
from cudabench.simulator.program.builder import Builder
from cudabench.simulator.program.code import Op, Run
from cudabench.simulator.program.ptx import BITS, Immediate, Instruction, Symbol, Vector
from cudabench.simulator.values import DTYPES, ZERO, Array, Value, as_array, broadcast

Combine = Callable[..., Array]


_FUNCTIONS: dict[str, Combine] = {
    **REDUCE, "exch": lambda old, new: new,
    "inc": lambda old, limit: np.where(old >= limit, old.dtype.type(0), old + old.dtype.type(1)),
    "dec": lambda old, limit: np.where((old == 0) | (old > limit), limit, old - old.dtype.type(1)),
    "cas": lambda old, expected, new: np.where(old == expected, new, old),
}  # fmt: skip
_HALVES = ("f16", "bf16", "f16x2", "bf16x2")
_HALF_FUNCTIONS: dict[str, Combine] = {"add": np.add, "min": smallest, "max": largest}


def combination(name: str, type_: str) -> Combine:
    """Return the function of an atomic operation, which maps (old value, operand, ...) to the new value."""
    if type_ in _HALVES and name in _HALF_FUNCTIONS:
        return compute_halves(_HALF_FUNCTIONS[name], type_)
    return _FUNCTIONS[name]


def update(view: Array, index: Array, operands: list[Array], name: str, combine: Combine, wanted: bool) -> Array | None:
    """Apply an operation to view[index], lane after lane; return the array of the lanes' old values, if wanted.

    view: the memory as a 1-D array; index, each operand: 1-D arrays with one element per active lane.
    """
    ufunc = REDUCE.get(name) if combine is REDUCE.get(name) else None
    if ufunc is not None and not wanted:
        ufunc.at(view, index, operands[0])
        return None
    if name == "exch" and not wanted:
        view[index] = operands[0]
        return None
    order = np.argsort(index, kind="stable")
    places = index[order]
    starts = np.flatnonzero(np.append(True, places[1:] != places[:-1]))
    # Round k executes the k-th lane of each address.
    rank = np.arange(index.size) - np.repeat(starts, np.diff(starts, append=index.size))
    by_rank = np.argsort(rank, kind="stable")
    edges = np.flatnonzero(np.diff(rank[by_rank], prepend=-1, append=index.size))
    old = np.empty(index.size, dtype=view.dtype)
    for start, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        lanes = order[by_rank[start:end]]
        old[lanes] = current = view[index[lanes]]
        view[index[lanes]] = combine(current, *[operand[lanes] for operand in operands])
    return old


class Atomic:
    """An atomic operation on global or shared memory, or through a generic address on either."""

    def __init__(self, builder: Builder, ins: Instruction, target: int | None) -> None:
        words = ins.modifiers
        self.name, self.type = next((word for word in words if word in _FUNCTIONS), ""), words[-1]
        if not self.name or self.type not in DTYPES or any(word in ("v2", "v4", "v8", "vec_32_bit") for word in words):
            raise refuse(ins)
        self.space = space_of(ins)
        bits = f"b{BITS[self.type]}" if self.type in (*_HALVES, "s16", "u16") else self.type
        self.dtype = DTYPES[bits]
        place = 0 if target is None else 1
        operands = [operand for operand in ins.operands[place + 1 :] if not isinstance(operand, Vector)]
        self.sources = [builder.source(operand, bits) for operand in operands][: 2 if self.name == "cas" else 1]
        self.address, self.offset = builder.address(ins.operands[place])
        self.access = MemoryOp(builder, "atomic", self.dtype, 1, self.space, f"{self.name}.{self.type}")
        builder.pointer = 1 if BITS[self.type] == 64 else 0
        if self.name == "cas":
            builder.swaps.append((self.sources[0], self.address))
        self.swaps = self.name in ("cas", "exch")
        builder.swapping |= self.swaps
        builder.signs = self.space in ("global", "generic") and (target is None or self.name == "exch")
        self.releases = any(word in ("release", "acq_rel") for word in words)
        self.wide = "cta" not in words
        self.access.target = target
        builder.orders |= self.releases or "acquire" in words or self.access.narrow
        operand = ins.operands[place + 1]
        self.one = self.name == "add" and isinstance(operand, Immediate) and operand.value == 1
        self.combine = combination(self.name, self.type)
        self.target = target

    def __call__(self, machine: Machine) -> None:
        if self.releases:
            machine.fence(self.wide)
        idle = self.access.polls and keeps_value(
            self.access, [machine.array(source, self.dtype) for source in self.sources]
        )
        if self.access.polls:
            machine.departures.wait(machine.lanes())
        if machine.locks is not None:
            machine.locks.atomic(machine, self.swaps and not idle)
        wanted = self.target is not None and self.target in machine.code.read
        self.access.served = served(self.name, self.type, self.one and not wanted)
        address, data = machine.registers[self.address], [machine.registers[source] for source in self.sources]
        result: Array | None = None
        for space, offset, _ in by_space(machine, self.space, address, self.offset):
            if space == "local":
                place = source_place(machine, self.access.location)
                raise KernelTrap(f"an atomic operation on local memory at {place}.")
            for memory, offsets, mask in REACH[space](machine, self.access, address, offset, data):
                part = self.perform(machine, elements_of(memory, self.dtype), offsets, mask, data, wanted)
                if part is not None:
                    result = part if result is None else np.where(mask, part, result)
        if self.target is not None:
            machine.put(self.target, ZERO if result is None else result)

    def perform(
        self, machine: Machine, view: Array, offsets: Array, mask: Array | None, data: list[Value], wanted: bool
    ) -> Array | None:
        """Apply the operation to `view`, the memory as a 1-D array; `offsets`: each lane's byte offset in it.

        Return the old values, of shape (blocks, threads), or None if there are none.
        """
        shape, lanes = machine.chunk.shape, machine.chunk.real(mask)
        index = broadcast(offsets, shape)[lanes] // self.dtype.itemsize
        operands = [broadcast(as_array(value, self.dtype), shape)[lanes] for value in data]
        old = update(view, index, operands, self.name, self.combine, wanted)
        if self.swaps:  # a lane whose swap changed nothing tries again: let other lanes run first
            succeeded = np.zeros(index.shape, bool) if old is None else (old == operands[0]) == (self.name == "cas")
            machine.spins |= old is not None and not succeeded.any()
            if machine.locks is not None:
                words = index * self.dtype.itemsize + view.__array_interface__["data"][0]
                machine.locks.record_swap(machine, self.access, lanes, succeeded, words, operands)
        if old is None:
            return None
        result = np.zeros(shape, dtype=self.dtype)
        result[lanes] = old
        return result


@instruction("atom")
def _atom(builder: Builder, ins: Instruction) -> Run | Op:
    atomic = Atomic(builder, ins, builder.target(ins.operands[0]))
    if atomic.name == "cas" and isinstance(ins.operands[2], Symbol):
        return Op(atomic, "plain", ins.location, function="atomicCAS")
    return atomic


@instruction("red")
def _red(builder: Builder, ins: Instruction) -> Run:
    """Build an atomic without a result.

    red.async updates the shared memory of a block of the cluster; a barrier in that memory then counts the bytes.
    """
    if "async" not in ins.modifiers:
        return Atomic(builder, ins, None)
    atomic = Atomic(builder, ins._replace(operands=ins.operands[:2]), None)
    address, offset = builder.address(ins.operands[2])

    def run(machine: Machine) -> None:
        atomic(machine)
        arrive_bytes(machine, address, offset, atomic.access.size)

    return run
