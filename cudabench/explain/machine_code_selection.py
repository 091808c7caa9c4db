"""Selects the kernels whose machine code the simulator must also execute, because the PTX does not give its counts."""

from __future__ import annotations

from collections.abc import Sequence

from cudabench.compile.sass import Function
from cudabench.explain import ptx_text

# Opcodes at which lanes diverge or wait, in addition to conditional jumps.
_DIVERGENT_OPCODES = ("BRX", "BREAK", "WARPSYNC", "YIELD")
_FUSED_OPCODES = ("FFMA", "DFMA", "HFMA2")

UNSURE = "its PTX does not tell how often parts of its machine code run"


def may_diverge(functions: Sequence[Function]) -> bool:
    """Return whether lanes may diverge at jumps in a kernel's machine code; if so, only executing it gives its counts.

    A guarded EXIT is not a divergence, because the exiting lanes do not continue. Machine code without divergence runs
    as often as its PTX.
    """
    return any(
        ins.opcode in _DIVERGENT_OPCODES or (ins.opcode == "BRA" and (ins.guard or len(block.successors) > 1))
        for function in functions
        for block in function.blocks
        for ins in block.instructions
    )


def fuses(functions: Sequence[Function], ptx: Sequence[str]) -> bool:
    """Return whether ptxas fused a multiplication and an addition into one instruction, which rounds once."""
    text = ptx_text.read(ptx)
    return any(
        ins.opcode in _FUSED_OPCODES and text[ins.ptx_line].op in ("add", "sub", "mul")
        for function in functions
        for ins in function.instructions
    )
