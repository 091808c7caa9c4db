"""Reads the schedule in a machine instruction: the bits by which the assembler controls when a warp issues it.

Since compute capability 7.0 the schedule is in the upper bits of the 128 bits of an instruction. Four bits give the
clocks until the warp may issue its next instruction. Three bits number a counter that is above zero until the result of
the instruction is available. Six bits mark the counters that must be zero before the instruction is issued. NVIDIA does
not document these bits. Source: Jia et al., "Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking" (arXiv
1804.06826), section 2.1.
"""

from __future__ import annotations

from typing import NamedTuple

INSTRUCTION_BYTES = 16
_NONE = 7  # this counter number means that the instruction sets no counter
# The least clocks between an instruction that sets a counter, but is not a load, and an instruction that waits for this
# counter. An H100 takes 16.9 clocks for MUFU, 17 for POPC and FLO (benchmarks/results/dependent_clocks_h100.md).
DELAYED = 16
GLOBAL_LOADS = ("LD", "LDG", "ATOM", "ATOMG")
# These instructions take at least as long as a load from shared memory. An H100 takes 23 clocks for such a load, and 24
# clocks for SHFL.
NEAR_LOADS = ("LDS", "LDSM", "LDL", "ATOMS", "LDC", "SHFL")


def prefetches(opcode: str, modifiers: tuple[str, ...]) -> bool:
    """Return whether an instruction only loads data into a cache, so that a later load of the same data is faster."""
    return opcode == "UBLKPF" or (opcode == "CCTL" and not {"PF1", "PF2"}.isdisjoint(modifiers))


class Schedule(NamedTuple):
    """`stall`: the clocks until the warp may issue its next instruction, at least 1. `waits`: bit N is 1 if counter N
    must be zero before this instruction is issued. `sets`: the counter that is zero when the result is available, or
    -1."""

    stall: int
    waits: int
    sets: int


def schedule(code: bytes, address: int, opcode: str, operands: tuple[str, ...]) -> Schedule | None:
    """Return the schedule of the instruction at an address of a function's machine code; None if the code ends there.

    DEPBAR waits for the counter that its operand names, so this counter is added to `waits`.
    """
    word = int.from_bytes(code[address + 8 : address + INSTRUCTION_BYTES], "little")
    if address + INSTRUCTION_BYTES > len(code):
        return None
    sets, waits = word >> 46 & 7, word >> 52 & 0x3F
    if opcode == "DEPBAR" and len(operands) > 1 and operands[0].startswith("SB") and operands[1] == "0x0":
        waits |= 1 << int(operands[0][2:])
    return Schedule(max(1, word >> 41 & 0xF), waits, -1 if sets == _NONE else sets)
