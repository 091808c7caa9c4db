"""One kernel, simulated: run, verify, count, check. What `gpu_run` is for a GPU."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from functools import partial

from cudabench import simulator
from cudabench.cards.load import Card
from cudabench.compile import limits, nvdisasm
from cudabench.compile.limits import CompilerStopped
from cudabench.compile.record import Compiled
from cudabench.devices import sim
from cudabench.devices.sim import SimDevice, poisoned, scratch
from cudabench.errors import CompilerError, CudabenchError, NoRoom, UnsupportedFeature, UsageError
from cudabench.explain import advice, costly, drawings, machine_code, recorded, statements
from cudabench.measure import other_order, suspected, verify
from cudabench.measure.context import (
    Arrays,
    InputSet,
    RunContext,
    arithmetic_warnings,
    compare,
    constants_of,
    describe,
    extent_warnings,
    kept_sentence,
    launch_warnings,
    other_architecture,
    right_output,
    state_warnings,
    tolerance_warnings,
    unverified_warnings,
    wrong_reason,
)
from cudabench.measure.limited import as_loaded, by_card, merged_in
from cudabench.measure.modules import code_warnings
from cudabench.occupancy import Occupancy, capability
from cudabench.records.launch import Dim
from cudabench.records.planned import Case, Operation, Problem
from cudabench.records.results import (
    Access,
    Branch,
    Hazard,
    Imbalance,
    MachineCode,
    Pattern,
    Result,
    StateVariable,
    Warning,
    Watch,
)
from cudabench.results.warnings import warning

SMS = 132  # of an H100 or H200, whether all blocks run at once: on smaller GPUs fewer do
LITERALS = 4  # of a line that a warning names


@dataclass
class SimulatedRun(RunContext):
    """The kernels of one run in the simulator; `output` is what the last one printed.

    `record` keeps what a report's page draws, bounded. `cards` price the counts, those of this architecture; with
    several a kernel that the architecture cannot run is skipped, since another may.
    """

    device: SimDevice
    trace: Watch = False
    cards: Sequence[Card] = ()
    disassemble: bool = True  # whether to read the machine code
    record: bool = False
    output: str = field(default="", init=False)

    def simulate(self, case: Case) -> Result:
        """Return the result of one case.

        Raises UnsupportedFeature for a kernel that was asked for by name and cannot be simulated; from a ladder it is
        skipped.
        """
        self.output = ""
        blank = describe(case, f"sim:{self.device.architecture}")
        if case.skip_reason:
            return replace(blank, status="skipped", reason=case.skip_reason)
        if reason := other_architecture(case, self.device.info, alone=len(self.cards) < 2):
            return replace(blank, status="skipped", reason=reason)
        self.expected(case.expects)  # an expectation of the user's that cannot be ends the run, not one kernel
        if self.settings.cpu:
            self.measure_cpu()
        blank = replace(blank, cpu=self.cpu)
        try:
            return self._simulate(case, blank)
        except UnsupportedFeature as error:
            if case.named and len(self.cards) < 2:
                raise
            return replace(blank, status="skipped", reason=str(error))
        except simulator.BudgetExceeded as stopped:
            if not stopped.hazards:
                return replace(blank, status="failed", reason=str(stopped))
            found = tuple(_hazard(one, case) for one in stopped.hazards)
            reason = f"{hazard_reason(found)}; {stopped}"
            return replace(blank, status="wrong", hazards=found, reason=reason)
        except CudabenchError as error:
            if (isinstance(error, NoRoom) and len(self.cards) > 1) or self._compiles_elsewhere(case, error):
                return replace(blank, status="skipped", reason=str(error))
            if isinstance(error, UsageError) and case.named:
                raise
            return replace(blank, status="failed", reason=str(error))

    def _compiles_elsewhere(self, case: Case, error: CudabenchError) -> bool:
        """Whether another of the cards' architectures, the newest or the oldest, takes what this one's compiler
        refuses: then it lacks what the kernel uses."""
        others = sorted({card.architecture for card in self.cards} - {self.device.architecture}, key=capability)
        if not isinstance(error, CompilerError) or isinstance(error, CompilerStopped):
            return False
        for architecture in dict.fromkeys([*others[-1:], *others[:1]]):
            with suppress(CompilerError), self._compile_limit():
                for part in case.parts:
                    SimDevice(architecture).load(part)
                return True
        return False

    def prepare(self, cases: Sequence[Case]) -> None:
        """Make what several cases share: inputs, references, the baseline, a built-in chapter compiled and read.

        What is wrong with a source is left for the case itself to say.
        """
        for case in cases:
            if not case.skip_reason:
                self.expected(case.expects)
                self.input_sets[0].poisons(case.expects)
        if self.settings.cpu:
            self.measure_cpu()
        for case in cases:
            if case.source.builtin and not case.skip_reason:
                self.progress("compiling", 0)
                with suppress(CudabenchError), self._compile_limit():
                    image = self.device.load(case).compiled.cubin
                    if self.disassemble and image is not None:
                        machine_code.read(image)

    def _simulate(self, case: Case, result: Result) -> Result:
        self.progress("compiling", 0)
        with self._compile_limit():
            compiled = [(part, self.device.load(part).compiled) for part in case.parts]
            if self.disassemble:
                for _, one in compiled:
                    if one.cubin is not None:
                        machine_code.begin(one.cubin)  # beside the simulation
        arrays = self._arrays(case, self.input_sets[0])
        self.device.reset(case)
        constants = {**case.constants, **constants_of(self.operation, self.inputs)}
        self.progress("reading the machine code", 0)
        merged = merged_in(self.device, case) if self.disassemble else {}
        self.progress("simulating", 0)
        began = time.monotonic()
        run = self.device.run(
            replace(case, constants=constants),
            arrays,
            trace=self.trace or (self.record and recorded.watch(case)),
            progress=lambda fraction: self.progress("simulating", fraction),
            merged=merged,
            seconds=self._seconds(),
            footprint=bool(self.cards),
            declared=partial(drawings.declared_shape, case),
            between=partial(statements.gap, texts_of(case)),
            schedule=self.settings.schedule,
        )
        took = time.monotonic() - began
        if self.disassemble:
            run = as_loaded(self.device, case, run)
        run = suspected.settled(run, compiled, self.disassemble)
        self.output = run.report.output
        state = tuple(self.device.changed(case))
        leaks = self.device.leaks(case)
        self.progress("verifying", 1)
        tolerance = self.operation.tolerated(case.expects, self.problem)
        expected = self.expected(case.expects)
        verification = compare(expected, arrays, tolerance, "simulated")
        result = replace(
            _counted(result, case, run, self.operation, self.problem, self.device.blocks(case)),
            verification=verification,
        )
        if self.disassemble:
            result = replace(result, machine_code=self._machine_code(run, compiled))
            if self.record:
                result = replace(result, lines=recorded.lines(compiled, run.report.executed) or None)
        several = len(self.cards) > 1
        if mine := [one for one in self.cards if not several or one.architecture == self.device.architecture]:
            with suppress(CudabenchError):  # the counts stand; the row says that it has no bound
                found = by_card(self.device, case, run, mine, self.settings, result.bytes)
                result = replace(result, limits=found[0].limits, limits_on=found[0].on)
                if several or mine[0].per_hour is not None:
                    result = replace(result, limits_by_card=found)
        buffers = self.operation.buffers(self.problem)
        if run.report.trace:
            tiles = drawings.tiles(run.report, case)
            if self.trace:
                threads = drawings.thread_accesses(run.report.trace, case, buffers, tiles)
                result = replace(result, threads=threads, banks=drawings.bank_requests(run.report.trace, tiles))
            else:
                result = replace(result, banks=recorded.banks(run.report.trace, tiles))
            if self.record:
                result = replace(result, steps=recorded.steps(run.report.trace, case, buffers, tiles))
        notes = [*unverified_warnings(verification, expected, buffers)]
        if result.hazards:
            notes += extent_warnings(verification, result.hazards, buffers)
        stored = [buffer.dtype for buffer in buffers]
        notes += arithmetic_warnings(result.machine_code, self.output_type(), verification, stored)
        notes += tolerance_warnings(expected, tolerance)
        entries = {one.entry(launch.function) for part, one in compiled for launch in part.launches}
        notes += [
            *launch_warnings(case),
            *state_warnings(state),
            *code_warnings((one.ptx for _, one in compiled), entries),
        ]
        if leaks is not None:  # what is freed is no matter
            notes = [note for note in notes if note.code != "malloc"]
            notes += [
                warning("leak", line=at, count=count, bytes=nbytes, heap_mib=simulator.HEAP_BYTES >> 20)
                for at, count, nbytes in leaks
            ]
        if not case.source.builtin and _wrote_nothing(run, compiled):
            notes.append(warning("unreached", kernel=case.kernel))
        notes += suspected.notes(run.report, case.bounds, verification is not None)
        notes += self._costly(run, compiled)
        result = replace(result, warnings=tuple(notes), state=state, inputs="fixed" if self.fixed else "fresh")
        faults = self._faults(case, run, result, arrays)
        if state and not faults:
            faults = self._faults_of_a_second_launch(case, state)
        if case.bounds and not faults:
            result, faults = self._in_another_order(replace(case, constants=constants), result, arrays, began, took)
        if case.bounds and not faults:
            left = self._seconds() - (time.monotonic() - began)
            more, unchecked = self._beyond_registers(replace(case, constants=constants), left)
            result = replace(result, hazards=(*(result.hazards or ()), *more), warnings=(*result.warnings, *unchecked))
            faults = [hazard_reason(more)] if more else []
        if faults:
            return replace(result, status="wrong", reason="; ".join(faults))
        return replace(result, figures=right_output(self.operation, self.problem, self.inputs, arrays))

    def _in_another_order(
        self, case: Case, result: Result, arrays: Arrays, began: float, took: float
    ) -> tuple[Result, list[str]]:
        """Run a clean kernel with its blocks in another order, where they may tell each other something; return its
        result with what that told, and faults."""
        meets, waits = self.device.meetings(case)
        if not meets:
            return result, []
        expected = self.expected(case.expects)

        def launch(schedule: str | None, seconds: float) -> tuple[sim.Run, Arrays]:
            self.device.reset(case)
            fresh = self._arrays(case, self.input_sets[0])
            run = self.device.run(
                case,
                fresh,
                trace=False,
                progress=lambda fraction: self.progress("in another order", fraction),
                seconds=min(seconds, self._seconds() - (time.monotonic() - began)),
                schedule=schedule,
            )
            return run, fresh

        def wrong(found: Arrays) -> str | None:
            look = compare(expected, found, self.operation.tolerated(case.expects, self.problem), "simulated")
            return wrong_reason(look) if look and look.mismatches else None

        written = [one.name for one in self.operation.buffers(self.problem) if one.role in ("out", "inout")]
        held = {name: arrays[name] for name in written if name not in expected}
        found = other_order.look(case.kernel, launch, self.settings.schedule, waits, took, held, wrong)
        hazards = tuple(_hazard(one, case) for one in found.hazards)
        notes = [*result.warnings, *found.warnings]
        faults = [hazard_reason(hazards)] if hazards else [*found.faults]
        return replace(result, hazards=(*(result.hazards or ()), *hazards), warnings=tuple(notes)), faults

    def _beyond_registers(self, case: Case, seconds: float) -> tuple[tuple[Hazard, ...], tuple[Warning, ...]]:
        """Return what the kernel compiled without optimisation accesses out of bounds, or races for: then local arrays
        lie in memory. And a warning where the compiler refuses it so, or it does not run to its end.

        An optimising compiler holds a small array in registers, and leaves out what goes past its end, with the stores
        that follow from it.
        """
        plain = replace(case, source=replace(case.source, debug=True))
        try:
            self.device.reset(plain)
            run = self.device.run(
                plain,
                self._arrays(case, self.input_sets[0]),
                trace=False,
                progress=lambda fraction: self.progress("simulating", fraction),
                seconds=seconds,
                declared=partial(drawings.declared_shape, case),
                between=partial(statements.gap, texts_of(case)),
                schedule=self.settings.schedule,
            )
        except CudabenchError as error:
            reason = str(error).partition("\n")[0].partition(";")[0].removeprefix("Error: ").rstrip(".:")
            return (), (warning("unchecked", kernel=case.kernel, reason=reason),)
        return tuple(_hazard(one, case) for one in run.report.hazards if _is_beyond(one)), ()

    def _seconds(self) -> float:
        """Return how long a kernel may be simulated: --timeout, or what is left of --budget."""
        left = math.inf if self.until is None else max(self.until - time.monotonic(), 0.0)
        return min(self.settings.timeout, left)

    def _compile_limit(self) -> AbstractContextManager[None]:
        """Return the context of compiling and reading a kernel: however short its time is, a compile has its own."""
        return limits.within(self._seconds() + limits.longest_seconds())

    def _arrays(self, case: Case, inputs: InputSet) -> Arrays:
        """Return the buffers of a problem: inputs, and poison where the kernel has to write."""
        poison, _ = inputs.poisons(case.expects)
        arrays: Arrays = {}
        for buffer in self.operation.buffers(self.problem):
            if buffer.role == "in" and case.source.builtin:
                arrays[buffer.name] = inputs.arrays[buffer.name].view()
                arrays[buffer.name].flags.writeable = False  # the next kernel needs it unchanged
            elif buffer.role in ("in", "inout"):
                arrays[buffer.name] = inputs.arrays[buffer.name].copy()
            elif buffer.role == "scratch":
                arrays[buffer.name] = scratch(buffer.shape, buffer.dtype)
            else:
                arrays[buffer.name] = poisoned(buffer.shape, buffer.dtype, poison)
        return arrays

    def _faults(self, case: Case, run: sim.Run, result: Result, arrays: Arrays) -> list[str]:
        """Return what is wrong with a launch and its output, the cause before what came of it."""
        faults = [hazard_reason(result.hazards)] if result.hazards else []
        if not case.source.builtin:  # a built-in kernel's inputs are read-only
            inputs = [b.name for b in self.operation.buffers(self.problem) if b.role == "in"]
            written = verify.changed(self.inputs, {name: arrays[name] for name in inputs})
            if written:
                faults.append(written)
        if result.verification and result.verification.mismatches:
            faults.append(wrong_reason(result.verification))
        if faults and run.report.suspicions:
            faults.append(f"perhaps because of {hazard_reason(run.report.suspicions)}")
        return faults

    def _faults_of_a_second_launch(self, case: Case, state: Sequence[StateVariable]) -> list[str]:
        """Launch once more, on other inputs and with what the first launch left, and return what is wrong then."""
        inputs = self.input_sets[1]
        expected = inputs.expected(case.expects)
        arrays = self._arrays(case, inputs)
        self.device.run(
            case,
            arrays,
            trace=False,
            progress=lambda fraction: self.progress("launching again", fraction),
            seconds=self._seconds(),
            schedule=self.settings.schedule,
        )
        again = compare(expected, arrays, self.operation.tolerated(case.expects, inputs.problem), "again")
        if again is None or not again.mismatches:
            return []
        return [f"{wrong_reason(again)}: {kept_sentence(state)}"]

    def _costly(self, run: sim.Run, compiled: Sequence[tuple[Case, Compiled]]) -> list[Warning]:
        """Return what is to be said of arithmetic that costs more than it looks."""
        notes = []
        for part, one in compiled:
            lines = one.lines
            for entry in dict.fromkeys(one.entry(launch.function) for launch in part.launches):
                executions = run.report.executed.get(entry, {})
                found = costly.find(lines, executions, part.source.name)
                if self.disassemble and one.cubin is not None and nvdisasm.path() is not None:
                    code = nvdisasm.functions(one.cubin, entry)
                    found += filter(None, [costly.spills(code, executions, lines, part.source.name)])
                for each in found:
                    places = ", ".join(map(str, each.lines))
                    said = f"line{'s' if len(each.lines) > 1 else ''} {places}"
                    texts = [line_text(part, part.source.name, number) for number in each.lines]
                    own = costly.literals(texts) or costly.literals_of_macros(texts, part.source.text)
                    doubles = own[:LITERALS] or ["2.0"]
                    notes.append(
                        warning(
                            each.kind,
                            lines=said,
                            count=each.instructions,
                            bytes=each.bytes,
                            doubles=", ".join(doubles),
                            floats=", ".join(f"{literal}f" for literal in doubles),
                        )
                    )
        return notes

    def _machine_code(self, run: sim.Run, compiled: Sequence[tuple[Case, Compiled]]) -> MachineCode | None:
        images = []
        for part, one in compiled:
            if one.cubin is not None:
                entries = dict.fromkeys(one.entry(launch.function) for launch in part.launches)
                kernels = [machine_code.Kernel(entry, run.report.executed.get(entry)) for entry in entries]
                images.append(machine_code.Image(one.cubin, kernels, one.lines))
        ptx = "\n".join(one.ptx for _, one in compiled)
        record = machine_code.describe_all(images, self.device.architecture, ptx)
        return record and replace(record, inexact=machine_code.inexact(images, run.report.accesses))


# What writes memory that outlives a block.
_WRITES = re.compile(
    r"\s*(?:@!?%\w+\s+)?(?:(?:st|atom|red)\.(?![\w.:]*(?:shared|local|param))|sust\.|multimem\.|cp\.[\w.:]*global\.shared)"
)


def _wrote_nothing(run: sim.Run, compiled: Sequence[tuple[Case, Compiled]]) -> bool:
    """Return whether kernels that have stores to global memory came to none of them."""
    if any(row.op != "load" and row.space not in ("shared", "local") for row in run.report.accesses):
        return False  # as nearly always, without a look at the PTX
    found = False
    for part, one in compiled:
        written = [number for number, text in enumerate(one.ptx.splitlines(), 1) if _WRITES.match(text)]
        for entry in dict.fromkeys(one.entry(launch.function) for launch in part.launches):
            own = run.report.executed.get(entry, {})
            lanes = [own[number].lanes for number in written if number in own]
            if any(lanes):
                return False
            found |= bool(lanes)
    return found


def _counted(
    result: Result, case: Case, run: sim.Run, operation: Operation, problem: Problem, blocks: Mapping[str, Dim]
) -> Result:
    report = run.report
    return replace(
        result,
        registers=run.resources.registers,
        shared_bytes=run.resources.shared_bytes,
        local_bytes=run.resources.local_bytes,
        occupancy=run.occupancy,
        bytes=operation.bytes(problem) or None,
        flops=operation.flops(problem) if operation.flops else None,
        instructions=report.instructions,
        access=access_rows(report.accesses, report, case, blocks),
        branches=tuple(_branch(branch, case, report.instructions) for branch in report.branches),
        hazards=tuple(_hazard(hazard, case) for hazard in report.hazards),
        imbalance=report.imbalance and _imbalance(report.imbalance, case, run.occupancy),
    )


def access_rows(
    rows: Sequence[simulator.Access], report: simulator.Report, case: Case, blocks: Mapping[str, Dim]
) -> tuple[Access, ...]:
    """Return the accesses of a result: the simulator's rows with advice and with what the report knows of atomics."""
    said = advice.advise(rows, blocks)
    own = tuple(_access(row, case, text) for row, text in zip(rows, said, strict=True))
    return _contended(own, rows, report.contended, case)


