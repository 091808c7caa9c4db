"""Reads PTX text line by line: labels, instructions, their source lines, and the control flow of functions.

Lines are counted from 1. This reader also accepts text that the simulator's parser does not accept, such as
hand-written PTX and the PTX of newer compilers.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import NamedTuple

from cudabench.compile.diagnostics import source_lines

MOST_ASM = 64  # the most lines that one piece of inline assembly may have
SPACES = ("global", "shared", "local", "const", "param")
_LINE = re.compile(r"\s*(?:([$\w]+):|(@!?[\w$%]+\s+)?([a-z]\w*(?:\.[\w:]+)*)\s*(.*))")
_DECLARED = re.compile(r"\s*(?:\.\w+\s+)*\.(?:entry|func)\b")
_TARGET = re.compile(r"[$\w]*")
_WRITTEN = re.compile(r"\{[^}]*\}|[^,;\[]+")
_JUMPS = ("bra", "brx", "ret", "exit", "trap")
_BLOCK_ENDS = ("bra", "brx", "ret", "exit", "call", "bar", "barrier")  # instructions that end a basic block


class Line(NamedTuple):
    """One line of PTX. `label`: the label on the line, or "". If the line has an instruction: `guard`, the predicate;
    `words`, the opcode and its modifiers; `operands`, the text of the operands."""

    label: str = ""
    guard: str = ""
    words: tuple[str, ...] = ("",)
    operands: str = ""

    @property
    def op(self) -> str:
        """The opcode without modifiers."""
        return self.words[0]

    @property
    def space(self) -> str:
        """The memory space of a load or store, such as 'global'."""
        return next((word for word in self.words if word in SPACES), "generic")

    @property
    def target(self) -> str:
        """The label that a branch jumps to."""
        return _TARGET.match(self.operands)[0]  # type: ignore[index]


def read(ptx: Sequence[str]) -> Text:
    """Return the parsed form of a PTX text, given by its lines; the results for recent texts are cached."""
    return _read(tuple(ptx))


@lru_cache(maxsize=8)
def _read(ptx: tuple[str, ...]) -> Text:
    return Text(ptx)


class Text:
    """A parsed PTX text. `text[n]` is line n, counted from 1, or an empty `Line` if there is no line n."""

    def __init__(self, ptx: tuple[str, ...]) -> None:
        self.ptx = ptx
        parts = (match.groups("") if (match := _LINE.match(text)) else ("",) * 4 for text in ptx)
        self.rows = [
            Line(label, guard, tuple(opcode.replace("::", ".").split(".")), operands)
            for label, guard, opcode, operands in parts
        ]
        self.labels = {row.label: number for number, row in enumerate(self.rows, 1) if row.label}
        # The lines at which kernels and functions begin.
        self.function_starts = [number for number, text in enumerate(ptx, 1) if _DECLARED.match(text)]
        self._flows: dict[int, Flow] = {}

    def __getitem__(self, number: int) -> Line:
        return self.rows[number - 1] if 0 < number <= len(self.rows) else Line()

    @cached_property
    def blocks(self) -> list[int]:
        """A list with the number of each line's basic block, counted over the whole text; index: the line number."""
        rows = zip(self.rows, self.ptx, strict=True)
        cuts = (bool(row.label) or row.op in _BLOCK_ENDS or text.strip() in ("{", "}") for row, text in rows)
        return list(accumulate(cuts, initial=0))

    @cached_property
    def inline_lines(self) -> set[int]:
        """The numbers of the lines that come from inline assembly in the source."""
        lines, begun = set(), 0
        for number, text in enumerate(self.ptx, 1):
            if "// begin inline asm" in text or "// end inline asm" in text:
                begun = number if "// begin" in text else 0
            elif begun and number - begun < MOST_ASM:
                lines.add(number)
        return lines

    @cached_property
    def places(self) -> dict[int, tuple[str, int, int]]:
        """The source line of each PTX line, see `diagnostics.source_lines`."""
        return source_lines(self.ptx)

    def function_lines(self, number: int) -> tuple[int, int]:
        """Return (first line, line after the last) of the function that contains line `number`."""
        i = bisect_right(self.function_starts, number)
        return self.function_starts[i - 1] if i else 1, self.function_starts[i] if i < len(
            self.function_starts
        ) else len(self.ptx) + 1

    def flow(self, number: int) -> Flow:
        """Return the control flow of the function that contains a line."""
        first, end = self.function_lines(number)
        if first not in self._flows:
            self._flows[first] = Flow(self, first, end)
        return self._flows[first]


class Flow:
    """The control flow of the function on the lines from `start` to before `end`. A block begins at each label and at
    each jump; the source of a jump is the block before the jump.

    `block`: by line, the number of its block. `successors`: by block, the blocks that may run next. `jumps`: the lines
    of all jumps.
    """

    def __init__(self, text: Text, start: int, end: int) -> None:
        self.rows = {number: text[number] for number in range(start, end)}
        self.block: dict[int, int] = {}
        self.successors: dict[int, set[int]] = defaultdict(set)
        self.jumps = {number for number, row in self.rows.items() if row.op in _JUMPS}
        self._label_blocks: dict[str, int] = {}
        block = 0
        for number, row in self.rows.items():
            if row.label or number in self.jumps:
                block += 1
                if row.label or row.guard:
                    self.successors[block - 1].add(block)
            if row.label:
                self._label_blocks[row.label] = block
            self.block[number] = block
        for number in self.jumps:
            row, source = self.rows[number], self.block[number] - 1
            if row.op in ("bra", "brx"):
                to = self._label_blocks.get(row.target)
                self.successors[source] |= set(self._label_blocks.values()) if to is None else {to}

    @cached_property
    def writes(self) -> Counter[str]:
        """By register, how many instructions write it."""
        written = (_WRITTEN.match(row.operands) for row in self.rows.values() if row.op not in ("st", "red", "bra"))
        return Counter(name for match in written if match for name in set(re.findall(r"[\w$%]+", match[0])))

    def dominates(self, first: int, then: int) -> bool:
        """Return whether every path from the function's start to line `then` passes line `first`."""
        start = self.block.get(first)
        return start is not None and (start == 0 or self.block[then] not in self._reachable(without=start))

    def _reachable(self, without: int) -> set[int]:
        """Return the blocks that can be reached from the function's start without passing block `without`."""
        reached: set[int] = set()
        pending = [0]
        while pending:
            block = pending.pop()
            if block not in reached and block != without:
                reached.add(block)
                pending += self.successors[block]
        return reached
