"""Measures a kernel in the simulator: run, verify, count, check. The module `gpu_run` measures on a GPU; the module
`further_runs` runs kernels without a fault again."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace

from cudabench.compile import diagnostics, limits
from cudabench.compile.limits import CompilerStopped
from cudabench.devices import sim
from cudabench.devices.sim import SimDevice
from cudabench.errors import BlockDoesNotFit, CompilerError, CudabenchError
from cudabench.explain import costly, drawings, machine_code, recorded
from cudabench.measure import further_runs, verify
from cudabench.measure.context import (
    SIMULATED,
    Arrays,
    Evidence,
    changed_state_sentence,
    conclude,
    constants_of,
    extent_warnings,
    wrong_reason,
)
from cudabench.measure.counting import (
    Kernel,
    SourceLines,
    hazard_reason,
    hazards_of,
    kernels,
    limits_by_card,
    machine_code_record,
    machine_codes_to_run,
    merged_issues,
    source_texts,
    with_counts,
    with_machine_accesses,
)
from cudabench.measure.simulated_launches import SimulatedLaunches
from cudabench.occupancy import capability
from cudabench.records.plan import Case
from cudabench.records.results import Result, Verification, Warning, Watch
from cudabench.results.warnings import warning
from cudabench.simulator import api as simulator
from cudabench.simulator.machine_code.launch import DIFFERS

STACK_BYTES = 1024  # bytes; the default of cudaLimitStackSize
LITERALS = 4  # a warning names at most this many literals

# Suspicions that become warnings. ALWAYS: in every command. OF_CHECKS: only in the command `check`.
ALWAYS = ("skipped-barrier", "early-exit", "lock-missed", "unsearched")
OF_CHECKS = ("ended-before-barrier", "too-large")
LIMITS_OF_CHECKS = ("unsearched", "too-large")  # suspicions that say what was not checked; they cause no fault
CODES = {"too-large": "unsearched"}  # maps a kind of suspicion to the code of its warning, if the two differ
# These suspicions are not reported for a barrier that is already reported as divergent.
BESIDE = ("skipped-barrier", "ended-before-barrier")
# These faults cause races within a block. If a kernel has such a fault, its races within a block are not reported.
EXCUSES = ("divergent-barrier", "invalid-mask")


@dataclass
class SimulatedRun(SimulatedLaunches):
    """Measures the kernels of one run in the simulator.

    `record`: whether results get the data for drawings of an HTML page. Limits are computed for those of the `cards`
    that have the device's architecture. With several cards, a kernel that cannot run on this architecture is skipped
    instead of failed, because another card may run the kernel.
    """

    trace: Watch = False
    disassemble: bool = True  # whether the machine code is read
    record: bool = False
    _done: Arrays = field(default_factory=dict, init=False)  # outputs of the last kernel that ran

    def prepare_shared(self, blank: Result) -> Result:
        """Measure the CPU baseline, if requested, and return the blank result with its time."""
        return replace(blank, cpu=self.measure_cpu() if self.settings.cpu else self.cpu)

    def run_case(self, case: Case, blank: Result) -> Result:
        """Simulate a case, and return its result; 'wrong' if hazards were found before the time limit."""
        try:
            return self._simulate(case, blank)
        except simulator.BudgetExceeded as stopped:
            if not stopped.hazards:
                raise
            hazards = hazards_of(stopped.hazards, case)
            return replace(blank, status="wrong", hazards=hazards, reason=f"{hazard_reason(hazards)}; {stopped}")

    def is_skipped(self, case: Case, error: CudabenchError) -> bool:
        """Return whether a kernel that failed here may run on another card: if its block does not fit here, or if its
        source compiles for the newest or the oldest of the other cards' architectures."""
        if isinstance(error, BlockDoesNotFit):
            return len(self.cards) > 1
        if not isinstance(error, CompilerError) or isinstance(error, CompilerStopped):
            return False
        architectures = sorted({card.architecture for card in self.cards} - {self.device.architecture}, key=capability)
        for architecture in dict.fromkeys([*architectures[-1:], *architectures[:1]]):
            with suppress(CompilerError), self._compile_limit():
                for part in case.parts:
                    SimDevice(architecture).load(part)
                return True
        return False

    def prepare(self, cases: Sequence[Case]) -> None:
        """Prepare the data that several cases use, before processes are forked: inputs, references, the time of the CPU
        baseline, compiled built-in sources.

        Errors of a source are ignored here, because they are raised again when the case runs.
        """
        own = [case for case in cases if not case.skip_reason]
        for case in own:
            self.expected(case.expects)
            self.input_sets[0].poisons(case.expects)
        if self.settings.cpu:
            self.measure_cpu()
        for at, case in enumerate(own):
            if case.source.builtin:
                self.progress("compiling all kernels", at / len(own))
                with suppress(CudabenchError), self._compile_limit():
                    image = self.device.load(case).compiled.cubin
                    if self.disassemble and image is not None:
                        machine_code.disassemble(image)

    def _simulate(self, case: Case, result: Result) -> Result:
        self.progress("compiling", 0)
        with self._compile_limit():
            own = kernels(self.device, case)
            for cubin in {kernel.compiled.cubin for kernel in own} if self.disassemble else ():
                if cubin is not None:
                    machine_code.start_disassembly(
                        cubin
                    )  # read the machine code in the background during the simulation
        arrays = self.arrays(case, self.input_sets[0], self._done)
        self._done = {
            buffer.name: arrays[buffer.name] for buffer in self.operation.buffers(self.problem) if buffer.role == "out"
        }
        self.device.reset(case)
        case = replace(case, constants={**case.constants, **constants_of(self.operation, self.inputs)})
        self.progress("reading the machine code", 0)
        merged = merged_issues(self.device, case) if self.disassemble else {}
        self.progress("simulating", 0)
        began = time.monotonic()
        trace = self.trace or (self.record and recorded.watch(case))
        run = self.launch(
            case,
            arrays,
            trace=trace,
            merged=merged,
            footprint=bool(self.cards),
            machine=machine_codes_to_run(self.device, case) if self.disassemble else None,
            **source_texts(case),
        )
        took = time.monotonic() - began
        run = self.with_machine_code(case, run, own)
        self.output = run.report.output
        verification = self.input_sets[0].compare(case.expects, arrays, "simulated")
        self.progress("verifying", 1)
        result = self.with_findings(result, case, run, own, verification)
        result = replace(result, inputs="fixed" if self.inputs_are_fixed else "fresh")
        result, faults = self._check_again(case, run, result, arrays, began, took)
        if faults:
            return replace(result, status="wrong", reason="; ".join(faults))
        return replace(result, figures=self.figures(arrays))

    def with_machine_code(self, case: Case, run: sim.Run, own: Sequence[Kernel]) -> sim.Run:
        """Return the run with accesses and barrier faults corrected by the machine code, if the code is read."""
        if self.disassemble:
            run = replace(run, report=with_machine_accesses(self.device, case, run.report))
        return with_barriers(run, own, self.disassemble)

    def with_findings(
        self, result: Result, case: Case, run: sim.Run, own: Sequence[Kernel], verification: Verification | None,
        order: Sequence[str] = SIMULATED,
    ) -> Result:  # fmt: skip
        """Return the result with the counts, hazards and warnings of a run. `own`: the kernels that the case launches.
        `order`: the kinds of warnings, in the order of the result."""
        code = None
        if self.disassemble:
            code = machine_code_record(self.device, case, run.report.executed, run.report.accesses)
        evidence = Evidence(
            verification,
            self.device.changed(case),
            code,
            [self.device.load(part).compiled.ptx for part in case.parts],
            {kernel.entry for kernel in own},
        )
        leaks = self.device.leaks(case)
        result = with_counts(result, case, run, self.operation, self.problem, self.device.blocks(case))
        result = self._with_card_limits(self._with_drawings(result, case, run), case, run)
        notes = {
            "suspected": undecided_warnings(run.report, case.bounds, evidence.verification is not None),
            "costly": self._hidden_cost_warnings(run, own),
            "differs": _code_difference_warnings(run, own),
        }
        if result.hazards:
            buffers = self.operation.buffers(self.problem)
            notes["extent"] = extent_warnings(evidence.verification, result.hazards, buffers)
        if leaks is not None:
            notes["leak"] = [
                warning("leak", line=at, count=count, bytes=nbytes, heap_mib=simulator.HEAP_BYTES >> 20)
                for at, count, nbytes in leaks
            ]
        if run.report.stack_bytes > STACK_BYTES:
            notes["stack"] = [warning("stack", bytes=run.report.stack_bytes, limit=STACK_BYTES)]
        if not case.source.builtin:
            logs = dict.fromkeys(self.device.load(part).compiled.log for part in case.parts)
            notes["compiler"] = [
                warning("compiler", place=f"line {line}" if file == case.source.name else f"{file}:{line}", what=what)
                for log in logs
                for file, line, what in diagnostics.warned(log)
            ]
        if not case.source.builtin and _wrote_nothing(run, own):
            notes["unreached"] = [warning("unreached", kernel=case.kernel)]
        return conclude(result, self, case, evidence, notes, order)

    def _with_drawings(self, result: Result, case: Case, run: sim.Run) -> Result:
        """Return the result with the data for drawings: single accesses, and the machine code by source line."""
        if self.disassemble and self.record:
            compiled = [(part, self.device.load(part).compiled) for part in case.parts]
            result = replace(result, lines=recorded.lines(compiled, run.report.executed) or None)
        if trace := run.report.trace:
            buffers, tiles = self.operation.buffers(self.problem), drawings.tiles(run.report, case)
            result = replace(
                result,
                threads=drawings.thread_accesses(trace, case, buffers, tiles) if self.trace else result.threads,
                banks=drawings.bank_requests(trace, case, tiles) if self.trace else recorded.banks(trace, case, tiles),
                steps=recorded.steps(trace, case, buffers, tiles) if self.record else result.steps,
            )
        return result

    def _with_card_limits(self, result: Result, case: Case, run: sim.Run) -> Result:
        """Return the result with the lower bounds for the cards with the device's architecture."""
        several = len(self.cards) > 1
        mine = [card for card in self.cards if not several or card.architecture == self.device.architecture]
        if not mine:
            return result
        with suppress(CudabenchError):  # without limits the counts are still kept; only the row's bound is missing
            card_limits = limits_by_card(self.device, case, run, mine, self.settings, result.bytes)
            shown = card_limits if several or mine[0].per_hour is not None else result.limits_by_card
            result = replace(result, limits=card_limits[0].limits, limits_on=card_limits[0].on, limits_by_card=shown)
        return result

    def _check_again(
        self, case: Case, run: sim.Run, result: Result, arrays: Arrays, began: float, took: float
    ) -> tuple[Result, list[str]]:
        """Launch the kernel again if checks need it, and return (the result with new findings, texts of the faults).

        `arrays`: the arrays after the first launch; `began`, `took`: the start of that launch and its seconds.
        """
        faults = self._fault_texts(case, run, result, arrays)
        if result.state and not faults:
            # Launch again with other inputs. The variables that the first launch changed are not reset.
            inputs = self.input_sets[1]
            left = self.arrays(case, inputs)
            self.launch(case, left, "launching again")
            again = inputs.compare(case.expects, left, "again")
            if again and again.mismatches:
                faults = [f"{wrong_reason(again)}: {changed_state_sentence(result.state)}"]
        if case.bounds and not faults:
            result, faults = further_runs.run_in_other_orders(self, case, result, arrays, began, took)
        if case.bounds and not faults:
            more, unchecked = further_runs.run_unoptimised(self, case, self.seconds() - (time.monotonic() - began))
            # The further runs show whether a result depends on an undefined shuffle; then the warning that this is
            # unknown is not needed.
            decided = not unchecked and all(hazard.kind == "undefined-value" for hazard in more)
            notes = [note for note in result.warnings if not (decided and note.code == "undefined-shuffle")]
            result = replace(result, hazards=(*(result.hazards or ()), *more), warnings=(*notes, *unchecked))
            faults = [hazard_reason(more)] if more else []
        return result, faults

    def _compile_limit(self) -> AbstractContextManager[None]:
        """Return a context manager with the time limit for compiling and disassembling a kernel: the limit of one
        compilation plus that of the simulation."""
        return limits.shared_deadline(self.seconds() + limits.longest_seconds())

    def _fault_texts(self, case: Case, run: sim.Run, result: Result, arrays: Arrays) -> list[str]:
        """Return texts of the faults of a launch: first hazards, since they may cause changed inputs and wrong outputs,
        which follow."""
        faults = [hazard_reason(result.hazards)] if result.hazards else []
        if not case.source.builtin:  # a built-in kernel cannot change its inputs
            inputs = [b.name for b in self.operation.buffers(self.problem) if b.role == "in"]
            if written := verify.changed(self.inputs, {name: arrays[name] for name in inputs}):
                faults.append(written)
        if result.verification and result.verification.mismatches:
            faults.append(wrong_reason(result.verification))
        causes = [suspicion for suspicion in run.report.suspicions if suspicion.kind not in LIMITS_OF_CHECKS]
        if faults and causes:
            faults.append(f"perhaps because of {hazard_reason(hazards_of(causes, case))}")
        return faults

    def _hidden_cost_warnings(self, run: sim.Run, own: Sequence[Kernel]) -> list[Warning]:
        """Return the warnings for source lines with hidden costs, see `explain.costly`."""
        notes = []
        for kernel in own:
            part, lines = kernel.part, kernel.compiled.lines
            executions = run.report.executed.get(kernel.entry, simulator.Lines())
            costs = costly.hidden_costs(lines, executions, part.source.name)
            if self.disassemble and kernel.code:
                costs += filter(None, [costly.spills(kernel.code, executions, lines, part.source.name)])
            for cost in costs:
                texts = [SourceLines(part).text(part.source.name, number) for number in cost.lines]
                literals = costly.literals(texts) or costly.literals_of_macros(texts, part.source.text)
                doubles = literals[:LITERALS] or ["2.0"]
                notes.append(
                    warning(
                        cost.kind,
                        lines=f"line{'s' * (len(cost.lines) > 1)} {', '.join(map(str, cost.lines))}",
                        count=cost.instructions,
                        bytes=cost.bytes,
                        doubles=", ".join(doubles),
                        floats=", ".join(f"{literal}f" for literal in doubles),
                    )
                )
        return notes


