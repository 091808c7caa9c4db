"""The builders of all instructions by opcode and type, registered by the modules that define them.

A builder gets the `Builder` and the parsed instruction; it returns a function of the machine, or an `Op` if the
scheduler needs to know more, or None if there is nothing to do. It raises `Refuse` with the name of a feature
that the simulator lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from cudabench.simulator.program.builder import Build, BuildCall, Builder
from cudabench.simulator.program.code import Refuse
from cudabench.simulator.program.ptx import Instruction, Operand, Vector

ANY_TYPE = ""
B = TypeVar("B", bound=Build)
SYSCALLS: dict[str, BuildCall] = {}  # functions without a body in the PTX, which the simulator supplies
_BUILDERS: dict[tuple[str, str], Build] = {}


def instruction(*opcodes: str, types: Collection[str] = (ANY_TYPE,)) -> Callable[[B], B]:
    """Register a builder under its opcodes, for some types of the last modifier or for all."""

    def register(build: B) -> B:
        for opcode in opcodes:
            for type_ in types:
                _BUILDERS[opcode, type_] = build
        return build

    return register


class Registered:
    """The registered builders, as a `Builder` uses them."""

    syscalls: Mapping[str, BuildCall] = SYSCALLS

    def find(self, ins: Instruction) -> Build:
        """Return the builder of an instruction. Raises Refuse if it has no builder."""
        type_ = ins.modifiers[-1] if ins.modifiers else ANY_TYPE
        build = _BUILDERS.get((ins.opcode, type_)) or _BUILDERS.get((ins.opcode, ANY_TYPE))
        if build is None:
            raise refuse(ins)
        return build


def refuse(ins: Instruction) -> Refuse:
    """Return the refusal of an instruction by its full name."""
    return Refuse(f"instruction {ins.text}")


def registers(builder: Builder, ins: Instruction, *types: str) -> list[int]:
    """Return the registers of an instruction's destination and of its sources, which are read as `types`."""
    target = builder.target(ins.operands[0])
    return [target, *(builder.source(*typed) for typed in zip(ins.operands[1:], types, strict=False))]


def items(operand: Operand) -> tuple[Operand, ...]:
    """Return the operands of a vector, or a tuple of another operand."""
    return operand.items if isinstance(operand, Vector) else (operand,)
