"""Decodes machine code, as nvdisasm prints it, to the operations of `native/sass_*.cpp`.

NVIDIA does not document the order of operands. If a kernel has an instruction, or a form of an instruction, that
this module lacks, the whole kernel is unreadable.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cudabench.compile import sass
from cudabench.compile.schedule import DELAYED, GLOBAL_LOADS, NEAR_LOADS
from cudabench.simulator.machine_code import layout, unknown
from cudabench.simulator.machine_code.operands import (
    ALL,
    CONSTANT,
    NUMBER,
    PREDICATE,
    Reader,
    Unreadable,
    condition,
    number_bits,
)
from cudabench.simulator.values import Array

RELATIONS = {"F": 0, "LT": 1, "EQ": 2, "LE": 3, "GT": 4, "NE": 5, "GE": 6, "NUM": 7, "NAN": 8, "T": 15}
RELATIONS |= {f"{name}U": RELATIONS[name] | 8 for name in ("LT", "EQ", "LE", "GT", "NE", "GE")}
JOINED = {"AND": 0, "OR": 1, "XOR": 2}
SPECIAL = {
    f"SR_{name}": number for number, name in enumerate((
        "TID.X", "TID.Y", "TID.Z", "CTAID.X", "CTAID.Y", "CTAID.Z", "LANEID", "LTMASK", "EQMASK", "LEMASK", "GEMASK",
        "GTMASK", "CgaCtaId",
    ))
}  # fmt: skip
ROUNDING = {"RZ": 1, "RM": 2, "RP": 3}
FLUSH, SATURATE, RELU = 4, 8, 16
WHOLE = {"TRUNC": 1, "FLOOR": 2, "CEIL": 3}
REDUCED = {"POPC": 0, "AND": 1, "OR": 2}  # the reductions of BAR.RED over the predicates of a block
REDUCTIONS = ("SUM", "MIN", "MAX", "AND", "OR", "XOR")
ATOMICS = {
    name: number
    for number, name in enumerate(("ADD", "MIN", "MAX", "AND", "OR", "XOR", "EXCH", "INC", "DEC", "CAS", "CAST"))
}
# Instructions that do not change what the lanes of a single block compute.
IDLE = (
    "NOP", "DEPBAR", "LDGDEPBAR", "ERRBAR", "CGAERRBAR", "MEMBAR", "CCTL", "FENCE", "PMTRIG", "NANOSLEEP",
    "ENDCOLLECTIVE",
)  # fmt: skip

GLOBAL_ATOMICS = ("RED", "REDG", "ATOM", "ATOMG")


@dataclass
class Row:
    """One decoded instruction, from which a record of `layout.INSTRUCTION` is made.

    `name`: the name of its operation; `fields`, `mode`, `predicates`, `sources`, `conditions`: fields of the record.
    `reads`, `decides`, `writes`: numbers of registers and predicates, as in `unknown.Masks`. `schedule`: its
    schedule, and the clocks until its result, 0 for a load.
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


@dataclass(frozen=True, eq=False)
class Decoded:
    """A decoded kernel.

    `instructions`: as nvdisasm printed them; `rows`: the same instructions, decoded; `constants`: the constants that it
    reads, each (bank, offset) or a value; `stack`: how many bytes of stack a lane needs; `yields`: whether it has a
    YIELD; `atomics`: whether it has atomics on global memory; `unknown`: whether it may store values to global memory
    that are not computed (see `unknown`); `records`: a cache of `code`.
    """

    instructions: tuple[sass.Instruction, ...]
    rows: tuple[Row, ...]
    constants: tuple[tuple[int, int] | int, ...]
    stack: int
    yields: bool
    atomics: bool
    unknown: bool
    records: dict[int, Array] = field(default_factory=dict)

    def code(self, numbers: Mapping[str, int]) -> Array:
        """Return the array of `layout.INSTRUCTION` records; numbers: the number of each operation, keyed by name."""
        if id(numbers) not in self.records:
            records = [_record(row, numbers[row.name]) for row in self.rows]
            self.records[id(numbers)] = np.array(records, layout.INSTRUCTION)
        return self.records[id(numbers)]


