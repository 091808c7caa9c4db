"""Tensor cores of a warp: mma.sync of all dense types, wmma, ldmatrix, stmatrix, movmatrix (PTX ISA 9.7.15.4-5).

A warp holds A (m x k), B (k x n) and C (m x n) in fragments: each lane holds a few elements of each matrix. The PTX ISA
does not specify how floats are summed. For sm_90 the results are equal to the hardware's, bit by bit (`accumulate`).
For other targets, products are exact, and the sum of products and C is rounded once to nearest. Sums of integers and of
single bits are exact. float64 is computed as a chain of fused multiply-adds.

The PTX ISA does not specify which lane holds which element of a wmma fragment. Here the layout is that of mma.sync for
matrices of the same size; if the fragment has more registers, each float16 element is held twice or more often.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from cudabench.floats import from_bfloat16
from cudabench.simulator.isa import accumulate, rounding
from cudabench.simulator.isa.access import MemoryOp, restricted_to, space_of
from cudabench.simulator.isa.conversions import FORMATS
from cudabench.simulator.isa.floating import ROUNDINGS, rounding_mode
from cudabench.simulator.isa.opcodes import instruction, items, refuse, registers
from cudabench.simulator.isa.state_spaces import load, store
from cudabench.simulator.isa.warp import by_warp
from cudabench.simulator.machine import Machine
from cudabench.simulator.memory import flat
from cudabench.simulator.program.builder import Builder
from cudabench.simulator.program.code import AccessKind, Op, Refuse
from cudabench.simulator.program.ptx import Instruction, Operand
from cudabench.simulator.values import DTYPES, UNSIGNED, Array

FP8 = ("e4m3", "e5m2")
_SHAPES = {  # the possible shapes for each type of A
    "f64": ("m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16"),
    "tf32": ("m16n8k4", "m16n8k8"),
    "f16": ("m16n8k8", "m16n8k16"),
    "bf16": ("m16n8k8", "m16n8k16"),
    **dict.fromkeys(FP8, ("m16n8k16", "m16n8k32")),
    **dict.fromkeys(("s8", "u8"), ("m8n8k16", "m16n8k16", "m16n8k32")),
    **dict.fromkeys(("s4", "u4"), ("m8n8k32", "m16n8k32", "m16n8k64")),
    "b1": ("m8n8k128", "m16n8k128", "m16n8k256"),
}
ACCUMULATORS = {  # for each type of A: the possible types of C and D
    "f64": ("f64",), "tf32": ("f32",), "f16": ("f16", "f32"), "bf16": ("f32",), **dict.fromkeys(FP8, ("f16", "f32")),
    **dict.fromkeys(("s8", "u8", "s4", "u4", "b1"), ("s32",)),
}  # fmt: skip
ELEMENT_BITS = {
    "f64": 64, "tf32": 32, "f32": 32, "s32": 32, "f16": 16, "bf16": 16, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8,
    "s4": 4, "u4": 4, "b1": 1,
}  # fmt: skip
_TOGETHER = (FP8, ("s8", "u8"), ("s4", "u4"))  # A and B may have different types if both types are in the same group

_LANE = np.arange(32)


class Shape(NamedTuple):
    """The sizes of the matrices: A is m x k, B is k x n, C is m x n."""

    m: int
    n: int
    k: int

    @classmethod
    def of(cls, text: str) -> Shape:
        """Return the shape with a name such as 'm16n8k16'."""
        return cls(*(int(number) for number in re.findall(r"\d+", text)))

    def sides(self, matrix: str) -> tuple[int, int]:
        """Return the numbers of rows and columns of matrix 'a', 'b' or 'c'."""
        return {"a": (self.m, self.k), "b": (self.k, self.n), "c": (self.m, self.n)}[matrix]


def places(matrix: str, shape: Shape, bits: int) -> tuple[Array, Array]:
    """Return the row and the column of each element in a fragment of 'a', 'b' or 'c', arrays of (lanes, elements).

    Elements have `bits` bits; the elements in one 32-bit register are neighbours along k. If B and C have more than 8
    columns, a fragment consists of the fragments of successive tiles of 8 columns, for wmma, too.
    """
    m, _, k = shape
    packed = max(1, 32 // bits)
    rows, columns = shape.sides(matrix)
    element = np.arange(rows * columns // 32)
    group, member = _LANE[:, None] // 4, _LANE[:, None] % 4
    if matrix == "c":
        tile, inside = element // (m // 4), element % (m // 4)
        return group + 8 * (inside // 2), 2 * member + inside % 2 + 8 * tile
    register, within = element // packed, element % packed
    if matrix == "a":
        high = m // 8
        return group + 8 * (register % high), packed * member + within + 4 * packed * (register // high)
    along = k // (4 * packed)  # registers per tile
    return packed * member + within + 4 * packed * (register % along), group + 8 * (register // along)


def _nibbles(lanes: Array) -> Array:
    octets = lanes.view(np.uint8)
    return np.stack([octets & np.uint8(15), octets >> np.uint8(4)], axis=-1).reshape(*octets.shape[:-1], -1)


def _fp8(type_: str) -> Callable[[Array], Array]:
    return lambda lanes: lanes.view(np.uint8).view(FORMATS[type_]).astype(np.float32)


_NUMBERS: dict[str, Callable[[Array], Array]] = {  # for each type: unpacks register values into numbers
    "tf32": lambda lanes: (lanes & np.uint32(0xFFFFE000)).view(np.float32),
    "f16": lambda lanes: lanes.view(np.float16),
    "bf16": lambda lanes: from_bfloat16(lanes.view(np.uint16)),
    "e4m3": _fp8("e4m3"),
    "e5m2": _fp8("e5m2"),
    "s8": lambda lanes: lanes.view(np.int8),
    "u8": lambda lanes: lanes.view(np.uint8),
    "s4": lambda lanes: (_nibbles(lanes) ^ np.uint8(8)).astype(np.int8) - np.int8(8),
    "u4": _nibbles,
    "b1": lambda lanes: np.unpackbits(lanes.view(np.uint8), axis=-1, bitorder="little"),
}


def unpacked(lanes: Array, type_: str) -> Array:
    """Return register values of shape (..., registers) unpacked into numbers of shape (..., elements).

    bf16, tf32 and 8-bit floats become float32; single bits become 0 or 1.
    """
    lanes = np.ascontiguousarray(lanes)
    return _NUMBERS[type_](lanes) if type_ in _NUMBERS else lanes


def together(machine: Machine, registers: Sequence[int], dtype: np.dtype[Any]) -> Array:
    """Return the values of several registers in all lanes, of shape (blocks or 1, warps, 32, registers)."""
    parts = [by_warp(machine, machine.array(i, dtype)) for i in registers]
    stacked: Array = np.empty((max(part.shape[0] for part in parts), *parts[0].shape[1:], len(parts)), parts[0].dtype)
    for place, part in enumerate(parts):
        stacked[..., place] = part
    return stacked


def multiplied(a: Array, b: Array, c: Array, type_: str, outer: str, mode: str, how: Sequence[str]) -> Array:
    """Return A B + C in the type of C, for matrices of shape (..., rows, columns).

    mode: the rounding mode for float64. how: words of the instruction: 'xor' or 'and' multiplies single bits;
    'satfinite' clamps integer results to the limits of int32.
    """
    if type_ == "f64":
        result = c
        for step in range(a.shape[-1]):
            x, y = np.broadcast_arrays(a[..., :, step, None], b[..., None, step, :])
            result = rounding.fma64(x, y, result) if mode == "rn" else rounding.rounded("fma", mode, x, y, result)
        return result
    # For the other types, float64 computes products and sums exactly, or nearly so.
    x, y = a.astype(np.float64), b.astype(np.float64)
    differ = type_ == "b1" and "xor" in how
    total = np.matmul(x, 1 - y) + np.matmul(1 - x, y) if differ else np.matmul(x, y)
    if outer != "s32":
        return (c.astype(np.float64) + total).astype(DTYPES[outer])
    whole = c.astype(np.int64) + total.astype(np.int64)
    if "satfinite" in how:
        whole = np.clip(whole, -(2**31), 2**31 - 1)
    return whole.astype(np.int32)


class Fragment:
    """A matrix in the registers of a warp's lanes.

    result: whether the instruction writes the matrix instead of reading it. copies: if more than 1, the lanes may hold
    each element of A and B several times.
    """

    def __init__(
        self, builder: Builder, operand: Operand, matrix: str, shape: Shape, type_: str, copies: int = 1,
        result: bool = False,
    ) -> None:  # fmt: skip
        registers, bits = items(operand), ELEMENT_BITS[type_]
        self.place = row, column = places(matrix, shape, bits)
        elements, count = row.shape[1], len(registers) * max(1, 32 // bits)
        if count != elements and not (copies > 1 and matrix in "ab" and count % elements == 0):
            raise refuse(builder.ins)
        register_type = type_ if type_ in ("f64", "f32", "s32") else "b32"
        self.type, self.dtype = type_, DTYPES[register_type]
        self.registers = [builder.target(item) if result else builder.source(item, register_type) for item in registers]
        # For each element of the matrix: its index in a list of the elements of lane 0, then those of lane 1, and so
        # on.
        self.index = np.empty(shape.sides(matrix), np.int64)
        self.index[row, column] = _LANE[:, None] * count + np.arange(elements)

    def read(self, machine: Machine, warps: Any = slice(None)) -> Array:
        """Return the matrices of the given warps, of shape (blocks or 1, warps, rows, columns)."""
        lanes = unpacked(together(machine, self.registers, self.dtype)[:, warps], self.type)
        return lanes.reshape(*lanes.shape[:2], -1)[..., self.index]

    def write(self, machine: Machine, matrices: Array, warps: Any = slice(None)) -> None:
        """Write the matrices of the given warps, shape (blocks or 1, warps, rows, columns); other warps get zeros."""
        row, column = self.place
        lanes = np.ascontiguousarray(matrices[..., row, column])
        lanes = lanes.view(np.uint32) if self.type == "f16" else lanes  # a register holds two float16 numbers
        contents: Array = np.zeros((len(self.registers), len(matrices), machine.chunk.warps, 32), lanes.dtype)
        contents[:, :, warps] = np.moveaxis(lanes, -1, 0)
        for register, values in zip(self.registers, contents, strict=True):
            machine.put(register, values.reshape(len(matrices), -1))


def multiply(
    builder: Builder, ins: Instruction, shape: Shape, types: tuple[str, str, str, str], copies: int, how: Sequence[str]
) -> Op:
    """Return the op that computes D = A B + C.

    types: the types of D, A, B and C. copies: as in `Fragment`. how: as in `multiplied`.
    """
    outer, type_a, type_b, _ = types
    mode = rounding_mode(ins)
    as_hopper = builder.module.target.startswith("sm_90") and type_a in accumulate.SUMS
    operands = zip(ins.operands[1:4], "abc", types[1:], strict=True)
    fragments = [Fragment(builder, operand, matrix, shape, type_, copies) for operand, matrix, type_ in operands]
    result = Fragment(builder, ins.operands[0], "c", shape, outer, result=True)

    def run(machine: Machine) -> None:
        a, b, c = (fragment.read(machine) for fragment in fragments)
        if as_hopper:
            product = accumulate.of_warp(a, b, c, type_a, type_b, outer)
        else:
            product = multiplied(a, b, c, type_a, outer, mode, how)
        result.write(machine, product)

    return warp_op(run, ins)


def warp_op(run: Any, ins: Instruction) -> Op:
    """Return the op of an instruction that all lanes of a warp execute together; it does not order memory accesses."""
    op = Op(run, "collective", ins.location)
    op.members = lambda machine: None
    return op


def types_of(ins: Instruction) -> tuple[str, str, str, str]:
    """Return the types of D, A, B and C of an instruction. Raises Refuse if their combination is not supported."""
    words = tuple(word for word in ins.modifiers if word in ELEMENT_BITS)
    if len(words) == 2 and words[0] in ("f16", "f32"):  # wmma names only the types of D and C if A and B are float16
        words = (words[0], "f16", "f16", words[1])
    if len(words) == 3:  # wgmma has no operand C, since it adds to D
        words = (*words, words[0])
    if len(words) != 4:
        raise Refuse(f"tensor cores with other types ({ins.text})")
    outer, a, b, inner = words
    known = ACCUMULATORS.get(a, ())
    mixed = a == b or any(a in group and b in group for group in _TOGETHER)
    if outer not in known or inner not in known or not mixed:
        raise Refuse(f"tensor cores with other types ({ins.text})")
    return outer, a, b, inner


@instruction("mma")
def _mma(builder: Builder, ins: Instruction) -> Op:
    words = [word for word in ins.modifiers if word not in ROUNDINGS]
    if words[:2] != ["sync", "aligned"] or not re.fullmatch(r"m\d+n\d+k\d+", words[2]) or words[3:5] != ["row", "col"]:
        raise Refuse(f"sparse or block-scaled tensor cores ({ins.text})")
    types = types_of(ins)
    if words[2] not in _SHAPES[types[1]] or (types[1] not in ("f16", *FP8) and types[0] != types[3]):
        raise Refuse(f"tensor cores with other types ({ins.text})")
    return multiply(builder, ins, Shape.of(words[2]), types, 1, words)


_U32 = UNSIGNED[32]
WMMA_SHAPES = ("m16n16k16", "m8n32k16", "m32n8k16", "m16n16k8", "m8n8k32", "m8n8k128", "m8n8k4")


def _transposed(rows: Array) -> Array:
    """Return transposed 8 x 8 matrices of 16-bit elements; each row is four 32-bit words: (..., 8, 4)."""
    halves = np.ascontiguousarray(rows).view(np.uint16)
    return np.ascontiguousarray(np.swapaxes(halves, -1, -2)).view(np.uint32)


@instruction("ldmatrix", "stmatrix")
def _matrices(builder: Builder, ins: Instruction) -> Op:
    """Build ldmatrix or stmatrix, a load or store of 8 x 8 matrices of 16-bit elements.

    Lanes 8i to 8i + 7 hold the addresses of the rows of matrix i. Each lane holds two neighbouring elements of a row;
    with .trans, of a column.
    """
    loads, transposed = ins.opcode == "ldmatrix", "trans" in ins.modifiers
    if "m8n8" not in ins.modifiers or ins.modifiers[-1] != "b16":
        raise refuse(ins)
    operands = items(ins.operands[0 if loads else 1])
    count = len(operands)
    fragment = [builder.target(item) if loads else builder.source(item, "b32") for item in operands]
    address, offset = builder.address(ins.operands[1 if loads else 0])
    builder.pointer = 0
    space = space_of(ins)
    access = MemoryOp(builder, "load" if loads else "store", _U32, 4, space)

    def rows(machine: Machine) -> Array | None:
        """Return the mask of the lanes that hold the address of a row, None for all lanes."""
        return (np.arange(machine.chunk.threads) % 32 < 8 * count).reshape(1, -1) if count < 4 else None

    def run_load(machine: Machine) -> None:
        with restricted_to(machine, rows(machine)):
            loaded = load(machine, access, space, machine.registers[address], offset)
        parts = np.broadcast_arrays(*loaded or [np.zeros((1, 1), np.uint32)] * 4)
        words = np.stack([by_warp(machine, part) for part in parts], axis=-1)
        for number, target in enumerate(fragment):
            matrix = words[:, :, 8 * number : 8 * number + 8]
            machine.put(target, (_transposed(matrix) if transposed else matrix).reshape(len(words), -1))

    def run_store(machine: Machine) -> None:
        lanes = together(machine, fragment, _U32)
        words = np.zeros((*lanes.shape[:2], 32, 4), np.uint32)
        for number in range(count):
            matrix = lanes[..., number].reshape(*lanes.shape[:2], 8, 4)
            words[:, :, 8 * number : 8 * number + 8] = _transposed(matrix) if transposed else matrix
        data = [np.ascontiguousarray(words[..., word]).reshape(len(words), -1) for word in range(4)]
        with restricted_to(machine, rows(machine)):
            store(machine, access, space, machine.registers[address], offset, data)

    return warp_op(run_load if loads else run_store, ins)


@instruction("movmatrix")
def _movmatrix(builder: Builder, ins: Instruction) -> Op:
    target, source = registers(builder, ins, "b32")

    def run(machine: Machine) -> None:
        lanes = machine.array(source, _U32)
        matrices = _transposed(by_warp(machine, lanes).reshape(len(lanes), -1, 8, 4))
        machine.put(target, matrices.reshape(len(lanes), -1))

    return warp_op(run, ins)


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
    if words[0] == "load":
        return warp_op(_FragmentAccess(builder, ins, shape, matrix, "load").load, ins)
    return warp_op(_FragmentAccess(builder, ins, shape, matrix, "store").store, ins)


class _FragmentAccess:
    """A wmma load or store of a fragment.

    Element (row, column) is at index row * stride + column, or column * stride + row in column-major order. If the
    elements of a register are neighbours in memory, one access moves the whole register (`whole`); otherwise each
    element needs an access. One access also moves a pair of 32-bit registers of an accumulator (`step` is 2).
    `distinct`: how many registers hold distinct elements; the other registers repeat these elements.
    """

    def __init__(self, builder: Builder, ins: Instruction, shape: Shape, matrix: str, kind: AccessKind) -> None:
        fragment, place = ins.operands[:2] if kind == "load" else ins.operands[1::-1]
        type_, rows_first = ins.modifiers[-1], "row" in ins.modifiers
        bits = self.bits = ELEMENT_BITS[type_]
        register_type = type_ if type_ in ("f64", "f32", "s32") else "b32"
        parts = items(fragment)
        self.registers = [builder.target(i) if kind == "load" else builder.source(i, register_type) for i in parts]
        self.address, self.offset = builder.address(place)
        builder.pointer = 0
        self.stride = builder.source(ins.operands[2], "u32") if len(ins.operands) > 2 else None
        self.packed_length = shape.sides(matrix)[rows_first]
        packed = self.each = max(1, 32 // bits)  # elements per register
        row, column = places(matrix, shape, bits)
        slow, fast = self.slow, self.fast = (row, column) if rows_first else (column, row)
        self.distinct = row.shape[1] // packed
        contiguous = (slow[:, ::packed] == slow[:, packed - 1 :: packed]) & (np.diff(fast)[:, ::packed] == 1).all()
        self.whole = packed == 1 or bool(contiguous.all())
        if not self.distinct or len(parts) % self.distinct or (bits < 8 and not self.whole):
            raise refuse(ins)
        pairs = matrix == "c" and bits == 32 and self.distinct % 2 == 0
        pairs = pairs and bool((slow[:, ::2] == slow[:, 1::2]).all() and (fast[:, 1::2] - fast[:, ::2] == 1).all())
        self.step, self.space = 2 if pairs else 1, space_of(ins)
        self.dtype = UNSIGNED[64] if bits == 64 else _U32 if self.whole else UNSIGNED[bits]
        self.access = MemoryOp(builder, kind, self.dtype, self.step, self.space)

    def where(self, machine: Machine, element: int) -> Array:
        """Return, for each lane, the address of its element with this number."""
        start = flat(machine.registers[self.address], self.offset)
        stride = self.packed_length if self.stride is None else machine.array(self.stride, _U32).astype(np.int64)
        slow, fast = (np.tile(part[:, element], machine.chunk.warps).reshape(1, -1) for part in (self.slow, self.fast))
        return start + (slow * stride + fast) * self.bits // 8

    def load(self, machine: Machine) -> None:
        for number in range(0, self.distinct, self.step):
            values: list[Array] = []
            for within in range(1 if self.whole else self.each):
                address = self.where(machine, number * self.each + within)
                read = load(machine, self.access, self.space, address, 0) or [np.zeros((1, 1), self.dtype)] * self.step
                if not self.whole:
                    read = [sum(values, read[0].astype(np.uint32) << np.uint32(self.bits * within))]
                values = read
            for target, value in zip(self.registers[number:], values, strict=False):
                machine.put(target, value)
        for source, target in zip(self.registers, self.registers[self.distinct :], strict=False):
            machine.put(target, machine.registers[source])

    def store(self, machine: Machine) -> None:
        wide = UNSIGNED[max(32, self.bits)]
        for number in range(0, self.distinct, self.step):
            values = [machine.array(source, wide) for source in self.registers[number : number + self.step]]
            for within in range(1 if self.whole else self.each):
                parts = values if self.whole else [(values[0] >> np.uint32(self.bits * within)).astype(self.dtype)]
                address = self.where(machine, number * self.each + within)
                store(machine, self.access, self.space, address, 0, parts)
