"""Simulates a case to count its accesses and instructions. Makes the records of a result from these counts, with
advice, and the limits of the launches on a card. For a kernel that a GPU has measured, only a sample of blocks runs."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from cudabench.cards.load import Card, card_for_device
from cudabench.compile import nvdisasm
from cudabench.compile.record import Compiled
from cudabench.compile.sass import Function
from cudabench.devices.sim import Arrays, Loaded, Run, SimDevice, machine_code_of, poisoned_array, scratch_array
from cudabench.errors import CudabenchError
from cudabench.explain import (
    advice,
    drawings,
    lower_bounds,
    machine_code,
    machine_code_selection,
    merged,
    recorded,
    statements,
)
from cudabench.explain.block_counts import Executions
from cudabench.explain.card_rates import launch_time
from cudabench.measure.context import constants_of
from cudabench.occupancy import Occupancy, occupancy
from cudabench.plan import chapters
from cudabench.records.launch import POISON, Dim
from cudabench.records.plan import Buffer, Case, Operation, Problem, Settings
from cudabench.records.results import (
    Access,
    Branch,
    CardLimits,
    Counted,
    DeviceInfo,
    Hazard,
    Imbalance,
    MachineCode,
    Pattern,
    Result,
    Watch,
)
from cudabench.results import units
from cudabench.results.warnings import warning
from cudabench.simulator import api as simulator
from cudabench.simulator.machine_code.launch import MachineCodeRequest
from cudabench.simulator.program.kept import digest_of

Issued = dict[str, dict[int, tuple[int, int]]]

SMS = 132  # multiprocessors of an H100 or H200
COUNTING_S = 60.0  # a kernel is counted for at most this many seconds
# The samples of blocks that are simulated for limits, smallest first: (fewest threads, fewest blocks, most seconds).
# A larger sample runs only if its expected time, estimated from the previous sample, is at most these seconds. If the
# work differs between blocks (`lower_bounds.sampling_factor` is below EVEN), it may take UNEVEN_S seconds.
SAMPLES = ((0, 4, 0.0), (4096, 16, 15.0), (32768, 16, 4.0))
EVEN, UNEVEN_S = 0.9, 60.0


class Kernel(NamedTuple):
    """A kernel that a case launches. `part`: the part of the case with the kernel's source. `loaded`: the compiled
    source. `function`: the kernel's name in C++. `entry`: the kernel's name in PTX."""

    part: Case
    loaded: Loaded
    function: str
    entry: str

    @property
    def compiled(self) -> Compiled:
        """The compiled source file."""
        return self.loaded.compiled

    @property
    def code(self) -> tuple[Function, ...]:
        """The machine code of the kernel; empty without a cubin or nvdisasm."""
        if self.compiled.cubin is None or nvdisasm.path() is None:
            return ()
        return nvdisasm.functions(self.compiled.cubin, self.entry)


def kernels(device: SimDevice, case: Case) -> list[Kernel]:
    """Return the kernels that a case launches, each once."""
    return [
        Kernel(part, loaded, function, loaded.compiled.entry(function))
        for part in case.parts
        for loaded in [device.load(part)]
        for function in dict.fromkeys(launch.function for launch in part.launches)
    ]


def arrays_of(
    buffers: Iterable[Buffer], inputs: Arrays, poison: int = POISON, *, kept: bool, done: Mapping[str, Any] = {}
) -> Arrays:
    """Return the arrays of a problem by name: inputs, and outputs filled with the byte `poison`.

    `kept`: whether read-only inputs are passed as write-protected views instead of copies. `done`: by name, arrays that
    are no longer needed; their memory is used for the new outputs.
    """
    arrays: Arrays = {}
    for buffer in buffers:
        if buffer.role == "in" and kept:
            arrays[buffer.name] = inputs[buffer.name].view()
            arrays[buffer.name].flags.writeable = False
        elif buffer.role in ("in", "inout"):
            arrays[buffer.name] = inputs[buffer.name].copy()
        elif buffer.role == "scratch":
            arrays[buffer.name] = scratch_array(buffer.shape, buffer.dtype)
        else:
            arrays[buffer.name] = poisoned_array(buffer.shape, buffer.dtype, poison, done.get(buffer.name))
    return arrays


def merged_issues(device: SimDevice, case: Case) -> Issued:
    """Return, by function and PTX line, how to count accesses that ptxas merged (argument `merged` of
    `simulator.launch.run`); empty without nvdisasm."""

    def of(kernel: Kernel) -> dict[int, tuple[int, int]]:
        compiled = kernel.compiled
        return merged.merge(kernel.code, compiled.lines, kernel.loaded.program.lines(kernel.entry)).request_counts()

    issued = {}
    for kernel in kernels(device, case):
        if kernel.code and (cubin := kernel.compiled.cubin) is not None:
            name = f"{kernel.entry} {digest_of(kernel.compiled.ptx).hex()}"
            issued[kernel.function] = nvdisasm.remembered(
                "merged", cubin, name, partial(of, kernel), Path(merged.__file__).parent
            )
    return issued


def machine_code_to_run(kernel: Kernel) -> MachineCodeRequest | None:
    """Return the machine code that must be executed to count a kernel's launches; None if its PTX is enough."""
    code, ptx = kernel.code, kernel.compiled.lines
    if not machine_code_selection.may_diverge(code):
        return None
    return MachineCodeRequest(
        lambda: machine_code_of(kernel.compiled, kernel.function), lambda: machine_code_selection.fuses(code, ptx)
    )