_NO_SOURCE, _NO_CONDITION = (layout.CONSTANTS, ALL, 0, 0, 0), (layout.TRUE, 0)


def _record(row: Row, code: int) -> tuple[Any, ...]:
    """Return the values for a record of `layout.INSTRUCTION`, in its order; code: the number of the operation."""
    fields = {"into": -1, "address": -1, "beside": -1, **row.fields}
    values = {
        **fields,
        "code": code,
        "guard": (fields["guard"], fields["guard_flip"]),
        "into_predicate": [*row.predicates, -1, -1][:2],
        "mode": [*row.mode, 0, 0, 0, 0][:4],
        "sources": [*row.sources, *(_NO_SOURCE,) * 4][:4],
        "conditions": [*row.conditions, *(_NO_CONDITION,) * 3][:3],
        "schedule": row.schedule,
    }
    return tuple(values.get(name, 0) for name in layout.INSTRUCTION.names or ())


# The form of an opcode has the name of the operation, and one letter for the kind of each operand, in order. If it is a
# function, the function returns these and the initial mode. The letters are: d: the register that is written; p: a
# predicate that is written, which may be missing; x, w, f, r, h: sources, see `Reader.source`; c: a predicate that is
# read, true if it is missing; k: the same, but false if it is missing; q: a predicate that is ignored; i: a number that
# becomes a part of the mode; s: a special register, and b: a barrier, both of which become a part of the mode, too; a:
# an address; t: the address that a copy writes to; l: an address in a constant bank; j: the target of a jump; v: a
# value whose size is that of the access; z: SRZ, read as 0; 1: the constant 1, not an operand; -: an operand that
# is ignored.
Form = tuple[str, str] | Callable[[sass.Instruction, list[str]], tuple[str, str, list[int]]]


_OF_PAIRS = ("U64", "S64")  # modifiers of instructions whose operands are 64-bit integers
_OF_FLOATS = {"FTZ", "SAT", "RN", "RZ", "RM", "RP", "DIVIDE"}
# The factors 1/8 to 8, as biased exponents of float32.
_SCALED = {"D8": 124, "D4": 125, "D2": 126, "M2": 128, "M4": 129, "M8": 130}


def _float(name: str, kinds: str) -> Callable[[sass.Instruction, list[str]], tuple[str, str, list[int]]]:
    def form(ins: sass.Instruction, operands: list[str]) -> tuple[str, str, list[int]]:
        if name == "fmul" and _has(ins, *_SCALED):
            return "fmul.scaled", kinds, [_pick(ins, _SCALED) << 23]
        if set(ins.modifiers) - _OF_FLOATS:
            raise Unreadable(ins.mnemonic)
        return name, kinds, []

    return form


def _has(ins: sass.Instruction, *names: str) -> bool:
    return any(name in ins.modifiers for name in names)


def _pick(ins: sass.Instruction, table: Mapping[str, int], other: int | None = None) -> int:
    value = next((table[name] for name in ins.modifiers if name in table), other)
    if value is None:
        raise Unreadable(ins.mnemonic)
    return value


def _compared(kind: str) -> Callable[[sass.Instruction, list[str]], tuple[str, str, list[int]]]:
    def form(ins: sass.Instruction, operands: list[str]) -> tuple[str, str, list[int]]:
        modes = [RELATIONS.get(ins.modifiers[0], 0), _pick(ins, JOINED), int(_has(ins, "EX"))]
        if kind == "x" and _has(ins, *_OF_PAIRS):
            return ("isetp.u64" if _has(ins, "U64") else "isetp.s64"), "ppwwck", modes
        if kind == "x":
            return ("isetp.u32" if _has(ins, "U32") else "isetp.s32"), "ppxxck", modes
        if ins.modifiers[0] in ("MAX", "MIN"):
            modes[2] = 1 if ins.modifiers[0] == "MAX" else 2
        elif ins.modifiers[0] not in RELATIONS:
            raise Unreadable(ins.mnemonic)
        return ("dsetp" if kind == "r" else "fsetp"), f"pp{kind}{kind}c", modes

    return form


