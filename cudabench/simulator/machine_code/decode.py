"""Decodes machine code, as nvdisasm prints it, to the operations of `native/sass_*.cpp`.

NVIDIA does not document the order of operands. If a kernel has an instruction, or a form of an instruction, that
this module lacks, the whole kernel is unreadable.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from cudabench.compile import sass
from cudabench.compile.schedule import DELAYED, GLOBAL_LOADS, NEAR_LOADS, prefetches
from cudabench.simulator.machine_code import layout, unknown
from cudabench.simulator.machine_code.forms import FLUSH, REDUCED, RELU, ROUNDING, SATURATE, SPECIAL, form_of, has
from cudabench.simulator.machine_code.operands import (
    ALL,
    CONSTANT,
    NUMBER,
    PREDICATE,
    Reader,
    Unreadable,
    address,
    condition,
    number_bits,
    register,
)
from cudabench.simulator.values import Array

GLOBAL_ATOMICS = ("RED", "REDG", "ATOM", "ATOMG")


@dataclass(frozen=True, eq=False)
class Decoded:
    """A decoded kernel.

    `instructions`: as nvdisasm printed them; `records`: the same instructions, decoded: records of
    `layout.INSTRUCTION`, in which `code` is an index of `names`, the names of the operations; `constants`: the
    constants that the kernel reads, each (bank, offset) or a value; `stack`: how many bytes of stack a lane needs;
    `yields`: whether the kernel has a YIELD; `atomics`: whether the kernel has atomics on global memory; `prefetches`:
    whether the kernel loads data into a cache before it needs them; `unknown`: whether the kernel may store values to
    global memory that the simulator does not compute (see `unknown`).
    """

    instructions: tuple[sass.Instruction, ...]
    records: Array
    names: tuple[str, ...]
    constants: tuple[tuple[int, int] | int, ...]
    stack: int
    yields: bool
    atomics: bool
    prefetches: bool
    unknown: bool

    @cached_property
    def addresses(self) -> tuple[int, ...]:
        """The addresses of the instructions."""
        return tuple(ins.address for ins in self.instructions)

    def code(self, numbers: Mapping[str, int]) -> Array:
        """Return the records with the numbers of their operations in `code`; numbers: these numbers, keyed by name."""
        code = self.records.copy()
        code["code"] = np.array([numbers[name] for name in self.names])[code["code"]]
        return code


@dataclass
class Row:
    """One decoded instruction, from which a record of `layout.INSTRUCTION` is made.

    `name`: the name of the operation; `fields`, `mode`, `predicates`, `sources`, `conditions`: fields of the record.
    `reads`: the numbers of the registers and predicates on which the instruction's value depends; `decides`: of those
    on which its path or its address depends; `writes`: of those that it writes (see `unknown.predicate`). `schedule`:
    the instruction's schedule, and the clocks until its result is ready, 0 for a load.
    """

    name: str
    fields: dict[str, int] = field(default_factory=dict)
    mode: list[int] = field(default_factory=list)
    predicates: list[int] = field(default_factory=list)
    sources: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    conditions: list[tuple[int, int]] = field(default_factory=list)
    reads: list[int] = field(default_factory=list)
    decides: list[int] = field(default_factory=list)
    writes: list[int] = field(default_factory=list)
    schedule: tuple[int, int, int, int] = (1, 0, -1, 0)


_NO_SOURCE, _NO_CONDITION = (layout.CONSTANTS, ALL, 0, 0, 0), (layout.TRUE, 0)


def _record(row: Row, code: int) -> tuple[Any, ...]:
    """Return the values for a record of `layout.INSTRUCTION`, in its order; code: the number of the operation."""
    fields, of = row.fields, row.fields.get
    return (
        code, (fields["guard"], fields["guard_flip"]), of("into", -1), [*row.predicates, -1, -1][:2],
        of("uniform", 0), of("flags", 0), [*row.mode, 0, 0, 0, 0][:4], of("target", 0), of("size", 0),
        of("address", -1), of("beside", -1), of("offset", 0), of("wide", 0), of("scale", 0),
        [*row.sources, *(_NO_SOURCE,) * 4][:4], [*row.conditions, *(_NO_CONDITION,) * 3][:3], row.schedule,
    )  # fmt: skip


_WIDTHS = {"128": 16, "64": 8, "F64": 8, "S64": 8, "U64": 8, "U8": 1, "S8": 1, "8": 1, "U16": 2, "S16": 2, "16": 2}


@lru_cache(maxsize=1024)
def _usual(opcode: str, modifiers: tuple[str, ...]) -> tuple[int, int, int]:
    """Return the fields `uniform`, `flags` and `size` that instructions with an opcode and modifiers usually have."""
    flags = next((ROUNDING[name] for name in modifiers if name in ROUNDING), 0)
    for name, flag in (("FTZ", FLUSH), ("SAT", SATURATE), ("RELU", RELU)):
        flags |= flag * (name in modifiers)
    size = next((size for width, size in _WIDTHS.items() if width in modifiers), 4)
    return int(opcode[0] == "U" or opcode in ("S2UR", "LDCU")), flags, size


def _row(reader: Reader, ins: sass.Instruction, places: Mapping[str, int]) -> Row:
    """Return an instruction decoded; places: the number of the instruction at each label."""
    operands = [operand.partition(' (*"SpillRefill')[0].strip() for operand in ins.operands if operand]
    guard = condition(ins.guard) if ins.guard else (layout.TRUE, 0)
    if unknown.is_unknown(ins):
        return Row("nop", {"guard": guard[0], "guard_flip": guard[1]}, writes=[*unknown.written(ins)])
    name, kinds, modes = form_of(ins, operands)
    row = Row(name, mode=modes)
    into = operands[0] if operands else ""
    uniform, flags, size = _usual(ins.opcode, ins.modifiers)
    row.fields |= {"guard": guard[0], "guard_flip": guard[1], "uniform": uniform, "flags": flags, "size": size}
    if ins.targets and name in ("bra", "bra.div", "call"):
        row.fields["target"] = places[ins.targets[0]]
    if name in ("ldc", "mov") and ins.opcode == "CS2R":
        if into == "" or operands[1] != "SRZ":
            raise Unreadable(ins.mnemonic)
        row.fields["size"] = 4 if name == "mov" else 8
    immediate: list[int] = []
    for kind in kinds:
        _operand(reader, row, kind, operands, immediate)
    # Only the label of a branch and the function of a call may be left: the forms of these opcodes do not decode them.
    if any(not operand.startswith(("`", "(")) for operand in operands):
        raise Unreadable(f"{ins.mnemonic} {', '.join(ins.operands)}")
    if ins.opcode in ("BRX", "BRXU"):
        row.fields["offset"] += ins.address + 16
    if name in ("ldg", "stg", "atomg") and has(ins, "E"):
        row.fields["wide"] = 64  # for sm_75, and in some forms of CAS, a 64-bit address is printed without .64
    row.mode = immediate + row.mode
    _note_uses(row, ins)
    return row


# operations that write two registers
_PAIRS = (
    "dadd", "dmul", "dfma", "frnd.f64", "f2f.f64.f32", "mov.64", "sel.64", "iadd.64", "iadd3.64", "min.u64", "min.s64",
)  # fmt: skip


def _note_uses(row: Row, ins: sass.Instruction) -> None:
    """Fill in `reads`, `decides` and `writes` of a row.

    `reads` has the sources already. Registers and predicates on which the path or the address depends are added to
    `decides` for operations of `unknown.DECIDES`, and to `reads` for other operations.
    """
    place, beside = row.fields.get("address", -1), row.fields.get("beside", -1)
    asked = [unknown.predicate(number) for number in (row.fields["guard"], *(number for number, _ in row.conditions))]
    asked += [place, place + (place >= 0 and row.fields["wide"] == 64), beside, beside + (beside >= 0)]
    asked += row.mode[:2] if row.name == "ldgsts" else []
    if row.name in ("jump", "warpsync", "bra.div", "bar"):
        asked += row.reads
    (row.decides if row.name in unknown.DECIDES else row.reads).extend(asked)
    if row.name == "p2r":
        first = (layout.TRUE + 1) * row.fields["uniform"]
        row.reads += [unknown.predicate(first + number) for number in range(layout.TRUE)]
    many = 1
    if row.name in unknown.LOADS or row.name == "ldc":
        many = max(1, row.fields["size"] // 4)
    elif (
        row.name in _PAIRS or (row.name == "imad.wide" and not row.mode[1]) or (row.name == "i2f" and row.mode[2] == 1)
        or (row.name == "f2i" and row.mode[1])
    ):  # fmt: skip
        many = 2
    into = row.fields.get("into", -1)
    row.writes += range(into, into + many) if into >= 0 else ()
    wrote = range(layout.TRUE) if row.name == "r2p" else row.predicates
    row.writes += [unknown.predicate(number) for number in wrote]


def _operand(reader: Reader, row: Row, kind: str, operands: list[str], immediate: list[int]) -> None:
    """Decode the next operand into the row, and remove it from the list; `kind`: a letter as in `forms.FORMS`.

    Numbers for the mode are appended to `immediate`.
    """
    if kind in "pqck":  # a predicate, which may be missing
        given = condition(operands.pop(0)) if operands and PREDICATE.fullmatch(operands[0]) else None
        if kind == "q" and given and (given[0] % 8 != layout.TRUE or given[1]):
            raise Unreadable("a predicate of unknown meaning")
        if kind in "ck":
            row.conditions.append(given or (layout.TRUE, ALL if kind == "k" else 0))
        elif kind == "p" and given:
            row.predicates.append(-1 if given[0] % 8 == layout.TRUE else given[0])
        return
    if (kind == "e" and PREDICATE.fullmatch(operands[0])) or (kind == "y" and operands[0].startswith(("`", "("))):
        return
    text = kind if kind in "01" else operands.pop(0)
    if kind in "del":
        match = CONSTANT.fullmatch(text)
        name = text.replace(".reuse", "") if match is None else match[2] or "RZ"
        place = register(name)
        row.fields["address" if kind == "l" else "into"] = -1 if place == layout.CONSTANTS else place
        if match is not None:
            row.fields |= {"offset": int(match[3] or "0", 16), "wide": 32, "scale": 0, "beside": -1}
    elif kind in "isb":
        immediate.append(SPECIAL[text] if kind == "s" else int(text[1:]) if kind == "b" else int(text, 16))
    elif kind == "a":
        row.fields |= address(text)
    elif kind == "t":
        to = address(text)
        row.mode += [to["address"], to["beside"], to["offset"]]
    elif kind == "j":
        # The operand is either `R8 -0x170 (*"BRANCH_TARGETS .L_x_1", ...)`, with an offset from the next instruction,
        # or `R8 (name)`.
        target, *behind = text.split()
        row.sources.append(reader.source(target, "x"))
        row.fields["offset"] = int(behind[0], 16) if behind and behind[0][0] in "-0" else 0
        operands.clear()
    else:
        source = _source(reader, kind, text, operands)
        row.sources.append(source)
        many = 2 if kind in "rw" else max(1, row.fields["size"] // 4) if kind == "v" else 1
        row.reads += range(source[0], source[0] + many) if source[0] < layout.CONSTANTS else ()


def _source(reader: Reader, kind: str, text: str, operands: list[str]) -> tuple[int, int, int, int, int]:
    """Return the fields of `layout.SOURCE` of a source operand; a pair of literals removes its second operand."""
    if kind in "01z":
        return reader.constant(int(kind == "1")), ALL, 0, 0, 0
    if kind == "h" and NUMBER.fullmatch(text) and not text.startswith("0x"):
        high, low = number_bits(text, "h"), number_bits(operands.pop(0), "h")
        return reader.constant(high << 16 | low), ALL, 0, 0, 0
    return reader.source(text, {"v": "w", "y": "x"}.get(kind, kind))


def decode(items: Sequence[sass.Instruction | str]) -> Decoded:
    """Return a decoded kernel with its subroutines; items: the kernel's instructions and labels (str), in order.

    Raises Unreadable if an item cannot be decoded.
    """
    places: dict[str, int] = {}
    instructions: list[sass.Instruction] = []
    for item in items:
        if isinstance(item, str):
            places[item] = len(instructions)
        else:
            instructions.append(item)
    reader, rows, stack, reduced = Reader(), [], 0, ""
    for ins in instructions:
        if ins.opcode == "BAR":
            reduced = next((name for name in ins.modifiers if name in REDUCED), reduced)
        if ins.opcode == "B2R":  # B2R gets the result of the BAR.RED before it, and needs the name of its reduction
            ins = ins._replace(modifiers=(*ins.modifiers, reduced))
        try:
            rows.append(_row(reader, ins, places))
        except (KeyError, IndexError, ValueError) as error:
            raise Unreadable(f"{ins.mnemonic} {', '.join(ins.operands)}") from error
        if ins.schedule is not None:
            loads = ins.opcode in GLOBAL_LOADS or ins.opcode in NEAR_LOADS
            rows[-1].schedule = (*ins.schedule, 0 if loads else DELAYED)
        if ins.operands[:1] == ("R1",) and ins.opcode in ("IADD", "IADD3", "VIADD"):
            step = next((int(part, 16) for part in ins.operands[1:] if re.fullmatch(r"-?0x[0-9a-f]+", part)), 0)
            stack += max(0, -(step - (1 << 32) if step >> 31 > 0 else step))
    opcodes = {ins.opcode for ins in instructions}
    yields, atomics = "YIELD" in opcodes, not opcodes.isdisjoint(GLOBAL_ATOMICS)
    fetches = any(prefetches(ins.opcode, ins.modifiers) for ins in instructions)
    stored = unknown.stores_unknown(instructions, rows, places)
    names = {name: number for number, name in enumerate(dict.fromkeys(row.name for row in rows))}
    records = np.array([_record(row, names[row.name]) for row in rows], layout.INSTRUCTION)
    return Decoded(
        tuple(instructions), records, (*names,), tuple(reader.constants), stack, yields, atomics, fetches, stored
    )
