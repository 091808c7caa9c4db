"""Barriers in shared memory: mbarrier (PTX ISA 9.7.13.15).

The PTX ISA does not specify the 64 bits of a barrier. Here they are, from the lowest bit: the pending arrivals (20
bits), the expected arrivals (20), the pending bytes (22, with a bias, as bytes may arrive before they are expected),
and the phase (the highest bit).

A lane whose wait has not ended lets other lanes run first. The race checks order all accesses before the end of a wait
before all accesses after it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from cudabench.simulator.clusters import resolve
from cudabench.simulator.isa.access import Lanes, MemoryOp, check
from cudabench.simulator.isa.elementwise import elementwise
from cudabench.simulator.isa.opcodes import instruction, refuse
from cudabench.simulator.memory import SHARED_WINDOW, flat
from cudabench.simulator.program.builder import Builder
from cudabench.simulator.program.code import AccessKind, Run
from cudabench.simulator.program.ptx import Immediate, Instruction, Operand
from cudabench.simulator.values import UNSIGNED, ZERO, Array, broadcast, uniform

if TYPE_CHECKING:
    from cudabench.simulator.machine import Machine

_FIELD = (1 << 20) - 1
_BYTES_SHIFT, _BYTES_BIAS, _BYTES_MASK = 40, 1 << 21, (1 << 22) - 1
_PHASE = 1 << 63
_U64 = UNSIGNED[64]
_NONE: Array = np.zeros((1, 1), np.int64)


def shared_places(machine: Machine, register: int, offset: int) -> tuple[Array, Array, Array]:
    """Return the result of `clusters.resolve` for addresses in shared memory, which may be generic addresses."""
    address = flat(machine.registers[register], offset)
    return resolve(machine, np.where(address >= SHARED_WINDOW // 2, address - SHARED_WINDOW, address))


class Barriers:
    """The barriers that an instruction's active lanes address, one per lane, as 64-bit words."""

    def __init__(self, machine: Machine, access: MemoryOp, register: int, offset: int) -> None:
        chunk = machine.chunk
        self.machine = machine
        lanes = Lanes(machine, ZERO, 0)
        lanes.mask = chunk.real(machine.mask)
        rows, offsets, known = shared_places(machine, register, offset)
        lanes.address = np.where(known, offsets, -1)
        self.valid = check(machine, access, lanes, 0, machine.shared_size)
        self.lanes = lanes.mask
        if self.valid:
            data = () if access.kind != "store" else (np.zeros((1, 1), np.uint64),)
            own_block = self.lanes & (rows == np.arange(chunk.blocks).reshape(-1, 1))
            machine.shared_races.log(access, lanes.address, own_block, data)
        self.words = machine.shared.reshape(-1).view(np.uint64)
        self.places = np.where(self.lanes, lanes.address, 0) // 8 + rows * (machine.shared.shape[1] // 8)

    def read(self) -> Array:
        """Return the 64-bit word of each lane's barrier, of shape (blocks, threads)."""
        return self.words[self.places]

    def update(self, arrivals: Array, more: Array = _NONE, expected: Array = _NONE) -> Array:
        """For each active lane, add `arrivals` arrivals and `more` pending bytes to its barrier.

        expected: by how much to reduce the expected arrivals (for arrive_drop). Return for each lane the word of its
        barrier before its arrival, of shape (blocks, threads).
        """
        before = self.read()
        words = before[self.lanes]
        shape = self.machine.chunk.shape
        amounts = np.stack([broadcast(part, shape)[self.lanes] for part in (arrivals, more, expected)], axis=1)
        places = self.places[self.lanes]
        order = np.argsort(places, kind="stable")
        targets, starts = np.unique(places[order], return_index=True)
        for place, lanes in zip(targets.tolist(), np.split(order, starts[1:]), strict=True):
            word, changes = int(self.words[place]), amounts[lanes]
            if changes[:, 0].sum() <= (word & _FIELD):  # all arrivals belong to this phase, so their sums suffice
                word = arrived(word, *changes.sum(axis=0).tolist())
            else:
                self.machine.overfull.add(place)
                for lane, amount in zip(lanes.tolist(), changes.tolist(), strict=True):
                    words[lane] = word
                    word = arrived(word, *amount)
            change(self.machine, self.words, place, word)
        before[self.lanes] = words
        return before