def _multiply(ins: sass.Instruction, operands: list[str]) -> tuple[str, str, list[int]]:
    if _has(ins, "WIDE", "HI"):
        return "imad.wide", "dpxxwk", [int(not _has(ins, "U32")), int(_has(ins, "HI"))]
    return ("imad.x" if _has(ins, "X") else "imad"), "dxxxk", []


def _move(ins: sass.Instruction, operands: list[str]) -> tuple[str, str, list[int]]:
    return ("mov.64", "dw", []) if _has(ins, "64") else ("mov", "dx", [])


def _add_two(ins: sass.Instruction, operands: list[str]) -> tuple[str, str, list[int]]:
    writes_carry = PREDICATE.fullmatch(operands[1]) is not None
    if _has(ins, "X") or writes_carry:
        operands.insert(3 + writes_carry, "RZ")
        return "iadd3.carry", "dppxxxkk", []
    return ("iadd.64", "dww", []) if _has(ins, "64") else ("iadd3", "dxx", [])


def _add(ins: sass.Instruction, operands: list[str]) -> tuple[str, str, list[int]]:
    if _has(ins, "64"):
        _drop_predicates(ins, operands)
        return "iadd3.64", "dwww", []
    carries = _has(ins, "X") or PREDICATE.fullmatch(operands[1])
    return ("iadd3.carry" if carries else "iadd3"), "dppxxxkk", []


def _shift_and_add(ins: sass.Instruction, operands: list[str]) -> tuple[str, str, list[int]]:
    if not _has(ins, "HI"):
        return "lea", "dpxxik", [0, 0]
    return "lea", "dpxxik" if _has(ins, "SX32") else "dpxxxik", [1, int(_has(ins, "SX32"))]


def _logic(ins: sass.Instruction, operands: list[str]) -> tuple[str, str, list[int]]:
    return "lop3", "pdxxxik", [int(not _has(ins, "PAND"))]


def _shift(ins: sass.Instruction, operands: list[str]) -> tuple[str, str, list[int]]:
    kind = _pick(ins, {"U32": 0, "S32": 1, "U64": 2, "S64": 3})
    return "shf", "dxxx", [int(_has(ins, "R")), int(_has(ins, "HI")), int(_has(ins, "W")), kind]


def _halves(name: str, count: int) -> Callable[[sass.Instruction, list[str]], tuple[str, str, list[int]]]:
    def form(ins: sass.Instruction, operands: list[str]) -> tuple[str, str, list[int]]:
        if _has(ins, "F32"):
            if operands[1].lstrip("-") != "RZ":
                raise Unreadable(ins.mnemonic)
            del operands[1]
            return "hadd2.f32", "dh", []
        # ptxas encodes a move of a constant into a register in this form.
        zeros = [operand.lstrip("-") for operand in operands[1:3]] == ["RZ", "RZ"]
        if count == 3 and zeros and NUMBER.fullmatch(operands[3]) and len(ins.modifiers) <= 1:
            del operands[1:3]
            return "mov", "dh", []
        return f"{name}.{'bf16' if any('BF16' in m for m in ins.modifiers) else 'f16'}", "d" + "h" * count, []

    return form


def _to_float(ins: sass.Instruction, operands: list[str]) -> tuple[str, str, list[int]]:
    size = next((m for m in ins.modifiers if re.fullmatch(r"[US](8|16|32|64)", m)), "S32")
    part = re.fullmatch(r"(.*)\.([BH])(\d)", operands[1].replace(".reuse", ""))
    bits = int(size[1:])
    if part:
        operands[1] = part[1]
    first = int(part[3]) * (8 if part[2] == "B" else 16) if part and bits < 32 else 0
    cut = (32 - bits) << 8 | (32 - bits - first) if bits < 32 else 0
    wide = bits == 64
    return "i2f", "dw" if wide else "dx", [int(size[0] == "S"), int(wide), int(_has(ins, "F64")), cut]


