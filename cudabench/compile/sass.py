"""Parses nvdisasm's text of a cubin into records: functions, instructions with their PTX lines, basic blocks.

The mnemonics are listed in NVIDIA's "CUDA Binary Utilities", "Instruction Set Reference". Besides plain branches there
is other control flow: BSSY names the label where diverged lanes reconverge, and BSYNC with the same barrier register
jumps to this label. A function returns to the instruction after CALL. `@P0 EXIT` ends the lanes whose P0 is true.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from cudabench.compile.schedule import Schedule, schedule


class Instruction(NamedTuple):
    """One machine instruction: `@guard opcode.modifiers operands`.

    address: the offset in bytes from the start of the function's section. guard: the predicate, such as 'P0', '!P1' or
    'UP0'; '' if all lanes execute. operands: each operand as text. ptx_line: the number, from 1, of the PTX line from
    which ptxas made it; 0 if unknown. schedule: see `Schedule`; None if only nvdisasm's text was read.
    """

    address: int
    guard: str
    opcode: str
    modifiers: tuple[str, ...]
    operands: tuple[str, ...]
    ptx_line: int
    schedule: Schedule | None = None

    @property
    def mnemonic(self) -> str:
        """The opcode with its modifiers, as nvdisasm prints it."""
        return ".".join((self.opcode, *self.modifiers))

    @property
    def targets(self) -> tuple[str, ...]:
        """The labels in the operands, such as '.L_x_3'."""
        return tuple(_LABEL.findall(" ".join(self.operands)))


class Block(NamedTuple):
    """A basic block: control flow enters it only at its first instruction, and leaves it only after the last one.

    number: its index in the function. successors: the numbers of the possible next blocks, in no order. exits: whether
    lanes may end here or return to a caller. calls: the function that its CALL names, else ''.
    """

    number: int
    instructions: tuple[Instruction, ...]
    successors: tuple[int, ...]
    exits: bool
    calls: str


class Function(NamedTuple):
    """A function of a cubin: a kernel, or a subroutine that follows it in the same section; `entry`: the kernel's
    name."""

    name: str
    entry: str
    blocks: tuple[Block, ...]

    @property
    def instructions(self) -> tuple[Instruction, ...]:
        """All instructions in the order of their addresses."""
        return tuple(instruction for block in self.blocks for instruction in block.instructions)


_SECTION = re.compile(r"^\s*\.section\s+\.text\.([^,\s]+)")
_LINE = re.compile(r'^\s*//## File "\.nv_debug_ptx_txt", line (\d+)')
_NAMED = re.compile(r"^([^\s/][^\s]*):\s*(?://.*)?$")
_INSTRUCTION = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/\s+\{?\s*(?:@(!?U?P\w+)\s+)?([A-Z][\w.]*)\s*([^;]*?)\s*;")
_LABEL = re.compile(r"(\.L_x_\d+|\$[\w$.]+)")
_ENDS = ("BRA", "JMP", "BRX", "JMX", "BRXU", "JMXU", "EXIT", "RET", "CALL", "BSYNC", "KILL")
_LEAVES = ("EXIT", "RET", "KILL")  # instructions at which lanes end or return to the caller


def section(text: str, entry: str) -> str:
    """Return the section of nvdisasm's text that has the kernel `entry`, or ''."""
    start = text.find(f"//--------------------- .text.{entry} ")
    if start < 0:
        return ""
    end = text.find("//---------------------", start + 1)
    return text[start:] if end < 0 else text[start:end]


def parse(text: str, code: Mapping[str, bytes] = MappingProxyType({})) -> dict[str, tuple[Function, ...]]:
    """Return a dict from each kernel's entry to its functions: the kernel itself first, then its subroutines.

    text: the output of `nvdisasm -c -gp`. The padding after the code is left out. code: by entry, the bytes of the
    code, which hold the schedules of the instructions.
    """
    return {entry: functions(entry, items) for entry, items in listed(text, code).items() if items}


