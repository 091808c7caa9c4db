"""Helpers to build elementwise integer instructions, each from a function of NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from cudabench.simulator.isa.opcodes import instruction, refuse
from cudabench.simulator.program.builder import Builder
from cudabench.simulator.program.code import Run
from cudabench.simulator.program.ptx import BITS, Instruction
from cudabench.simulator.values import DTYPES, SIGNED, UNSIGNED, Array

if TYPE_CHECKING:
    from cudabench.simulator.machine import Machine

# Integer operand types. Instructions such as add.f32 have the same names and are built in `floating`.
INTEGERS = frozenset(f"{sign}{bits}" for sign in "usb" for bits in (8, 16, 32, 64))
Function = Callable[..., Array]
F = TypeVar("F", bound=Function)
COMPARE: dict[str, Function] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal,
}  # fmt: skip
REDUCE: dict[str, np.ufunc] = {
    "add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}  # fmt: skip


def limits(type_: str) -> tuple[int, int]:
    """Return the least and the greatest integer of a PTX type."""
    bits = BITS[type_]
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if type_[0] == "s" else (0, (1 << bits) - 1)


def integer_type(ins: Instruction) -> str:
    """Return the last modifier of an instruction, its type. Raises Refuse if it is not an integer type."""
    if ins.modifiers[-1] not in INTEGERS:
        raise refuse(ins)
    return ins.modifiers[-1]


def elementwise(builder: Builder, ins: Instruction, types: Sequence[str], result: str, arrays: Function) -> Run:
    """Return the function that executes an elementwise instruction on a machine.

    types, result: PTX types of the source operands and of the result. arrays: computes the result from NumPy arrays.
    """
    target, operands = builder.target(ins.operands[0]), zip(ins.operands[1:], types, strict=False)
    read = [builder.predicate(x) if type_ == "pred" else (builder.source(x, type_), False) for x, type_ in operands]
    sources, flips = [source for source, _ in read], [flip for _, flip in read]
    if True in flips:
        function = arrays
        arrays = lambda *values: function(*[x ^ flip for x, flip in zip(values, flips, strict=True)])  # noqa: E731
    dtypes = [DTYPES[type_] for type_ in types]
    width = builder.width(target)
    out = DTYPES[result]
    wide = (SIGNED if result[0] == "s" else UNSIGNED)[width] if BITS[result] < width <= 64 else None

    def run(machine: Machine) -> None:
        computed = arrays(*map(machine.array, sources, dtypes))
        if computed.dtype != out:
            computed = computed.astype(out)
        if wide is not None:
            computed = computed.astype(wide)
        machine.put(target, computed)

    return run


def in_parts(function: Function, bits: int, whole: int) -> Function:
    """Return a function on registers of `whole` bits that applies `function` to each part of `bits` bits."""
    wide, narrow = UNSIGNED[whole], UNSIGNED[bits]

    def compute(*operands: Array) -> Array:
        total = wide.type(0)
        for shift in map(wide.type, range(0, whole, bits)):
            part = function(*[(operand >> shift).astype(narrow) for operand in operands])
            total = total | part.astype(wide) << shift
        return total

    return compute


def computes(opcode: str, types: str, words: bool = False) -> Callable[[F], F]:
    """Decorator: register a function of NumPy arrays as the implementation of an integer instruction.

    types: the types of the operands and of the result, as in "t u32 t", where t stands for the instruction's type.
    words: whether the function takes the instruction's modifiers as its first argument.
    """

    def register(function: F) -> F:
        @instruction(opcode)
        def build(builder: Builder, ins: Instruction) -> Run:
            concrete = [integer_type(ins) if type_ == "t" else type_ for type_ in types.split()]
            arrays = partial(function, ins.modifiers) if words else function
            return elementwise(builder, ins, concrete[:-1], concrete[-1], arrays)

        return function

    return register
