"""Which launches execute their machine code itself, beside the PTX: those whose counts the PTX does not tell."""

from __future__ import annotations

from collections.abc import Sequence

from cudabench.compile.sass import Function
from cudabench.explain import executed, ptx_text
from cudabench.explain.code_copies import Executions

_PARTS = ("BRX", "BREAK", "WARPSYNC", "YIELD")  # where lanes part or wait, besides jumps with a condition
_FUSED = ("FFMA", "DFMA", "HFMA2")
END = 1 << 62  # behind all code

UNSURE = "how often parts of its machine code run does not follow from its PTX"
PARTED = "lanes of its warps part, and where ptxas lets them meet again is not in its PTX"


def parts(functions: Sequence[Function]) -> bool:
    """Return whether a kernel's code has jumps that only some lanes of a warp may take."""
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


def needed(functions: Sequence[Function], executions: Executions, ptx: Sequence[str]) -> str:
    """Return why a launch has to execute its machine code to be counted, or ""; arguments as of `executed.count`.

    While all lanes of a warp go one way, a block of the machine code runs as often as its lines of the PTX, if those
    are known: then both ways of counting are one. Where lanes parted, how often the code behind is issued hangs on the
    places at which ptxas lets them meet, which the PTX does not show. Lanes that end by a guarded EXIT in front of all
    such places part from nobody.
    """
    if not parts(functions):
        return ""
    meets = min((one.address for each in functions for one in each.instructions if one.opcode == "BSSY"), default=END)
    ends: dict[int, bool] = {}
    for one in (one for each in functions for one in each.instructions):
        alone = one.opcode == "EXIT" and one.address < meets
        ends[one.ptx_line] = ends.get(one.ptx_line, True) and (alone or one.opcode not in ("EXIT", "BRA", *_PARTS))
    if any(times.parted and not ends.get(line, False) for line, times in executions.items()):
        return PARTED  # which spares the count
    counts = executed.count(functions, executions, ptx)
    return UNSURE if any(not one.sure for each in counts for one in each) else ""
