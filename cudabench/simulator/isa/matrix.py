"""Matrices of a warp: ldmatrix, stmatrix, movmatrix, and wmma with its loads and stores (PTX ISA 9.7.15.4, 9.7.15.5).

Which lane holds which element of a wmma fragment is not specified; here it is what mma.sync says of matrices of the
same sides, float16 twice where the fragment has more room.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cudabench.simulator.isa.access import MemoryOp, space_of
from cudabench.simulator.isa.load_store import load, store
from cudabench.simulator.isa.opcodes import instruction, refuse
from cudabench.simulator.isa.tensor import ELEMENT_BITS, Shape, meeting, multiply, places, together, types_of
from cudabench.simulator.memory import flat
from cudabench.simulator.program.builder import Builder
from cudabench.simulator.program.code import AccessKind, Op, Refuse
from cudabench.simulator.program.ptx import Address, Instruction, Operand, Vector
from cudabench.simulator.values import UNSIGNED, Affine, Array, as_array

if TYPE_CHECKING:
    from cudabench.simulator.machine import Machine

_U32 = UNSIGNED[32]
WMMA_SHAPES = ("m16n16k16", "m8n32k16", "m32n8k16", "m16n16k8", "m8n8k32", "m8n8k128", "m8n8k4")


def _items(operand: Operand) -> tuple[Operand, ...]:
    return operand.items if isinstance(operand, Vector) else (operand,)


def _count(ins: Instruction) -> int:
    """Return how many 8 x 8 matrices of 16-bit elements an instruction moves."""
    if "m8n8" not in ins.modifiers or ins.modifiers[-1] != "b16":
        raise refuse(ins)
    return next(int(word[1:]) for word in ins.modifiers if word in ("x1", "x2", "x4"))


def _rows(machine: Machine, count: int) -> tuple[Array | None, int]:
    """Let only the lanes act that give the address of a row; return the mask and warps to set back."""
    mask, warps = machine.mask, machine._warps
    if count < 4:
        first = (np.arange(machine.chunk.threads) % 32 < 8 * count).reshape(1, -1)
        machine.mask = first if mask is None else mask & first
        machine._warps = -1
    return mask, warps


@instruction("ldmatrix")
def build_ldmatrix(builder: Builder, ins: Instruction) -> Op:
    """Build ldmatrix: lanes 8i to 8i + 7 give the rows of matrix i; each lane gets two neighbours of a row."""
    count, transposed = _count(ins), "trans" in ins.modifiers
    targets = [builder.target(item) for item in _items(ins.operands[0])]
    address, offset = builder.address(ins.operands[1])
    builder.pointer = 0
    space = space_of(ins)
    access = MemoryOp(builder, "load", _U32, 4, space)

    def run(machine: Machine) -> None:
        mask, warps = _rows(machine, count)
        found = load(machine, access, space, machine.registers[address], offset)
        machine.mask, machine._warps = mask, warps
        if found is None:
            for target in targets:
                machine.put(target, Affine(0))
            return
        chunk = machine.chunk
        wide = [np.broadcast_to(part, (part.shape[0], chunk.threads)) for part in found]
        words = np.stack(np.broadcast_arrays(*wide), axis=-1)
        words = np.ascontiguousarray(words).reshape(words.shape[0], chunk.warps, 32, 4)
        for number, target in enumerate(targets):
            value = _spread(words[:, :, 8 * number : 8 * number + 8], transposed)
            machine.put(target, value.reshape(value.shape[0], -1))

    return meeting(run, ins)


def _spread(words: Array, transposed: bool) -> Array:
    """Return the register of each lane (..., 32) of an 8 x 8 matrix whose rows are 4 words (..., 8, 4)."""
    if not transposed:
        return np.ascontiguousarray(words).reshape(*words.shape[:-2], 32)
    halves = np.ascontiguousarray(words).view(np.uint16)
    turned = np.ascontiguousarray(np.swapaxes(halves, -1, -2))
    return turned.view(np.uint32).reshape(*words.shape[:-2], 32)


def _matrix_rows(lanes: Array, transposed: bool) -> Array:
    """Return the rows (..., 8, 4) of an 8 x 8 matrix by the registers (..., 32) of its lanes: `_spread` backwards."""
    rows = np.ascontiguousarray(lanes).reshape(*lanes.shape[:-1], 8, 4)
    if not transposed:
        return rows
    return np.ascontiguousarray(np.swapaxes(rows.view(np.uint16), -1, -2)).view(np.uint32)


@instruction("stmatrix")
def build_stmatrix(builder: Builder, ins: Instruction) -> Op:
    """Build stmatrix: what ldmatrix loads, stored."""
    count, transposed = _count(ins), "trans" in ins.modifiers
    sources = [builder.source(item, "b32") for item in _items(ins.operands[1])]
    address, offset = builder.address(ins.operands[0])
    space = space_of(ins)
    access = MemoryOp(builder, "store", _U32, 4, space)

    def run(machine: Machine) -> None:
        lanes = together(machine, sources, _U32)
        rows = np.zeros((*lanes.shape[:2], 32, 4), np.uint32)
        for number in range(count):
            rows[:, :, 8 * number : 8 * number + 8] = _matrix_rows(lanes[..., number], transposed)
        data = [np.ascontiguousarray(rows[..., word]).reshape(rows.shape[0], -1) for word in range(4)]
        mask, warps = _rows(machine, count)
        store(machine, access, space, machine.registers[address], offset, data)
        machine.mask, machine._warps = mask, warps

    return meeting(run, ins)


@instruction("movmatrix")
def build_movmatrix(builder: Builder, ins: Instruction) -> Op:
    """Build movmatrix: an 8 x 8 matrix transposed between the lanes."""
    target, source = builder.target(ins.operands[0]), builder.source(ins.operands[1], "b32")

    def run(machine: Machine) -> None:
        lanes = together(machine, [source], _U32)[..., 0]
        found = _matrix_rows(lanes, True).reshape(lanes.shape)
        machine.put(target, found.reshape(found.shape[0], -1))

    return meeting(run, ins)


# wmma.


@instruction("wmma")
def build_wmma(builder: Builder, ins: Instruction) -> Op:
    """Build wmma.load, wmma.store and wmma.mma."""
    words = ins.modifiers
    shape = next((word for word in words if word in WMMA_SHAPES), None)
    if shape is None:
        raise Refuse(f"tensor cores with other shapes ({ins.text})")
    if words[0] == "mma":
        return _wmma_mma(builder, ins, Shape.of(shape))
    matrix, type_ = words[1], words[-1]
    if type_ not in ELEMENT_BITS:
        raise Refuse(f"tensor cores with other types ({ins.text})")
    return _wmma_memory(builder, ins, Shape.of(shape), matrix if matrix in "ab" else "c", type_)


def _wmma_mma(builder: Builder, ins: Instruction, shape: Shape) -> Op:
    layouts = [word for word in ins.modifiers if word in ("row", "col")]
    if len(layouts) != 2:
        raise refuse(ins)
    return multiply(builder, ins, shape, types_of(ins), 4, ins.modifiers)


def _wmma_memory(builder: Builder, ins: Instruction, shape: Shape, matrix: str, type_: str) -> Op:
    """Build wmma.load and wmma.store: element (row, column) lies at row * stride + column, or the other way round.

    A register whose elements are neighbours in memory moves as one, and so do two of 32 bits of an accumulator; else
    each element by itself.
    """
    loads = ins.modifiers[0] == "load"
    rows_first = "row" in ins.modifiers
    fragment, place = ins.operands[:2] if loads else ins.operands[1::-1]
    items = _items(fragment)
    named = type_ if type_ in ("f64", "f32", "s32") else "b32"
    registers = [builder.target(item) if loads else builder.source(item, named) for item in items]
    if not isinstance(place, Address):
        raise refuse(ins)
    address, offset = builder.address(place)
    builder.pointer = 0
    stride = builder.source(ins.operands[2], "u32") if len(ins.operands) > 2 else None
    rows, columns = shape.sides(matrix)
    packed_length = columns if rows_first else rows
    bits = ELEMENT_BITS[type_]
    each = max(1, 32 // bits)  # elements of a register
    row, column = places(matrix, shape, bits)
    slow, fast = (row, column) if rows_first else (column, row)
    held = row.shape[1] // each  # registers with an element of their own; any more repeat them
    if not held or len(items) % held:
        raise refuse(ins)
    neighbours = bool(
        each == 1 or ((slow[:, ::each] == slow[:, each - 1 :: each]) & (np.diff(fast)[:, ::each] == 1).all()).all()
    )
    if bits < 8 and not neighbours:
        raise refuse(ins)
    space = space_of(ins)
    width = UNSIGNED[64] if bits == 64 else _U32 if neighbours else UNSIGNED[bits]
    kind: AccessKind = "load" if loads else "store"
    pairs = matrix == "c" and each == 1 and bits == 32 and held % 2 == 0
    pairs = bool(pairs and (slow[:, ::2] == slow[:, 1::2]).all() and (fast[:, 1::2] - fast[:, ::2] == 1).all())
    access = MemoryOp(builder, kind, width, 2 if pairs else 1, space)

    def where(machine: Machine, element: int) -> Array:
        """Return the address of an element of each lane."""
        chunk = machine.chunk
        start = flat(machine.registers[address], offset, chunk)
        step: Any = packed_length
        if stride is not None:
            step = as_array(machine.registers[stride], _U32, chunk).astype(np.int64)
        far, near = (np.tile(part[:, element], chunk.warps).reshape(1, -1) for part in (slow, fast))
        found: Array = start + (far * step + near) * bits // 8
        return found

    def run_load_pairs(machine: Machine) -> None:
        for number in range(0, len(registers), 2):
            if number < held:
                found = load(machine, access, space, where(machine, number), 0) or [np.zeros((1, 1), width)] * 2
            else:
                found = [machine.registers[registers[number % held + part]] for part in (0, 1)]
            for target, value in zip(registers[number : number + 2], found, strict=True):
                machine.put(target, value)

    def run_store_pairs(machine: Machine) -> None:
        for number in range(0, held, 2):
            values = [machine.array(source, _U32) for source in registers[number : number + 2]]
            store(machine, access, space, where(machine, number), 0, values)

    def run_load(machine: Machine) -> None:
        for number, target in enumerate(registers):
            if number >= held:
                machine.put(target, machine.registers[registers[number - held]])
                continue
            total: Any = None
            for within in range(1 if neighbours else each):
                found = load(machine, access, space, where(machine, number * each + within), 0)
                part = np.zeros((1, 1), width) if found is None else found[0]
                if not neighbours:
                    part = part.astype(np.uint32) << np.uint32(bits * within)
                total = part if total is None else total | part
            machine.put(target, total)

    def run_store(machine: Machine) -> None:
        for number, source in enumerate(registers[:held]):
            value = machine.array(source, UNSIGNED[64] if bits == 64 else _U32)
            for within in range(1 if neighbours else each):
                part = value if neighbours else (value >> np.uint32(bits * within)).astype(width)
                store(machine, access, space, where(machine, number * each + within), 0, [part])

    if pairs:
        return meeting(run_load_pairs if loads else run_store_pairs, ins)
    return meeting(run_load if loads else run_store, ins)