def listed(text: str, code: Mapping[str, bytes] = MappingProxyType({})) -> dict[str, list[Instruction | str]]:
    """Return a dict from each kernel's entry to its instructions and labels, in the order of the text (see `parse`)."""
    sections: dict[str, list[Instruction | str]] = {}
    items: list[Instruction | str] = []
    line, content = 0, b""
    for row in text.splitlines():
        if match := _INSTRUCTION.match(row):
            opcode, *modifiers = match[3].split(".")
            operands = tuple(part.strip() for part in match[4].split(",")) if match[4] else ()
            address = int(match[1], 16)
            when = schedule(content, address, opcode, operands)
            items.append(Instruction(address, match[2] or "", opcode, tuple(modifiers), operands, line, when))
        elif match := _LINE.match(row):
            line = int(match[1])
        elif match := _SECTION.match(row):
            items, line, content = sections.setdefault(match[1], []), 0, code.get(match[1], b"")
        elif match := _NAMED.match(row):
            items.append(match[1])
            # A PTX line number applies to all following instructions until the next number, but only within its
            # function. Labels that begin with .L are inside a function.
            line = 0 if not match[1].startswith(".L") else line
    return sections


def functions(entry: str, items: Sequence[Instruction | str]) -> tuple[Function, ...]:
    """Split the instructions of a section into functions, at the labels that are names of functions."""
    parts: dict[str, list[Instruction | str]] = {}
    current = parts[entry] = []
    for item in items:
        if isinstance(item, str) and not item.startswith((".L_", ".text.")) and item != entry:
            current = parts[item] = []
        else:
            current.append(item)
    return tuple(Function(name, entry, _blocks(part)) for name, part in parts.items() if part)


def _is_padding(runs: Sequence[Sequence[Instruction]], places: Mapping[str, int]) -> bool:
    """Return whether the last instruction is padding: a NOP, or a branch to itself."""
    last = runs[-1][-1]
    to_itself = len(runs[-1]) == 1 and len(runs) - 1 in map(places.get, last.targets)
    return last.opcode == "NOP" or (last.opcode == "BRA" and not last.guard and to_itself)


def _blocks(items: Sequence[Instruction | str]) -> tuple[Block, ...]:
    used = {label for item in items if isinstance(item, Instruction) for label in item.targets}
    runs: list[list[Instruction]] = []
    places: dict[str, int] = {}
    pending: list[str] = []  # the labels between the previous instruction and the next
    for item in items:
        if isinstance(item, str):
            pending.append(item)
            continue
        if not runs or runs[-1][-1].opcode in _ENDS or used.intersection(pending):
            runs.append([])
        places.update(dict.fromkeys(pending, len(runs) - 1))
        pending = []
        runs[-1].append(item)
    while runs and _is_padding(runs, places):
        runs[-1].pop()
        if not runs[-1]:
            runs.pop()
    places = {label: at for label, at in places.items() if at < len(runs)}
    joins: dict[str, str] = {}  # maps a barrier register to the label at which the lanes reconverge
    blocks = []
    for number, run in enumerate(runs):
        for instruction in run:
            if instruction.opcode == "BSSY" and instruction.targets:
                joins[instruction.operands[0]] = instruction.targets[0]
        last = run[-1]
        following = (number + 1,) if number + 1 < len(runs) else ()
        to = tuple(places[label] for label in last.targets if label in places)
        if last.opcode == "BSYNC":
            target = places.get(joins.get(last.operands[0], ""), -1)
            to = (target,) if target >= 0 else following
            to = (*to, *following) if last.guard else to
        elif last.opcode in _LEAVES:
            to = following if _conditional(last) else ()
        elif last.opcode == "CALL" or last.opcode not in _ENDS:
            to = following
        elif _conditional(last):
            to = (*to, *following)
        callee = last.targets[0] if last.opcode == "CALL" and last.targets else ""
        blocks.append(Block(number, tuple(run), tuple(dict.fromkeys(to)), last.opcode in _LEAVES, callee))
    return tuple(blocks)


def _conditional(instruction: Instruction) -> bool:
    """Return whether some lanes may go on to the next instruction.

    This is the case if the instruction has a guard or a predicate operand (`BRA P1, ...`, `BRA.DIV ~UR4, ...`).
    """
    first = instruction.operands[0] if instruction.operands else ""
    return bool(instruction.guard) or "DIV" in instruction.modifiers or bool(re.match(r"[!~]?U?[PR]\d", first))