def _access(access: simulator.Access, case: Case, said: str | None) -> Access:
    return Access(
        line=access.line,
        source=line_text(case, access.file, access.line),
        space=access.space,
        op=access.op,
        bytes=access.bytes,
        requests=access.requests,
        sectors=access.sectors,
        ideal_sectors=access.ideal_sectors,
        wavefronts=access.wavefronts,
        ideal_wavefronts=access.ideal_wavefronts,
        merged=access.merged,
        advice=said,
        column=access.column or None,
        instruction=access.instruction or None,
        array=access.array,
        pattern=_pattern(access),
        inexact=access.inexact,
    )


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


def _contended(
    rows: tuple[Access, ...], counted: Sequence[simulator.Access], contended: Sequence[simulator.Contended], case: Case
) -> tuple[Access, ...]:
    """Return the rows with what is known of their atomics: whether they are reductions, and where they meet."""
    by_instruction: dict[tuple[int, str, int | None], list[simulator.Contended]] = {}
    for atomic in contended:
        place = (atomic.line, line_text(case, atomic.file, atomic.line), atomic.instruction or None)
        by_instruction.setdefault(place, []).append(atomic)
    found = []
    for row, own in zip(rows, counted, strict=True):
        atomics = by_instruction.get((row.line, row.source, row.instruction), [])
        if row.op not in ("atomic", "reduction") or row.space != "global" or not atomics:
            found.append(row)
            continue
        most = max(atomics, key=lambda atomic: atomic.hottest or 0)
        said = advice.contention(own, most.hottest, most.blocks)
        if said is None or (row.advice and row.pattern and row.pattern.kind == "gather"):
            said = row.advice  # a histogram's bins are hit often, and not all by one warp
        elif row.array:
            said = f"{row.array}: {said}"
        op = "atomic" if any(atomic.returns for atomic in atomics) else "reduction"
        found.append(replace(row, op=op, hottest=most.hottest, hottest_blocks=most.blocks, advice=said))
    return tuple(found)


