"""Barriers in shared memory: mbarrier (PTX ISA 9.7.13.15).

The 64 bits of a barrier, which the PTX ISA leaves open, are here, from the lowest: 20 of pending arrivals, 20 of
expected arrivals, 22 of pending bytes (biased, since bytes may arrive before they are expected), the phase on top.

A wait that is not over lets other lanes go first. What lanes did before a wait that ends is ordered before all that
comes after it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from cudabench.simulator.clusters import resolve
from cudabench.simulator.isa.access import Lanes, MemoryOp, check
from cudabench.simulator.isa.opcodes import instruction, refuse
from cudabench.simulator.memory import SHARED_WINDOW, flat
from cudabench.simulator.program.builder import Builder
from cudabench.simulator.program.code import AccessKind, Run
from cudabench.simulator.program.ptx import Immediate, Instruction, Operand
from cudabench.simulator.values import UNSIGNED, Affine, Array, broadcast, truth

if TYPE_CHECKING:
    from cudabench.simulator.machine import Machine

_FIELD = (1 << 20) - 1
_BYTES_SHIFT, _BYTES_BIAS, _BYTES_MASK = 40, 1 << 21, (1 << 22) - 1
_PHASE = 1 << 63
_U64 = UNSIGNED[64]
_NONE: Array = np.zeros((1, 1), np.int64)


def shared_places(machine: Machine, register: int, offset: int) -> tuple[Array, Array, Array]:
    """Return `resolve` of addresses in shared memory, generic ones too."""
    found = flat(machine.registers[register], offset, machine.chunk)
    return resolve(machine, np.where(found >= SHARED_WINDOW // 2, found - SHARED_WINDOW, found))


class Barriers:
    """The barriers that an instruction's active lanes name: one of each block that is its own, by their bits."""

    def __init__(self, machine: Machine, access: MemoryOp, register: int, offset: int) -> None:
        chunk = machine.chunk
        self.machine = machine
        lanes = Lanes(machine, Affine(0), 0)
        lanes.mask = chunk.real(machine.mask)
        rows, found, known = shared_places(machine, register, offset)
        lanes.address = np.where(known, found, -1)
        self.valid = check(machine, access, lanes, 0, machine.shared_size, 8)
        self.lanes = lanes.mask
        if self.valid:
            data = () if access.kind != "store" else (np.zeros((1, 1), np.uint64),)
            near = self.lanes & (rows == np.arange(chunk.blocks).reshape(-1, 1))
            machine.shared_races.log(access, lanes.address, 0, near, data)
        self.words = machine.shared.reshape(-1).view(np.uint64)
        self.places = np.where(self.lanes, lanes.address, 0) // 8 + rows * (machine.shared.shape[1] // 8)

    def read(self) -> Array:
        """Return each lane's barrier, (blocks, threads)."""
        return self.words[self.places]

    def update(self, arrivals: Array, more: Array = _NONE, expected: Array = _NONE) -> None:
        """Let each lane arrive `arrivals` times, having added `more` pending bytes; `expected` falls (arrive_drop)."""
        shape = self.machine.chunk.shape
        amounts = np.stack([broadcast(part, shape)[self.lanes] for part in (arrivals, more, expected)], axis=1)
        places = self.places[self.lanes]
        order = np.argsort(places, kind="stable")
        found, starts = np.unique(places[order], return_index=True)
        for place, own in zip(found.tolist(), np.split(amounts[order], starts[1:]), strict=True):
            word = int(self.words[place])
            if own[:, 0].sum() <= (word & _FIELD):  # all arrive in this phase
                own = own.sum(axis=0, keepdims=True)
            for amount in own.tolist():
                word = arrived(word, *amount)
            change(self.machine, self.words, place, word)


def fields(word: int) -> tuple[int, int, int]:
    """Return what a barrier's bits say: arrivals that are pending, those that are expected, bytes that are pending."""
    return word & _FIELD, word >> 20 & _FIELD, (word >> _BYTES_SHIFT & _BYTES_MASK) - _BYTES_BIAS


def arrived(word: int, count: int, more: int, dropped: int = 0) -> int:
    """Return a barrier's bits after arrivals and a change of its pending bytes; the last one begins the next phase."""
    pending, expected, nbytes = fields(word)
    pending, expected, nbytes, phase = pending - count, expected - dropped, nbytes + more, word & _PHASE
    if pending <= 0 and nbytes == 0:
        pending, phase = pending + expected, phase ^ _PHASE
    return (
        (pending & _FIELD) | (expected & _FIELD) << 20 | ((nbytes + _BYTES_BIAS) & _BYTES_MASK) << _BYTES_SHIFT | phase
    )


def change(machine: Machine, words: Array, place: int, word: int) -> None:
    """Give a barrier new bits; those who wait look again where another phase begins."""
    if (word ^ int(words[place])) & _PHASE:
        machine.wake()
    words[place] = word