def _special_function(ins: sass.Instruction, operands: list[str]) -> tuple[str, str, list[int]]:
    name = ins.modifiers[0].lower()
    if name.endswith("64h") and NUMBER.fullmatch(operands[1]):
        operands[1] = hex(number_bits(operands[1], "r"))  # the constant is the upper word of a float64
    return f"mufu.{name}", "df", []


def _to_integer(ins: sass.Instruction, operands: list[str]) -> tuple[str, str, list[int]]:
    if _has(ins, "U8", "S8", "U16", "S16", "F16"):
        raise Unreadable(ins.mnemonic)
    double, wide = _has(ins, "F64"), _has(ins, "U64", "S64")
    return "f2i", "dr" if double else "df", [
        int(not _has(ins, "U32", "U64")), int(wide), int(double), _pick(ins, WHOLE, 0),
    ]  # fmt: skip


def _float_to_float(ins: sass.Instruction, operands: list[str]) -> tuple[str, str, list[int]]:
    into, of = [m for m in ins.modifiers if m in ("F64", "F32", "F16", "BF16")]
    if (into, of) in (("F32", "F32"), ("F32", "F16")):
        raise Unreadable(ins.mnemonic)
    return f"f2f.{into.lower()}.{of.lower()}", "dr" if of == "F64" else "df", []


def _packed(ins: sass.Instruction, operands: list[str]) -> tuple[str, str, list[int]]:
    if set(ins.modifiers) - {"F16", "BF16", "F32", "PACK_AB"}:
        raise Unreadable(ins.mnemonic)
    return f"f2fp.{'bf16' if _has(ins, 'BF16') else 'f16'}", "dff", []


def _find_leading(ins: sass.Instruction, operands: list[str]) -> tuple[str, str, list[int]]:
    return f"flo{'.sh' if _has(ins, 'SH') else ''}{'.u32' if _has(ins, 'U32') else '.s32'}", "dpx", []


def _extend(ins: sass.Instruction, operands: list[str]) -> tuple[str, str, list[int]]:
    return f"sgxt.{'u32' if _has(ins, 'U32') else 's32'}", "dxx", [int(_has(ins, "W"))]


def _drop_predicates(ins: sass.Instruction, operands: list[str]) -> None:
    """Remove the two predicates after the result, which code for sm_100 has; raise Unreadable if they are written."""
    if operands[1:3] not in (["PT", "PT"], ["UPT", "UPT"]):
        raise Unreadable(ins.mnemonic)
    del operands[1:3]


def _least(name: str) -> Callable[[sass.Instruction, list[str]], tuple[str, str, list[int]]]:
    def form(ins: sass.Instruction, operands: list[str]) -> tuple[str, str, list[int]]:
        if name == "min" and _has(ins, *_OF_PAIRS):
            # Two predicates are written, and two are read; the second of these is unknown, so it must be equal.
            if operands[:2] != ["PT", "PT"] or operands[-1] != operands[-2]:
                raise Unreadable(ins.mnemonic)
            operands[:] = operands[2:-1]
            return f"min.{'u64' if _has(ins, 'U64') else 's64'}", "dwwc", []
        if any(m not in ("U32", "S32") for m in ins.modifiers):
            raise Unreadable(ins.mnemonic)
        if PREDICATE.fullmatch(operands[1]):
            _drop_predicates(ins, operands)
        return f"{name}.{'u32' if _has(ins, 'U32') else 's32'}", "dxxc" if name == "min" else "dxxxc", []

    return form


def _vote(ins: sass.Instruction, operands: list[str]) -> tuple[str, str, list[int]]:
    modes = [{"ANY": 0, "ALL": 1, "EQ": 2}[ins.modifiers[0]], int(ins.opcode == "VOTEU")]
    return "vote", "pc" if PREDICATE.fullmatch(operands[0]) else "dpc", modes


def _constant(ins: sass.Instruction, operands: list[str]) -> tuple[str, str, list[int]]:
    match = CONSTANT.fullmatch(operands[1])
    if match is None:
        raise Unreadable(operands[1])
    if not match[2] and not set(ins.modifiers) - {"32"}:
        return "mov", "dx", []
    if int(match[1], 16) >= layout.BANKS - 1:
        raise Unreadable(operands[1])
    return "ldc", "dl", [int(_has(ins, "S8", "S16")), int(match[1], 16)]


