"""Logic, shifts, bit fields, and permutations of bytes (PTX ISA 9.7.1.15 and on, 9.7.8)."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cudabench.simulator.isa.elementwise import computes, elementwise
from cudabench.simulator.isa.opcodes import instruction, refuse
from cudabench.simulator.program.builder import Builder
from cudabench.simulator.program.code import Run
from cudabench.simulator.program.ptx import Immediate, Instruction
from cudabench.simulator.values import UNSIGNED, Array

_U32 = UNSIGNED[32]
_LOGIC: dict[str, Callable[..., Any]] = {
    "and": operator.and_, "or": operator.or_, "xor": operator.xor, "not": operator.invert,
}  # fmt: skip


@instruction(*_LOGIC)
def _logic(builder: Builder, ins: Instruction) -> Run:
    type_ = ins.modifiers[-1]
    return elementwise(builder, ins, (type_,) * (len(ins.operands) - 1), type_, _LOGIC[ins.opcode])


@instruction("lop3")
def _lop3(builder: Builder, ins: Instruction) -> Run:
    """Build lop3, a bitwise function of three operands, which its last operand gives as a truth table."""
    *operands, table = ins.operands
    if not isinstance(table, Immediate) or (len(ins.modifiers) > 1 and "BOOL" in "".join(ins.modifiers).upper()):
        raise refuse(ins)
    cases = [case for case in range(8) if table.value >> case & 1]

    def combine(x: Any, y: Any, z: Any) -> Any:
        result = x & ~x
        for case in cases:
            result = result | ((x if case & 4 else ~x) & (y if case & 2 else ~y) & (z if case & 1 else ~z))
        return result

    return elementwise(builder, ins._replace(operands=tuple(operands)), ("b32",) * 3, "b32", combine)


def shift_left(x: Array, amount: Array) -> Array:
    """Return x << amount, or 0 where amount is at least the width of x; x is unsigned, amount is uint32."""
    bits = x.dtype.itemsize * 8
    return np.where(amount < bits, x << (amount & np.uint32(bits - 1)).astype(x.dtype), x.dtype.type(0))


def shift_right(x: Array, amount: Array) -> Array:
    """Return x >> amount; a signed x is filled with its sign. An amount above the width acts like the width."""
    bits = x.dtype.itemsize * 8
    if x.dtype.kind == "i":
        return x >> np.minimum(amount, bits - 1).astype(x.dtype)
    return np.where(amount < bits, x >> (amount & np.uint32(bits - 1)).astype(x.dtype), x.dtype.type(0))


def count_bits(x: Array) -> Array:
    """Return the number of set bits of each element, as uint32; x is unsigned."""
    if hasattr(np, "bitwise_count"):
        return np.bitwise_count(x).astype(np.uint32)
    table = np.array([bin(value).count("1") for value in range(256)], dtype=np.uint32)
    return table[np.ascontiguousarray(x)[..., None].view(np.uint8)].sum(axis=-1, dtype=np.uint32)


def leading_zeros(x: Array) -> Array:
    """Return the number of zero bits above the highest set bit of each element, as uint32; x is unsigned."""
    bits = x.dtype.itemsize * 8
    for power in range(bits.bit_length() - 1):
        x = x | (x >> x.dtype.type(1 << power))
    return np.uint32(bits) - count_bits(x)


computes("cnot", "t t")(lambda x: x == 0)  # the operator ! of C
computes("shl", "t u32 t")(shift_left)
computes("shr", "t u32 t")(shift_right)
computes("popc", "t u32")(count_bits)
computes("clz", "t u32")(leading_zeros)


def _ones(count: Array, dtype: np.dtype[Any]) -> Array:
    """Return integers whose lowest `count` bits are set."""
    return ~shift_left(np.full((1, 1), ~dtype.type(0)), count)


@computes("shf", "b32 b32 u32 b32", words=True)
def _funnel(words: Sequence[str], low: Array, high: Array, amount: Array) -> Array:
    steps = (np.minimum(amount, 32) if "clamp" in words else amount & np.uint32(31)).astype(np.uint64)
    pair = (high.astype(np.uint64) << np.uint64(32)) | low
    shifted = (pair << steps) >> np.uint64(32) if "l" in words else pair >> steps
    return shifted.astype(np.uint32)


@computes("bfe", "t u32 u32 t")
def _extract(x: Array, start: Array, length: Array) -> Array:
    bits = x.dtype.itemsize * 8
    start, length = start & np.uint32(255), length & np.uint32(255)
    above = np.maximum(bits - (start + length).astype(np.int64), 0).astype(np.uint32)
    # If the field reaches beyond the highest bit of the register, its missing bits are copies of the sign.
    field = shift_right(shift_left(x.view(UNSIGNED[bits]), above).view(x.dtype), above + start)
    return np.where(length == 0, x.dtype.type(0), field)


@computes("bfi", "t t u32 u32 t")
def _insert(x: Array, y: Array, start: Array, length: Array) -> Array:
    start = start & np.uint32(255)
    field = shift_left(_ones(length & np.uint32(255), x.dtype), start)
    return (y & ~field) | (shift_left(x, start) & field)


@computes("bmsk", "u32 u32 b32", words=True)
def _mask(words: Sequence[str], start: Array, length: Array) -> Array:
    if "clamp" not in words:
        start, length = start & np.uint32(31), length & np.uint32(31)
    return shift_left(_ones(length, _U32), start)


@computes("bfind", "t u32", words=True)
def _highest(words: Sequence[str], x: Array) -> Array:
    """Return the position of the highest set bit (in a negative value: of the highest clear bit).

    With .shiftamt, return the left shift that moves this bit to the top. Without such a bit the result is 0xFFFFFFFF.
    """
    bits = x.dtype.itemsize * 8
    unsigned = x.view(UNSIGNED[bits])
    if x.dtype.kind == "i":
        unsigned = np.where(x < 0, ~unsigned, unsigned)
    zeros = leading_zeros(unsigned)
    place = zeros if "shiftamt" in words else np.uint32(bits - 1) - zeros
    return np.where(zeros == bits, np.uint32(0xFFFFFFFF), place)


@computes("brev", "t t")
def _reversed(x: Array) -> Array:
    octets = np.ascontiguousarray(x)[..., None].view(np.uint8)
    flipped = np.packbits(np.unpackbits(octets, axis=-1), axis=-1, bitorder="little")[..., ::-1]
    return np.ascontiguousarray(flipped).view(x.dtype)[..., 0]


@computes("fns", "b32 u32 s32 b32")
def _nth_set(mask: Array, base: Array, offset: Array) -> Array:
    """Return the position of the |offset|-th set bit, counted from bit `base`: upward, or downward if offset < 0.

    Offset 0 tests bit `base` itself. Without such a bit the result is 0xFFFFFFFF.
    """
    place, offset = np.arange(32, dtype=np.uint32), offset[..., None]
    steps = (place - base[..., None].astype(np.int64)) * np.where(offset < 0, -1, 1)
    candidates = (mask[..., None] >> place & np.uint32(1) != 0) & (steps >= 0) & (steps < np.where(offset == 0, 1, 32))
    rank = (candidates[..., None, :] & (steps[..., None, :] <= steps[..., None])).sum(axis=-1)
    chosen = candidates & (rank == np.where(offset == 0, 1, np.abs(offset)))
    return np.where(chosen.any(axis=-1), chosen.argmax(axis=-1), 0xFFFFFFFF).astype(np.uint32)


# For each mode: a function that returns the selector of byte `place` of the result.
_SELECTORS: dict[str, Callable[[Array, int], Array]] = {
    "f4e": lambda low, place: low + np.uint32(place),
    "b4e": lambda low, place: (low - np.uint32(place)) & np.uint32(7),
    "rc8": lambda low, place: low,
    "ecl": lambda low, place: np.maximum(low, place).astype(np.uint32),
    "ecr": lambda low, place: np.minimum(low, place).astype(np.uint32),
    "rc16": lambda low, place: ((low & np.uint32(1)) << np.uint32(1)) + np.uint32(place & 1),
}


@computes("prmt", "b32 b32 b32 b32", words=True)
def _permute(words: Sequence[str], x: Array, y: Array, control: Array) -> Array:
    """Return four of the eight bytes of x and y, selected by `control` (PTX ISA 9.7.9.7)."""
    mode = next((_SELECTORS[word] for word in words if word in _SELECTORS), None)
    pair = (y.astype(np.uint64) << np.uint64(32)) | x
    result: Any = np.uint32(0)
    for place in range(4):
        selector = control >> np.uint32(4 * place) if mode is None else mode(control & np.uint32(3), place)
        byte = (pair >> ((selector & np.uint32(7)).astype(np.uint64) * np.uint64(8))).astype(np.uint32) & np.uint32(255)
        copies = np.where(byte & np.uint32(128), np.uint32(255), np.uint32(0))
        result = result | np.where(selector & np.uint32(8), copies, byte) << np.uint32(8 * place)
    return result
