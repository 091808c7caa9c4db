"""Matrices of a warp: ldmatrix, stmatrix, movmatrix, and wmma with its loads and stores (PTX ISA 9.7.15.4, 9.7.15.5).

Which lane holds which element of a wmma fragment is not specified; here it is what mma.sync says of matrices of the
same sides, float16 twice where the fragment has more room.
"""

from __future__ import annotations

import numpy as np

from cudabench.simulator.isa.access import MemoryOp, only, space_of
from cudabench.simulator.isa.load_store import load, store
from cudabench.simulator.isa.opcodes import instruction, items, refuse, registers
from cudabench.simulator.isa.tensor import ELEMENT_BITS, Shape, meeting, multiply, places, together, types_of
from cudabench.simulator.isa.warp import by_warp
from cudabench.simulator.machine import Machine
from cudabench.simulator.memory import flat
from cudabench.simulator.program.builder import Builder
from cudabench.simulator.program.code import AccessKind, Op, Refuse, Run
from cudabench.simulator.program.ptx import Instruction
from cudabench.simulator.values import UNSIGNED, Array

_U32 = UNSIGNED[32]
WMMA_SHAPES = ("m16n16k16", "m8n32k16", "m32n8k16", "m16n16k8", "m8n8k32", "m8n8k128", "m8n8k4")


def _count(ins: Instruction) -> int:
    """Return how many 8 x 8 matrices of 16-bit elements an instruction moves."""
    if "m8n8" not in ins.modifiers or ins.modifiers[-1] != "b16":
        raise refuse(ins)
    return next(int(word[1:]) for word in ins.modifiers if word in ("x1", "x2", "x4"))


def _rows(machine: Machine, count: int) -> Array | None:
    """Return the lanes that give the address of a row, None for all."""
    return (np.arange(machine.chunk.threads) % 32 < 8 * count).reshape(1, -1) if count < 4 else None


@instruction("ldmatrix")
def _ldmatrix(builder: Builder, ins: Instruction) -> Op:
    """Build a load in which lanes 8i to 8i + 7 give the rows of matrix i; each lane gets two neighbours of a row."""
    count, transposed = _count(ins), "trans" in ins.modifiers
    targets = [builder.target(item) for item in items(ins.operands[0])]
    address, offset = builder.address(ins.operands[1])
    builder.pointer = 0
    space = space_of(ins)
    access = MemoryOp(builder, "load", _U32, 4, space)

    def run(machine: Machine) -> None:
        with only(machine, _rows(machine, count)):
            found = load(machine, access, space, machine.registers[address], offset)
        parts = np.broadcast_arrays(*found or [np.zeros((1, 1), np.uint32)] * 4)
        words = np.stack([by_warp(machine, part) for part in parts], axis=-1)
        for number, target in enumerate(targets):
            machine.put(target, _spread(words[:, :, 8 * number : 8 * number + 8], transposed).reshape(len(words), -1))

    return meeting(run, ins)


def _spread(words: Array, transposed: bool) -> Array:
    """Return the register of each lane (..., 32) of an 8 x 8 matrix whose rows are 4 words (..., 8, 4)."""
    words = np.ascontiguousarray(words)
    if transposed:
        words = np.ascontiguousarray(np.swapaxes(words.view(np.uint16), -1, -2)).view(np.uint32)
    return words.reshape(*words.shape[:-2], 32)


def _matrix_rows(lanes: Array, transposed: bool) -> Array:
    """Return the rows (..., 8, 4) of an 8 x 8 matrix by the registers (..., 32) of its lanes: `_spread` backwards."""
    rows = np.ascontiguousarray(lanes).reshape(*lanes.shape[:-1], 8, 4)
    if not transposed:
        return rows
    return np.ascontiguousarray(np.swapaxes(rows.view(np.uint16), -1, -2)).view(np.uint32)


@instruction("stmatrix")
def _stmatrix(builder: Builder, ins: Instruction) -> Op:
    count, transposed = _count(ins), "trans" in ins.modifiers
    sources = [builder.source(item, "b32") for item in items(ins.operands[1])]
    address, offset = builder.address(ins.operands[0])
    space = space_of(ins)
    access = MemoryOp(builder, "store", _U32, 4, space)

    def run(machine: Machine) -> None:
        lanes = together(machine, sources, _U32)
        rows = np.zeros((*lanes.shape[:2], 32, 4), np.uint32)
        for number in range(count):
            rows[:, :, 8 * number : 8 * number + 8] = _matrix_rows(lanes[..., number], transposed)
        data = [np.ascontiguousarray(rows[..., word]).reshape(rows.shape[0], -1) for word in range(4)]
        with only(machine, _rows(machine, count)):
            store(machine, access, space, machine.registers[address], offset, data)

    return meeting(run, ins)


@instruction("movmatrix")
def _movmatrix(builder: Builder, ins: Instruction) -> Op:
    target, source = registers(builder, ins, "b32")

    def run(machine: Machine) -> None:
        lanes = together(machine, [source], _U32)[..., 0]
        machine.put(target, _matrix_rows(lanes, True).reshape(len(lanes), -1))

    return meeting(run, ins)


