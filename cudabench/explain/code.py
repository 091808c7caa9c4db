"""Reads a kernel's machine code, without running it: the resources it needs, and each instruction's source line."""

from __future__ import annotations

import contextlib
import functools
import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cudabench.compile import cubin, nvdisasm
from cudabench.compile.record import Compiled
from cudabench.errors import UsageError
from cudabench.explain import machine_code, ptx_text
from cudabench.occupancy import occupancy
from cudabench.records.revisions import CodeFigures

_LABEL = re.compile(r"`?\(?\.L_x_\d+\)?")
# A constant bank other than bank 0. Bank 0 holds the kernel's arguments.
_BANK = re.compile(r"\bc\[(?!0x0\])")


@dataclass(frozen=True, order=True)
class SourceLine:
    """A source line. `file`: the name of the header with the line, empty for the source itself. `line`: from 1."""

    file: str
    line: int


@dataclass(frozen=True)
class CodeStep:
    """One machine instruction. `opcode`: the opcode with its guard and modifiers. `operands`: the text of the operands,
    without branch targets, because the numbers in labels change if another function of the file changes. `place`: the
    source line, or None."""

    opcode: str
    operands: str
    place: SourceLine | None

    @property
    def text(self) -> str:
        """The instruction as nvdisasm prints it, without branch targets."""
        return f"{self.opcode} {self.operands}".strip()


@dataclass(frozen=True)
class Code:
    """A kernel's machine code. `figures`: the resources that the kernel needs. `steps`: the instructions, None if the
    code was not disassembled. `data_sha256`: a hash of the constants and other data at fixed addresses that the kernel
    may read."""

    figures: CodeFigures
    steps: tuple[CodeStep, ...] | None
    data_sha256: str

    @property
    def by_line(self) -> Counter[SourceLine]:
        """By source line, how many machine instructions the compiler made from the line."""
        return Counter(step.place for step in self.steps or () if step.place is not None)


def code_of(
    compiled: Compiled, name: str, arch: str, threads: int, shared: int = 0, hidden: Sequence[str] = ()
) -> Code:
    """Return the code of the kernel with C++ name `name` in `compiled`, without disassembling the code.

    `threads`, `shared`: the threads and the bytes of dynamic shared memory of a block, from which the occupancy
    follows. `hidden`: as in `cubin.data_sha256`.
    """
    assert compiled.cubin is not None
    entry = compiled.entry(name)
    needs = compiled.resources[entry]
    figures = CodeFigures(
        sha256=cubin.code_sha256(compiled.cubin, [entry]),
        registers=needs.registers,
        shared_bytes=needs.shared_bytes + shared,
        local_bytes=needs.local_bytes,
    )
    # Occupancy raises UsageError for an architecture that is not in its table.
    with contextlib.suppress(UsageError):
        total = needs.shared_bytes + shared
        figures = replace(figures, occupancy=occupancy(arch, threads, needs.registers, total, barriers=needs.barriers))
    return Code(figures, None, cubin.data_sha256(compiled.cubin, hidden))


def start_disassembly(compiled: Compiled) -> None:
    """Start to disassemble in the background, if nvdisasm is installed."""
    if compiled.cubin is not None:
        machine_code.start_disassembly(compiled.cubin)


def disassembled(code: Code, compiled: Compiled, name: str, filename: str) -> Code:
    """Return `code` with its instructions added; if nvdisasm is not installed, return `code` unchanged.

    `filename`: the name under which the compiler read the source. If the kernel reads no constant bank except its
    arguments, the constants in the file belong to other kernels, and `data_sha256` is set to "".

    Raises DeviceUnusable if nvdisasm does not accept the cubin.
    """
    assert compiled.cubin is not None
    if nvdisasm.path() is None:
        return code
    functions = nvdisasm.functions(compiled.cubin, compiled.entry(name))
    ptx, places = compiled.lines, source_lines_of(compiled.lines, filename)
    steps = tuple(
        CodeStep(
            f"@{instruction.guard} {instruction.mnemonic}" if instruction.guard else instruction.mnemonic,
            _LABEL.sub("", ", ".join(instruction.operands)),
            places.get(instruction.ptx_line),
        )
        for function in functions
        for instruction in function.instructions
    )
    figures = replace(
        code.figures,
        instructions=len(steps),
        spill_bytes=machine_code.spill_bytes(functions, ptx),
        arithmetic=machine_code.arithmetic(functions, ptx),
    )
    reads = any(_BANK.search(step.operands) for step in steps)
    return Code(figures, steps, code.data_sha256 if reads else "")


@functools.lru_cache(maxsize=4)
def source_lines_of(ptx: tuple[str, ...], filename: str) -> dict[int, SourceLine]:
    """Return, by the number of a PTX line (from 1), the source line of the PTX line; `filename`: the source file."""
    own = os.path.abspath(filename)
    return {
        number: SourceLine("" if os.path.abspath(path) == own else Path(path).name, line)
        for number, (path, line, _) in ptx_text.read(ptx).places.items()
        if line
    }