def _loaded(name: str) -> Callable[[sass.Instruction, list[str]], tuple[str, str, list[int]]]:
    def form(ins: sass.Instruction, operands: list[str]) -> tuple[str, str, list[int]]:
        # A load may write a predicate that tells whether the load was a hit.
        return name, "dpa" if name.startswith("ld") else "ax", [int(_has(ins, "S8", "S16"))]

    return form


def _atomic(ins: sass.Instruction, operands: list[str]) -> tuple[str, str, list[int]]:
    name = "atoms" if ins.opcode == "ATOMS" else "atomg"
    if any(m.startswith(("F16", "BF16", "VEC", "128", "ARRIVE")) for m in ins.modifiers):
        raise Unreadable(ins.mnemonic)
    kind = 2 if _has(ins, "F32", "F64") else 1 if _has(ins, "S32", "S64") else 0
    if _has(ins, "POPC"):
        return name, "da1", [ATOMICS["ADD"], 0, 1]
    how = _pick(ins, ATOMICS)
    values = "vv" if how >= ATOMICS["CAS"] else "v"
    return name, ("a" if ins.opcode in ("RED", "REDG") else "qda") + values, [how, kind]


def _copied(ins: sass.Instruction, operands: list[str]) -> tuple[str, str, list[int]]:
    if len(operands) == 1:  # some versions of nvdisasm print no comma before the descriptor
        operands[:] = re.findall(r"(?:desc\[[^\]]*\])?\[[^\]]*\]", operands[0])
    return "ldgsts", "tac", []


def _branch(ins: sass.Instruction, operands: list[str]) -> tuple[str, str, list[int]]:
    if _has(ins, "DIV"):
        return "bra.div", "x", []
    if any(m not in ("U", "CONV") for m in ins.modifiers):
        raise Unreadable(ins.mnemonic)
    return "bra", "c" if PREDICATE.fullmatch(operands[0]) else "", []


def _to_register(ins: sass.Instruction, operands: list[str]) -> tuple[str, str, list[int]]:
    operands[:] = [operand for operand in operands if operand != "PR"]
    by = 8 * _pick(ins, {"B1": 1, "B2": 2, "B3": 3}, 0)
    return ins.opcode.lower(), "dxx" if ins.opcode == "P2R" else "xx", [by]


def _barrier(ins: sass.Instruction, operands: list[str]) -> tuple[str, str, list[int]]:
    if operands[0] != "0x0" or not _has(ins, "SYNC", "RED") or len(operands) > 1 + _has(ins, "RED"):
        raise Unreadable(f"{ins.mnemonic} {', '.join(operands)}")
    return "bar", "-c", [0, int(_has(ins, "RED"))]


def _barrier_result(ins: sass.Instruction, operands: list[str]) -> tuple[str, str, list[int]]:
    return "b2r", "pd" if PREDICATE.fullmatch(operands[0]) else "dp", [_pick(ins, REDUCED)]


def _moved_barrier(ins: sass.Instruction, operands: list[str]) -> tuple[str, str, list[int]]:
    if re.fullmatch(r"B\d+", operands[0]):
        return "bmov.to", "bx", []
    return "bmov.from", "db", [int(_has(ins, "CLEAR"))]


def _jump(ins: sass.Instruction, operands: list[str]) -> tuple[str, str, list[int]]:
    if ins.opcode == "RET" and not _has(ins, "REL"):
        raise Unreadable(ins.mnemonic)
    return "jump", "j", []


def _warpsync(ins: sass.Instruction, operands: list[str]) -> tuple[str, str, list[int]]:
    return "warpsync", "" if _has(ins, "ALL") else "x", [int(_has(ins, "ALL")), int(_has(ins, "EXCLUSIVE"))]


def _idle(_: sass.Instruction, operands: list[str]) -> tuple[str, str, list[int]]:
    operands.clear()
    return "nop", "", []