# Matches a line of PTX whose instruction writes memory that remains after the block has ended, such as global memory.
_WRITES = re.compile(
    r"\s*(?:@!?%\w+\s+)?(?:(?:st|atom|red)\.(?![\w.:]*(?:shared|local|param))|sust\.|multimem\.|cp\.[\w.:]*global\.shared)"
)


def _code_difference_warnings(run: sim.Run, kernels: Sequence[Kernel]) -> list[Warning]:
    """Return a warning for each kernel whose machine code computed other results than its PTX."""
    codes = {kernel.function: getattr(run.report.executed.get(kernel.entry), "code", None) for kernel in kernels}
    return [
        warning("differs", kernel=function, names=code.removeprefix(DIFFERS).strip())
        for function, code in codes.items()
        if isinstance(code, str) and code.startswith(DIFFERS)
    ]


def _wrote_nothing(run: sim.Run, kernels: Sequence[Kernel]) -> bool:
    """Return whether the kernels have stores to global memory, but no lane executed any of them."""
    if any(row.op != "load" and row.space not in ("shared", "local") for row in run.report.accesses):
        return False  # this is the usual case; it does not need the PTX
    lanes = [
        executed[number].lanes
        for kernel in kernels
        if (executed := run.report.executed.get(kernel.entry))
        for number, text in enumerate(kernel.compiled.lines, 1)
        if number in executed and _WRITES.match(text)
    ]
    return bool(lanes) and not any(lanes)