def machine_codes_to_run(device: SimDevice, case: Case) -> dict[str, MachineCodeRequest]:
    """Return `machine_code_to_run` by function, without the functions for which it is None."""
    return {
        kernel.function: code for kernel in kernels(device, case) if (code := machine_code_to_run(kernel)) is not None
    }


def with_machine_accesses(device: SimDevice, case: Case, report: simulator.Report) -> simulator.Report:
    """Return the report with accesses corrected by the machine code: removed accesses are left out, and the others get
    its counts if it was executed. Accesses that hardware may count differently are marked as inexact."""
    accesses = report.accesses
    for kernel in kernels(device, case):
        ran = machine_code.Kernel(kernel.entry, report.executed.get(kernel.entry))
        if kernel.code:
            accesses = machine_code.machine_code_accesses(accesses, ran, kernel.code, kernel.compiled.lines)
    return replace(report, accesses=accesses)


def machine_code_record(
    device: SimDevice, case: Case, executed: Mapping[str, Executions], accesses: Sequence[simulator.Access]
) -> MachineCode | None:
    """Return the record of a case's machine code and its execution counts; None without machine code.

    `executed`: by the kernel's name in PTX, how often each PTX line ran. `accesses`: the simulator's accesses.
    """
    images: dict[bytes, machine_code.Image] = {}
    for kernel in kernels(device, case):
        if (cubin := kernel.compiled.cubin) is not None:
            ran = machine_code.Kernel(kernel.entry, executed.get(kernel.entry))
            before = images[cubin].kernels if cubin in images else ()
            images[cubin] = machine_code.Image(cubin, [*before, ran], kernel.compiled.lines)
    ptx = "\n".join(device.load(part).compiled.ptx for part in case.parts)
    record = machine_code.describe_all([*images.values()], device.architecture, ptx)
    return record and replace(record, inexact=machine_code.inexact([*images.values()], accesses))


def run_sample(
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
    """Run a sample of a case's blocks to count their work, and return the run without its outputs. `trace`: which
    single accesses to record. Raises the errors of `SimDevice.run`.
    """
    arrays = arrays_of(operation.buffers(problem), inputs, kept=True)
    merged_there, machine = merged_issues(device, case), machine_codes_to_run(device, case)
    case = replace(case, constants={**case.constants, **constants_of(operation, inputs)})
    run: Run | None = None
    end, took, ran = time.monotonic() + seconds, 0.0, 1
    for threads, blocks, most_s in SAMPLES:
        grows = max(_sampled_threads(case, threads, blocks) / ran, 1.0)
        if run is not None:
            footprints = [launched.report.footprint for launched in run.launched]
            uneven = any(
                footprint is not None and lower_bounds.sampling_factor(footprint.parts) < EVEN
                for footprint in footprints
            )
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
            machine=machine,
            seconds=end - start,
            footprint=True,
            sample=(threads, blocks),
        )
        took, ran = time.monotonic() - start, _sampled_threads(case, threads, blocks)
    assert run is not None
    return run


def _sampled_threads(case: Case, threads: int, blocks: int) -> int:
    """Return how many threads run in a sample with at least `threads` threads and `blocks` blocks of each launch."""
    return sum(
        min(prod(launch.grid) * prod(launch.block), max(threads, blocks * prod(launch.block)))
        for launch in case.launches
    )


