"""What two revisions of a source, or two kernels, have in common: machine code, counts and times side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from cudabench.occupancy import Occupancy
from cudabench.records.results import Result, Status


@dataclass(frozen=True)
class CodeFigures:
    """What one kernel's machine code needs on one architecture, and what the simulator counted of its launch."""

    sha256: Annotated[str, "Hash of the instructions alone."]
    registers: Annotated[int, "Registers per thread."]
    shared_bytes: Annotated[int, "Shared memory per block, static and dynamic."]
    local_bytes: Annotated[int, "Local memory per thread."]
    instructions: Annotated[
        int | None, "Machine instructions of the code; null where it was not disassembled, as the same code is not."
    ] = None
    spill_bytes: Annotated[
        int | None, "Bytes that a thread's code stores and loads for want of registers, each instruction once."
    ] = None
    arithmetic: Annotated[tuple[str, ...] | None, "Number formats that it computes in or rounds to."] = None
    occupancy: Annotated[Occupancy | None, "What fits a multiprocessor; null where its limits are not known."] = None
    sectors: Annotated[int | None, "Sectors of global and local memory; null where the launch was not simulated."] = (
        None
    )
    wavefronts: Annotated[int | None, "Wavefronts of shared memory."] = None
    instructions_executed: Annotated[int | None, "Warp-level machine instructions of the launch."] = None
    status: Annotated[Status | None, "What came of the simulated launch; null where there was none."] = None
    reason: Annotated[str | None, "Why that is not ok, in a sentence."] = None


@dataclass(frozen=True)
class LineChange:
    """A source line whose code or counts differ."""

    file: Annotated[str, "The header that the line is in; empty for the source itself."]
    old_line: Annotated[int | None, "Its number in the old source; null for a line that is new."]
    new_line: Annotated[int | None, "Its number in the new source; null for a line that is gone."]
    source: Annotated[str, "Text of the line, as it is in the new source where it is there."]
    old_instructions: Annotated[int, "Machine instructions that came from the line in the old code."]
    new_instructions: Annotated[int, "The same in the new code."]
    old_sectors: Annotated[int | None, "Sectors of the line's accesses; null where it was not simulated."] = None
    new_sectors: Annotated[int | None, "The same of the new source."] = None
    old_wavefronts: Annotated[int | None, "Wavefronts of the line's accesses; null where it was not simulated."] = None
    new_wavefronts: Annotated[int | None, "The same of the new source."] = None


@dataclass(frozen=True)
class FirstChange:
    """The first instruction that differs, in the order of the code; of those that a source line is known of, if any."""

    kind: Annotated[
        Literal["opcode", "operands"],
        "opcode: another instruction stands there. operands: all instructions are the same, and registers or numbers "
        "differ.",
    ]
    position: Annotated[
        int, "Number of the instruction in the new code, from 0; in the old code where the new one has ended."
    ]
    old: Annotated[str, "The old instruction; empty where the old code has ended."]
    new: Annotated[str, "The new instruction; empty where the new code has ended."]
    file: Annotated[str, "The header that it came from; empty for the source itself."]
    line: Annotated[int | None, "The line of the new source that it came from, of the old one where the code ended."]
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
    threads: Annotated[int, "Threads a block that the occupancy is of."]
    old: Annotated[CodeFigures | None, "The old code; null where there is none."] = None
    new: Annotated[CodeFigures | None, "The new code; null where there is none."] = None
    changed: Annotated[
        tuple[str, ...],
        "What differs, by name: code, data, registers, spills, shared, local, occupancy, instructions, arithmetic, "
        "sectors, wavefronts, executed.",
    ] = ()
    first: Annotated[FirstChange | None, "The first instruction that differs; null where none does."] = None
    lines: Annotated[tuple[LineChange, ...], "Source lines whose code or counts differ, most changed first."] = ()
    reason: Annotated[str | None, "Why a side does not compile, in its first sentence."] = None


@dataclass(frozen=True)
class Ab:
    """Two kernels whose samples were interleaved in one run: the i-th samples of both are a pair."""

    old_label: Annotated[str, "What the old side is called."]
    new_label: Annotated[str, "What the new side is called."]
    old: Annotated[Result, "The result of the old side."]
    new: Annotated[Result, "The result of the new side."]
    verdict: Annotated[
        Literal["faster", "slower", "same", "unclear", "same code", "wrong", "failed"],
        "Of the new side. faster, slower: the whole interval lies on one side of 1. same: it holds 1 and reaches no "
        "further than 0.5%, twice the noise, or the change that is asked about. same code: nothing was measured.",
    ]
    ratio: Annotated[float | None, "Time of the new side over the old one's, from their pairs."] = None
    ratio_low: Annotated[float | None, "Lower end of its 99% interval."] = None
    ratio_high: Annotated[float | None, "Upper end of its 99% interval."] = None
    pairs: Annotated[int, "Pairs of samples."] = 0
    noise: Annotated[float, "What two equal kernels may differ by, as a fraction; the interval has it in."] = 0.0
    reason: Annotated[str | None, "Why there is no verdict, in a sentence."] = None