def with_barriers(run: sim.Run, kernels: Sequence[Kernel], disassemble: bool) -> sim.Run:
    """Return the run after deciding, by the machine code, for each suspected barrier: either the barrier is divergent
    (a hazard), or some lanes only skip it (a suspicion).

    Without machine code, a barrier is reported as divergent if some lanes skip it and continue after it.
    """
    hazards = {(hazard.kind, hazard.file, hazard.line): hazard for hazard in run.report.hazards}
    suspicions = []
    for suspicion in run.report.suspicions:
        if not suspicion.kind.startswith("divergent-barrier"):
            suspicions.append(suspicion)
            continue
        diverges = passed_by = suspicion.kind == "divergent-barrier"
        if disassemble and all(kernel.code for kernel in kernels):
            diverges = any(machine_code.has_guarded_barrier(kernel.code, suspicion.instruction) for kernel in kernels)
        if diverges:
            hazards.setdefault(("divergent-barrier", *suspicion[1:3]), suspicion._replace(kind="divergent-barrier"))
        elif passed_by:
            suspicions.append(suspicion._replace(kind="skipped-barrier"))
    divergent = {(file, line) for kind, file, line in hazards if kind == "divergent-barrier"}
    suspicions = [
        suspicion
        for suspicion in suspicions
        if suspicion.kind not in BESIDE or (suspicion.file, suspicion.line) not in divergent
    ]
    suspicions = [
        suspicion
        for suspicion in suspicions
        if not any(suspicion.message[:-1] in hazard.message for hazard in hazards.values())
    ]
    left = list(hazards.values())
    cause = next((hazard for hazard in left if hazard.kind in EXCUSES), None)
    follow = [hazard for hazard in left if cause and hazard.kind == "race" and not hazard.between_blocks]
    if cause and follow:
        left = [hazard for hazard in left if hazard not in follow]
        lines = "line" if len(follow) == 1 else "lines"
        places = ", ".join(str(hazard.line) for hazard in follow)
        message = (
            f"races within a block in {lines} {places} may follow from line {cause.line} and are left out: "
            "repair that line"
        )
        suspicions.append(cause._replace(kind="unsearched", message=message))
    ordered = sorted(left, key=lambda hazard: (hazard.file, hazard.line, hazard.kind))
    return replace(run, report=replace(run.report, hazards=tuple(ordered), suspicions=tuple(suspicions)))


def undecided_warnings(report: simulator.Report, checked: bool, expected: bool) -> list[Warning]:
    """Return warnings for suspicions: possible faults of which the launch could not show whether they are faults.

    `checked`: whether the command is `check`. `expected`: whether the outputs were verified.
    """
    kinds = ALWAYS + (OF_CHECKS if checked else ())
    shown = [suspicion for suspicion in report.suspicions if suspicion.kind in kinds]
    if not expected:
        shown += [suspicion for suspicion in report.suspicions if suspicion.kind == "undefined-shuffle"][:1]
    by_line = {(suspicion.kind, suspicion.file, suspicion.line): suspicion for suspicion in reversed(shown)}
    return [
        warning(
            CODES.get(suspicion.kind, suspicion.kind), line=suspicion.line, message=suspicion.message.removesuffix(".")
        )
        for suspicion in shown
        if by_line[suspicion.kind, suspicion.file, suspicion.line] is suspicion
    ]