def limits_by_card(
    device: SimDevice, case: Case, run: Run, cards: Sequence[Card], settings: Settings, moved: int | None
) -> tuple[CardLimits, ...]:
    """Return the limits of a case on each card in `cards`; all must have the architecture of the device.

    `run`: a run of the case with footprints. `moved`: the bytes that must move between memory and the chip, if known.
    Without nvdisasm, limits that need the machine code are left out.
    """
    work = work_of(device, case, run)
    return tuple(
        CardLimits(
            card.key,
            card.title,
            card.source == "measured",
            launch_time(card, settings.cache),
            card.per_hour,
            lower_bounds.lower_bounds(work, card, cache=settings.cache, moved=moved),
        )
        for card in cards
    )


def work_of(device: SimDevice, case: Case, run: Run) -> list[lower_bounds.Work]:
    """Return the work of a case's launches: one record for all launches with the same kernel, grid and block."""
    by_function = {kernel.function: kernel for kernel in kernels(device, case)}
    works = []
    for launched in run.launched:
        launch = launched.launch
        kernel = by_function[launch.function]
        needs = kernel.compiled.resources[kernel.entry]
        shared = needs.shared_bytes + launch.shared_bytes
        fits = occupancy(device.architecture, prod(launch.block), needs.registers, shared, barriers=needs.barriers)
        works.append(
            lower_bounds.Work(
                kernel.entry, launch.grid, launch.block, launched.times, launched.report, kernel.code,
                kernel.compiled.lines, fits.blocks_per_sm,
            )
        )  # fmt: skip
    return works


@dataclass
class Counting:
    """Simulates measured kernels of one series to count their work; the inputs of a problem are computed only once.
    `until`: the time.monotonic() at which the run must end."""

    operation: Operation
    settings: Settings
    until: float | None = None
    _devices: dict[str, SimDevice] = field(default_factory=dict)
    _problem: Problem | None = None
    _inputs: Arrays = field(default_factory=dict)

    def with_limits(
        self, result: Result, case: Case, device: DeviceInfo, progress: Callable[[float], None] = lambda fraction: None
    ) -> Result:
        """Return a measured result with accesses, counts of machine code, limits and the data for drawings added. If
        the simulator cannot count the kernel, only a warning with the reason is added."""
        try:
            return self._with_limits(result, case, device, progress)
        except CudabenchError as error:
            note = warning("uncounted", reason=str(error).rstrip("."))
            return replace(result, warnings=(*result.warnings, note))

    def _with_limits(self, result: Result, case: Case, device: DeviceInfo, progress: Callable[[float], None]) -> Result:
        seconds = COUNTING_S
        if self.until is not None:
            seconds = min(seconds, self.until - time.monotonic())
        if seconds <= 0:
            raise CudabenchError(f"--budget {self.settings.budget:g} s was used up")
        card = card_for_device(device)
        if not card.device.sm_count or not card.sm_hz:
            raise CudabenchError(f"the multiprocessors of {device.name} and their clock are unknown")
        architecture = "sm_" + device.compute_capability.replace(".", "")
        simulated = self._devices.setdefault(architecture, SimDevice(architecture))
        if case.problem != self._problem:
            self._problem, self._inputs = case.problem, self.operation.inputs(case.problem)
        run = run_sample(
            simulated, case, self.operation, case.problem, self._inputs, seconds=seconds, progress=progress,
            trace=recorded.watch(case),
        )  # fmt: skip
        (card_limits,) = limits_by_card(simulated, case, run, [card], self.settings, result.bytes)
        report = simulator.merge(launched.report for launched in run.launched)
        accesses, counts = _scaled_counts(simulated, case, run)
        rows = access_rows(accesses, report, case, simulated.blocks(case))
        ran = machine_code_record(simulated, case, counts, accesses)
        code, same = _merge_records(result.machine_code, ran)
        # If the measured machine code differs from the simulated machine code, keep the counts of each line, but not
        # the simulated code of the line.
        lines = recorded.lines([(part, simulated.load(part).compiled) for part in case.parts], counts)
        if same is False:
            lines = tuple(replace(line, code=()) for line in lines)
        if trace := run.report.trace:
            tiles = drawings.tiles(run.report, case)
            steps = recorded.steps(trace, case, self.operation.buffers(case.problem), tiles)
            result = replace(result, banks=recorded.banks(trace, case, tiles), steps=steps)
        footprints = [launched.report.footprint for launched in run.launched if launched.report.footprint]
        on = Counted(
            blocks=sum(footprint.ran for footprint in footprints),
            of=sum(footprint.blocks for footprint in footprints),
            same_code=same,
            instructions_executed=ran.instructions_executed if ran else None,
            inexact=ran.inexact if ran else None,
        )
        return replace(
            result,
            access=rows,
            machine_code=code,
            limits=card_limits.limits,
            limits_on=card.title,
            counted=on,
            lines=lines or None,
        )  # fmt: skip