def fields(word: int) -> tuple[int, int, int]:
    """Return the pending arrivals, the expected arrivals and the pending bytes of a barrier's word."""
    return word & _FIELD, word >> 20 & _FIELD, (word >> _BYTES_SHIFT & _BYTES_MASK) - _BYTES_BIAS


def arrived(word: int, count: int, more: int, dropped: int = 0) -> int:
    """Return a barrier's word after `count` arrivals, `more` added pending bytes, and `dropped` expected arrivals less.

    If no arrivals and no bytes are pending afterwards, the next phase begins.
    """
    pending, expected, nbytes = fields(word)
    pending, expected, nbytes, phase = pending - count, expected - dropped, nbytes + more, word & _PHASE
    if pending <= 0 and nbytes == 0:
        pending, phase = pending + expected, phase ^ _PHASE
    return (
        (pending & _FIELD) | (expected & _FIELD) << 20 | ((nbytes + _BYTES_BIAS) & _BYTES_MASK) << _BYTES_SHIFT | phase
    )


def change(machine: Machine, words: Array, place: int, word: int) -> None:
    """Set a barrier's word; if a new phase begins, wake the waiting lanes."""
    if (word ^ int(words[place])) & _PHASE:
        machine.wake()
    words[place] = word


def missing_arrivals(word: int) -> str:
    """Return, for a message, the arrivals and bytes that a barrier still waits for in its current phase."""
    pending, expected, nbytes = fields(word)
    if not expected:
        return "no thread has initialised it"
    if nbytes < 0:
        return f"{-nbytes} bytes have arrived that no thread expects"
    parts = [f"{pending} of {expected} arrivals"] * bool(pending) + [f"{nbytes} bytes that are expected"] * bool(nbytes)
    verb = "are" if len(parts) > 1 or pending != 1 else "is"
    text = f"{' and '.join(parts)} {verb} missing" if parts else "it has just begun"
    if pending == expected and word & _PHASE:
        text += " (the phase before has ended: perhaps the wait has the wrong parity)"
    return text


