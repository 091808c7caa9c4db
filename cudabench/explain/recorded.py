"""Makes the records of single accesses and of machine code for a report's HTML page; their size is limited."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from cudabench.compile import nvdisasm
from cudabench.explain import block_counts
from cudabench.explain.block_counts import Executions
from cudabench.explain.code import SourceLine, source_lines_of
from cudabench.explain.drawings import Tile, bank_requests, elements, tile_of
from cudabench.records.plan import Buffer, Case
from cudabench.records.results import BankRequest, LineCode, Step, WarpElements, Watch

if TYPE_CHECKING:
    from cudabench.compile.record import Compiled
    from cudabench.simulator.count.trace import Request, Trace

ALL_THREADS = 256  # if a launch has at most this many threads, all its threads are recorded
MOST_STEPS = 32
# The most runs of equally spaced lanes in all steps of a kernel together. A gather has one run for each lane.
MOST_RUNS = 400
MOST_BANKS = 6
MOST_WAVEFRONTS = 64  # the most wavefronts in all drawings of a kernel's banks
MOST_CODE = 400  # the most machine instructions that are kept for a kernel
MOST_TEXT = 64  # the most characters that are kept of an instruction


def watch(case: Case) -> Watch:
    """Return which accesses of a case to record: True (all) if the first launch is small, else (0, 0) (first warp)."""
    first = case.launches[0]
    return True if prod(first.grid) * prod(first.block) <= ALL_THREADS else (0, 0)


# Threads -------------------------------------------------------------------------------------------------------------


def steps(trace: Trace, case: Case, buffers: Sequence[Buffer], tiles: Sequence[Tile]) -> tuple[Step, ...]:
    """Return the first steps of the first launch. A step is one execution of an access to an argument or to shared
    memory, with the element that each recorded lane accesses.

    `tiles`: the variables in shared memory. At most MOST_STEPS steps are returned, with at most MOST_RUNS runs of
    lanes (see `_runs`) in all of them; but always the first step.
    """
    by_order = dict([*_global(trace, case, buffers), *_shared(trace, case, tiles)])
    first = [step for _, step in sorted(by_order.items())][:MOST_STEPS]
    runs = accumulate(sum(len(warp.runs) for warp in step.warps) for step in first)
    most = sum(so_far <= MOST_RUNS for so_far in runs)
    return tuple(first[: max(most, 1)])


_Steps = Iterator[tuple[int, Step]]


def _global(trace: Trace, case: Case, buffers: Sequence[Buffer]) -> _Steps:
    order: dict[int, Step] = {}
    lanes: dict[int, dict[tuple[tuple[int, int, int], int], dict[int, int]]] = defaultdict(lambda: defaultdict(dict))
    for request, lane, buffer, element in elements(trace, case, buffers):
        per_lane = max(request.width // np.dtype(buffer.dtype).itemsize, 1)
        header = case.header(request.file)
        step = Step(request.line, request.op, "global", buffer.name, buffer.shape, per_lane, (), header)
        order.setdefault(request.order, step)
        lanes[request.order][request.block, request.warp][lane] = element
    for number, step in order.items():
        warps = tuple(WarpElements(block, warp, _runs(by_lane)) for (block, warp), by_lane in lanes[number].items())
        yield number, replace(step, warps=warps)


def _shared(trace: Trace, case: Case, tiles: Sequence[Tile]) -> _Steps:
    by_order: dict[int, list[Request]] = defaultdict(list)
    for request in trace.shared:
        by_order[request.order].append(request)
    for number, requests in by_order.items():
        first, tile = requests[0], tile_of(requests[0], tiles)
        if tile is None:
            continue
        warps = []
        for request in requests:
            places = ((lane, a - tile.start) for lane, a in enumerate(request.addresses) if a is not None)
            runs = _runs({lane: place // tile.itemsize for lane, place in places})
            warps.append(WarpElements(request.block, request.warp, runs))
        shape, per_lane = tile.shape or (tile.nbytes // tile.itemsize,), max(first.width // tile.itemsize, 1)
        yield (
            number,
            Step(first.line, first.op, "shared", tile.name, shape, per_lane, tuple(warps), case.header(first.file)),
        )


def _runs(elements: Mapping[int, int]) -> tuple[tuple[int, ...], ...]:
    """Return runs of lanes whose elements are equally spaced; `elements`: by lane, the number of its element.

    A run is (first lane, number of lanes, element of the first lane, elements from one lane to the next).
    """
    runs: list[list[int]] = []
    for lane, element in sorted(elements.items()):
        if runs:
            start, count, first, stride = runs[-1]
            if lane == start + count and (count == 1 or element == first + count * stride):
                runs[-1] = [start, count + 1, first, element - first if count == 1 else stride]
                continue
        runs.append([lane, 1, element, 0])
    return tuple(tuple(run) for run in runs)


# Banks ---------------------------------------------------------------------------------------------------------------


def banks(trace: Trace, case: Case, tiles: Sequence[Tile]) -> tuple[BankRequest, ...]:
    """Return, for drawings of banks, those requests of the first warp that exceed the ideal wavefronts most."""
    requests = bank_requests(trace, case, tiles)
    kept: dict[tuple[str, int, str, int], BankRequest] = {}
    wavefronts = 0
    # One drawing for each source line is enough: an unrolled loop has many equal requests.
    for request in sorted(requests, key=lambda request: request.ideal - len(request.passes)):
        place = (request.file, request.line, request.op, len(request.passes))
        full = len(kept) == MOST_BANKS or (kept and wavefronts + len(request.passes) > MOST_WAVEFRONTS)
        if place not in kept and not full:
            kept[place] = request
            wavefronts += len(request.passes)
    return tuple(sorted(kept.values(), key=requests.index))


# Machine code --------------------------------------------------------------------------------------------------------


def lines(parts: Iterable[tuple[Case, Compiled]], counts: Mapping[str, Executions]) -> tuple[LineCode, ...]:
    """Return, for each source line, the machine code of the kernels that a case launches and how often it ran.

    `parts`: (part of the case, compiled source file) for each source file. `counts`: by the kernel's name in PTX, how
    often each PTX line ran. A part without a cubin is left out; without nvdisasm the result is empty. About MOST_CODE
    instructions are returned at most: if there are more, the instructions of each line are cut by the same factor.

    Raises DeviceUnusable if nvdisasm does not accept the cubin.
    """
    texts: dict[SourceLine, list[str]] = defaultdict(list)
    warps: Counter[SourceLine] = Counter()
    lanes: Counter[SourceLine] = Counter()
    for part, compiled in parts:
        if compiled.cubin is None or nvdisasm.path() is None:
            continue
        places = source_lines_of(compiled.lines, part.source.name)
        for entry in dict.fromkeys(compiled.entry(launch.function) for launch in part.launches):
            functions = nvdisasm.functions(compiled.cubin, entry)
            ran = block_counts.count(functions, counts.get(entry, {}))
            for block, times in block_counts.blocks_with_counts(functions, ran):
                for instruction in (ins for ins in block.instructions if ins.ptx_line in places):
                    place = places[instruction.ptx_line]
                    guard = f"@{instruction.guard} " if instruction.guard else ""
                    operands = ", ".join(instruction.operands)
                    texts[place].append(f"{guard}{instruction.mnemonic} {operands}".strip()[:MOST_TEXT])
                    warps[place] += times.warps  # type: ignore[assignment]
                    lanes[place] += times.lanes  # type: ignore[assignment]
    total = sum(map(len, texts.values()))
    share = min(1.0, MOST_CODE / total) if total else 1.0
    return tuple(
        LineCode(
            file=place.file,
            line=place.line,
            instructions=len(code),
            executions=round(warps[place]),
            threads_per_instruction=lanes[place] / warps[place] if warps[place] else None,
            code=tuple(code[: max(1, int(len(code) * share))]),
        )
        for place, code in sorted(texts.items())
    )
