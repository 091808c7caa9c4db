"""Two revisions of a source, or two kernels, side by side: machine code, counts and times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from cudabench.occupancy import Occupancy
from cudabench.records.results import Result, Status


@dataclass(frozen=True)
class CodeFigures:
    """One kernel's machine code on one architecture, and the simulator's counts of its launch."""

    sha256: Annotated[str, "Hash of the instructions alone."]
    registers: Annotated[int, "Registers per thread."]
    shared_bytes: Annotated[int, "Shared memory per block, static and dynamic."]
    local_bytes: Annotated[int, "Local memory per thread."]
    instructions: Annotated[
        int | None, "Machine instructions of the code; null if it was not disassembled, as equal code is not."
    ] = None
    spill_bytes: Annotated[
        int | None, "Bytes that a thread's code stores and loads for want of registers, each instruction once."
    ] = None
    arithmetic: Annotated[tuple[str, ...] | None, "Number formats of its arithmetic and rounding."] = None
    occupancy: Annotated[
        Occupancy | None, "Blocks and warps that fit a multiprocessor; null if its limits are not known."
    ] = None
    sectors: Annotated[int | None, "Sectors of global and local memory together; null if not simulated."] = None
    wavefronts: Annotated[int | None, "Wavefronts of shared memory."] = None
    instructions_executed: Annotated[int | None, "Warp-level machine instructions of the launch."] = None
    status: Annotated[Status | None, "Outcome of the simulated launch; null without a launch."] = None
    reason: Annotated[str | None, "Why the status is not ok, in a sentence."] = None


@dataclass(frozen=True)
class LineChange:
    """A source line whose code or counts differ."""

    file: Annotated[str, "The header that the line is in; empty for the source itself."]
    old_line: Annotated[int | None, "The line's number in the old source; null for a new line."]
    new_line: Annotated[int | None, "The line's number in the new source; null for a removed line."]
    source: Annotated[str, "Text of the line in the new source; of a removed line, in the old source."]
    old_instructions: Annotated[int, "Machine instructions that came from the line in the old code."]
    new_instructions: Annotated[int, "The same in the new code."]
    old_sectors: Annotated[int | None, "Sectors of the line's accesses; null if they were not simulated."] = None
    new_sectors: Annotated[int | None, "The same of the new source."] = None
    old_wavefronts: Annotated[int | None, "Wavefronts of the line's accesses; null if they were not simulated."] = None
    new_wavefronts: Annotated[int | None, "The same of the new source."] = None


@dataclass(frozen=True)
class FirstChange:
    """The first instruction that differs, in the order of the code; preferably with a known source line."""

    kind: Annotated[
        Literal["opcode", "operands"],
        "opcode: the instruction is another. operands: all instructions are the same, but registers or numbers differ.",
    ]
    position: Annotated[
        int, "Number of the instruction in the new code, from 0; in the old code if the new code is shorter."
    ]
    old: Annotated[str, "The old instruction; empty if the old code is shorter."]
    new: Annotated[str, "The new instruction; empty if the new code is shorter."]
    file: Annotated[str, "The instruction's header; empty for the source itself."]
    line: Annotated[
        int | None, "The instruction's line in the new source; in the old source if the new code is shorter."
    ]
    source: Annotated[str, "Text of that line."]


@dataclass(frozen=True)
class CodeDifference:
    """One kernel of two revisions of a source on one architecture."""

    kernel: Annotated[str, "Name of the kernel, in the new source."]
    arch: Annotated[str, "Architecture, such as sm_90."]
    verdict: Annotated[
        Literal["same", "changed", "added", "removed", "failed", "mended", "unsupported"],
        "same: the same instructions on the same data and resources, so there is nothing to measure. failed: only the "
        "new source does not compile. mended: only the old one does not. unsupported: neither compiles.",
    ]
    line: Annotated[int, "Line of the kernel in the new source, in the old one where it is only there."]
    threads: Annotated[int, "Threads of a block, for the occupancy."]
    old: Annotated[CodeFigures | None, "The old code; null without it."] = None
    new: Annotated[CodeFigures | None, "The new code; null without it."] = None
    changed: Annotated[
        tuple[str, ...],
        "What differs, by name: code, data, registers, spills, shared, local, occupancy, instructions, arithmetic, "
        "sectors, wavefronts, executed.",
    ] = ()
    first: Annotated[FirstChange | None, "The first instruction that differs, or null."] = None
    lines: Annotated[tuple[LineChange, ...], "Source lines whose code or counts differ, most changed first."] = ()
    reason: Annotated[str | None, "Why a side does not compile, in one sentence."] = None


@dataclass(frozen=True)
class Ab:
    """Two kernels whose samples were interleaved in one run: the i-th samples of both are a pair."""

    old_label: Annotated[str, "Name of the old side."]
    new_label: Annotated[str, "Name of the new side."]
    old: Annotated[Result, "The result of the old side."]
    new: Annotated[Result, "The result of the new side."]
    verdict: Annotated[
        Literal["faster", "slower", "same", "unclear", "same code", "wrong", "failed"],
        "The verdict on the new side. faster, slower: the whole interval lies on one side of 1. same: it holds 1 and "
        "stays within 0.5%, twice the noise, or the threshold. same code: nothing was measured.",
    ]
    ratio: Annotated[float | None, "Time of the new side over the old side's, from their pairs."] = None
    ratio_low: Annotated[float | None, "Lower end of the ratio's 99% interval."] = None
    ratio_high: Annotated[float | None, "Upper end of the ratio's 99% interval."] = None
    pairs: Annotated[int, "Pairs of samples."] = 0
    noise: Annotated[float, "How much two equal kernels may differ, as a fraction; the interval includes it."] = 0.0
    reason: Annotated[str | None, "Why a verdict is missing, in a sentence."] = None