def _scaled_counts(device: SimDevice, case: Case, run: Run) -> tuple[Sequence[simulator.Access], dict[str, Executions]]:
    """Return (the accesses of all launches; by the kernel's name in PTX, how often each PTX line and its machine code
    ran). The counts of a sample are multiplied, so that they estimate the counts of all blocks."""
    accesses: dict[object, simulator.Access] = {}
    counts: dict[str, list[simulator.Lines]] = defaultdict(list)
    for launched in run.launched:
        footprint = launched.report.footprint
        assert footprint is not None
        scale = footprint.blocks / footprint.ran
        for row in with_machine_accesses(device, case, launched.report).accesses:
            own = row.times(scale)
            have = accesses.get(own.key)
            accesses[own.key] = own if have is None else have.plus(own)
        for entry, executed in launched.report.executed.items():
            counts[entry].append(simulator.scaled(executed, scale))
    return list(accesses.values()), {entry: simulator.summed(several) for entry, several in counts.items()}


def _merge_records(measured: MachineCode | None, counted: MachineCode | None) -> tuple[MachineCode | None, bool | None]:
    """Return (record of the measured code; whether the measured code equals the counted code, None if unknown). If the
    two are equal, the record gets the counts. They differ if the GPU's compiler and the simulator's make other code."""
    if measured is None or counted is None:
        return measured, None
    if counted.sha256 != measured.sha256:
        return measured, False
    executed = replace(
        measured,
        instructions_executed=counted.instructions_executed,
        threads_per_instruction=counted.threads_per_instruction,
        pipes=counted.pipes,
        inexact=counted.inexact,
    )
    return executed, True


# Records of counts and hazards ---------------------------------------------------------------------------------------

_SAME_OF_ACCESS = (
    "line", "space", "op", "bytes", "requests", "sectors", "ideal_sectors", "wavefronts", "ideal_wavefronts", "merged",
    "array", "inexact",
)  # fmt: skip
_SAME_OF_IMBALANCE = ("blocks", "busiest", "instructions", "mean", "over", "last", "line", "share")
_SAME_OF_HAZARD = ("kind", "line", "block", "thread", "count", "message")


def _equal_fields(record: Any, names: Sequence[str]) -> dict[str, Any]:
    return {name: getattr(record, name) for name in names}


def with_counts(
    result: Result, case: Case, run: Run, operation: Operation, problem: Problem, blocks: Mapping[str, Dim]
) -> Result:
    """Return a result with the counts and hazards of a run in the simulator."""
    report, lines = run.report, SourceLines(case)
    return replace(
        result,
        registers=run.resources.registers,
        shared_bytes=run.resources.shared_bytes,
        local_bytes=run.resources.local_bytes,
        occupancy=run.occupancy,
        bytes=operation.bytes(problem) or None,
        flops=operation.flops(problem) if operation.flops else None,
        instructions=report.instructions,
        engine=report.engine,
        access=access_rows(report.accesses, report, case, blocks),
        branches=tuple(
            Branch(
                line=branch.line,
                source=lines.text(branch.file, branch.line),
                executions=branch.executions,
                divergent=branch.diverged,
                lanes_taken=branch.taken / branch.lanes if branch.lanes else 0.0,
                instructions=branch.instructions,
                threads_per_instruction=branch.threads / branch.instructions if branch.instructions else None,
                advice=advice.divergence_advice(branch, report.instructions),
                file=case.header(branch.file),
            )
            for branch in report.branches
        ),
        hazards=hazards_of(report.hazards, case),
        imbalance=report.imbalance and _imbalance(report.imbalance, case, run.occupancy),
    )


