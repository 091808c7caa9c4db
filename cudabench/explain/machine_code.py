"""Finds facts about a kernel's machine code: its arithmetic, spills and registers and, with counts, how often it ran.

The facts are read from the same cubin that is launched, without a GPU. The pipes are those of Nsight Compute ("Hardware
Model"), combined into eight. The pipe of an opcode is taken from NVIDIA's list of instructions ("CUDA Binary
Utilities"); an opcode that the list does not contain has the pipe of similar opcodes.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from operator import add
from typing import NamedTuple

from cudabench.compile import cubin, nvdisasm
from cudabench.compile.sass import Function, Instruction
from cudabench.explain import block_counts, machine_code_selection, ptx_text
from cudabench.explain.block_counts import Executions
from cudabench.explain.ptx_text import Line, Text
from cudabench.records.results import MachineCode
from cudabench.simulator.count import order
from cudabench.simulator.machine_code.launch import TABLES
from cudabench.simulator.report import Access, Code, Lines

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


def _by_opcode(names: Mapping[str, str]) -> dict[str, str]:
    return {opcode: name for name, opcodes in names.items() for opcode in opcodes.split()}


_PIPE = _by_opcode(_OPCODES)


def pipe(instruction: Instruction) -> str:
    """Return the name of the pipe that an instruction occupies.

    'fma': float32, float16 and integer multiply-add. 'alu': other integer instructions, logic, comparison, selection,
    vote. 'fp64': float64. 'xu': special functions and conversions. 'lsu': all memory, textures and shuffles. 'tensor':
    tensor cores. 'uniform': the datapath that executes once for a whole warp. 'control': branches, barriers, constants
    and special registers.
    """
    opcode = instruction.opcode
    return _PIPE.get(opcode) or ("uniform" if opcode.startswith("U") else "alu")


# ---------------------------------------------------------------------------------------------------------- arithmetic

ORDER = (
    "float64", "float32", "tf32", "bfloat16", "float16", "float8", "float4", "int8", "int4", "int1", "sparse",
    "approximate",
)  # fmt: skip
_FORMATS = {
    "TF32": "tf32", "BF16": "bfloat16", "BF16_V2": "bfloat16", "F16": "float16", "E4M3": "float8", "E5M2": "float8",
}  # fmt: skip
_COMPUTES = _by_opcode(
    {
        "float32": "FADD FMUL FFMA FADD2 FMUL2 FFMA2 FFMA32I FSWZADD",
        "float64": "DADD DMUL DFMA DMMA",
        "int1": "BMMA BGMMA",
        "float4": "OMMA UTCOMMA",
        "float8": "QGMMA QMMA UTCQMMA",
    }
)
_HALVES = ("HFMA2", "HADD2", "HMUL2", "HMNMX2", "HSET2", "HSETP2")
# PTX opcodes with an approximate form. The compiler uses those of the first list only if the source asks for it. Those
# of the second list are also parts of accurate functions, but there always with .ftz.
_APPROXIMATE = ("sin", "cos", "lg2", "tanh", "div")
_APPROXIMATE_WITHOUT_FTZ = ("ex2", "rcp", "sqrt")


def arithmetic(functions: Iterable[Function], ptx: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the number formats in which a kernel computes or to which it rounds, sorted as in `ORDER`.

    'sparse' is added for tensor instructions that skip the zeros of an operand, and 'approximate' for special functions
    that the source requested by an intrinsic (__sinf, __fdividef), by .approx or by a compiler option. Approximate
    instructions inside a plain division, expf or rsqrtf do not add 'approximate', because those functions are accurate.
    """
    instructions = [instruction for function in functions for instruction in function.instructions]
    names, text = set().union(*map(formats, instructions)), ptx_text.read(ptx)
    if any(_approximate(text[line], line in text.inline_lines) for line in {ins.ptx_line for ins in instructions}):
        names.add("approximate")
    return tuple(name for name in ORDER if name in names)