FORMS: dict[str, Form] = {
    "MOV": _move, "IMAD": _multiply, "IADD3": _add, "VIADD": _add_two, "LEA": _shift_and_add,
    "LOP3": _logic, "SHF": _shift, "PLOP3": ("plop3", "ppcccii"), "SEL": ("sel", "dxxc"), "FSEL": ("sel", "dffc"),
    "PRMT": ("prmt", "dxxx"), "POPC": ("popc", "dx"), "BREV": ("brev", "dx"), "IABS": ("iabs", "dx"),
    "FLO": _find_leading, "VIMNMX": _least("min"), "IMNMX": _least("min"), "VIADDMNMX": _least("addmin"),
    "VIMNMX3": _least("min3"), "SGXT": _extend,
    "ISETP": _compared("x"), "FSETP": _compared("f"), "DSETP": _compared("r"), "FMNMX": _float("min.f32", "dffc"),
    "FADD": _float("fadd", "dff"), "FMUL": _float("fmul", "dff"), "FFMA": _float("ffma", "dfff"),
    "DADD": _float("dadd", "drr"), "DMUL": _float("dmul", "drr"), "DFMA": _float("dfma", "drrr"),
    "FCHK": _float("fchk", "pff"),
    "HADD2": _halves("hadd2", 2), "HMUL2": _halves("hmul2", 2), "HFMA2": _halves("hfma2", 3),
    "I2F": _to_float, "I2FP": _to_float, "F2I": _to_integer, "F2F": _float_to_float, "F2FP": _packed,
    "FRND": lambda ins, _: ("frnd", "df", [0, 0, 0, _pick(ins, WHOLE, 0)]),
    "MUFU": _special_function,
    "IDP": lambda ins, _: ("idp", "dxxx", [int(m == "S8") for m in ins.modifiers[1:3]]),
    "S2R": ("special", "ds"), "CS2R": lambda ins, _: ("mov" if _has(ins, "32") else "ldc", "dz", [0, 5]),
    "LDC": _constant, "R2UR": ("r2ur", "pdx"), "VOTE": _vote, "REDUX": lambda ins, _: (
        "redux", "dx", [_pick(ins, {n: k for k, n in enumerate(REDUCTIONS)}, 3), int(_has(ins, "S32"))]),
    "MATCH": lambda ins, _: ("match", "pdx", [int(_has(ins, "ALL"))]),
    "SHFL": lambda ins, _: ("shfl", "pdxxx", [{"IDX": 0, "UP": 1, "DOWN": 2, "BFLY": 3}[ins.modifiers[0]]]),
    "P2R": _to_register, "R2P": _to_register,
    "LD": _loaded("ldg"), "LDG": _loaded("ldg"), "LDS": _loaded("lds"), "LDL": _loaded("ldl"),
    "ST": _loaded("stg"), "STG": _loaded("stg"), "STS": _loaded("sts"), "STL": _loaded("stl"), "LDGSTS": _copied,
    "RED": _atomic, "REDG": _atomic, "ATOM": _atomic, "ATOMG": _atomic, "ATOMS": _atomic,
    "BRA": _branch, "BSSY": ("bssy", "b"), "BSYNC": ("bsync", "b"),
    "BREAK": lambda _, operands: ("break", "b" if len(operands) == 1 else "cb", []),
    "BMOV": _moved_barrier, "WARPSYNC": _warpsync, "BAR": _barrier, "B2R": _barrier_result,
    "EXIT": ("exit", "c"), "CALL": ("call", ""), "RET": _jump, "BRX": _jump,
}  # fmt: skip
FORMS |= {"YIELD": ("yield", ""), **dict.fromkeys(IDLE, _idle)}
_WIDTHS = {"128": 16, "64": 8, "F64": 8, "S64": 8, "U64": 8, "U8": 1, "S8": 1, "8": 1, "U16": 2, "S16": 2, "16": 2}


