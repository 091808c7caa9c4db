"""The table of instruction builders, keyed by opcode and type. The modules that define builders register them here.

A builder is a function of the `Builder` and the parsed instruction. It returns a function that executes the
instruction on a `Machine`, or an `Op` if the scheduler needs more facts, or None if there is nothing to execute. If the
simulator lacks a feature, the builder raises `Refuse` with the feature's name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, TypeVar

from cudabench.simulator.program.code import Op, Refuse, Run
from cudabench.simulator.program.ptx import Instruction, Operand, Pair, Vector

if TYPE_CHECKING:
    from cudabench.simulator.program.builder import Builder

ANY_TYPE = ""
Build = Callable[["Builder", Instruction], Run | Op | None]
BuildCall = Callable[["Builder", tuple[Operand, ...], tuple[Operand, ...]], Op]
B = TypeVar("B", bound=Build)
SYSCALLS: dict[str, BuildCall] = {}  # functions that have no body in the PTX; the simulator implements them
_BUILDERS: dict[tuple[str, str], Build] = {}


def instruction(*opcodes: str, types: Collection[str] = (ANY_TYPE,)) -> Callable[[B], B]:
    """Decorator: register a function as the builder of these opcodes, if the last modifier is one of `types`.

    Without `types`, the function builds these opcodes for every type for which no other builder is registered.
    """

    def register(build: B) -> B:
        for opcode in opcodes:
            for type_ in types:
                _BUILDERS[opcode, type_] = build
        return build

    return register


def builder_of(ins: Instruction) -> Build:
    """Return the registered builder of an instruction. Raises Refuse if it has no builder."""
    type_ = ins.modifiers[-1] if ins.modifiers else ANY_TYPE
    build = _BUILDERS.get((ins.opcode, type_)) or _BUILDERS.get((ins.opcode, ANY_TYPE))
    if build is None:
        raise refuse(ins)
    return build


def refuse(ins: Instruction) -> Refuse:
    """Return the exception that refuses an instruction and names it in full, such as `add.f16x2`."""
    return Refuse(f"instruction {ins.text}")


def registers(builder: Builder, ins: Instruction, *types: str) -> list[int]:
    """Return the register numbers of the destination and of each source; source k is read as PTX type `types[k]`."""
    target = builder.target(ins.operands[0])
    return [target, *(builder.source(*typed) for typed in zip(ins.operands[1:], types, strict=False))]


def items(operand: Operand) -> tuple[Operand, ...]:
    """Return the elements of a vector operand such as {a, b} or of a pair a|b; any other operand alone in a tuple."""
    return operand.items if isinstance(operand, Vector) else operand if isinstance(operand, Pair) else (operand,)
