"""Limits of a kernel's launches: the simulator's counts, its machine code and a card, brought together."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod

from cudabench.cards.load import Card
from cudabench.compile import nvdisasm
from cudabench.compile.sass import Function
from cudabench.devices.sim import Arrays, Run, SimDevice, poisoned
from cudabench.explain import limits, merged, moved
from cudabench.measure.context import constants_of
from cudabench.occupancy import occupancy
from cudabench.records.planned import Case, Operation, Problem, Settings
from cudabench.records.results import CardLimits, Limit, Watch

Issued = dict[str, dict[int, tuple[int, int]]]

# What runs where limits alone are asked for, threads of a launch and blocks at least: each as long as it is expected to
# take no longer than that, by what the one before it took; the last one longer where blocks differ.
SAMPLES = ((0, 4, 0.0), (4096, 16, 15.0), (32768, 16, 4.0))
EVEN, UNEVEN_S = 0.9, 60.0


def merged_in(device: SimDevice, case: Case) -> Issued:
    """Return by function how the loads and stores count that ptxas merged; without nvdisasm none are known."""
    found: Issued = {}
    if nvdisasm.path() is None:
        return found
    for part in case.parts:
        loaded = device.load(part)
        compiled = loaded.compiled
        for function in {launch.function for launch in part.launches}:
            if compiled.cubin is not None:
                entry = compiled.entry(function)
                code = nvdisasm.functions(compiled.cubin, entry)
                found[function] = merged.merge(code, compiled.lines, loaded.program.lines(entry)).issued()
    return found


def as_loaded(device: SimDevice, case: Case, run: Run) -> Run:
    """Return a run whose accesses are those of the machine code, where ptxas moved loads behind a branch."""
    if nvdisasm.path() is None:
        return run
    accesses = run.report.accesses
    for part in case.parts:
        compiled = device.load(part).compiled
        for function in {launch.function for launch in part.launches} if compiled.cubin is not None else ():
            entry = compiled.entry(function)
            executions = run.report.executed.get(entry)
            if executions and compiled.cubin is not None:
                code = nvdisasm.functions(compiled.cubin, entry)
                accesses = moved.issued(accesses, entry, code, executions, compiled.lines)
    return replace(run, report=run.report._replace(accesses=accesses))


def sampled(
    device: SimDevice,
    case: Case,
    operation: Operation,
    problem: Problem,
    inputs: Arrays,
    *,
    seconds: float,
    progress: Callable[[float], None] = lambda fraction: None,
    trace: Watch = False,
) -> Run:
    """Run a sample of the blocks of a case for its counts alone; what it computes is thrown away. `trace` keeps single
    accesses.

    Errors as `SimDevice.run`.
    """
    arrays: Arrays = {}
    for buffer in operation.buffers(problem):
        if buffer.name in inputs:
            arrays[buffer.name] = inputs[buffer.name].copy() if buffer.role == "inout" else inputs[buffer.name].view()
        else:
            arrays[buffer.name] = poisoned(buffer.shape, buffer.dtype)
        arrays[buffer.name].flags.writeable = buffer.role != "in"
    merged_there = merged_in(device, case)
    case = replace(case, constants={**case.constants, **constants_of(operation, inputs)})
    run: Run | None = None
    end, took, ran = time.monotonic() + seconds, 0.0, 1
    for threads, blocks, most_s in SAMPLES:
        grows = max(_threads(case, threads, blocks) / ran, 1.0)
        if run is not None:
            footprints = [one.report.footprint for one in run.launched]
            uneven = any(one is not None and limits.sure(one.parts) < EVEN for one in footprints)
            if took * grows > min(UNEVEN_S if uneven else most_s, end - time.monotonic()):
                break
        device.reset(case)
        start = time.monotonic()
        run = device.run(
            case,
            arrays,
            trace=trace,
            progress=progress,
            merged=merged_there,
            seconds=end - start,
            footprint=True,
            sample=(threads, blocks),
        )
        took, ran = time.monotonic() - start, _threads(case, threads, blocks)
    assert run is not None
    return run


def _threads(case: Case, threads: int, blocks: int) -> int:
    """Return the threads of a case that run in a sample."""
    return sum(
        min(prod(launch.grid) * prod(launch.block), max(threads, blocks * prod(launch.block)))
        for launch in case.launches
    )


def limits_of(
    device: SimDevice, case: Case, run: Run, card: Card, settings: Settings, moved: int | None
) -> tuple[Limit, ...]:
    """Return the limits of a case that ran in the simulator with its footprints; moved: bytes that must move, if known.

    Without nvdisasm the machine code is not read, and what it decides is left out.
    """
    return limits.limits(work_of(device, case, run), card, cache=settings.cache, moved=moved)


def by_card(
    device: SimDevice, case: Case, run: Run, cards: Sequence[Card], settings: Settings, moved: int | None
) -> tuple[CardLimits, ...]:
    """Return the limits of such a case on each of several cards of its architecture."""
    work = work_of(device, case, run)
    return tuple(
        CardLimits(
            card.key,
            card.title,
            card.source == "measured",
            limits.launch_of(card, settings.cache),
            card.per_hour,
            limits.limits(work, card, cache=settings.cache, moved=moved),
        )
        for card in cards
    )


def work_of(device: SimDevice, case: Case, run: Run) -> list[limits.Work]:
    """Return what the launches of a case did, by kind of launch."""
    parts = {launch.function: part for part in case.parts for launch in part.launches}
    found = []
    for launched in run.launched:
        launch = launched.launch
        compiled = device.load(parts[launch.function]).compiled
        entry = compiled.entry(launch.function)
        functions: tuple[Function, ...] = ()
        if compiled.cubin is not None and nvdisasm.path() is not None:
            functions = nvdisasm.functions(compiled.cubin, entry)
        needs = compiled.resources[entry]
        threads = launch.block[0] * launch.block[1] * launch.block[2]
        shared = needs.shared_bytes + launch.shared_bytes
        fits = occupancy(device.architecture, threads, needs.registers, shared, barriers=needs.barriers)
        found.append(
            limits.Work(
                entry, launch.grid, launch.block, launched.times, launched.report, functions, compiled.lines,
                fits.blocks_per_sm,
            )
        )  # fmt: skip
    return found
