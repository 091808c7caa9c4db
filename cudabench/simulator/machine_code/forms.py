"""The form of each opcode: the operation of `native/sass_*.cpp` that executes it, and the kinds of its operands."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TypeVar

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
WHOLE = {"TRUNC": 1, "FLOOR": 2, "CEIL": 3}
REDUCED = {"POPC": 0, "AND": 1, "OR": 2}  # the reductions of BAR.RED over the predicates of a block
EIGHT_BITS = ("E4M3", "E5M2")  # the two formats of floats with 8 bits
REDUCTIONS = ("SUM", "MIN", "MAX", "AND", "OR", "XOR")
ATOMICS = {
    name: number
    for number, name in enumerate(("ADD", "MIN", "MAX", "AND", "OR", "XOR", "EXCH", "INC", "DEC", "CAS", "CAST"))
}
# Instructions that do not change what the lanes of a single block compute.
IDLE = (
    "NOP", "DEPBAR", "LDGDEPBAR", "ERRBAR", "CGAERRBAR", "MEMBAR", "CCTL", "FENCE", "PMTRIG", "NANOSLEEP",
    "ENDCOLLECTIVE", "ACQBULK", "PREEXIT", "WARPGROUP",
)  # fmt: skip


# The form of an opcode has the name of the operation, and one letter for the kind of each operand, in order. If it is a
# function, the function returns the name, the letters and the initial mode. d: the register that is written; p: a
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
        if name == "fmul" and has(ins, *_SCALED):
            return "fmul.scaled", kinds, [pick(ins, _SCALED) << 23]
        if set(ins.modifiers) - _OF_FLOATS:
            raise Unreadable(ins.mnemonic)
        return name, kinds, []

    return form


def has(ins: sass.Instruction, *names: str) -> bool:
    """Return whether an instruction has one of these modifiers."""
    return any(name in ins.modifiers for name in names)


def pick(ins: sass.Instruction, table: Mapping[str, T], other: T | None = None) -> T:
    """Return the entry of the first modifier that is in the table, else `other`; raise Unreadable if this is None."""
    value = next((table[name] for name in ins.modifiers if name in table), other)
    if value is None:
        raise Unreadable(ins.mnemonic)
    return value


def _compared(kind: str) -> Callable[[sass.Instruction, list[str]], tuple[str, str, list[int]]]:
    def form(ins: sass.Instruction, operands: list[str]) -> tuple[str, str, list[int]]:
        modes = [RELATIONS.get(ins.modifiers[0], 0), pick(ins, JOINED), int(has(ins, "EX"))]
        if kind == "x" and has(ins, *_OF_PAIRS):
            return ("isetp.u64" if has(ins, "U64") else "isetp.s64"), "ppwwck", modes
        if kind == "x":
            return ("isetp.u32" if has(ins, "U32") else "isetp.s32"), "ppxxck", modes
        if ins.modifiers[0] in ("MAX", "MIN"):
            modes[2] = 1 if ins.modifiers[0] == "MAX" else 2
        elif ins.modifiers[0] not in RELATIONS:
            raise Unreadable(ins.mnemonic)
        return ("dsetp" if kind == "r" else "fsetp"), f"pp{kind}{kind}c", modes

    return form


def _multiply(ins: sass.Instruction, operands: list[str]) -> tuple[str, str, list[int]]:
    if has(ins, "WIDE", "HI"):
        return "imad.wide", "dpxxwk", [int(not has(ins, "U32")), int(has(ins, "HI"))]
    return ("imad.x" if has(ins, "X") else "imad"), "dxxxk", []


def _move(ins: sass.Instruction, operands: list[str]) -> tuple[str, str, list[int]]:
    return ("mov.64", "dw", []) if has(ins, "64") else ("mov", "dx", [])


def _select(ins: sass.Instruction, operands: list[str]) -> tuple[str, str, list[int]]:
    return ("sel.64", "dwwc", []) if has(ins, "64") else ("sel", "dxxc", [])


def _add_two(ins: sass.Instruction, operands: list[str]) -> tuple[str, str, list[int]]:
    if has(ins, "16x2"):
        if any(operand.startswith(("-", "~")) for operand in operands):
            raise Unreadable(ins.mnemonic)
        return "iadd.16x2", "dxx", []
    if has(ins, "ISAT"):
        raise Unreadable(ins.mnemonic)
    writes_carry = PREDICATE.fullmatch(operands[1]) is not None
    if has(ins, "X") or writes_carry:
        operands.insert(3 + writes_carry, "RZ")
        return "iadd3.carry", "dppxxxkk", []
    return ("iadd.64", "dww", []) if has(ins, "64") else ("iadd3", "dxx", [])


def _add(ins: sass.Instruction, operands: list[str]) -> tuple[str, str, list[int]]:
    if has(ins, "64"):
        if PREDICATE.fullmatch(operands[1]):
            _drop_predicates(ins, operands)
        return "iadd3.64", "dwww", []
    carries = has(ins, "X") or PREDICATE.fullmatch(operands[1])
    return ("iadd3.carry" if carries else "iadd3"), "dppxxxkk", []


def _shift_and_add(ins: sass.Instruction, operands: list[str]) -> tuple[str, str, list[int]]:
    if not has(ins, "HI"):
        return "lea", "dpxxik", [0, 0]
    return "lea", "dpxxik" if has(ins, "SX32") else "dpxxxik", [1, int(has(ins, "SX32"))]


def _logic(ins: sass.Instruction, operands: list[str]) -> tuple[str, str, list[int]]:
    return "lop3", "pdxxxik", [int(not has(ins, "PAND"))]


def _shift(ins: sass.Instruction, operands: list[str]) -> tuple[str, str, list[int]]:
    kind = pick(ins, {"U32": 0, "S32": 1, "U64": 2, "S64": 3})
    return "shf", "dxxx", [int(has(ins, "R")), int(has(ins, "HI")), int(has(ins, "W")), kind]


def _halves(name: str, count: int) -> Callable[[sass.Instruction, list[str]], tuple[str, str, list[int]]]:
    def form(ins: sass.Instruction, operands: list[str]) -> tuple[str, str, list[int]]:
        if has(ins, "F32"):
            if operands[1].lstrip("-").partition(".")[0] != "RZ":
                raise Unreadable(ins.mnemonic)
            del operands[1]
            return "hadd2.f32", "dh", []
        # ptxas encodes a move of a constant into a register in this form.
        zeros = [operand.lstrip("-") for operand in operands[1:3]] == ["RZ", "RZ"]
        if count == 3 and zeros and NUMBER.fullmatch(operands[3]) and len(ins.modifiers) <= 1:
            del operands[1:3]
            return "mov", "dh", []
        return f"{name}.{_half_type(ins)}", "d" + "h" * count, []

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
    return "i2f", "dw" if wide else "dx", [int(size[0] == "S"), int(wide), pick(ins, {"F64": 1, "F16": 2}, 0), cut]


def _special_function(ins: sass.Instruction, operands: list[str]) -> tuple[str, str, list[int]]:
    name = ins.modifiers[0].lower()
    if has(ins, "F16"):
        return f"mufu.{name}.f16", "dh", []
    if name.endswith("64h") and NUMBER.fullmatch(operands[1]):
        operands[1] = hex(number_bits(operands[1], "r"))  # the constant is the upper word of a float64
    return f"mufu.{name}", "df", []


def _to_integer(ins: sass.Instruction, operands: list[str]) -> tuple[str, str, list[int]]:
    if has(ins, "U8", "S8", "U16", "S16"):
        raise Unreadable(ins.mnemonic)
    of, wide = pick(ins, {"F64": 1, "F16": 2}, 0), has(ins, "U64", "S64")
    return "f2i", "d" + "frh"[of], [int(not has(ins, "U32", "U64")), int(wide), of, pick(ins, WHOLE, 0)]


def _float_to_float(ins: sass.Instruction, operands: list[str]) -> tuple[str, str, list[int]]:
    into, of = [m for m in ins.modifiers if m in ("F64", "F32", "F16", "BF16")]
    if (into, of) in (("F32", "F32"), ("F32", "F16")):
        raise Unreadable(ins.mnemonic)
    return f"f2f.{into.lower()}.{of.lower()}", "dr" if of == "F64" else "df", []


def _packed(ins: sass.Instruction, operands: list[str]) -> tuple[str, str, list[int]]:
    eight = next((m.lower() for m in ins.modifiers if m in EIGHT_BITS), None)
    if eight and has(ins, "UNPACK_B"):
        return f"f2fp.f16.{eight}", "dh", []
    if eight:
        if not has(ins, "SATFINITE") or not has(ins, "F32"):
            raise Unreadable(ins.mnemonic)
        return f"f2fp.{eight}", "dffx", []
    if set(ins.modifiers) - {"F16", "BF16", "F32", "PACK_AB", "RZ"}:
        raise Unreadable(ins.mnemonic)
    return f"f2fp.{'bf16' if has(ins, 'BF16') else 'f16'}", "dff", []


def _find_leading(ins: sass.Instruction, operands: list[str]) -> tuple[str, str, list[int]]:
    return f"flo{'.sh' if has(ins, 'SH') else ''}{'.u32' if has(ins, 'U32') else '.s32'}", "dpx", []


def _extend(ins: sass.Instruction, operands: list[str]) -> tuple[str, str, list[int]]:
    return f"sgxt.{'u32' if has(ins, 'U32') else 's32'}", "dxx", [int(has(ins, "W"))]


def _drop_predicates(ins: sass.Instruction, operands: list[str]) -> None:
    """Remove the two predicates after the result in code for sm_100; raise Unreadable if they are not both PT."""
    if operands[1:3] not in (["PT", "PT"], ["UPT", "UPT"]):
        raise Unreadable(ins.mnemonic)
    del operands[1:3]


def _least(name: str) -> Callable[[sass.Instruction, list[str]], tuple[str, str, list[int]]]:
    def form(ins: sass.Instruction, operands: list[str]) -> tuple[str, str, list[int]]:
        if name == "min" and has(ins, *_OF_PAIRS):
            # Two predicates are written, and two are read. The meaning of the second predicate that is read is unknown,
            # so it must be the same as the first.
            if operands[:2] != ["PT", "PT"] or operands[-1] != operands[-2]:
                raise Unreadable(ins.mnemonic)
            operands[:] = operands[2:-1]
            return f"min.{'u64' if has(ins, 'U64') else 's64'}", "dwwc", []
        types = [m.lower() for m in ins.modifiers if m != "RELU"] or ["s32"]
        if len(types) > 1 or types[0] not in ("u32", "s32", "u16x2", "s16x2"):
            raise Unreadable(ins.mnemonic)
        if PREDICATE.fullmatch(operands[1]):
            _drop_predicates(ins, operands)
        return f"{name}.{types[0]}", "dxxc" if name == "min" else "dxxxc", []

    return form


def _compared_halves(ins: sass.Instruction, operands: list[str]) -> tuple[str, str, list[int]]:
    into_register = ins.opcode == "HSET2"
    # If both predicates are written, which of them gets which half is unknown.
    if has(ins, "H_AND") or (not into_register and operands[1] != "PT"):
        raise Unreadable(ins.mnemonic)
    modes = [pick(ins, RELATIONS), pick(ins, JOINED), int(has(ins, "BF"))]
    return f"{ins.opcode.lower()}.{_half_type(ins)}", "dhhc" if into_register else "pphhc", modes


def _half_type(ins: sass.Instruction) -> str:
    return "bf16" if any("BF16" in modifier for modifier in ins.modifiers) else "f16"


def _least_halves(ins: sass.Instruction, operands: list[str]) -> tuple[str, str, list[int]]:
    if has(ins, "XORSIGN") or operands[-1] not in ("PT", "!PT"):
        raise Unreadable(ins.mnemonic)
    return f"hmnmx2.{_half_type(ins)}", "dhh", [int(operands.pop() == "PT"), int(has(ins, "NAN"))]


def _differences(ins: sass.Instruction, operands: list[str]) -> tuple[str, str, list[int]]:
    return f"{ins.opcode.lower()}.{'u' if has(ins, 'U32', 'U8') else 's'}", "dxxx", [int(has(ins, "ACC"))]


def _dot(ins: sass.Instruction, operands: list[str]) -> tuple[str, str, list[int]]:
    words = [part for part in ins.modifiers if part not in ("2A", "4A", "LO", "HI")]
    half = pick(ins, {"LO": 0, "HI": 16}, 0)
    return "idp.2a" if has(ins, "2A") else "idp", "dxxx", [*(int(part[0] == "S") for part in words), half]


def _packed_integers(ins: sass.Instruction, operands: list[str]) -> tuple[str, str, list[int]]:
    kind = ins.modifiers[0]
    if not has(ins, "SAT") or ins.modifiers[1] != "S32" or kind not in ("S16", "U16", "S8", "U8"):
        raise Unreadable(ins.mnemonic)
    return "i2ip", "dxxx", [int(kind[1:]), int(kind[0] == "S")]


def _plain(name: str, kinds: str) -> Callable[[sass.Instruction, list[str]], tuple[str, str, list[int]]]:
    """Return the form of an opcode of which no modifier is known."""

    def form(ins: sass.Instruction, operands: list[str]) -> tuple[str, str, list[int]]:
        if ins.modifiers:
            raise Unreadable(ins.mnemonic)
        return name, kinds, []

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
    return "ldc", "dl", [int(has(ins, "S8", "S16")), int(match[1], 16)]


def _loaded(name: str) -> Callable[[sass.Instruction, list[str]], tuple[str, str, list[int]]]:
    def form(ins: sass.Instruction, operands: list[str]) -> tuple[str, str, list[int]]:
        # A load may write a predicate that tells whether the load was a hit.
        return name, "dpa" if name.startswith("ld") else "ax", [int(has(ins, "S8", "S16"))]

    return form


def _atomic(ins: sass.Instruction, operands: list[str]) -> tuple[str, str, list[int]]:
    if has(ins, "CAST") and PREDICATE.fullmatch(operands[0]):
        return "atoms", "pavv", [ATOMICS["CAST"], 0]  # from sm_100, only a predicate says whether a lane stored
    name = "atoms" if ins.opcode == "ATOMS" else "atomg"
    if any(m.startswith(("F16", "BF16", "VEC", "128", "ARRIVE")) for m in ins.modifiers):
        raise Unreadable(ins.mnemonic)
    kind = 2 if has(ins, "F32", "F64") else 1 if has(ins, "S32", "S64") else 0
    if has(ins, "POPC"):
        return name, "da1", [ATOMICS["ADD"], 0, 1]
    how = pick(ins, ATOMICS)
    values = "vv" if how >= ATOMICS["CAS"] else "v"
    return name, ("a" if ins.opcode in ("RED", "REDG") else "qda") + values, [how, kind]


def _copied(ins: sass.Instruction, operands: list[str]) -> tuple[str, str, list[int]]:
    if len(operands) == 1:  # some versions of nvdisasm print no comma before the descriptor
        operands[:] = re.findall(r"(?:desc\[[^\]]*\])?\[[^\]]*\]", operands[0])
    return "ldgsts", "tac", []


def _branch(ins: sass.Instruction, operands: list[str]) -> tuple[str, str, list[int]]:
    if has(ins, "DIV", "CONV"):
        # For sm_75, the mask of all lanes is not printed.
        return "bra.div", "x" if re.match("~?U?R", operands[0]) else "", [int(has(ins, "CONV"))]
    if set(ins.modifiers) - {"U", "ANY"}:
        raise Unreadable(ins.mnemonic)
    return "bra", "c" if PREDICATE.fullmatch(operands[0]) else "", [int(has(ins, "ANY"))]


def _to_register(ins: sass.Instruction, operands: list[str]) -> tuple[str, str, list[int]]:
    operands[:] = [operand for operand in operands if operand not in ("PR", "UPR")]
    by = 8 * pick(ins, {"B1": 1, "B2": 2, "B3": 3}, 0)
    return ins.opcode.replace("U", "").lower(), "xx" if ins.opcode == "R2P" else "dxx", [by]


def _barrier(ins: sass.Instruction, operands: list[str]) -> tuple[str, str, list[int]]:
    number, *rest = operands
    threads = rest.pop(0) if rest and not PREDICATE.fullmatch(rest[0]) else "0x0"
    in_register, reduces = not number.startswith("0x"), has(ins, "RED")
    if not (has(ins, "SYNC", "ARV") or reduces) or not threads.startswith("0x") or (reduces and number != "0x0"):
        raise Unreadable(f"{ins.mnemonic} {', '.join(operands)}")
    operands[:] = [number] * in_register + rest
    modes = [-1 if in_register else int(number, 16), int(reduces), int(threads, 16), int(has(ins, "ARV"))]
    return "bar", "xc" if in_register else "c", modes


def _barrier_result(ins: sass.Instruction, operands: list[str]) -> tuple[str, str, list[int]]:
    return "b2r", "pd" if PREDICATE.fullmatch(operands[0]) else "dp", [pick(ins, REDUCED)]


def _moved_barrier(ins: sass.Instruction, operands: list[str]) -> tuple[str, str, list[int]]:
    if re.fullmatch(r"B\d+", operands[0]):
        return "bmov.to", "bx", []
    return "bmov.from", "db", [int(has(ins, "CLEAR"))]


def _jump(ins: sass.Instruction, operands: list[str]) -> tuple[str, str, list[int]]:
    if ins.opcode == "RET" and not has(ins, "REL"):
        raise Unreadable(ins.mnemonic)
    return "jump", "j", []


def _warpsync(ins: sass.Instruction, operands: list[str]) -> tuple[str, str, list[int]]:
    return "warpsync", "" if has(ins, "ALL") else "x", [int(has(ins, "ALL")), int(has(ins, "EXCLUSIVE"))]


def _idle(_: sass.Instruction, operands: list[str]) -> tuple[str, str, list[int]]:
    operands.clear()
    return "nop", "", []


FORMS: dict[str, Form] = {
    "MOV": _move, "IMAD": _multiply, "IADD3": _add, "VIADD": _add_two, "LEA": _shift_and_add,
    "LOP3": _logic, "SHF": _shift, "PLOP3": ("plop3", "ppcccii"), "SEL": _select, "FSEL": ("sel", "dffc"),
    "FSET": lambda ins, _: ("fset", "dffc", [pick(ins, RELATIONS), pick(ins, JOINED), int(has(ins, "BF"))]),
    "PRMT": _plain("prmt", "dxxx"), "BMSK": _plain("bmsk", "dxx"), "I2IP": _packed_integers,
    "VABSDIFF": _differences, "VABSDIFF4": _differences,
    "POPC": ("popc", "dx"), "BREV": ("brev", "dx"), "IABS": ("iabs", "dx"),
    "FLO": _find_leading, "VIMNMX": _least("min"), "IMNMX": _least("min"), "VIADDMNMX": _least("addmin"),
    "VIMNMX3": _least("min3"), "SGXT": _extend,
    "ISETP": _compared("x"), "FSETP": _compared("f"), "DSETP": _compared("r"), "FMNMX": _float("min.f32", "dffc"),
    "FMNMX3": _float("min3.f32", "dfffc"),
    "FADD": _float("fadd", "dff"), "FMUL": _float("fmul", "dff"), "FFMA": _float("ffma", "dfff"),
    "DADD": _float("dadd", "drr"), "DMUL": _float("dmul", "drr"), "DFMA": _float("dfma", "drrr"),
    "FCHK": _float("fchk", "pff"),
    "HADD2": _halves("hadd2", 2), "HMUL2": _halves("hmul2", 2), "HFMA2": _halves("hfma2", 3),
    "I2F": _to_float, "I2FP": _to_float, "F2I": _to_integer, "F2F": _float_to_float, "F2FP": _packed,
    "FRND": lambda ins, _: (
        *pick(ins, {"F64": ("frnd.f64", "dr"), "F16": ("frnd.f16", "dh")}, ("frnd", "df")),
        [0, 0, 0, pick(ins, WHOLE, 0)],
    ),
    "MUFU": _special_function,
    "IDP": _dot, "HSETP2": _compared_halves, "HSET2": _compared_halves, "HMNMX2": _least_halves,
    "S2R": ("special", "ds"), "CS2R": lambda ins, _: ("mov" if has(ins, "32") else "ldc", "dz", [0, 5]),
    "LDC": _constant, "R2UR": ("r2ur", "pdx"), "VOTE": _vote, "REDUX": lambda ins, _: (
        "redux", "dx", [pick(ins, {n: k for k, n in enumerate(REDUCTIONS)}, 3), int(has(ins, "S32"))]),
    "MATCH": lambda ins, _: ("match", "pdx", [int(has(ins, "ALL"))]),
    "SHFL": lambda ins, _: ("shfl", "pdxxx", [{"IDX": 0, "UP": 1, "DOWN": 2, "BFLY": 3}[ins.modifiers[0]]]),
    "P2R": _to_register, "UP2UR": _to_register, "R2P": _to_register,
    "LD": _loaded("ldg"), "LDG": _loaded("ldg"), "LDS": _loaded("lds"), "LDL": _loaded("ldl"),
    "ST": _loaded("stg"), "STG": _loaded("stg"), "STS": _loaded("sts"), "STL": _loaded("stl"), "LDGSTS": _copied,
    "RED": _atomic, "REDG": _atomic, "ATOM": _atomic, "ATOMG": _atomic, "ATOMS": _atomic,
    "BRA": _branch, "BSSY": ("bssy", "b"), "BSYNC": ("bsync", "b"),
    "BREAK": lambda _, operands: ("break", "b" if len(operands) == 1 else "cb", []),
    "BMOV": _moved_barrier, "WARPSYNC": _warpsync, "BAR": _barrier, "B2R": _barrier_result,
    "EXIT": ("exit", "c"), "CALL": ("call", ""), "RET": _jump, "BRX": _jump, "BRXU": _jump,
    "BPT": lambda ins, _: ("trap", "i", [pick(ins, {"TRAP": 0})]),
}  # fmt: skip
FORMS |= {"YIELD": ("yield", ""), **dict.fromkeys(IDLE, _idle)}


def form_of(ins: sass.Instruction, operands: list[str]) -> tuple[str, str, list[int]]:
    """Return (operation, kinds of the operands, mode) of an instruction; raise Unreadable for an unknown opcode.

    The operands may be changed.
    """
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