def lacks(word: int) -> str:
    """Return what a barrier's phase lacks, for a message."""
    pending, expected, nbytes = fields(word)
    if not expected:
        return "nobody has initialised it"
    if nbytes < 0:
        return f"{-nbytes} bytes have come that nobody expects"
    parts = [f"{pending} of {expected} arrivals"] * bool(pending) + [f"{nbytes} bytes that are expected"] * bool(nbytes)
    verb = "are" if len(parts) > 1 or pending != 1 else "is"
    return f"{' and '.join(parts)} {verb} missing" if parts else "it has just begun"


def complete(machine: Machine, block: int, offset: int, nbytes: int) -> None:
    """Tell a block's barrier, where there can be one, that bytes have arrived."""
    if 0 <= offset <= machine.shared_size - 8:
        words = machine.shared[block].view(np.uint64)
        change(machine, words, offset // 8, arrived(int(words[offset // 8]), 0, -nbytes))


def arrive_bytes(machine: Machine, register: int, offset: int, nbytes: int) -> None:
    """Tell the barriers that the active lanes name, in their block or another of the cluster, of nbytes each."""
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
        target, source = builder.target(ins.operands[0]), builder.source(ins.operands[1], "b64")
        return lambda machine: machine.put(target, (machine.array(source, _U64) & np.uint64(_FIELD)).astype(np.uint32))
    return (_init if kind in ("init", "inval") else _arrive)(builder, ins, kind)


def _named(builder: Builder, operand: Operand, kind: AccessKind = "atomic") -> Callable[[Machine], Barriers]:
    """Return what gives the barriers of an address operand."""
    address, offset = builder.address(operand)
    access = MemoryOp(builder, kind, _U64, 1, "shared")
    return lambda machine: Barriers(machine, access, address, offset)


def _init(builder: Builder, ins: Instruction, kind: str) -> Run:
    # Who ends a barrier has been told by an atomic that all others are done with it, as cuda::pipeline does.
    named = _named(builder, ins.operands[0], "store" if kind == "init" else "atomic")
    count = builder.source(ins.operands[1] if kind == "init" else Immediate(0), "u32")

    def run(machine: Machine) -> None:
        barriers = named(machine)
        if barriers.valid:
            number = broadcast(machine.array(count, _U64), machine.chunk.shape)[barriers.lanes]
            bias = np.uint64(_BYTES_BIAS << _BYTES_SHIFT)
            barriers.words[barriers.places[barriers.lanes]] = number | number << np.uint64(20) | bias

    return run


def _arrive(builder: Builder, ins: Instruction, kind: str) -> Run:
    """Build what arrives at a barrier or changes its pending bytes."""
    operands = list(ins.operands)
    arrives = kind in ("arrive", "arrive_drop")
    if not arrives and kind not in ("expect_tx", "complete_tx"):
        raise refuse(ins)
    target = builder.target(operands.pop(0)) if arrives else None
    named = _named(builder, operands[0])
    with_bytes = not arrives or "expect_tx" in ins.modifiers
    amount = builder.source(operands[1] if len(operands) > 1 else Immediate(0 if with_bytes else 1), "u32")

    def run(machine: Machine) -> None:
        barriers = named(machine)
        if not barriers.valid:
            return
        if target is not None:
            machine.put(target, barriers.read())
        number = machine.array(amount, UNSIGNED[32]).astype(np.int64)
        more = _NONE if not with_bytes else -number if kind == "complete_tx" else number
        count = _NONE if not arrives else _NONE + 1 if with_bytes else number
        barriers.update(count, more, count if kind == "arrive_drop" else _NONE)

    return run


def _wait(builder: Builder, ins: Instruction) -> Run:
    """Build test_wait and try_wait, by a phase's token or its parity."""
    parity = "parity" in ins.modifiers
    target, named = builder.target(ins.operands[0]), _named(builder, ins.operands[1])
    token = builder.source(ins.operands[2], "u32" if parity else "b64")

    def run(machine: Machine) -> None:
        barriers = named(machine)
        if not barriers.valid:
            machine.put(target, True)
            return
        asked = machine.array(token, _U64)
        asked = asked & np.uint64(1) if parity else asked >> np.uint64(63)
        over = barriers.read() >> np.uint64(63) != asked
        machine.put(target, truth(over))
        if (over & barriers.lanes).any():
            for races in (machine.shared_races, machine.global_races, machine.cluster_races):
                races.barrier()
            machine.departures.wait(over & barriers.lanes)
        if (~over & barriers.lanes).any():
            machine.spins = True

    return run


def build_copies_arrive(builder: Builder, ins: Instruction) -> Run:
    """Build cp.async.mbarrier.arrive: the thread's copies have ended, as they have here at once; without .noinc the
    arrival is one more than was expected."""
    named = _named(builder, ins.operands[0])
    counts = any("noinc" in word for word in ins.modifiers)

    def run(machine: Machine) -> None:
        machine.shared_races.wait(None, machine.mask)
        barriers = named(machine)
        if barriers.valid and counts:
            barriers.update(_NONE + 1)

    return run