def _branch(branch: simulator.Branch, case: Case, instructions: int) -> Branch:
    return Branch(
        line=branch.line,
        source=line_text(case, branch.file, branch.line),
        executions=branch.executions,
        divergent=branch.parted,
        lanes_taken=branch.taken / branch.lanes if branch.lanes else 0.0,
        instructions=branch.instructions,
        threads_per_instruction=branch.threads / branch.instructions if branch.instructions else None,
        advice=advice.parted(branch, instructions),
    )


def _imbalance(found: simulator.Imbalance, case: Case, fits: Occupancy | None) -> Imbalance | None:
    advised = advice.unbalanced(found, SMS, fits.blocks_per_sm if fits else 1)
    if advised is None:
        return None
    return Imbalance(
        blocks=found.blocks,
        busiest=found.busiest,
        instructions=found.instructions,
        mean=found.mean,
        over=found.over,
        last=found.last,
        line=found.line,
        source=line_text(case, found.file, found.line),
        share=found.share,
        advice=advised,
    )


def _hazard(hazard: simulator.Hazard, case: Case) -> Hazard:
    return Hazard(
        kind=hazard.kind,
        line=hazard.line,
        source=line_text(case, hazard.file, hazard.line),
        block=hazard.block,
        thread=hazard.thread,
        count=hazard.count,
        message=hazard.message,
    )