def _form(ins: sass.Instruction, operands: list[str]) -> tuple[str, str, list[int]]:
    opcode = ins.opcode
    if opcode[0] == "U" and opcode[1:] in FORMS:
        opcode = opcode[1:]
    elif opcode not in FORMS:
        opcode = {"S2UR": "S2R", "LDCU": "LDC", "ULDC": "LDC", "VOTEU": "VOTE", "IADD": "VIADD", "CREDUX": "REDUX"}.get(
            opcode, opcode
        )
    form = FORMS.get(opcode)
    if form is None:
        raise Unreadable(ins.mnemonic)
    return (*form, []) if isinstance(form, tuple) else form(ins, operands)


def _row(reader: Reader, ins: sass.Instruction, places: Mapping[str, int]) -> Row:
    """Return an instruction decoded; places: the number of the instruction at each label."""
    operands = [operand.partition(' (*"SpillRefill')[0].strip() for operand in ins.operands if operand]
    guard = condition(ins.guard) if ins.guard else (layout.TRUE, 0)
    if ins.opcode in unknown.OPCODES:
        return Row("nop", {"guard": guard[0], "guard_flip": guard[1]}, writes=[*unknown.written(ins)])
    name, kinds, modes = _form(ins, operands)
    row = Row(name, mode=modes)
    into = operands[0] if operands else ""
    row.fields |= {
        "guard": guard[0], "guard_flip": guard[1],
        "uniform": int(ins.opcode[0] == "U" or ins.opcode in ("S2UR", "LDCU")),
        "flags": _pick(ins, ROUNDING, 0) | FLUSH * _has(ins, "FTZ") | SATURATE * _has(ins, "SAT")
        | RELU * _has(ins, "RELU"),
        "size": next((size for width, size in _WIDTHS.items() if width in ins.modifiers), 4),
    }  # fmt: skip
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
    if ins.opcode == "BRX":
        row.fields["offset"] += ins.address + 16
    if name in ("ldg", "stg", "atomg") and _has(ins, "E"):
        row.fields["wide"] = 64  # for sm_75, and in some forms of CAS, a 64-bit address is printed without .64
    row.mode = immediate + row.mode
    _note_uses(row, ins)
    return row


_PAIRS = (
    "dadd",
    "dmul",
    "dfma",
    "f2f.f64.f32",
    "mov.64",
    "iadd.64",
    "iadd3.64",
    "min.u64",
    "min.s64",
)  # operations that write two registers


