"""Which kernels execute their machine code itself, beside the PTX: those whose counts the PTX does not tell."""

from __future__ import annotations

from collections.abc import Sequence

from cudabench.compile.sass import Function
from cudabench.explain import ptx_text

_PARTS = ("BRX", "BREAK", "WARPSYNC", "YIELD")  # where lanes part or wait, besides jumps with a condition
_FUSED = ("FFMA", "DFMA", "HFMA2")

UNSURE = "how often parts of its machine code run does not follow from its PTX"


def parts(functions: Sequence[Function]) -> bool:
    """Return whether a kernel's code has jumps that lanes may take or not: it has to run itself to be counted.

    Lanes that end at a guarded EXIT part from nobody, and all other code runs as often as its PTX.
    """
    return any(
        one.opcode in _PARTS or (one.opcode == "BRA" and (one.guard or len(block.successors) > 1))
        for function in functions
        for block in function.blocks
        for one in block.instructions
    )


def fuses(functions: Sequence[Function], ptx: Sequence[str]) -> bool:
    """Return whether ptxas made one instruction of a multiplication and an addition, which rounds once."""
    text = ptx_text.read(ptx)
    return any(
        one.opcode in _FUSED and text[one.ptx_line].op in ("add", "sub", "mul")
        for function in functions
        for one in function.instructions
    )