# wmma.


@instruction("wmma")
def _wmma(builder: Builder, ins: Instruction) -> Op:
    words = ins.modifiers
    name = next((word for word in words if word in WMMA_SHAPES), None)
    if name is None:
        raise Refuse(f"tensor cores with other shapes ({ins.text})")
    shape, matrix = Shape.of(name), words[1] if words[1] in "ab" else "c"
    if words[0] == "mma":
        if len([word for word in words if word in ("row", "col")]) != 2:
            raise refuse(ins)
        return multiply(builder, ins, shape, types_of(ins), 4, words)
    if words[-1] not in ELEMENT_BITS:
        raise Refuse(f"tensor cores with other types ({ins.text})")
    return meeting((_wmma_load if words[0] == "load" else _wmma_store)(builder, ins, shape, matrix), ins)


class _Fragment:
    """How a wmma load or store moves a fragment: element (row, column) lies at row * stride + column, or the other way
    round.

    A register whose elements are neighbours in memory moves as one (`whole`), and so do `step` of 2 of 32 bits of an
    accumulator; else each element by itself. held: registers with elements of their own; any more repeat them.
    """

    def __init__(self, builder: Builder, ins: Instruction, shape: Shape, matrix: str, kind: AccessKind) -> None:
        fragment, place = ins.operands[:2] if kind == "load" else ins.operands[1::-1]
        type_, rows_first = ins.modifiers[-1], "row" in ins.modifiers
        bits = self.bits = ELEMENT_BITS[type_]
        named = type_ if type_ in ("f64", "f32", "s32") else "b32"
        parts = items(fragment)
        self.registers = [builder.target(i) if kind == "load" else builder.source(i, named) for i in parts]
        self.address, self.offset = builder.address(place)
        builder.pointer = 0
        self.stride = builder.source(ins.operands[2], "u32") if len(ins.operands) > 2 else None
        self.packed_length = shape.sides(matrix)[rows_first]
        each = self.each = max(1, 32 // bits)  # elements of a register
        row, column = places(matrix, shape, bits)
        slow, fast = self.slow, self.fast = (row, column) if rows_first else (column, row)
        self.held = row.shape[1] // each
        alike = (slow[:, ::each] == slow[:, each - 1 :: each]) & (np.diff(fast)[:, ::each] == 1).all()
        self.whole = each == 1 or bool(alike.all())
        if not self.held or len(parts) % self.held or (bits < 8 and not self.whole):
            raise refuse(ins)
        pairs = matrix == "c" and each == 1 and bits == 32 and self.held % 2 == 0
        pairs = pairs and bool((slow[:, ::2] == slow[:, 1::2]).all() and (fast[:, 1::2] - fast[:, ::2] == 1).all())
        self.step, self.space = 2 if pairs else 1, space_of(ins)
        self.dtype = UNSIGNED[64] if bits == 64 else _U32 if self.whole else UNSIGNED[bits]
        self.access = MemoryOp(builder, kind, self.dtype, self.step, self.space)

    def where(self, machine: Machine, element: int) -> Array:
        """Return the address of an element of each lane."""
        start = flat(machine.registers[self.address], self.offset, machine.chunk)
        stride = self.packed_length if self.stride is None else machine.array(self.stride, _U32).astype(np.int64)
        far, near = (np.tile(part[:, element], machine.chunk.warps).reshape(1, -1) for part in (self.slow, self.fast))
        return start + (far * stride + near) * self.bits // 8


def _wmma_load(builder: Builder, ins: Instruction, shape: Shape, matrix: str) -> Run:
    one = _Fragment(builder, ins, shape, matrix, "load")

    def element(machine: Machine, number: int) -> list[Array]:
        found = load(machine, one.access, one.space, one.where(machine, number), 0)
        return found or [np.zeros((1, 1), one.dtype)] * one.step

    def run(machine: Machine) -> None:
        for number in range(0, one.held, one.step):
            if one.whole:
                for target, value in zip(one.registers[number:], element(machine, number * one.each), strict=False):
                    machine.put(target, value)
                continue
            total: Array = 0
            for within in range(one.each):
                part = element(machine, number * one.each + within)[0].astype(np.uint32)
                total = total | part << np.uint32(one.bits * within)
            machine.put(one.registers[number], total)
        for source, target in zip(one.registers, one.registers[one.held :], strict=False):
            machine.put(target, machine.registers[source])

    return run


def _wmma_store(builder: Builder, ins: Instruction, shape: Shape, matrix: str) -> Run:
    one = _Fragment(builder, ins, shape, matrix, "store")
    wide = UNSIGNED[max(32, one.bits)]

    def run(machine: Machine) -> None:
        for number in range(0, one.held, one.step):
            values = [machine.array(source, wide) for source in one.registers[number : number + one.step]]
            for within in range(1 if one.whole else one.each):
                parts = values if one.whole else [(values[0] >> np.uint32(one.bits * within)).astype(one.dtype)]
                store(machine, one.access, one.space, one.where(machine, number * one.each + within), 0, parts)

    return run
