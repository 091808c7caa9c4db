"""A kernel's compiled machine code, read without running it: its resources, and the source lines of its
instructions."""

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
_BANK = re.compile(r"\bc\[(?!0x0\])")  # a bank of constants other than the arguments'


@dataclass(frozen=True, order=True)
class Place:
    """A source line: the name of its header, empty for the source itself, and its number from 1."""

    file: str
    line: int


@dataclass(frozen=True)
class Step:
    """One instruction: its opcode, its operands, and its source line, or None.

    `opcode` has the modifiers and whether it is guarded. Branch targets are left out of the operands: their labels are
    numbered through the whole file.
    """

    opcode: str
    operands: str
    place: Place | None

    @property
    def text(self) -> str:
        """The instruction as nvdisasm prints it, without branch targets."""
        return f"{self.opcode} {self.operands}".strip()


@dataclass(frozen=True)
class Code:
    """A kernel's code: its figures, its instructions (None if it was not disassembled), and a hash of the data at fixed
    places that it may read."""

    figures: CodeFigures
    steps: tuple[Step, ...] | None
    data_sha256: str

    @property
    def by_line(self) -> Counter[Place]:
        """How many instructions came from each source line."""
        return Counter(step.place for step in self.steps or () if step.place is not None)


def code_of(
    compiled: Compiled, name: str, arch: str, threads: int, shared: int = 0, hidden: Sequence[str] = ()
) -> Code:
    """Return the code, not disassembled, of the kernel with a C++ name in `compiled`.

    threads: of a block, and `shared` its bytes of dynamic shared memory, for the occupancy. hidden: as in
    `cubin.data_sha256`.
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
    with contextlib.suppress(UsageError):  # for an architecture that the table lacks
        total = needs.shared_bytes + shared
        figures = replace(figures, occupancy=occupancy(arch, threads, needs.registers, total, barriers=needs.barriers))
    return Code(figures, None, cubin.data_sha256(compiled.cubin, hidden))


def begin(compiled: Compiled) -> None:
    """Start to disassemble in the background, if nvdisasm is installed."""
    if compiled.cubin is not None:
        machine_code.begin(compiled.cubin)


def disassembled(code: Code, compiled: Compiled, name: str, filename: str) -> Code:
    """Return the same code with its instructions, if nvdisasm is installed.

    filename: the source's name for the compiler. If the code does not read banks of constants, they belong to other
    kernels, and the hash of the data is empty.

    Raises DeviceUnusable if nvdisasm refuses the cubin.
    """
    assert compiled.cubin is not None
    if nvdisasm.path() is None:
        return code
    functions = nvdisasm.functions(compiled.cubin, compiled.entry(name))
    ptx, places = compiled.lines, places_of(compiled.lines, filename)
    steps = tuple(
        Step(
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
def places_of(ptx: tuple[str, ...], filename: str) -> dict[int, Place]:
    """Return the source line of each line of PTX, both counted from 1; `filename` is the source's name."""
    own = os.path.abspath(filename)
    return {
        number: Place("" if os.path.abspath(path) == own else Path(path).name, line)
        for number, (path, line, _) in ptx_text.read(ptx).places.items()
        if line
    }
