"""Computes the fewest clocks that a warp needs for machine code, from the code's schedule and the latency of loads.

The schedule of an instruction gives the clocks until the next instruction, and the results for which the instruction
waits (`compile.schedule`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from cudabench.compile.sass import Function, Instruction
from cudabench.compile.schedule import DELAYED, GLOBAL_LOADS, NEAR_LOADS, Schedule

MOST_ITERATIONS = 16  # at most this many iterations of a loop are computed
_DEFAULT_SCHEDULE = Schedule(1, 0, -1)

# For each counter of the schedule: (clocks until it is zero, whether a load sets it).
_Pending = Mapping[int, tuple[float, bool]]
# For each instruction: (its schedule, clocks until its result, whether it is a load).
_Step = tuple[Schedule, float, bool]


class Path(NamedTuple):
    """How a warp executes a basic block. `clocks`: the clocks that the warp needs. `waits`: in how many of these clocks
    the warp waits for loads. `pending`: the results that are not ready at the end of the block."""

    clocks: float
    waits: float
    pending: _Pending


def path(instructions: Sequence[Instruction], loads: Mapping[int, float], before: _Pending | None = None) -> Path:
    """Return the fewest clocks that a warp needs from the start of a basic block to the end of its last instruction.

    A warp issues its instructions in order, each as soon as its schedule allows. `loads`: by PTX line, the clocks from
    a load to its value; key 0 is for shared memory. `before`: the results that are not ready at the start.
    """
    return _path(_steps(instructions, loads), before or {})


def _steps(instructions: Sequence[Instruction], loads: Mapping[int, float]) -> list[_Step]:
    return [(ins.schedule or _DEFAULT_SCHEDULE, *_result_clocks(ins, loads)) for ins in instructions]


def _path(steps: Sequence[_Step], before: _Pending) -> Path:
    ready = dict(before)
    now = waits = 0.0
    for (stall, counters, sets), clocks, loaded in steps:
        for counter in [counter for counter in ready if counters >> counter & 1]:
            when, load = ready.pop(counter)
            if when > now:
                waits += (when - now) * load
                now = when
        if sets >= 0:
            ready[sets] = max(ready.get(sets, (0.0, False)), (now + clocks, loaded))
        now += stall
    return Path(now, waits, {counter: (when - now, load) for counter, (when, load) in ready.items() if when > now})


def paths(function: Function, ran: Sequence[float], loads: Mapping[int, float]) -> list[Path]:
    """Return a `Path` for each block of a function, in order: the mean over the block's executions; an empty path for a
    block that never ran. `ran`: how often each block ran. `loads`: as for `path`.

    At the start of a block, a result is pending if it is pending at the end of all executed predecessors; the shortest
    remaining time of these is used. At the head of a loop, nothing is pending in the first iteration; in a later
    iteration, the results are pending that the previous iteration left pending. As many iterations of a loop are
    computed as it has on average, at most `MOST_ITERATIONS`; the mean of these is used for all iterations.
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
    rounds = max(1, min(MOST_ITERATIONS, max(trips.values(), default=1)))
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
                incoming = [last[number].pending for number in again] if round_ else []
            else:
                incoming = [current[number].pending for number in known]
            names = set(incoming[0]).intersection(*incoming[1:]) if incoming else ()
            pending = {name: min(results[name] for results in incoming) for name in names}
            current.append(_path(steps[block.number], pending))
        sums = [(clocks + item.clocks, waits + item.waits) for (clocks, waits), item in zip(sums, current, strict=True)]
        last = current
    return [
        Path(clocks / rounds, waits / rounds, item.pending) for (clocks, waits), item in zip(sums, last, strict=True)
    ]


def _result_clocks(instruction: Instruction, loads: Mapping[int, float]) -> tuple[float, bool]:
    if instruction.opcode in GLOBAL_LOADS:
        return loads.get(instruction.ptx_line, DELAYED), True
    if instruction.opcode in NEAR_LOADS and not instruction.guard:
        return loads.get(0, DELAYED), True
    return DELAYED, instruction.opcode in NEAR_LOADS