def access_rows(
    rows: Sequence[simulator.Access], report: simulator.Report, case: Case, blocks: Mapping[str, Dim]
) -> tuple[Access, ...]:
    """Return the records of accesses for a result, made from the simulator's `rows`, with advice. Atomics on global
    memory also get the counts of atomics on one address, and `op` "reduction" if no kernel uses their results."""
    contended: dict[object, list[simulator.Contended]] = {}
    for atomic in report.contended:
        contended.setdefault((atomic.file, atomic.line, atomic.instruction or None), []).append(atomic)
    accesses, lines = [], SourceLines(case)
    for row, advised in zip(rows, advice.advise(rows, blocks), strict=True):
        access = Access(
            **_equal_fields(row, _SAME_OF_ACCESS),
            source=lines.text(row.file, row.line),
            advice=advised,
            column=row.column or None,
            instruction=row.instruction or None,
            pattern=_pattern(row),
            file=case.header(row.file),
        )
        accesses.append(access)
        atomics = contended.get((row.file, row.line, access.instruction))
        if atomics and row.op in ("atomic", "reduction") and row.space == "global":
            most = max(atomics, key=lambda atomic: atomic.hottest or 0)
            meeting = advice.contention_advice(row, most.hottest, most.blocks)
            gather = access.pattern is not None and access.pattern.kind == "gather"
            if meeting and not (advised and gather):  # no advice for a histogram, in which many warps update each bin
                advised = f"{row.array}: {meeting}" if row.array else meeting
            op = "atomic" if any(atomic.returns for atomic in atomics) else "reduction"
            accesses[-1] = replace(access, op=op, hottest=most.hottest, hottest_blocks=most.blocks, advice=advised)
    return tuple(accesses)


def _pattern(access: simulator.Access) -> Pattern | None:
    if not access.patterns:
        return None
    most, requests, *_ = access.patterns[0]
    irregular = most.kind in ("gather", "permutation", "single")
    return Pattern(
        kind=most.kind,
        stride_bytes=None if irregular else most.stride,
        offset_bytes=None if most.varies else most.offset,
        lanes=most.lanes,
        run=most.run,
        jump_bytes=most.jump or None,
        share=requests / access.requests,
    )


def _imbalance(imbalance: simulator.Imbalance, case: Case, fits: Occupancy | None) -> Imbalance | None:
    advised = advice.imbalance_advice(imbalance, SMS, fits.blocks_per_sm if fits else 1)
    if advised is None:
        return None
    source = SourceLines(case).text(imbalance.file, imbalance.line)
    return Imbalance(
        **_equal_fields(imbalance, _SAME_OF_IMBALANCE), source=source, advice=advised, file=case.header(imbalance.file)
    )


def hazards_of(hazards: Iterable[simulator.Hazard], case: Case) -> tuple[Hazard, ...]:
    """Return the simulator's hazards as the records of a result, with the text of their source lines."""
    lines = SourceLines(case)
    return tuple(
        Hazard(
            **_equal_fields(hazard, _SAME_OF_HAZARD),
            source=lines.text(hazard.file, hazard.line),
            file=case.header(hazard.file),
        )
        for hazard in hazards
    )


class SourceLines:
    """The lines of a case's sources and headers; the headers are read when first needed, and then cached."""

    def __init__(self, case: Case) -> None:
        self._case = case

    def text(self, file: str, number: int) -> str:
        """Return the text of a line of a file, such as 'x = 1;', or '(header.h)' if the file's text is unknown."""
        name = self._case.header(file)
        lines = self._header_lines.get(name) if name else self._case_lines
        if lines is None:
            return f"({name})"
        return lines[number - 1].strip() if 0 < number <= len(lines) else ""

    @cached_property
    def _case_lines(self) -> list[str]:
        return self._case.source.text.splitlines()

    @cached_property
    def _header_lines(self) -> dict[str, list[str]]:
        """The lines of all sources and headers by the file's name, without folders."""
        sources = [part.source for part in self._case.parts]
        texts = {path: text for source in sources for path, text in chapters.headers(source).items()}
        texts |= {source.name: source.text for source in sources}
        return {path.rpartition("/")[2]: text.splitlines() for path, text in texts.items()}


def hazard_reason(hazards: Sequence[Hazard]) -> str:
    """Return a text with the first hazard, and the number of further hazards."""
    first = hazards[0]
    more = f", and {len(hazards) - 1} more" if len(hazards) > 1 else ""
    return f"{first.kind} on line {units.place_of(first)}: {first.message.rstrip('.')}{more}"


def source_texts(case: Case) -> dict[str, Any]:
    """Return the arguments `declared` and `between` of `simulator.launch.run`: functions that the messages about
    hazards need to name elements and lines of the source."""
    texts = {part.source.name: part.source.text for part in case.parts}
    return {"declared": partial(drawings.declared_shape, case), "between": partial(statements.barrier_gap, texts)}
