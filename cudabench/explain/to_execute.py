"""Selects the kernels whose machine code is executed beside the PTX: their counts do not follow from the PTX."""

from __future__ import annotations

from collections.abc import Sequence

from cudabench.compile.sass import Function
from cudabench.explain import ptx_text

_PARTS = ("BRX", "BREAK", "WARPSYNC", "YIELD")  # where lanes diverge or wait, besides conditional jumps
_FUSED = ("FFMA", "DFMA", "HFMA2")

UNSURE = "how often parts of its machine code run does not follow from its PTX"


def parts(functions: Sequence[Function]) -> bool:
    """Return whether lanes may diverge at jumps of a kernel's code, so that it has to be executed to be counted.

    Lanes that end at a guarded EXIT do not diverge from others, and all other code runs as often as its PTX.
    """
    return any(
        ins.opcode in _PARTS or (ins.opcode == "BRA" and (ins.guard or len(block.successors) > 1))
        for function in functions
        for block in function.blocks
        for ins in block.instructions
    )


def fuses(functions: Sequence[Function], ptx: Sequence[str]) -> bool:
    """Return whether ptxas fused a multiplication and an addition into one instruction, which rounds once."""
    text = ptx_text.read(ptx)
    return any(
        ins.opcode in _FUSED and text[ins.ptx_line].op in ("add", "sub", "mul")
        for function in functions
        for ins in function.instructions
    )
