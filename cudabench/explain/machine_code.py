"""What the machine code of a kernel tells: its arithmetic, spills and registers, and, with counts, what ran on it.

Read from the very cubin that is launched, without a GPU. The names of the pipes are those of Nsight Compute ("Hardware
Model"), gathered into eight; which opcode runs on which is NVIDIA's list of instructions ("CUDA Binary Utilities") and,
where that is silent, the pipe of its kind.
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from cudabench.compile import cubin, nvdisasm
from cudabench.compile.sass import Function, Instruction
from cudabench.explain import executed
from cudabench.records.results import MachineCode
from cudabench.simulator.count import order
from cudabench.simulator.report import Access

MOST_ASM = 64  # lines of a piece of inline assembly
PIPES = ("fma", "alu", "fp64", "xu", "lsu", "tensor", "uniform", "control")
_OPCODES = {
    "fma": "FFMA FFMA2 FMUL FMUL2 FADD FADD2 FFMA32I FSWZADD IMAD IMUL IDP IDP4A VIADD HFMA2 HADD2 HMUL2",
    "fp64": "DADD DMUL DFMA DSETP DMNMX",
    "xu": "MUFU I2F F2I F2F I2I FRND POPC FLO BREV",
    "lsu": """
        LD LDG LDS LDL LDSM LDGSTS LDGDEPBAR ST STG STS STL STSM STAS ATOM ATOMG ATOMS RED REDG REDAS SHFL MATCH CCTL
        CCTLL CCTLT MEMBAR ERRBAR FENCE SYNCS QSPC TEX TLD TLD4 TMML TXD TXQ SULD SUST SUATOM SURED UBLKCP UBLKRED
        UTMALDG UTMASTG UTMAREDG UTMAPF UTMACCTL
    """,
    "tensor": "HMMA IMMA DMMA BMMA QMMA OMMA HGMMA IGMMA QGMMA BGMMA UTCHMMA UTCQMMA UTCIMMA UTCOMMA",
    "uniform": "R2UR S2UR VOTEU",
    "control": """
        BRA BRX BRXU JMP JMX JMXU EXIT RET CALL BSSY BSYNC BREAK BMOV BPT KILL NANOSLEEP WARPSYNC YIELD NOP BAR BARRIER
        DEPBAR LDC S2R B2R R2B CS2R LEPC RPCMOV SETLMEMBASE GETLMEMBASE PMTRIG ACQBULK PREEXIT CGAERRBAR UCGABAR_ARV
        UCGABAR_WAIT WARPGROUP WARPGROUPSET USETMAXREG ELECT ENDCOLLECTIVE
    """,
}
_PIPE = {opcode: name for name, opcodes in _OPCODES.items() for opcode in opcodes.split()}


def pipe(instruction: Instruction) -> str:
    """Return the pipe that an instruction occupies.

    fma: float32, float16 and integer multiply-add. alu: other integer, logic, comparison, selection, vote. xu: special
    functions and conversions. lsu: all memory, textures and shuffles. uniform: the datapath that works once for a warp.
    control: branches, barriers, constants and special registers.
    """
    opcode = instruction.opcode
    if opcode in _PIPE:
        return _PIPE[opcode]
    return "uniform" if opcode.startswith("U") else "alu"


# ---------------------------------------------------------------------------------------------------------- arithmetic

ORDER = (
    "float64", "float32", "tf32", "bfloat16", "float16", "float8", "float4", "int8", "int4", "int1", "sparse",
    "approximate",
)  # fmt: skip
_FORMATS = {
    "TF32": "tf32", "BF16": "bfloat16", "BF16_V2": "bfloat16", "F16": "float16", "E4M3": "float8", "E5M2": "float8",
}  # fmt: skip
_HALVES = ("HFMA2", "HADD2", "HMUL2", "HMNMX2", "HSET2", "HSETP2")
# PTX opcodes whose short form only the source brings in, and those that the accurate functions use inside too, there
# always with .ftz.
_ASKED = ("sin", "cos", "lg2", "tanh", "div")
_ASKED_WITHOUT_FTZ = ("ex2", "rcp", "sqrt")


def arithmetic(functions: Iterable[Function], ptx: Sequence[str]) -> tuple[str, ...]:
    """Return the number formats that a kernel computes with or rounds to, in the order of `ORDER`.

    'sparse' stands for tensor cores that leave the zeros of an operand out; 'approximate' for special functions that
    the source asked for by an intrinsic (__sinf, __fdividef), by .approx or by a compiler option. What a plain
    division, expf or rsqrtf uses inside is none: those are accurate.
    """
    found: set[str] = set()
    lines: set[int] = set()
    for function in functions:
        for instruction in function.instructions:
            lines.add(instruction.ptx_line)
            found |= _formats(instruction)
    marks = _asm_marks(tuple(ptx))
    texts = ((ptx[line - 1], _in_asm(marks, line)) for line in lines if 0 < line <= len(ptx))
    if any(_approximate(text, by_hand) for text, by_hand in texts):
        found.add("approximate")
    return tuple(name for name in ORDER if name in found)


def _formats(instruction: Instruction) -> set[str]:
    opcode, modifiers = instruction.opcode, instruction.modifiers
    if "SP" in modifiers and "MMA" in opcode:
        return {"sparse", *_formats(instruction._replace(modifiers=tuple(m for m in modifiers if m != "SP")))}
    if opcode in ("FADD", "FMUL", "FFMA", "FADD2", "FMUL2", "FFMA2", "FFMA32I", "FSWZADD"):
        return {"float32"}
    if opcode in ("DADD", "DMUL", "DFMA", "DMMA"):
        return {"float64"}
    if opcode in ("IMMA", "IGMMA", "IDP", "IDP4A"):
        return {"int4" if {"S4", "U4"} & set(modifiers) and opcode == "IMMA" else "int8"}
    if opcode in ("BMMA", "BGMMA"):
        return {"int1"}
    if opcode in ("OMMA", "UTCOMMA"):
        return {"float4"}
    if opcode in ("QGMMA", "QMMA", "UTCQMMA"):
        return {"float8"}
    if opcode in ("HMMA", "HGMMA", "UTCHMMA"):
        narrow = [_FORMATS[m] for m in modifiers if m in _FORMATS and m != "F16"]
        return {narrow[0] if narrow else "float16"}
    if opcode in _HALVES:
        # ptxas also moves a constant by a multiplication of zeros.
        if opcode == "HFMA2" and sum(op.lstrip("-").startswith("RZ") for op in instruction.operands[1:3]) == 2:
            return set()
        if opcode == "HADD2" and "F32" in modifiers:
            return set()  # a half that is widened
        return {"bfloat16" if any(m.startswith("BF16") for m in modifiers) else "float16"}
    if opcode in ("F2F", "F2FP"):
        # The first format is the one that it rounds to: F2F.F16.F32, F2FP.BF16.F32.PACK_AB.
        formats = [m for m in modifiers if m in _FORMATS or re.fullmatch(r"F32|F64|S\d+|U\d+", m)]
        return {_FORMATS[formats[0]]} if formats and formats[0] in _FORMATS else set()
    return set()


_PTX = re.compile(r"\s*(?:@!?[\w$%]+\s+)?(\w+)((?:\.\w+)*)")


def _approximate(text: str, by_hand: bool) -> bool:
    match = _PTX.match(text)
    if match is None:
        return False
    modifiers = match[2].split(".")
    if "approx" not in modifiers and not (match[1] == "div" and "full" in modifiers):
        return False
    return by_hand or match[1] in _ASKED or (match[1] in _ASKED_WITHOUT_FTZ and "ftz" not in modifiers)


def _in_asm(marks: Sequence[tuple[int, bool]], line: int) -> bool:
    """Whether a line of PTX is inline assembly of the source; marks: of `_asm_marks`."""
    before = bisect_left(marks, (line, False)) - 1
    return before >= 0 and marks[before][0] > line - MOST_ASM and marks[before][1]


@lru_cache(maxsize=8)
def _asm_marks(ptx: tuple[str, ...]) -> tuple[tuple[int, bool], ...]:
    """Return the lines of a PTX text at which inline assembly of the source begins (True) or ends, ascending."""
    marks = ((number, "// begin inline asm" in text) for number, text in enumerate(ptx, 1) if " inline asm" in text)
    return tuple((n, begins) for n, begins in marks if begins or "// end inline asm" in ptx[n - 1])


# -------------------------------------------------------------------------------------------------------- local memory


class LocalAccess(NamedTuple):
    """Local memory that one PTX line moves: bytes a lane, and how often it runs in warps and lanes.

    spill: a value that found no register, rather than an array of the source.
    """

    ptx_line: int
    op: str
    bytes: int
    spill: bool
    warps: float
    lanes: float


_WIDTHS = {"8": 1, "U8": 1, "S8": 1, "16": 2, "U16": 2, "S16": 2, "64": 8, "128": 16}
_LOCAL = re.compile(r"\s*(?:@!?[\w$%]+\s+)?(?:ld|st)\.(?:volatile\.|relaxed\.|weak\.)?(?:local|[a-z]\d|v[248]|[bf]\d)")


def width(instruction: Instruction) -> int:
    """Return the bytes that a memory instruction moves for a lane."""
    return next((_WIDTHS[m] for m in instruction.modifiers if m in _WIDTHS), 4)


def local_accesses(
    functions: Sequence[Function], ptx: Sequence[str], counts: Sequence[Sequence[executed.Count]] | None = None
) -> tuple[LocalAccess, ...]:
    """Return what a kernel loads and stores in local memory, by PTX line; without counts they run 0 times."""
    sums: dict[tuple[int, str, int, bool], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for place, function in enumerate(functions):
        for block in function.blocks:
            times = counts[place][block.number] if counts is not None else executed.Count(0, 0, False)
            for instruction in block.instructions:
                if instruction.opcode in ("LDL", "STL"):
                    op = "load" if instruction.opcode == "LDL" else "store"
                    line = instruction.ptx_line
                    spill = not (0 < line <= len(ptx) and _LOCAL.match(ptx[line - 1]))
                    total = sums[line, op, width(instruction), spill]
                    total[0] += times.warps
                    total[1] += times.lanes
    return tuple(LocalAccess(*key, *total) for key, total in sorted(sums.items()))


def spill_bytes(functions: Iterable[Function], ptx: Sequence[str]) -> int:
    """Return the bytes a thread that the code of a kernel spills and loads back, each instruction counted once."""
    found = 0
    for function in functions:
        for instruction in function.instructions:
            line = instruction.ptx_line
            if instruction.opcode in ("LDL", "STL") and not (0 < line <= len(ptx) and _LOCAL.match(ptx[line - 1])):
                found += width(instruction)
    return found


# ---------------------------------------------------------------------------------------------------------- the record


def begin(image: bytes) -> None:
    """Start to read a cubin beside other work, if nvdisasm is there."""
    if nvdisasm.path() is not None:
        nvdisasm.begin(image)


def read(image: bytes) -> None:
    """Read a cubin now, for forked processes to find it in the cache. Raises DeviceUnusable where that is refused."""
    if nvdisasm.path() is not None:
        nvdisasm.begin(image).result()


class Kernel(NamedTuple):
    """One kernel of a launch: its entry, and how often each PTX line ran, which only the simulator knows."""

    entry: str
    executions: executed.Executions | None = None


class Image(NamedTuple):
    """A cubin, the kernels of it that are launched, and the lines of its PTX where the cubin does not hold them."""

    cubin: bytes
    kernels: Sequence[Kernel]
    ptx: Sequence[str] | None = None


def inexact(images: Sequence[Image], accesses: Iterable[Access] = ()) -> str | None:
    """Return why hardware may execute more or fewer instructions than `describe_all` counts; None where as many.

    accesses: the simulator's, which say where the order of atomics decides how often lanes go round.
    """
    found = dict.fromkeys(row.inexact for row in accesses if row.inexact in order.REPEATED)
    for image in images:
        lines = cubin.ptx(image.cubin).split("\n") if image.ptx is None else image.ptx
        for kernel in image.kernels:
            code = nvdisasm.functions(image.cubin, kernel.entry) if nvdisasm.path() is not None else ()
            found |= dict.fromkeys(executed.beyond(code, kernel.executions or {}, lines))
    return "; ".join(reason for reason in found if reason) or None


def describe_all(images: Sequence[Image], arch: str, ptx: str) -> MachineCode | None:
    """Return the record of all machine code that a result launches, `ptx` being what all of it was assembled from;
    None where there is none. Errors as `describe`."""
    records = [describe(image.cubin, image.kernels, arch, image.ptx) for image in images]
    if not records:
        return None
    return replace(_together(records, arch), ptx_sha256=hashlib.sha256(ptx.encode()).hexdigest())


def _together(records: Sequence[MachineCode], arch: str) -> MachineCode:
    """Return several records as one."""
    if len(records) == 1:
        return records[0]

    def together(values: Sequence[int | None]) -> int | None:
        return None if any(value is None for value in values) else sum(value for value in values if value is not None)

    executed_all = together([record.instructions_executed for record in records])
    lanes = sum((r.instructions_executed or 0) * (r.threads_per_instruction or 0) for r in records)
    pipes = [record.pipes for record in records if record.pipes is not None]
    formats = [record.arithmetic for record in records if record.arithmetic is not None]
    return MachineCode(
        arch=arch,
        sha256=hashlib.sha256("".join(record.sha256 for record in records).encode()).hexdigest(),
        registers=max((record.registers or 0 for record in records), default=0) or None,
        spill_bytes=together([record.spill_bytes for record in records]),
        instructions_executed=executed_all,
        threads_per_instruction=lanes / executed_all if executed_all else None,
        pipes={name: sum(p[name] for p in pipes) for name in PIPES} if len(pipes) == len(records) else None,
        arithmetic=tuple(name for name in ORDER if any(name in f for f in formats))
        if len(formats) == len(records)
        else None,
    )


def describe(image: bytes, kernels: Sequence[Kernel], arch: str, ptx: Sequence[str] | None = None) -> MachineCode:
    """Return the record of the machine code of some kernels of one cubin together.

    image: the cubin; arch: 'sm_90'; ptx: the lines of the compiler's PTX, else those that the cubin holds. Without
    counts of all kernels, what was executed is None. Without nvdisasm the record has what the cubin alone tells, and
    `arithmetic` is None.

    Raises DeviceUnusable where nvdisasm refuses the cubin.
    """
    entries = [kernel.entry for kernel in kernels]
    record = MachineCode(
        arch=arch,
        sha256=cubin.code_sha256(image, entries),
        registers=max((cubin.registers(image, entry) or 0 for entry in entries), default=0) or None,
    )
    if nvdisasm.path() is None:
        return record
    lines = cubin.ptx(image).split("\n") if ptx is None else ptx
    code = {kernel.entry: nvdisasm.functions(image, kernel.entry) for kernel in kernels}
    everything = [function for functions in code.values() for function in functions]
    record = replace(record, spill_bytes=spill_bytes(everything, lines), arithmetic=arithmetic(everything, lines))
    warps = lanes = 0.0
    pipes: Counter[str] = Counter()
    for kernel in kernels:
        if kernel.executions is None:
            return record
        for function, counts in zip(
            code[kernel.entry], executed.count(code[kernel.entry], kernel.executions, lines), strict=True
        ):
            for block, times in zip(function.blocks, counts, strict=True):
                warps += times.warps * len(block.instructions) + times.again
                lanes += times.lanes * len(block.instructions) + times.again_lanes
                for instruction in block.instructions:
                    pipes[pipe(instruction)] += times.warps  # type: ignore[assignment]
                pipes[pipe(block.instructions[-1])] += times.again  # type: ignore[assignment]
    ran = {name: round(pipes[name]) for name in PIPES}
    return replace(
        record, instructions_executed=round(warps), threads_per_instruction=lanes / warps if warps else None, pipes=ran
    )
