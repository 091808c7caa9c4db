"""The table of instructions: a builder for each opcode, registered by the modules that define them.

A builder gets the `lower.Builder` and the parsed instruction; it returns what runs: a function of the machine, or an
`Op` where the scheduler has to know more. It raises `Refuse` with the name of a feature that the simulator lacks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cudabench.simulator.program.lower import Builder, Op, Refuse
from cudabench.simulator.program.ptx import Instruction

Run = Callable[[Any], Any]
Build = Callable[[Builder, Instruction], "Run | Op | None"]
TABLE: dict[str, Build] = {}


def instruction(*opcodes: str) -> Callable[[Build], Build]:
    """Register a builder under its opcodes."""

    def register(build: Build) -> Build:
        for opcode in opcodes:
            TABLE[opcode] = build
        return build

    return register


def refuse(ins: Instruction) -> Refuse:
    """Return the refusal of an instruction by its full name."""
    return Refuse(f"instruction {ins.text}")
