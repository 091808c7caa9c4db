"""What a report's page draws and a launch is too large to keep whole: bounded records of its trace and machine code."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from cudabench.compile import nvdisasm
from cudabench.explain import executed
from cudabench.explain.code import Place, places_of
from cudabench.explain.drawings import Tile, bank_requests, of
from cudabench.explain.machine_code import Kernel
from cudabench.records.launch import WARP, Rows, Surface, TensorMap, Texture
from cudabench.records.planned import Buffer, Case
from cudabench.records.results import BankRequest, LineCode, Step, WarpElements, Watch

if TYPE_CHECKING:
    from cudabench.compile.record import Compiled
    from cudabench.simulator.count.trace import SharedRequest, Trace

ALL_THREADS = 256  # of a launch that is watched whole
MOST_STEPS = 32
MOST_RUNS = 400  # of all steps of a kernel: a gather has one a lane
MOST_BANKS = 6
MOST_WAVEFRONTS = 64  # of all bank pictures of a kernel
MOST_CODE = 400  # machine instructions of a kernel that are told
MOST_TEXT = 64  # characters of one


def watch(case: Case) -> Watch:
    """Return which single accesses of a case to keep: all of a small launch, else those of its first warp."""
    first = case.launches[0]
    return True if prod(first.grid) * prod(first.block) <= ALL_THREADS else (0, 0)


# Threads -------------------------------------------------------------------------------------------------------------


def steps(trace: Trace, case: Case, buffers: Sequence[Buffer], tiles: Sequence[Tile]) -> tuple[Step, ...]:
    """Return the first steps of the first launch: which element of a named array each watched lane moves.

    tiles: the variables in shared memory. At most MOST_STEPS steps and MOST_RUNS runs of lanes are kept.
    """
    by_order: dict[int, Step] = {}
    for order, step, warps in (*_global(trace, case, buffers), *_shared(trace, tiles)):
        by_order[order] = replace(step, warps=warps)
    kept: list[Step] = []
    runs = 0
    for _, step in sorted(by_order.items()):
        runs += sum(len(each.runs) for each in step.warps)
        if len(kept) == MOST_STEPS or (kept and runs > MOST_RUNS):
            break
        kept.append(step)
    return tuple(kept)


_Found = Iterable[tuple[int, Step, tuple[WarpElements, ...]]]


def _global(trace: Trace, case: Case, buffers: Sequence[Buffer]) -> _Found:
    import numpy as np

    named: Mapping[str, Buffer] = {buffer.name: buffer for buffer in buffers}
    x, y, _ = case.launches[0].block
    order: dict[int, Step] = {}
    lanes: dict[int, dict[tuple[tuple[int, int, int], int], dict[int, int]]] = defaultdict(lambda: defaultdict(dict))
    for event in trace.accesses:
        if event.argument < 0:
            continue
        argument = case.launches[0].arguments[event.argument]
        buffer = named[argument.buffer if isinstance(argument, (Rows, Surface, Texture, TensorMap)) else argument]
        itemsize = np.dtype(buffer.dtype).itemsize
        thread = event.thread[0] + x * (event.thread[1] + y * event.thread[2])
        order.setdefault(
            event.order,
            Step(event.line, event.op, "global", buffer.name, buffer.shape, max(event.width // itemsize, 1), ()),
        )
        lanes[event.order][event.block, thread // WARP][thread % WARP] = event.offset // itemsize
    for number, step in order.items():
        warps = tuple(WarpElements(block, warp, _runs(of)) for (block, warp), of in lanes[number].items())
        yield number, step, warps


def _shared(trace: Trace, tiles: Sequence[Tile]) -> _Found:
    together: dict[int, list[SharedRequest]] = defaultdict(list)
    for request in trace.shared:
        together[request.order].append(request)
    for number, requests in together.items():
        tile = of(requests[0], tiles)
        if tile is None:
            continue
        warps = tuple(
            WarpElements(
                request.block,
                request.warp,
                _runs(
                    {
                        lane: (address - tile.start) // tile.itemsize
                        for lane, address in enumerate(request.addresses)
                        if address is not None
                    }
                ),
            )
            for request in requests
        )
        shape = tile.shape or (tile.nbytes // tile.itemsize,)
        first = requests[0]
        each = max(first.width // tile.itemsize, 1)
        yield number, Step(first.line, first.op, "shared", tile.name, shape, each, ()), warps


def _runs(elements: Mapping[int, int]) -> tuple[tuple[int, ...], ...]:
    """Return elements by lane as runs: (first lane, lanes, first element, elements from a lane to the next)."""
    found: list[list[int]] = []
    for lane, element in sorted(elements.items()):
        if found:
            start, count, first, stride = found[-1]
            if lane == start + count and (count == 1 or element == first + count * stride):
                found[-1] = [start, count + 1, first, element - first if count == 1 else stride]
                continue
        found.append([lane, 1, element, 0])
    return tuple(tuple(run) for run in found)


# Banks ---------------------------------------------------------------------------------------------------------------


def banks(trace: Trace, tiles: Sequence[Tile]) -> tuple[BankRequest, ...]:
    """Return the bank pictures of the first warp: those with the most wavefronts over what would do, a few of them."""
    found = sorted(
        enumerate(bank_requests(trace, tiles)), key=lambda each: (each[1].ideal - len(each[1].passes), each[0])
    )
    kept: list[tuple[int, BankRequest]] = []
    places: set[tuple[int, str, int]] = set()
    wavefronts = 0
    # Of one line the first is enough: an unrolled loop has a dozen alike.
    for at, request in found:
        place = (request.line, request.op, len(request.passes))
        if place in places or len(kept) == MOST_BANKS or (kept and wavefronts + len(request.passes) > MOST_WAVEFRONTS):
            continue
        places.add(place)
        wavefronts += len(request.passes)
        kept.append((at, request))
    return tuple(request for _, request in sorted(kept, key=lambda each: each[0]))


# Machine code --------------------------------------------------------------------------------------------------------


def lines(parts: Iterable[tuple[Case, Compiled]], counts: Mapping[str, executed.Executions]) -> tuple[LineCode, ...]:
    """Return the machine code of the kernels that a case launches, by source line, with its executions.

    parts: the case by source, compiled; counts: by entry, how often each PTX line ran. Empty without nvdisasm or a
    cubin. The instructions are the first MOST_CODE, spread over the lines by their share.

    Raises DeviceUnusable where nvdisasm refuses the cubin.
    """
    texts: dict[Place, list[str]] = defaultdict(list)
    warps: Counter[Place] = Counter()
    lanes: Counter[Place] = Counter()
    for part, one in parts:
        if one.cubin is None or nvdisasm.path() is None:
            continue
        ptx = tuple(one.ptx.split("\n"))
        places = places_of(ptx, part.source.name)
        for entry in dict.fromkeys(one.entry(launch.function) for launch in part.launches):
            kernel = Kernel(entry, counts.get(entry))
            functions = nvdisasm.functions(one.cubin, kernel.entry)
            ran = executed.count(functions, kernel.executions or {}, ptx)
            for function, of_blocks in zip(functions, ran, strict=True):
                for block, times in zip(function.blocks, of_blocks, strict=True):
                    for instruction in block.instructions:
                        place = places.get(instruction.ptx_line)
                        if place is None:
                            continue
                        guard = f"@{instruction.guard} " if instruction.guard else ""
                        operands = ", ".join(instruction.operands)
                        texts[place].append(f"{guard}{instruction.mnemonic} {operands}".strip()[:MOST_TEXT])
                        warps[place] += times.warps  # type: ignore[assignment]
                        lanes[place] += times.lanes  # type: ignore[assignment]
    every = sum(map(len, texts.values()))
    share = min(1.0, MOST_CODE / every) if every else 1.0
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
