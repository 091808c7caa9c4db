"""The fewest clocks that a warp takes through machine code, if it waits for each result only where it is used."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from cudabench.compile.sass import Function, Instruction
from cudabench.explain.machine_code import pipe

# For each pipe, the fewest clocks from an instruction to the next one that uses its result. They come from published
# microbenchmarks of Volta to Hopper (arXiv 1804.06826, 2402.13499). The latencies of loads are measured on the card.
_CLOCKS = {"fp64": 8, "xu": 16, "tensor": 16}
_ARITHMETIC = 4.0
FOLLOWED = 16  # of a loop, at most this many iterations are followed
LOADS = ("LD", "LDG", "ATOM", "ATOMG")
_SHARED = ("LDS", "LDSM", "LDL", "ATOMS")
_NO_RESULT = ("ST", "STG", "STS", "STL", "RED", "REDG", "STSM", "BRA", "EXIT", "BAR", "LDGSTS")
_REGISTER = re.compile(r"(?<![\w.])(U?R)(\d+)((?:\.\w+)*)")
_PREDICATE = re.compile(r"(?<![\w])U?P\d+")

# For each register: (clocks until its value is available, whether a load writes the value).
_Ready = Mapping[str, tuple[float, bool]]
# For each instruction: (registers that it reads, registers that it writes, clocks until its result, whether it is a
# load).
_Step = tuple[Sequence[str], Sequence[str], float, bool]


class Path(NamedTuple):
    """A warp's way through a basic block. `clocks`: the clocks that it takes. `waits`: how many of these the warp waits
    for loads. `left`: the results that are still pending at the end."""

    clocks: float
    waits: float
    left: _Ready


def path(instructions: Sequence[Instruction], loads: Mapping[int, float], before: _Ready | None = None) -> Path:
    """Return the fewest clocks that a warp needs from the first instruction of a basic block to the end of its last.

    A warp issues its instructions in order, at most one per clock, each when its operands are available. `loads`: by
    PTX line, the clocks from a load to its value; key 0 is for shared memory. `before`: the results that are pending at
    the start.
    """
    return _path(_steps(instructions, loads), before or {})


def _steps(instructions: Sequence[Instruction], loads: Mapping[int, float]) -> list[_Step]:
    return [(*operands(instruction), *_result_clocks(instruction, loads)) for instruction in instructions]


def _path(steps: Sequence[_Step], before: _Ready) -> Path:
    ready = dict(before)
    now, waits = -1.0, 0.0
    for reads, writes, clocks, loaded in steps:
        start = now + 1
        for name in reads:
            when, load = ready.get(name, (0.0, False))
            if when > start:
                waits += (when - start) * load
                start = when
        now = start
        for name in writes:
            ready[name] = (start + clocks, loaded)
    end = now + 1
    return Path(end, waits, {name: (when - end, load) for name, (when, load) in ready.items() if when > end})


def paths(function: Function, ran: Sequence[float], loads: Mapping[int, float]) -> list[Path]:
    """Return the path through each block of a function, in order: the mean over its executions; an empty path for a
    block that never ran. `ran`: how often each block ran. `loads`: as for `path`.

    At the start of a block those results are pending that are pending after all executed predecessors, with the
    shortest of their waits. At the head of a loop nothing is pending in the first iteration; in later ones, what the
    iteration before left pending. A loop is followed for its mean number of iterations, but at most `FOLLOWED`; later
    iterations are taken to wait as long.
    """
    before: dict[int, list[int]] = defaultdict(list)
    for block in function.blocks:
        for following in block.successors:
            if ran[block.number]:
                before[following].append(block.number)
    # For the first block of each loop: the fewest iterations on average. It is a lower bound, because a block before
    # the loop may also jump to another block.
    trips: dict[int, int] = {}
    for head, known in before.items():
        entered = sum(ran[number] for number in known if number < head)
        if entered and max(known) >= head:
            trips[head] = int(ran[head] / entered)
    rounds = max(1, min(FOLLOWED, max(trips.values(), default=1)))
    sums = [(0.0, 0.0)] * len(function.blocks)
    last: list[Path] = []
    steps = [_steps(block.instructions, loads) if ran[block.number] else [] for block in function.blocks]
    for index in range(rounds):
        current: list[Path] = []
        for block in function.blocks:
            known = before[block.number]
            again = [number for number in known if number >= block.number]
            if again:
                round_ = index % min(rounds, max(1, trips.get(block.number, 1)))
                incoming = [last[number].left for number in again] if round_ else []
            else:
                incoming = [current[number].left for number in known]
            names = set(incoming[0]).intersection(*incoming[1:]) if incoming else ()
            pending = {name: min(results[name] for results in incoming) for name in names}
            current.append(_path(steps[block.number], pending))
        sums = [(clocks + item.clocks, waits + item.waits) for (clocks, waits), item in zip(sums, current, strict=True)]
        last = current
    return [Path(clocks / rounds, waits / rounds, item.left) for (clocks, waits), item in zip(sums, last, strict=True)]


def _result_clocks(instruction: Instruction, loads: Mapping[int, float]) -> tuple[float, bool]:
    if instruction.opcode in LOADS:
        return loads.get(instruction.ptx_line, _ARITHMETIC), True
    if instruction.opcode in _SHARED:
        return _ARITHMETIC if instruction.guard else loads.get(0, _ARITHMETIC), True
    return float(_CLOCKS.get(pipe(instruction), _ARITHMETIC)), False


def operands(instruction: Instruction) -> tuple[list[str], list[str]]:
    """Return (registers that an instruction reads, registers that it writes). Of a wide operand that is read, only the
    first two registers are returned.

    If unsure, the function returns too few registers: a missed dependency makes the lower bound weaker, never wrong.
    """
    reads: list[str] = [instruction.guard.lstrip("!")] if instruction.guard else []
    writes: list[str] = []
    for place, text in enumerate(instruction.operands):
        predicates, registers = _named(text)
        result = place == 0 or (place == 1 and bool(predicates) and bool(writes))
        into = result and instruction.opcode not in _NO_RESULT and "[" not in text
        names = writes if into else reads
        names += predicates
        for kind, number, wide in registers:
            width = _width(instruction) if into else 2 if wide else 1
            names += [f"{kind}{number + more}" for more in range(width)]
    return reads, writes


@lru_cache(1 << 14)
def _named(operand: str) -> tuple[list[str], list[tuple[str, int, bool]]]:
    """Return (predicates, registers) in the text of an operand. A register is (kind, number, whether it is 64 bits
    wide): 'R4.64' gives ('R', 4, True)."""
    registers = _REGISTER.findall(operand)
    return _PREDICATE.findall(operand), [(kind, int(number), ".64" in words) for kind, number, words in registers]


def _width(instruction: Instruction) -> int:
    """Return the number of registers of an instruction's result."""
    words = instruction.modifiers
    if "128" in words or pipe(instruction) == "tensor":
        return 4
    if "64" in words or "WIDE" in words or pipe(instruction) == "fp64":
        return 2
    return 4 if instruction.opcode == "LDSM" and "4" in words else 1