def formats(instruction: Instruction) -> set[str]:
    """Return the number formats that an instruction computes with or rounds to; 'sparse' as in `arithmetic`."""
    opcode, modifiers = instruction.opcode, instruction.modifiers
    if "SP" in modifiers and "MMA" in opcode:
        return {"sparse", *formats(instruction._replace(modifiers=tuple(m for m in modifiers if m != "SP")))}
    if opcode in _COMPUTES:
        return {_COMPUTES[opcode]}
    if opcode in ("IMMA", "IGMMA", "IDP", "IDP4A"):
        return {"int4" if {"S4", "U4"} & set(modifiers) and opcode == "IMMA" else "int8"}
    if opcode in ("HMMA", "HGMMA", "UTCHMMA"):
        return {next((_FORMATS[m] for m in modifiers if m in _FORMATS and m != "F16"), "float16")}
    if opcode in _HALVES:
        # Two such instructions compute nothing in float16: HFMA2 with a product of zeros, by which ptxas encodes a move
        # of a constant, and HADD2.F32, which converts a half to float32.
        zeros = sum(op.lstrip("-").startswith("RZ") for op in instruction.operands[1:3])
        if (opcode == "HFMA2" and zeros == 2) or (opcode == "HADD2" and "F32" in modifiers):
            return set()
        return {"bfloat16" if any(m.startswith("BF16") for m in modifiers) else "float16"}
    if opcode in ("F2F", "F2FP"):
        # The first format among the modifiers is the format of the result: F2F.F16.F32, F2FP.BF16.F32.PACK_AB.
        first = next((m for m in modifiers if m in _FORMATS or re.fullmatch(r"F32|F64|S\d+|U\d+", m)), "")
        return {_FORMATS[first]} if first in _FORMATS else set()
    return set()


def _approximate(row: Line, by_hand: bool) -> bool:
    approximate = "approx" in row.words or (row.op == "div" and "full" in row.words)
    by_source = by_hand or row.op in _APPROXIMATE or (row.op in _APPROXIMATE_WITHOUT_FTZ and "ftz" not in row.words)
    return approximate and by_source


# -------------------------------------------------------------------------------------------------------- local memory


class LocalAccess(NamedTuple):
    """The accesses to local memory that come from one PTX line.

    `op`: 'load' or 'store'. `bytes`: the bytes that a lane accesses. `spill`: whether the data is a value for which no
    register was left, and not an array of the source. `warps`, `lanes`: how often warps and lanes made the access.
    """

    ptx_line: int
    op: str
    bytes: int
    spill: bool
    warps: float
    lanes: float


_LOCAL = {"LDL": "load", "STL": "store"}
_WIDTHS = {"8": 1, "U8": 1, "S8": 1, "16": 2, "U16": 2, "S16": 2, "64": 8, "128": 16}


def width(instruction: Instruction) -> int:
    """Return the bytes that a memory instruction loads or stores for one lane."""
    return next((_WIDTHS[m] for m in instruction.modifiers if m in _WIDTHS), 4)