def line_text(case: Case, file: str, number: int) -> str:
    """Return the text of a source line, or the file's name where the line is in a header."""
    sources = [part.source for part in case.parts]
    source = next((s for s in sources if not file or file.endswith(s.name.rsplit("/", 1)[-1])), None)
    if source is None:
        return f"({file.rsplit('/', 1)[-1]})"
    lines = source.text.splitlines()
    return lines[number - 1].strip() if 0 < number <= len(lines) else ""


def _is_beyond(hazard: simulator.Hazard) -> bool:
    """Tell whether a hazard of unoptimised code is the source's: such code alone copies registers that a wgmma still
    writes."""
    if hazard.kind == "race":
        return "wgmma" not in hazard.message
    return hazard.kind in ("out-of-bounds", "misaligned", "stale-read")


def hazard_reason(hazards: Sequence[Hazard | simulator.Hazard]) -> str:
    """Return the first hazard, and how many others there are."""
    first = hazards[0]
    more = f", and {len(hazards) - 1} more" if len(hazards) > 1 else ""
    return f"{first.kind} on line {first.line}: {first.message.rstrip('.')}{more}"


def texts_of(case: Case) -> dict[str, str]:
    """Return the texts of a case's sources by their names."""
    return {part.source.name: part.source.text for part in case.parts}
