"""Values that are not computed, as a tensor core's product: which registers may hold one, and what may depend on it.

Counts depend on addresses, guards and branches alone. So an instruction whose value is not known here does not matter
until one of those comes from it, which the code itself shows: a register is unknown where any way to it writes such a
value. What was stored unknown makes all loads from that memory unknown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from cudabench.compile import sass
from cudabench.simulator.machine_code import layout
from cudabench.simulator.machine_code.operands import Unreadable

if TYPE_CHECKING:
    from cudabench.simulator.machine_code.decode import Row

# By opcode: the most registers that it writes from its first one on.
OPCODES = {
    "HMMA": 4, "IMMA": 4, "DMMA": 8, "BMMA": 4, "QMMA": 4, "MOVM": 1, "LDSM": 4, "TEX": 4, "TLD": 4, "TLD4": 4,
    "TXQ": 4, "TXD": 4, "TMML": 4,
}  # fmt: skip
LOADS = {"ldg": "global", "atomg": "global", "lds": "shared", "atoms": "shared", "ldl": "local"}
STORES = {"stg": "global", "atomg": "global", "sts": "shared", "atoms": "shared", "stl": "local"}
# What decides where lanes go and what they touch.
DECIDES = (
    *LOADS, *STORES, "ldgsts", "ldc", "bra", "bra.div", "exit", "jump", "call", "bar", "break", "bsync",
    "warpsync",
)  # fmt: skip
_REGISTER = re.compile(r"R(\d+)")


def written(ins: sass.Instruction) -> set[int]:
    """Return the registers that an instruction of `OPCODES` writes."""
    most = OPCODES[ins.opcode]
    if ins.opcode[0] == "T" and re.fullmatch("0x[0-9a-f]", ins.operands[-1]):
        most = min(2, int(ins.operands[-1], 16).bit_count())  # of the four components those that are asked for
    elif ins.opcode == "LDSM":
        most = int(next((part for part in ins.modifiers if part in "124"), "1"))
    elif ins.opcode == "HMMA" and "F32" not in ins.modifiers:
        most = 2
    firsts = [match for text in ins.operands[:2] if (match := _REGISTER.fullmatch(text))]
    # A texture's values go to two places of two.
    several = firsts if ins.opcode.startswith("T") else firsts[:1]
    return {int(match[1]) + place for match in several for place in range(most)}


def bits(places: Sequence[int] | set[int]) -> int:
    """Return a set of registers, and of predicates after them, as bits; those that are constant are left out."""
    return sum(1 << place for place in {*places} if 0 <= place < layout.CONSTANTS + layout.PREDICATES)


class Masks(NamedTuple):
    """What an instruction reads, what of that decides, and what it writes, as `bits`."""

    reads: int
    decides: int
    writes: int


def predicate(number: int) -> int:
    """Return the place of a predicate after the registers; -1 of one that is constant."""
    return -1 if number < 0 or number % 8 == layout.TRUE else layout.CONSTANTS + number


def stored(instructions: Sequence[sass.Instruction], rows: Sequence[Row], places: Mapping[str, int]) -> bool:
    """Return whether unknown values reach global memory; places: the numbers of instructions by their labels.

    Raises Unreadable where an address, a guard or a branch may depend on one.
    """
    sources = {number for number, ins in enumerate(instructions) if ins.opcode in OPCODES}
    if not sources:
        return False
    masks = [Masks(bits(row.reads), bits(row.decides), bits(row.writes)) for row in rows]
    memory: set[str] = set()
    while True:
        before = len(memory)
        states = _states(instructions, rows, masks, places, sources, memory)
        for number, (row, mask, state) in enumerate(zip(rows, masks, states, strict=True)):
            if row.name in STORES and state & mask.reads:
                memory.add(STORES[row.name])
            if row.name == "ldgsts" and "global" in memory:
                memory.add("shared")
            if row.name in DECIDES and state & mask.decides:
                raise Unreadable(f"{instructions[number].mnemonic} by a value that is not computed")
        if len(memory) == before:
            return "global" in memory


def _states(
    instructions: Sequence[sass.Instruction], rows: Sequence[Row], masks: Sequence[Masks], places: Mapping[str, int],
    sources: set[int], memory: set[str],
) -> list[int]:  # fmt: skip
    """Return what is unknown in front of each instruction, as `bits`."""
    states, waiting = [0] * len(rows), [*range(len(rows))]
    called = [number + 1 for number, ins in enumerate(instructions) if ins.opcode == "CALL"]
    while waiting:
        number = waiting.pop()
        row, mask, ins, state = rows[number], masks[number], instructions[number], states[number]
        if number in sources or state & (mask.reads | mask.decides) or LOADS.get(row.name) in memory:
            state |= mask.writes
        elif row.fields["guard"] == layout.TRUE:
            state &= ~mask.writes
        following = [number + 1, *(places[label] for label in ins.targets if label in places)]
        if row.name == "jump":
            following += called if ins.opcode == "RET" else places.values()
        for then in following:
            if then < len(rows) and state & ~states[then]:
                states[then] |= state
                waiting.append(then)
    return states
