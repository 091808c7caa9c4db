"""The control flow of PTX text: which blocks of a function follow which, and what a branch alone leads to."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import cached_property, lru_cache

_DECLARED = re.compile(r"\s*(?:\.\w+\s+)*\.(?:entry|func)\b")
_JUMP = re.compile(r"\s*(?P<guard>@!?[\w$%]+\s+)?(?P<op>bra|brx|ret|exit|trap)\b(?:\.\w+)*\s*(?P<to>[$\w]*)")
_HEAD = re.compile(r"\s*([$\w]+):")
_WRITES = re.compile(r"\s*(?:@!?[\w$%]+\s+)?(?!st\b|red\b|bra\b)[a-z]\w*[\w.:]*\s+(\{[^}]*\}|[^,;\[]+)")


def flow_around(ptx: Sequence[str], line: int) -> Flow:
    """Return the control flow of the function of a PTX text around a line."""
    text = tuple(ptx)
    heads = heads_of(text)
    before = bisect_right(heads, line)
    return _flow(text, heads[before - 1] if before else 1, heads[before] if before < len(heads) else len(text) + 1)


@lru_cache(maxsize=8)
def heads_of(ptx: tuple[str, ...]) -> tuple[int, ...]:
    """Return the lines of a PTX text at which kernels and functions begin, ascending."""
    return tuple(number for number, text in enumerate(ptx, 1) if _DECLARED.match(text))


@lru_cache(maxsize=32)
def _flow(ptx: tuple[str, ...], start: int, end: int) -> Flow:
    return Flow(ptx, start, end)


class Flow:
    """The function on some lines of a PTX text: which blocks of it follow which; a jump starts a block of its own.

    rows: the text of each line. block: the block of each line. after: the blocks that may follow each block.
    """

    def __init__(self, ptx: Sequence[str], start: int, end: int) -> None:
        self.rows = {number: ptx[number - 1] for number in range(start, end)}
        self.block: dict[int, int] = {}
        self.after: dict[int, set[int]] = defaultdict(set)
        self.branches: dict[int, int] = {}  # of the blocks that are a branch with a guard: the line
        self.jumps: set[int] = set()  # the lines of all jumps
        self._heads: dict[str, int] = {}
        self._to: dict[int, str] = {}
        jumps: list[tuple[int, str]] = []
        block = 0
        for number, text in self.rows.items():
            head, jump = _HEAD.match(text), _JUMP.match(text)
            if head or jump:
                block += 1
                if jump:
                    self.jumps.add(number)
                if jump and jump["op"] in ("bra", "brx"):
                    jumps.append((block - 1, jump["to"]))
                    if jump["op"] == "bra" and jump["guard"]:
                        self.branches[block - 1] = number
                        self._to[number] = jump["to"]
                if not jump or jump["guard"]:
                    self.after[block - 1].add(block)
            if head:
                self._heads[head[1]] = block
            self.block[number] = block
        for source, to in jumps:
            self.after[source] |= {self._heads[to]} if to in self._heads else set(self._heads.values())

    def writes(self, register: str) -> int:
        """Return how many instructions of the function write a register."""
        return self._writes[register]

    @cached_property
    def _writes(self) -> Counter[str]:
        found = (_WRITES.match(text) for text in self.rows.values())
        return Counter(name for match in found if match for name in set(re.findall(r"[\w$%]+", match[1])))

    def always(self, first: int, then: int) -> bool:
        """Whether every way from the start to one line passes another."""
        if first not in self.block or self.block[first] == 0:
            return first in self.block
        return self.block[then] not in self._reached(without=self.block[first])

    def _reached(self, without: int = -1, cut: tuple[int, int] = (-1, -1)) -> set[int]:
        """Return the blocks that the start leads to, without a block and an edge."""
        reached: set[int] = set()
        ahead = [0]
        while ahead:
            block = ahead.pop()
            if block not in reached and block != without:
                reached.add(block)
                ahead += (then for then in self.after[block] if (block, then) != cut)
        return reached

    def ways(self, line: int) -> tuple[int, int] | None:
        """Return the blocks that a guarded branch leads to where it is taken and where not; None without a choice."""
        block = next((block for block, at in self.branches.items() if at == line), None)
        taken = self._heads.get(self._to.get(line, ""))
        if block is None or taken is None or taken == block + 1:
            return None
        return taken, block + 1

    @cached_property
    def _everything(self) -> set[int]:
        return self._reached()

    def alone(self, line: int) -> tuple[set[int], set[int]]:
        """Return the blocks that only a guarded branch leads to: where it is taken, and where it is not."""
        ways = self.ways(line)
        if ways is None:
            return set(), set()
        block = ways[1] - 1
        taken, past = (self._everything - self._reached(cut=(block, way)) for way in ways)
        return taken, past