def complete(machine: Machine, block: int, offset: int, nbytes: int) -> None:
    """Subtract `nbytes` from the pending bytes of the barrier at `offset` in a block's shared memory.

    Do nothing if the offset is out of bounds.
    """
    if 0 <= offset <= machine.shared_size - 8:
        words = machine.shared[block].view(np.uint64)
        change(machine, words, offset // 8, arrived(int(words[offset // 8]), 0, -nbytes))


def arrive_bytes(machine: Machine, register: int, offset: int, nbytes: int) -> None:
    """For each active lane, subtract `nbytes` from the pending bytes of its barrier, in any block of the cluster."""
    rows, places, known = shared_places(machine, register, offset)
    chosen = machine.chunk.real(machine.mask) & known
    for row, place in zip(rows[chosen].tolist(), places[chosen].tolist(), strict=True):
        complete(machine, row, place, nbytes)


@instruction("mbarrier")
def _mbarrier(builder: Builder, ins: Instruction) -> Run:
    kind = ins.modifiers[0]
    if kind in ("test_wait", "try_wait"):
        return _wait(builder, ins)
    if kind == "pending_count":
        return elementwise(builder, ins, ("b64",), "u32", lambda word: word & np.uint64(_FIELD))
    return (_init if kind in ("init", "inval") else _arrive)(builder, ins, kind)


def _barriers_at(builder: Builder, operand: Operand, kind: AccessKind = "atomic") -> Callable[[Machine], Barriers]:
    """Return a function that maps a machine to the `Barriers` that an address operand names."""
    address, offset = builder.address(operand)
    access = MemoryOp(builder, kind, _U64, 1, "shared")
    return lambda machine: Barriers(machine, access, address, offset)


def _init(builder: Builder, ins: Instruction, kind: str) -> Run:
    # The race check treats inval as an atomic: as in cuda::pipeline, a lane that invalidates a barrier has learned by
    # an atomic that the other lanes no longer use the barrier.
    barriers_at = _barriers_at(builder, ins.operands[0], "store" if kind == "init" else "atomic")
    count = builder.source(ins.operands[1] if kind == "init" else Immediate(0), "u32")

    def run(machine: Machine) -> None:
        barriers = barriers_at(machine)
        if barriers.valid:
            number = broadcast(machine.array(count, _U64), machine.chunk.shape)[barriers.lanes]
            bias = np.uint64(_BYTES_BIAS << _BYTES_SHIFT)
            barriers.words[barriers.places[barriers.lanes]] = number | number << np.uint64(20) | bias

    return run


def _arrive(builder: Builder, ins: Instruction, kind: str) -> Run:
    """Build an arrival (arrive, arrive_drop), or a change of a barrier's pending bytes (expect_tx, complete_tx)."""
    operands = list(ins.operands)
    arrives = kind in ("arrive", "arrive_drop")
    if not arrives and kind not in ("expect_tx", "complete_tx"):
        raise refuse(ins)
    target = builder.target(operands.pop(0)) if arrives else None
    barriers_at = _barriers_at(builder, operands[0])
    with_bytes = not arrives or "expect_tx" in ins.modifiers
    amount = builder.source(operands[1] if len(operands) > 1 else Immediate(0 if with_bytes else 1), "u32")

    def run(machine: Machine) -> None:
        barriers = barriers_at(machine)
        if not barriers.valid:
            return
        number = machine.array(amount, UNSIGNED[32]).astype(np.int64)
        more = _NONE if not with_bytes else -number if kind == "complete_tx" else number
        count = _NONE if not arrives else _NONE + 1 if with_bytes else number
        before = barriers.update(count, more, count if kind == "arrive_drop" else _NONE)
        if target is not None:
            machine.put(target, before)

    return run


def _wait(builder: Builder, ins: Instruction) -> Run:
    """Build test_wait and try_wait, which test whether a phase has ended, given by its token or its parity."""
    parity = "parity" in ins.modifiers
    target, barriers_at = builder.target(ins.operands[0]), _barriers_at(builder, ins.operands[1])
    token = builder.source(ins.operands[2], "u32" if parity else "b64")

    def run(machine: Machine) -> None:
        barriers = barriers_at(machine)
        if not barriers.valid:
            machine.put(target, uniform(1, 1))
            return
        awaited = machine.array(token, _U64)
        awaited = awaited & np.uint64(1) if parity else awaited >> np.uint64(63)
        finished = barriers.read() >> np.uint64(63) != awaited
        machine.put(target, finished)
        if (finished & barriers.lanes).any():
            for races in (machine.shared_races, machine.global_races, machine.cluster_races):
                races.barrier()
            machine.departures.wait(finished & barriers.lanes)
        if (~finished & barriers.lanes).any():
            machine.spins = True

    return run


def build_copies_arrive(builder: Builder, ins: Instruction) -> Run:
    """Build cp.async.mbarrier.arrive, which arrives at once, as the thread's copies have ended already.

    Without .noinc the instruction also adds one pending arrival; this cancels the arrival, so nothing changes.
    """
    barriers_at = _barriers_at(builder, ins.operands[0])
    counts = any("noinc" in word for word in ins.modifiers)

    def run(machine: Machine) -> None:
        machine.shared_races.wait(None, machine.mask)
        barriers = barriers_at(machine)
        if barriers.valid and counts:
            barriers.update(_NONE + 1)

    return run
