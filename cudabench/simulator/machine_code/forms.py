"""The form of each opcode: the operation of `native/sass_*.cpp` that executes it, and the kinds of its operands."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from cudabench.compile import sass
from cudabench.simulator.machine_code import layout
from cudabench.simulator.machine_code.operands import CONSTANT, NUMBER, PREDICATE, Unreadable, number_bits

T = TypeVar("T")
RELATIONS = {"F": 0, "LT": 1, "EQ": 2, "LE": 3, "GT": 4, "NE": 5, "GE": 6, "NUM": 7, "NAN": 8, "T": 15}
RELATIONS |= {f"{name}U": RELATIONS[name] | 8 for name in ("LT", "EQ", "LE", "GT", "NE", "GE")}
JOINED = {"AND": 0, "OR": 1, "XOR": 2}
SPECIAL = {
    f"SR_{name}": number for number, name in enumerate((
        "TID.X", "TID.Y", "TID.Z", "CTAID.X", "CTAID.Y", "CTAID.Z", "LANEID", "LTMASK", "EQMASK", "LEMASK", "GEMASK",
        "GTMASK", "CgaCtaId", "SWINHI",
    ))
}  # fmt: skip
ROUNDING = {"RZ": 1, "RM": 2, "RP": 3}
FLUSH, SATURATE, RELU = 4, 8, 16
WHOLE = {"TRUNC": 1, "FLOOR": 2, "CEIL": 3, "": 0}
REDUCED = {"POPC": 0, "AND": 1, "OR": 2}  # the reductions of BAR.RED over the predicates of a block
EIGHT_BITS = ("E4M3", "E5M2")  # the two formats of floats with 8 bits
ATOMICS = {
    name: number
    for number, name in enumerate(("ADD", "MIN", "MAX", "AND", "OR", "XOR", "EXCH", "INC", "DEC", "CAS", "CAST"))
}
# Instructions that do not change what the lanes of a single block compute.
IDLE = (
    "NOP", "DEPBAR", "LDGDEPBAR", "ERRBAR", "CGAERRBAR", "MEMBAR", "CCTL", "FENCE", "PMTRIG", "NANOSLEEP",
    "ENDCOLLECTIVE", "ACQBULK", "PREEXIT", "WARPGROUP",
)  # fmt: skip


# The form of an opcode: the name of the operation, one letter for the kind of each operand, and the initial mode.
#
# d: the register that is written, e: the same, but it may be missing; p: a predicate that is written, which may be
# missing; x, w, f, r, h: sources, see `Reader.source`; y: an x that may be missing; c: a predicate that is read, true
# if it is missing; k: the same, but false if it is missing; q: a predicate that must be PT, if it is not missing; i: a
# number that becomes a part of the mode; s: a special register, and b: a barrier, both of which become a part of the
# mode, too; a: an address; t: the address that a copy writes to; l: an address in a constant bank; j: the target of a
# jump; v: a value whose size is that of the access; z: SRZ, read as 0; 0 and 1: these constants, which are not
# operands.
#
# A part of the mode is a number; or a modifier, for 1 if the instruction has it, else 0; or a dict of numbers. A dict
# stands for the entry of its first key that is a modifier of the instruction. Its key "" is for all other instructions;
# without this key, they are unreadable. A function may change the operands, and returns a form.
Form = tuple[Any, ...] | Mapping[str, "Form"] | Callable[[sass.Instruction, list[str]], "Form"]


def has(ins: sass.Instruction, *names: str) -> bool:
    """Return whether an instruction has one of these modifiers."""
    return any(name in ins.modifiers for name in names)


def pick(ins: sass.Instruction, table: Mapping[str, T]) -> T:
    """Return the entry of the first key that is a modifier of the instruction or ""; raise Unreadable without one."""
    for name, value in table.items():
        if not name or name in ins.modifiers:
            return value
    raise Unreadable(ins.mnemonic)


def _only(form: Form, *modifiers: str) -> Form:
    """Return a form for instructions whose modifiers are all among these."""

    def known(ins: sass.Instruction, operands: list[str]) -> Form:
        if set(ins.modifiers).difference(modifiers):
            raise Unreadable(ins.mnemonic)
        return form

    return known


def _float(name: str, kinds: str) -> Form:
    return _only((name, kinds), "FTZ", "SAT", "RN", "RZ", "RM", "RP", "DIVIDE")


def _add_two(ins: sass.Instruction, operands: list[str]) -> Form:
    if has(ins, "16x2"):
        if any(operand.startswith(("-", "~")) for operand in operands):
            raise Unreadable(ins.mnemonic)
        return "iadd.16x2", "dxx"
    if has(ins, "ISAT"):
        raise Unreadable(ins.mnemonic)
    if has(ins, "X") or PREDICATE.fullmatch(operands[1]):
        return "iadd3.carry", "dppxx0kk"
    return ("iadd.64", "dww") if has(ins, "64") else ("iadd3", "dxx")


def _add(ins: sass.Instruction, operands: list[str]) -> Form:
    if has(ins, "64"):
        return "iadd3.64", "dqqwww"
    return "iadd3.carry" if has(ins, "X") or PREDICATE.fullmatch(operands[1]) else "iadd3", "dppxxxkk"


def _halves(name: str, count: int) -> Form:
    def form(ins: sass.Instruction, operands: list[str]) -> Form:
        if has(ins, "F32"):
            if operands[1].lstrip("-").partition(".")[0] != "RZ":
                raise Unreadable(ins.mnemonic)
            del operands[1]
            return "hadd2.f32", "dh"
        # ptxas encodes a move of a constant into a register in this form.
        zeros = [operand.lstrip("-") for operand in operands[1:3]] == ["RZ", "RZ"]
        if count == 3 and zeros and NUMBER.fullmatch(operands[3]) and len(ins.modifiers) <= 1:
            del operands[1:3]
            return "mov", "dh"
        return f"{name}.{_half_type(ins)}", "d" + "h" * count

    return form


def _to_float(ins: sass.Instruction, operands: list[str]) -> Form:
    size = next((m for m in ins.modifiers if re.fullmatch(r"[US](8|16|32|64)", m)), "S32")
    part = re.fullmatch(r"(.*)\.([BH])(\d)", operands[1].replace(".reuse", ""))
    bits = int(size[1:])
    if part:
        operands[1] = part[1]
    first = int(part[3]) * (8 if part[2] == "B" else 16) if part and bits < 32 else 0
    cut = (32 - bits) << 8 | (32 - bits - first) if bits < 32 else 0
    wide = bits == 64
    return "i2f", "dw" if wide else "dx", int(size[0] == "S"), int(wide), {"F64": 1, "F16": 2, "": 0}, cut


def _special_function(ins: sass.Instruction, operands: list[str]) -> Form:
    name = ins.modifiers[0].lower()
    if has(ins, "F16"):
        return f"mufu.{name}.f16", "dh"
    if name.endswith("64h") and NUMBER.fullmatch(operands[1]):
        operands[1] = hex(number_bits(operands[1], "r"))  # the constant is the upper word of a float64
    return f"mufu.{name}", "df"


def _to_integer(ins: sass.Instruction, operands: list[str]) -> Form:
    if has(ins, "U8", "S8", "U16", "S16"):
        raise Unreadable(ins.mnemonic)
    of = pick(ins, {"F64": 1, "F16": 2, "": 0})
    return "f2i", "d" + "frh"[of], int(not has(ins, "U32", "U64")), int(has(ins, "U64", "S64")), of, WHOLE


def _float_to_float(ins: sass.Instruction, operands: list[str]) -> Form:
    into, of = [m for m in ins.modifiers if m in ("F64", "F32", "F16", "BF16")]
    if (into, of) in (("F32", "F32"), ("F32", "F16")):
        raise Unreadable(ins.mnemonic)
    return f"f2f.{into.lower()}.{of.lower()}", "dr" if of == "F64" else "df"


def _packed(ins: sass.Instruction, operands: list[str]) -> Form:
    eight = next((m.lower() for m in ins.modifiers if m in EIGHT_BITS), None)
    if eight and has(ins, "UNPACK_B"):
        return f"f2fp.f16.{eight}", "dh"
    if eight:
        if not has(ins, "SATFINITE") or not has(ins, "F32"):
            raise Unreadable(ins.mnemonic)
        return f"f2fp.{eight}", "dffx"
    return _only({"BF16": ("f2fp.bf16", "dff"), "": ("f2fp.f16", "dff")}, "F16", "BF16", "F32", "PACK_AB", "RZ")


def _least(name: str) -> Form:
    def form(ins: sass.Instruction, operands: list[str]) -> Form:
        if name == "min" and has(ins, "U64", "S64"):
            # Two predicates are written, and two are read. The meaning of the second predicate that is read is unknown,
            # so it must be the same as the first.
            if operands[:2] != ["PT", "PT"] or operands[-1] != operands[-2]:
                raise Unreadable(ins.mnemonic)
            operands[:] = operands[2:-1]
            return "min.u64" if has(ins, "U64") else "min.s64", "dwwc"
        types = [m.lower() for m in ins.modifiers if m != "RELU"] or ["s32"]
        if len(types) > 1 or types[0] not in ("u32", "s32", "u16x2", "s16x2"):
            raise Unreadable(ins.mnemonic)
        return f"{name}.{types[0]}", "dqqxxc" if name == "min" else "dqqxxxc"

    return form


def _compared_halves(ins: sass.Instruction, operands: list[str]) -> Form:
    into_register = ins.opcode == "HSET2"
    # If both predicates are written, which of them gets which half is unknown.
    if has(ins, "H_AND") or (not into_register and operands[1] != "PT"):
        raise Unreadable(ins.mnemonic)
    name = f"{ins.opcode.lower()}.{_half_type(ins)}"
    return name, "dhhc" if into_register else "pphhc", RELATIONS, JOINED, "BF"


def _half_type(ins: sass.Instruction) -> str:
    return "bf16" if any("BF16" in modifier for modifier in ins.modifiers) else "f16"


def _least_halves(ins: sass.Instruction, operands: list[str]) -> Form:
    if has(ins, "XORSIGN") or operands[-1] not in ("PT", "!PT"):
        raise Unreadable(ins.mnemonic)
    return f"hmnmx2.{_half_type(ins)}", "dhh", int(operands.pop() == "PT"), "NAN"


def _dot(ins: sass.Instruction, operands: list[str]) -> Form:
    signs = [int(part[0] == "S") for part in ins.modifiers if part not in ("2A", "4A", "LO", "HI")]
    return "idp.2a" if has(ins, "2A") else "idp", "dxxx", *signs, {"HI": 16, "": 0}


def _packed_integers(ins: sass.Instruction, operands: list[str]) -> Form:
    kind = ins.modifiers[0]
    if not has(ins, "SAT") or ins.modifiers[1] != "S32" or kind not in ("S16", "U16", "S8", "U8"):
        raise Unreadable(ins.mnemonic)
    return "i2ip", "dxxx", int(kind[1:]), int(kind[0] == "S")


def _constant(ins: sass.Instruction, operands: list[str]) -> Form:
    match = CONSTANT.fullmatch(operands[1])
    if match is None:
        raise Unreadable(operands[1])
    if not match[2] and not set(ins.modifiers) - {"32"}:
        return "mov", "dx"
    if int(match[1], 16) >= layout.BANKS - 1:
        raise Unreadable(operands[1])
    return "ldc", "dl", _SIGNED, int(match[1], 16)


def _atomic(ins: sass.Instruction, operands: list[str]) -> Form:
    if has(ins, "CAST") and PREDICATE.fullmatch(operands[0]):
        return "atoms", "pavv", ATOMICS["CAST"], 0  # from sm_100, only a predicate says whether a lane stored
    name = "atoms" if ins.opcode == "ATOMS" else "atomg"
    if any(m.startswith(("F16", "BF16", "VEC", "128", "ARRIVE")) for m in ins.modifiers):
        raise Unreadable(ins.mnemonic)
    if has(ins, "POPC"):
        return name, "da1", ATOMICS["ADD"], 0, 1
    how = pick(ins, ATOMICS)
    kinds = ("a" if ins.opcode in ("RED", "REDG") else "qda") + ("vv" if how >= ATOMICS["CAS"] else "v")
    return name, kinds, how, {"F32": 2, "F64": 2, "S32": 1, "S64": 1, "": 0}


def _copied(ins: sass.Instruction, operands: list[str]) -> Form:
    if len(operands) == 1:  # some versions of nvdisasm print no comma before the descriptor
        operands[:] = re.findall(r"(?:desc\[[^\]]*\])?\[[^\]]*\]", operands[0])
    return "ldgsts", "tac"


def _to_register(ins: sass.Instruction, operands: list[str]) -> Form:
    operands[:] = [operand for operand in operands if operand not in ("PR", "UPR")]
    kinds = "xx" if ins.opcode == "R2P" else "dxx"
    return ins.opcode.replace("U", "").lower(), kinds, {"B1": 8, "B2": 16, "B3": 24, "": 0}


def _barrier(ins: sass.Instruction, operands: list[str]) -> Form:
    number, *rest = operands
    threads = rest.pop(0) if rest and not PREDICATE.fullmatch(rest[0]) else "0x0"
    in_register, reduces = not number.startswith("0x"), has(ins, "RED")
    if not (has(ins, "SYNC", "ARV") or reduces) or not threads.startswith("0x") or (reduces and number != "0x0"):
        raise Unreadable(f"{ins.mnemonic} {', '.join(operands)}")
    operands[:] = [number] * in_register + rest
    kinds, bar = ("xc", -1) if in_register else ("c", int(number, 16))
    return "bar", kinds, bar, "RED", int(threads, 16), "ARV"


def _moved_barrier(ins: sass.Instruction, operands: list[str]) -> Form:
    return ("bmov.to", "bx") if re.fullmatch(r"B\d+", operands[0]) else ("bmov.from", "db", "CLEAR")


def _idle(_: sass.Instruction, operands: list[str]) -> Form:
    operands.clear()
    return "nop", ""


_RELATION = (RELATIONS | {"": 0}, JOINED, "EX")  # the mode of a comparison of integers
_FLOAT_RELATION = (RELATIONS | {"MAX": 0, "MIN": 0}, JOINED, {"MAX": 1, "MIN": 2, "": 0})
_WIDE = ("imad.wide", "dpxxwk", {"U32": 0, "": 1}, "HI")
_SIGNED = {"S8": 1, "S16": 1, "": 0}
_VOTES = {"ANY": 0, "ALL": 1, "EQ": 2}
# The factors 1/8 to 8, as bits of float32.
_SCALED = {"D8": 124 << 23, "D4": 125 << 23, "D2": 126 << 23, "M2": 128 << 23, "M4": 129 << 23, "M8": 130 << 23}
FORMS: dict[str, Form] = {
    "MOV": {"64": ("mov.64", "dw"), "": ("mov", "dx")},
    "SEL": {"64": ("sel.64", "dwwc"), "": ("sel", "dxxc")},
    "FSEL": ("sel", "dffc"),
    "IMAD": {"WIDE": _WIDE, "HI": _WIDE, "X": ("imad.x", "dxxxk"), "": ("imad", "dxxxk")},
    "IADD3": _add,
    "VIADD": _add_two,
    "LEA": {
        "HI": {"SX32": ("lea", "dpxxik", 1, 1), "": ("lea", "dpxxxik", 1, 0)},
        "": ("lea", "dpxxik", 0, 0),
    },
    "LOP3": ("lop3", "pdxxxik", {"PAND": 0, "": 1}),
    "PLOP3": ("plop3", "ppcccii"),
    "SHF": ("shf", "dxxx", "R", "HI", "W", {"U32": 0, "S32": 1, "U64": 2, "S64": 3}),
    "PRMT": _only(("prmt", "dxxx")),
    "BMSK": _only(("bmsk", "dxx")),
    "I2IP": _packed_integers,
    "VABSDIFF": {"U32": ("vabsdiff.u", "dxxx", "ACC"), "": ("vabsdiff.s", "dxxx", "ACC")},
    "VABSDIFF4": {"U8": ("vabsdiff4.u", "dxxx", "ACC"), "": ("vabsdiff4.s", "dxxx", "ACC")},
    "POPC": ("popc", "dx"), "BREV": ("brev", "dx"), "IABS": ("iabs", "dx"), "IDP": _dot,
    "FLO": {
        "SH": {"U32": ("flo.sh.u32", "dpx"), "": ("flo.sh.s32", "dpx")},
        "": {"U32": ("flo.u32", "dpx"), "": ("flo.s32", "dpx")},
    },
    "SGXT": {"U32": ("sgxt.u32", "dxx", "W"), "": ("sgxt.s32", "dxx", "W")},
    "VIMNMX": _least("min"), "IMNMX": _least("min"), "VIADDMNMX": _least("addmin"), "VIMNMX3": _least("min3"),
    "ISETP": {
        "U64": ("isetp.u64", "ppwwck", *_RELATION), "S64": ("isetp.s64", "ppwwck", *_RELATION),
        "U32": ("isetp.u32", "ppxxck", *_RELATION), "": ("isetp.s32", "ppxxck", *_RELATION),
    },
    "FSETP": ("fsetp", "ppffc", *_FLOAT_RELATION),
    "DSETP": ("dsetp", "pprrc", *_FLOAT_RELATION),
    "FSET": ("fset", "dffc", RELATIONS, JOINED, "BF"),
    "FMNMX": _float("min.f32", "dffc"), "FMNMX3": _float("min3.f32", "dfffc"),
    "FADD": _float("fadd", "dff"), "FFMA": _float("ffma", "dfff"), "FCHK": _float("fchk", "pff"),
    "FMUL": {name: ("fmul.scaled", "dff", factor) for name, factor in _SCALED.items()} | {"": _float("fmul", "dff")},
    "DADD": _float("dadd", "drr"), "DMUL": _float("dmul", "drr"), "DFMA": _float("dfma", "drrr"),
    "HADD2": _halves("hadd2", 2), "HMUL2": _halves("hmul2", 2), "HFMA2": _halves("hfma2", 3),
    "HSETP2": _compared_halves, "HSET2": _compared_halves, "HMNMX2": _least_halves,
    "I2F": _to_float, "I2FP": _to_float, "F2I": _to_integer, "F2F": _float_to_float, "F2FP": _packed,
    "FRND": {
        "F64": ("frnd.f64", "dr", 0, 0, 0, WHOLE), "F16": ("frnd.f16", "dh", 0, 0, 0, WHOLE),
        "": ("frnd", "df", 0, 0, 0, WHOLE),
    },
    "MUFU": _special_function,
    "S2R": ("special", "ds"),
    "CS2R": {"32": ("mov", "dz", 0, 5), "": ("ldc", "dz", 0, 5)},
    "LDC": _constant,
    "R2UR": ("r2ur", "pdx"),
    "VOTE": ("vote", "epc", _VOTES, 0), "VOTEU": ("vote", "epc", _VOTES, 1),
    "REDUX": ("redux", "dx", {"SUM": 0, "MIN": 1, "MAX": 2, "OR": 4, "XOR": 5, "": 3}, "S32"),
    "MATCH": ("match", "pdx", "ALL"),
    "SHFL": ("shfl", "pdxxx", {"IDX": 0, "UP": 1, "DOWN": 2, "BFLY": 3}),
    "P2R": _to_register, "UP2UR": _to_register, "R2P": _to_register,
    # A load may write a predicate that tells whether the load was a hit.
    "LD": ("ldg", "dpa", _SIGNED), "LDG": ("ldg", "dpa", _SIGNED), "LDS": ("lds", "dpa", _SIGNED),
    "LDL": ("ldl", "dpa", _SIGNED),
    "ST": ("stg", "ax", _SIGNED), "STG": ("stg", "ax", _SIGNED), "STS": ("sts", "ax", _SIGNED),
    "STL": ("stl", "ax", _SIGNED),
    "LDGSTS": _copied,
    "RED": _atomic, "REDG": _atomic, "ATOM": _atomic, "ATOMG": _atomic, "ATOMS": _atomic,
    # For sm_75, the mask of all lanes is not printed.
    "BRA": {
        "DIV": ("bra.div", "y", 0), "CONV": ("bra.div", "y", 1), "": _only(("bra", "c", "ANY"), "U", "ANY"),
    },
    "BSSY": ("bssy", "b"), "BSYNC": ("bsync", "b"), "BMOV": _moved_barrier,
    "BREAK": ("break", "cb"),
    "WARPSYNC": {"ALL": ("warpsync", "", 1, "EXCLUSIVE"), "": ("warpsync", "x", 0, "EXCLUSIVE")},
    "BAR": _barrier,
    "B2R": ("b2r", "pdp", REDUCED),
    "EXIT": ("exit", "c"), "CALL": ("call", ""), "RET": {"REL": ("jump", "j")}, "BRX": ("jump", "j"),
    "BRXU": ("jump", "j"), "BPT": ("trap", "i", {"TRAP": 0}), "YIELD": ("yield", ""), **dict.fromkeys(IDLE, _idle),
}  # fmt: skip
_SAME = {"S2UR": "S2R", "LDCU": "LDC", "IADD": "VIADD", "CREDUX": "REDUX"}


def form_of(ins: sass.Instruction, operands: list[str]) -> tuple[str, str, list[int]]:
    """Return (operation, kinds of the operands, mode) of an instruction; raise Unreadable for an unknown opcode.

    The operands may be changed.
    """
    opcode = ins.opcode
    if opcode[0] == "U" and opcode[1:] in FORMS:
        opcode = opcode[1:]
    form = FORMS.get(opcode) or FORMS.get(_SAME.get(opcode, ""))
    if form is None:
        raise Unreadable(ins.mnemonic)
    while not isinstance(form, tuple):
        form = form(ins, operands) if callable(form) else pick(ins, form)
    name, kinds, *modes = form
    numbers = [pick(ins, mode) if isinstance(mode, dict) else mode for mode in modes]
    return name, kinds, [int(mode in ins.modifiers) if isinstance(mode, str) else mode for mode in numbers]