def local_accesses(
    functions: Sequence[Function], ptx: Sequence[str], counts: Sequence[Sequence[block_counts.Count]] | None = None
) -> tuple[LocalAccess, ...]:
    """Return a kernel's accesses to local memory, sorted by PTX line. `counts`: the counts of all basic blocks; without
    them, `warps` and `lanes` of an access are 0."""
    text = ptx_text.read(ptx)
    sums: dict[tuple[int, str, int, bool], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for block, times in block_counts.blocks_with_counts(functions, counts):
        for access in (ins for ins in block.instructions if ins.opcode in _LOCAL):
            total = sums[access.ptx_line, _LOCAL[access.opcode], width(access), _spills(access, text)]
            total[0] += times.warps
            total[1] += times.lanes
    return tuple(LocalAccess(*key, *total) for key, total in sorted(sums.items()))


def spill_bytes(functions: Iterable[Function], ptx: Sequence[str]) -> int:
    """Return the bytes that a thread stores and loads because of spills, if each instruction runs once."""
    text = ptx_text.read(ptx)
    local = (ins for function in functions for ins in function.instructions if ins.opcode in _LOCAL)
    return sum(width(instruction) for instruction in local if _spills(instruction, text))


def _spills(instruction: Instruction, text: Text) -> bool:
    """Return whether ptxas added this access to local memory: then the PTX line of the access has no such access."""
    row = text[instruction.ptx_line]
    return row.op not in ("ld", "st") or row.space not in ("local", "generic")


def has_guarded_barrier(functions: Iterable[Function], ptx_line: int) -> bool:
    """Return whether some lanes of a warp may execute the block-wide barrier on a PTX line while the other lanes have
    neither reached the barrier nor ended. This is possible if a BAR instruction of the line has a guard.

    If a branch decides instead which lanes reach the barrier, the compiler puts a WARPSYNC before the barrier, at which
    lanes wait until the other lanes of the warp arrive or end. The tool synccheck of compute-sanitizer reports
    "divergent threads in warp" for a guard, and nothing for a branch (on an H100, in all of some thirty kernels;
    benchmarks/sanitizer).
    """
    instructions = (ins for function in functions for ins in function.instructions if ins.ptx_line == ptx_line)
    return any(ins.opcode == "BAR" and ins.guard for ins in instructions)


_REQUESTS = {
    "LDG": ("global", "load"), "LD": ("global", "load"), "STG": ("global", "store"), "ST": ("global", "store"),
    "LDS": ("shared", "load"), "STS": ("shared", "store"), "ATOMS": ("shared", "atomic"),
    **dict.fromkeys(("ATOMG", "ATOM", "REDG", "RED"), ("global", "atomic")),
}  # fmt: skip
_MEMORY_OPCODES = ("LD", "ST", "ATOM", "RED")  # opcodes of loads, stores and atomics start with one of these
# After an instruction with one of these opcodes, it may be unknown which lanes run together.
_UNKNOWN_ORDER = {"YIELD", "BRX", "BRXU", "JMX", "JMXU"}


def remaining_accesses(
    accesses: Iterable[Access], entry: str, functions: Sequence[Function], ptx: Sequence[str]
) -> tuple[Access, ...]:
    """Return the accesses without the loads, stores and atomics of kernel `entry` that ptxas removed.

    Loads of constant memory are not removed, because the machine code may load constants as operands of other
    instructions. Tensor copies are not removed, because they have other opcodes.
    """
    text = ptx_text.read(ptx)
    lines = {
        ins.ptx_line
        for function in functions
        for ins in function.instructions
        if ins.opcode.startswith(_MEMORY_OPCODES)
    }
    return tuple(
        row
        for row in accesses
        if row.kernel != entry
        or row.space not in ("global", "shared")
        or row.instruction in lines
        or text[row.instruction].op not in ("ld", "st", "atom", "red")
    )


def recounted_accesses(
    accesses: Sequence[Access], entry: str, functions: Sequence[Function], code: Code
) -> tuple[Access, ...]:
    """Return the accesses; accesses of kernel `entry` get the requests, sectors and wavefronts of its machine code.

    The counts of all machine instructions of a PTX line are added; if the line accessed several arrays, the sum is
    divided among the arrays in proportion to their counts from the PTX. An atomic that is a loop in machine code keeps
    its counts from the PTX. An access is left out if its machine code made no requests and it was not merged.
    """
    totals: dict[tuple[int, str, str], list[int]] = defaultdict(lambda: [0, 0])
    counts = code.counts
    for instruction in (ins for function in functions for ins in function.instructions if ins.opcode in _REQUESTS):
        space, op = _REQUESTS[instruction.opcode]
        own = totals[instruction.ptx_line, space, op]
        own[:] = map(add, own, counts[instruction.address][2:])
    before: Counter[tuple[int, str, str]] = Counter()
    keys = [(row.instruction, row.space, row.op) for row in accesses]
    for row, key in zip(accesses, keys, strict=True):
        before[key] += row.sectors or row.wavefronts or 0
    rows = (
        _recounted(row, before[key], *totals[key]) if row.kernel == entry and key in totals and not row.reloads else row
        for row, key in zip(accesses, keys, strict=True)
    )
    return tuple(row for row in rows if row.requests or row.merged)


def _recounted(row: Access, before: int, requests: int, pieces: int) -> Access:
    own = row.sectors or row.wavefronts or 0
    if own == 0 or before == pieces:
        return row
    part = own / before
    grown = row.times(requests * part / row.requests) if row.requests else row
    pieces = round(pieces * part)
    if row.sectors is not None:
        return grown._replace(sectors=pieces, ideal_sectors=min(pieces, grown.ideal_sectors or 0))
    return grown._replace(wavefronts=pieces, ideal_wavefronts=min(pieces, grown.ideal_wavefronts or 0))


# ---------------------------------------------------------------------------------------------------------- the record


def start_disassembly(image: bytes) -> None:
    """Start to disassemble a cubin in the background, if nvdisasm is installed."""
    if nvdisasm.path() is not None:
        nvdisasm.begin(image)


def disassemble(image: bytes) -> None:
    """Disassemble a cubin now, so that forked processes find the result in the cache.

    Raises DeviceUnusable if nvdisasm does not accept the cubin.
    """
    if nvdisasm.path() is not None:
        nvdisasm.begin(image).result()


class Kernel(NamedTuple):
    """One kernel of a launch. `entry`: its name in PTX. `executions`: how often each PTX line ran; None without the
    simulator."""

    entry: str
    executions: Executions | None = None

    @property
    def code(self) -> Code | None:
        """The counts of the kernel's machine code if the simulator executed that code, else None."""
        return block_counts.code_of(self.executions)

    @property
    def not_executed_reason(self) -> str | None:
        """The reason why the kernel's machine code was not executed; None if it was, or if no simulator ran."""
        reason = self.executions.code if isinstance(self.executions, Lines) else None
        return reason if isinstance(reason, str) else None


class Image(NamedTuple):
    """A cubin. `kernels`: the launched kernels of the cubin. `ptx`: the lines of the PTX from which the cubin was made,
    None if the cubin itself contains the PTX."""

    cubin: bytes
    kernels: Sequence[Kernel]
    ptx: Sequence[str] | None = None

    @property
    def lines(self) -> Sequence[str]:
        """The lines of the PTX, from `ptx` or from the cubin."""
        return cubin.ptx(self.cubin).split("\n") if self.ptx is None else self.ptx


def uncertainty(kernel: Kernel, functions: Sequence[Function]) -> str:
    """Return why the counts of a kernel may be wrong: they come from its PTX, although only executing its machine code
    gives correct counts. Return "" if the counts are right."""
    if not kernel.executions or kernel.code is not None or not machine_code_selection.may_diverge(functions):
        return ""
    reason = f" (it was not executed: {kernel.not_executed_reason})" if kernel.not_executed_reason else ""
    return machine_code_selection.UNSURE + reason


def machine_code_accesses(
    accesses: Iterable[Access], kernel: Kernel, functions: Sequence[Function], ptx: Sequence[str]
) -> tuple[Access, ...]:
    """Return the accesses without the accesses of `kernel` that ptxas removed. The remaining accesses of `kernel` get
    the counts of its machine code, if this was executed. `inexact` is the reason why hardware may count differently."""
    code, executions = kernel.code, kernel.executions or {}
    rows = remaining_accesses(accesses, kernel.entry, functions, ptx)
    if code:
        rows, why = recounted_accesses(rows, kernel.entry, functions, code), code.unsettled
        doubtful = _lines_of_unknown_order(functions, why) if why else set()
    else:
        why = uncertainty(kernel, functions)
        doubtful = {line for line, times in executions.items() if why and times.lanes < 32 * times.warps}
    return tuple(
        row._replace(inexact=row.inexact or why) if row.kernel == kernel.entry and row.instruction in doubtful else row
        for row in rows
    )


def _lines_of_unknown_order(functions: Sequence[Function], why: str) -> set[int]:
    """Return the PTX lines of instructions that may run after a YIELD or a jump by table. If a subroutine contains such
    an instruction, return the lines of all instructions. `why`: the reason why the order is unknown."""
    lines, opcodes = set[int](), _UNKNOWN_ORDER | ({"RET"} if TABLES in why else set())
    for function in functions:
        blocks = {block.number: block for block in function.blocks}
        waiting = [block for block in function.blocks if any(ins.opcode in opcodes for ins in block.instructions)]
        if waiting and function.name != function.entry:
            return {ins.ptx_line for other in functions for ins in other.instructions}
        reached = set[int]()
        while waiting:
            block = waiting.pop()
            if block.number not in reached:
                reached.add(block.number)
                lines |= {ins.ptx_line for ins in block.instructions}
                waiting += [blocks[number] for number in block.successors]
    return lines


def inexact(images: Sequence[Image], accesses: Iterable[Access] = ()) -> str | None:
    """Return a text with the reasons why hardware may execute more or fewer instructions than `describe_all` counts;
    None if there is no reason. `accesses`: the simulator's accesses; their `inexact` says where the order of atomics
    decides how often lanes repeat a loop."""
    reasons = dict.fromkeys(row.inexact for row in accesses if row.inexact in order.REPEATED)
    for image in images:
        lines = image.lines
        for kernel in image.kernels:
            code = nvdisasm.functions(image.cubin, kernel.entry) if nvdisasm.path() is not None else ()
            ran = kernel.code
            reasons |= dict.fromkeys(block_counts.undercount_reasons(code, kernel.executions or {}, lines))
            if ran is None:
                reasons |= dict.fromkeys(filter(None, [uncertainty(kernel, code)]))
            elif ran.unsettled:
                reasons[ran.unsettled] = None
    return "; ".join(reason for reason in reasons if reason) or None


def describe_all(images: Sequence[Image], arch: str, ptx: str) -> MachineCode | None:
    """Return the record of all machine code that the launches of a result run; None if `images` is empty.

    `arch`: such as 'sm_90'. `ptx`: the PTX from which the code was assembled. The counts of executed instructions are
    None if a kernel has no `executions`. Without nvdisasm the record has only hashes and registers.

    Raises DeviceUnusable if nvdisasm does not accept a cubin.
    """
    if not images:
        return None
    pairs = [(image, [kernel.entry for kernel in image.kernels]) for image in images]
    hashes = [cubin.code_sha256(image.cubin, names) for image, names in pairs]
    record = MachineCode(
        arch=arch,
        sha256=hashes[0] if len(hashes) == 1 else hashlib.sha256("".join(hashes).encode()).hexdigest(),
        registers=max((cubin.registers(image.cubin, name) or 0 for image, names in pairs for name in names), default=0)
        or None,
        ptx_sha256=hashlib.sha256(ptx.encode()).hexdigest(),
    )
    if nvdisasm.path() is None:
        return record
    spilled, used = 0, set()
    warps = lanes = 0.0
    pipes: Counter[str] = Counter()
    for image in images:
        lines = image.lines
        for entry, executions in image.kernels:
            functions = nvdisasm.functions(image.cubin, entry)
            spilled += spill_bytes(functions, lines)
            used |= set(arithmetic(functions, lines))
            for block, times in block_counts.blocks_with_counts(
                functions, block_counts.count(functions, executions or {})
            ):
                warps += times.warps * len(block.instructions) + times.reissued
                lanes += times.lanes * len(block.instructions) + times.reissued_lanes
                for instruction in block.instructions:
                    pipes[pipe(instruction)] += times.warps  # type: ignore[assignment]
                pipes[pipe(block.instructions[-1])] += times.reissued  # type: ignore[assignment]
    record = replace(record, spill_bytes=spilled, arithmetic=tuple(name for name in ORDER if name in used))
    if any(kernel.executions is None for image in images for kernel in image.kernels):
        return record
    launched = [kernel for image in images for kernel in image.kernels]
    inferred = (
        "; ".join(dict.fromkeys(kernel.not_executed_reason for kernel in launched if kernel.not_executed_reason))
        or None
    )
    return replace(
        record,
        instructions_executed=round(warps),
        threads_per_instruction=lanes / warps if warps else None,
        pipes={name: round(pipes[name]) for name in PIPES},
        counts_from="ptx" if inferred or not all(kernel.code for kernel in launched) else "machine_code",
        counts_from_ptx_since=inferred,
    )
