"""The schedule that the assembler writes into each machine instruction: when the warp may issue the next one.

Since compute capability 7.0 the upper bits of an instruction's 128 hold it: four bits are the clocks until the next
instruction, then (among others) three are a counter that stands above zero until the result is there, and six are the
counters that must be zero before the instruction is issued. NVIDIA does not document them; they are described by Jia et
al., "Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking" (arXiv 1804.06826), section 2.1.
"""

from __future__ import annotations

from typing import NamedTuple

INSTRUCTION_BYTES = 16
_NONE = 7  # the number that stands for no counter
# The fewest clocks from an instruction that sets a counter to one that waits for it, if it is not a load. An H100 takes
# 16.9 for MUFU, 17 for POPC and FLO (benchmarks/results/dependent_clocks_h100.md).
DELAYED = 16
GLOBAL_LOADS = ("LD", "LDG", "ATOM", "ATOMG")
# These take at least as long as a load from shared memory. An H100 takes 23 clocks for that, 24 for SHFL.
NEAR_LOADS = ("LDS", "LDSM", "LDL", "ATOMS", "LDC", "SHFL")


def prefetches(opcode: str, modifiers: tuple[str, ...]) -> bool:
    """Return whether an instruction brings data to a cache, so that a later load of them is faster."""
    return opcode == "UBLKPF" or (opcode == "CCTL" and not {"PF1", "PF2"}.isdisjoint(modifiers))


class Schedule(NamedTuple):
    """`stall`: the clocks until the warp may issue its next instruction, at least 1. `waits`: a bit for each counter
    that must be zero before this one is issued. `sets`: the counter that tells when the result is there; -1: none."""

    stall: int
    waits: int
    sets: int


def schedule(code: bytes, address: int, opcode: str, operands: tuple[str, ...]) -> Schedule | None:
    """Return the schedule of the instruction at an address of a function's machine code; None if the code ends there.

    DEPBAR waits for the counter that its operand names.
    """
    word = int.from_bytes(code[address + 8 : address + INSTRUCTION_BYTES], "little")
    if address + INSTRUCTION_BYTES > len(code):
        return None
    sets, waits = word >> 46 & 7, word >> 52 & 0x3F
    if opcode == "DEPBAR" and len(operands) > 1 and operands[0].startswith("SB") and operands[1] == "0x0":
        waits |= 1 << int(operands[0][2:])
    return Schedule(max(1, word >> 41 & 0xF), waits, -1 if sets == _NONE else sets)
