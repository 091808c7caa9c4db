"""Finds registers and memory that may hold values which the simulator does not compute, such as tensor-core products.

Counts depend only on addresses, guards and branches. So an instruction whose result is not computed does no harm unless
an address, a guard or a branch depends on the result. This is found from the code alone: a register is unknown at an
instruction if on any path to this instruction an unknown value is written to the register. If an unknown value is
stored to global, shared or local memory, all values loaded from this memory are unknown. But if local memory holds
only spilled registers, each of its words is treated like a register.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from cudabench.compile import sass
from cudabench.simulator.machine_code import layout
from cudabench.simulator.machine_code.operands import Unreadable

if TYPE_CHECKING:
    from cudabench.simulator.machine_code.decode import Row

# Instructions whose results are not computed. For each opcode: how many consecutive registers it writes at most.
_OPCODES = {
    "HMMA": 4, "IMMA": 4, "DMMA": 8, "BMMA": 4, "QMMA": 4, "MOVM": 1, "LDSM": 4, "TEX": 4, "TLD": 4, "TLD4": 4,
    "TXQ": 4, "TXD": 4, "TMML": 4, "SULD": 4, "SUST": 0, "LEPC": 2,
    **dict.fromkeys(("HGMMA", "IGMMA", "QGMMA", "BGMMA"), 128),
}  # fmt: skip
_CLOCKS = ("SR_CLOCKLO", "SR_CLOCKHI", "SR_GLOBALTIMERLO", "SR_GLOBALTIMERHI")
_RETURNED = {4, 5}  # the registers in which a function of the driver returns its value
LOADS = {"ldg": "global", "atomg": "global", "lds": "shared", "atoms": "shared", "ldl": "local"}
STORES = {"stg": "global", "atomg": "global", "sts": "shared", "atoms": "shared", "stl": "local"}
# Operations that decide which path lanes take and which memory they access.
DECIDES = (
    *LOADS, *STORES, "ldgsts", "ldc", "bra", "bra.div", "exit", "jump", "call", "bar", "break", "bsync",
    "warpsync",
)  # fmt: skip
_REGISTER = re.compile(r"(U?)R(\d+)")
_SPILLED = re.compile(r"\[R1(?:\+(0x[0-9a-f]+))?\]")  # R1 is the stack pointer
_ALWAYS = (layout.TRUE, 0)  # the guard of an instruction without a guard
_FIXED = layout.CONSTANTS + layout.PREDICATES  # the bits of a mask without those of spilled registers


def is_unknown(ins: sass.Instruction) -> bool:
    """Return whether the results of an instruction are not computed: those of tensor cores, textures and surfaces, of
    clocks, and of functions of the driver such as printf."""
    return (
        ins.opcode in _OPCODES
        or (ins.opcode == "CALL" and "ABS" in ins.modifiers)
        or (ins.opcode in ("CS2R", "CS2UR", "S2R") and ins.operands[1] in _CLOCKS)
    )


def written(ins: sass.Instruction) -> set[int]:
    """Return the numbers of the registers that an instruction writes, if `is_unknown`."""
    if ins.opcode == "CALL":
        return _RETURNED
    most = _OPCODES.get(ins.opcode, 1 + (ins.opcode in ("CS2R", "CS2UR") and "32" not in ins.modifiers))
    if ins.opcode[0] == "T" and re.fullmatch("0x[0-9a-f]", ins.operands[-1]):
        # The last operand is the mask of the components that are fetched.
        most = min(2, int(ins.operands[-1], 16).bit_count())
    elif ins.opcode.endswith("GMMA"):
        columns, floats = int(ins.modifiers[0].split("x")[1]), 1 + (ins.modifiers[1] != "F16")
        most = columns * floats // 4
    elif ins.opcode == "LDSM":
        most = int(next((part for part in ins.modifiers if part in "124"), "1"))
    elif ins.opcode == "HMMA" and "F32" not in ins.modifiers:
        most = 2
    firsts = [match for text in ins.operands[:2] if (match := _REGISTER.fullmatch(text))]
    # A texture instruction names two destination operands; each is the first of two registers that are written.
    several = firsts if ins.opcode.startswith("T") else firsts[:1]
    return {int(match[2]) + layout.UNIFORM * bool(match[1]) + place for match in several for place in range(most)}


def bits(places: Sequence[int] | set[int]) -> int:
    """Return registers and predicates as a bit mask, without constants; `predicate` gives the bit of a predicate."""
    return sum(1 << place for place in {*places} if 0 <= place < layout.CONSTANTS + layout.PREDICATES)


def predicate(number: int) -> int:
    """Return the bit number of a predicate in the masks of `bits`, after the registers; -1 if it is constant."""
    return -1 if number < 0 or number % 8 == layout.TRUE else layout.CONSTANTS + number


def stores_unknown(instructions: Sequence[sass.Instruction], rows: Sequence[Row], places: Mapping[str, int]) -> bool:
    """Return whether unknown values may be stored to global memory.

    places: the number of the instruction at each label. Raises Unreadable if an address, a guard or a branch may depend
    on an unknown value.
    """
    if not any(map(is_unknown, instructions)):
        return False
    code, memory = _Code(instructions, rows, places), set[str]()
    while True:
        before = len(memory)
        for number, (row, masks, state) in enumerate(zip(rows, code.masks, code.states(memory), strict=True)):
            reads, decides, _ = masks
            if row.name in STORES and state & reads and not code.spilled[number]:
                memory |= _spaces(instructions[number], STORES[row.name])
            if row.name == "ldgsts" and "global" in memory:
                memory.add("shared")
            if row.name in DECIDES and state & decides:
                raise Unreadable(f"{instructions[number].mnemonic}, which depends on a value that is not computed")
        if len(memory) == before:
            return "global" in memory


class _Code:
    """Finds the registers that are unknown at each instruction.

    A register that is written and read under the same guard is known there, even if it is unknown in the other lanes.
    So a state has one mask for all lanes (see `bits`), and after it, in the same int, one mask for each guard: for the
    lanes in which the guard holds. After the bits of registers and predicates, a mask has those of spilled registers.

    `spilled`: for each instruction, the bits of the spilled registers that it loads or stores.
    """

    def __init__(
        self, instructions: Sequence[sass.Instruction], rows: Sequence[Row], places: Mapping[str, int]
    ) -> None:
        self.instructions, self.rows = instructions, rows
        self.spilled = _spilled(instructions, rows)
        self.width = max(_FIXED, max(self.spilled, default=0).bit_length())
        self.one = (1 << self.width) - 1
        # The registers and predicates that each instruction reads, those that decide its path or its address, and those
        # that it writes.
        self.masks = [
            (
                bits(row.reads) | spilled * (row.name == "ldl"),
                bits(row.decides),
                bits(row.writes) | spilled * (row.name == "stl"),
            )
            for row, spilled in zip(rows, self.spilled, strict=True)
        ]
        self.guards = [_ALWAYS, *sorted({_guard(row) for row in rows} - {_ALWAYS})]
        self.own = [self.guards.index(_guard(row)) for row in rows]  # for each instruction, the index of its guard
        self.spread = sum(1 << self.width * at for at in range(len(self.guards)))
        self.following = [self._following(number, places) for number in range(len(rows))]

    def _following(self, number: int, places: Mapping[str, int]) -> list[int]:
        ins, row = self.instructions[number], self.rows[number]
        # Without a guard, and with no condition as an operand.
        ends = row.name in ("bra", "exit") and _guard(row) == _ALWAYS and len(ins.operands) <= (row.name == "bra")
        numbers = [] if ends else [number + 1]
        if row.name != "bssy":  # lanes come to the place that it names by a BSYNC before this place
            numbers += [places[label] for label in ins.targets if label in places]
        if row.name == "jump":
            calls = (at + 1 for at, other in enumerate(self.instructions) if other.opcode == "CALL")
            numbers += calls if ins.opcode == "RET" else places.values()
        return [then for then in numbers if then < len(self.rows)]

    def states(self, memory: set[str]) -> list[int]:
        """Return, for each instruction, what is unknown before it in the lanes that execute it, as a mask of `bits`.

        memory: the memories that hold unknown values.
        """
        count = len(self.rows)
        states, waiting, queued = [0] * count, [*range(count)], [True] * count
        while waiting:
            number = heappop(waiting)
            queued[number] = False
            state = self._after(number, states[number], memory)
            for then in self.following[number]:
                if state & ~states[then]:
                    states[then] |= state
                    if not queued[then]:
                        queued[then] = True
                        heappush(waiting, then)
        return [state >> self.width * own & self.one for own, state in zip(self.own, states, strict=True)]

    def _after(self, number: int, state: int, memory: set[str]) -> int:
        row, ins, own = self.rows[number], self.instructions[number], self.own[number]
        width, one = self.width, self.one
        reads, decides, writes = self.masks[number]
        reads |= decides
        always = is_unknown(ins) or (row.name in LOADS and _spaces(ins, LOADS[row.name]) & memory)
        if not own and not always and not state & reads * self.spread:
            state &= ~(writes * self.spread)  # the usual case, which is faster
        else:
            for at, (register, flip) in enumerate(self.guards):
                if own and register == self.guards[own][0] and flip != self.guards[own][1]:
                    continue  # these lanes do not execute the instruction
                if always or state >> width * (own or at) & reads:
                    state |= writes << width * at
                elif not own or at == own:
                    state &= ~(writes << width * at)
        if predicates := writes >> layout.CONSTANTS:
            for at, (register, _) in enumerate(self.guards):
                if at and predicates >> register & 1:
                    state = state & ~(one << width * at) | (state & one) << width * at
        return state


def _spilled(instructions: Sequence[sass.Instruction], rows: Sequence[Row]) -> list[int]:
    """Return for each instruction the bits of the spilled registers that it loads or stores; 0 for all of them if local
    memory may hold other values."""
    masks: list[int] = []
    last = max((at for at, row in enumerate(rows) if 1 in row.writes), default=0)
    if any(row.name in ("ldl", "stl", "bra", "call", "jump") for row in rows[:last]):  # the stack pointer moves
        return [0] * len(rows)
    for ins, row in zip(instructions, rows, strict=True):
        if row.name not in ("ldl", "stl"):
            masks.append(0)
            continue
        found = next((match for text in ins.operands if (match := _SPILLED.match(text))), None)
        if found is None or not {*ins.modifiers} <= {"64", "128", "LU"}:  # it may be a part of a word
            return [0] * len(rows)
        words = 4 if "128" in ins.modifiers else 2 if "64" in ins.modifiers else 1
        masks.append((1 << words) - 1 << _FIXED + int(found[1] or "0", 16) // 4)
    return masks


def _spaces(ins: sass.Instruction, space: str) -> set[str]:
    """Return the memories that an instruction may access: any if its addresses are generic, else `space`."""
    return {"global", "shared", "local"} if ins.opcode in ("LD", "ST", "ATOM") else {space}


def _guard(row: Row) -> tuple[int, int]:
    """Return the predicate of an instruction's guard, and whether it must be false."""
    number, flip = row.fields["guard"], row.fields["guard_flip"]
    return _ALWAYS if number % 8 == layout.TRUE else (number, int(flip != 0))