def _note_uses(row: Row, ins: sass.Instruction) -> None:
    """Fill in `reads`, `decides` and `writes` of a row.

    `reads` has the sources already. Registers and predicates that the path or the address depends on are added to
    `decides` for operations of `unknown.DECIDES`, and to `reads` for others.
    """
    place, beside = row.fields.get("address", -1), row.fields.get("beside", -1)
    asked = [unknown.predicate(number) for number in (row.fields["guard"], *(number for number, _ in row.conditions))]
    asked += [place, place + (place >= 0 and row.fields["wide"] == 64), beside, beside + (beside >= 0)]
    asked += row.mode[:2] if row.name == "ldgsts" else []
    if row.name in ("jump", "warpsync", "bra.div"):
        asked += row.reads
    (row.decides if row.name in unknown.DECIDES else row.reads).extend(asked)
    if row.name == "p2r":
        row.reads += [unknown.predicate(number) for number in range(layout.TRUE)]
    many = 1
    if row.name in unknown.LOADS or row.name == "ldc":
        many = max(1, row.fields["size"] // 4)
    elif (
        row.name in _PAIRS or (row.name == "imad.wide" and not row.mode[1]) or (row.name == "i2f" and row.mode[2])
        or (row.name == "f2i" and row.mode[1])
    ):  # fmt: skip
        many = 2
    into = row.fields.get("into", -1)
    row.writes += range(into, into + many) if into >= 0 else ()
    wrote = range(layout.TRUE) if row.name == "r2p" else row.predicates
    row.writes += [unknown.predicate(number) for number in wrote]


def _operand(reader: Reader, row: Row, kind: str, operands: list[str], immediate: list[int]) -> None:
    """Decode the next operand, which has a kind of `FORMS`, into the row; remove it from the list.

    Numbers for the mode are appended to `immediate`.
    """
    if kind in "dpqck":
        _destination_or_predicate(reader, row, kind, operands)
    elif kind in "xwfrhv1z":
        place = _value(reader, kind, operands)
        row.sources.append(place)
        many = 2 if kind in "rw" else max(1, row.fields["size"] // 4) if kind == "v" else 1
        row.reads += range(place[0], place[0] + many) if place[0] < layout.CONSTANTS else ()
    elif kind in "isb":
        text = operands.pop(0)
        immediate.append(SPECIAL[text] if kind == "s" else int(text[1:]) if kind == "b" else int(text, 16))
    else:
        _place(reader, row, kind, operands)


def _destination_or_predicate(reader: Reader, row: Row, kind: str, operands: list[str]) -> None:
    """Decode and remove a register that is written (d), or a predicate that is written or read and may be missing."""
    if kind == "d":
        place = reader.register(operands.pop(0).replace(".reuse", ""))
        row.fields["into"] = -1 if place == layout.CONSTANTS else place
        return
    given = condition(operands.pop(0)) if operands and PREDICATE.fullmatch(operands[0]) else None
    if kind in "ck":
        row.conditions.append(given or (layout.TRUE, ALL if kind == "k" else 0))
    elif kind == "p" and given:
        row.predicates.append(-1 if given[0] % 8 == layout.TRUE else given[0])


def _value(reader: Reader, kind: str, operands: list[str]) -> tuple[int, int, int, int, int]:
    """Decode and remove a source operand; return its fields of `layout.SOURCE`."""
    if kind == "1":
        return reader.constant(1), ALL, 0, 0, 0
    text = operands.pop(0)
    if kind == "z":
        return reader.constant(0), ALL, 0, 0, 0
    if kind == "h" and NUMBER.fullmatch(text) and not text.startswith("0x"):
        high, low = number_bits(text, "h"), number_bits(operands.pop(0), "h")
        return reader.constant(high << 16 | low), ALL, 0, 0, 0
    return reader.source(text, "w" if kind == "v" else kind)


def _place(reader: Reader, row: Row, kind: str, operands: list[str]) -> None:
    """Decode and remove an address, or the target of a jump (j)."""
    text = operands.pop(0)
    if kind == "a":
        row.fields |= reader.address(text)
    elif kind == "t":
        to = reader.address(text)
        row.mode += [to["address"], to["beside"], to["offset"]]
    elif kind == "l":
        _constant_address(reader, row, text)
    elif kind == "j":
        # The operand is either `R8 -0x170 (*"BRANCH_TARGETS .L_x_1", ...)`, with an offset from the next instruction,
        # or `R8 (name)`.
        register, *behind = text.split()
        row.sources.append(reader.source(register, "x"))
        row.fields["offset"] = int(behind[0], 16) if behind and behind[0][0] in "-0" else 0
        operands.clear()


def _constant_address(reader: Reader, row: Row, text: str) -> None:
    match = CONSTANT.fullmatch(text)
    assert match is not None
    place = reader.register(match[2]) if match[2] else layout.CONSTANTS
    row.fields["address"] = -1 if place == layout.CONSTANTS else place
    row.fields |= {"offset": int(match[3] or "0", 16), "wide": 32, "scale": 0, "beside": -1}


def decode(items: Sequence[sass.Instruction | str]) -> Decoded:
    """Return a kernel decoded, with its subroutines; items: its instructions and its labels (str), in order.

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
        if ins.operands[:1] == ("R1",) and ins.opcode in ("IADD3", "VIADD"):
            step = next((int(part, 16) for part in ins.operands[1:] if re.fullmatch(r"-?0x[0-9a-f]+", part)), 0)
            stack += max(0, -(step - (1 << 32) if step >> 31 > 0 else step))
    opcodes = {ins.opcode for ins in instructions}
    yields, atomics = "YIELD" in opcodes, not opcodes.isdisjoint(GLOBAL_ATOMICS)
    stored = unknown.stores_unknown(instructions, rows, places)
    return Decoded(tuple(instructions), tuple(rows), tuple(reader.constants), stack, yields, atomics, stored)
