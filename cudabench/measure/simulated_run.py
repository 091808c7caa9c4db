"""One kernel, simulated: run, verify, count, check. What `gpu_run` is for a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from cudabench import simulator
from cudabench.devices import sim
from cudabench.devices.sim import SimDevice, poisoned
from cudabench.errors import CudabenchError, UnsupportedFeature, UsageError
from cudabench.explain import advice, drawings, machine_code
from cudabench.measure import verify
from cudabench.measure.context import (
    Arrays,
    RunContext,
    compare,
    describe,
    launch_warnings,
    right_output,
    unverified_warnings,
    wrong_reason,
)
from cudabench.model import Access, Case, Hazard, MachineCode, Operation, Problem, Result
from cudabench.toolchain.record import Compiled


@dataclass
class SimulatedRun(RunContext):
    """The kernels of one run in the simulator; `output` is what the last one printed."""

    device: SimDevice
    trace: bool = False
    disassemble: bool = True  # whether to read the machine code
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
        self.expected(case.expects)  # an expectation of the user's that cannot be ends the run, not one kernel
        if self.settings.cpu:
            self.measure_cpu()
        blank = replace(blank, cpu=self.cpu)
        try:
            return self._simulate(case, blank)
        except UnsupportedFeature as error:
            if case.named:
                raise
            return replace(blank, status="skipped", reason=str(error))
        except CudabenchError as error:
            if isinstance(error, UsageError) and case.named:
                raise
            return replace(blank, status="failed", reason=str(error))

    def _simulate(self, case: Case, result: Result) -> Result:
        arrays: Arrays = {}
        buffers = self.operation.buffers(self.problem)
        for buffer in buffers:
            if buffer.role == "in" and case.source.builtin:
                arrays[buffer.name] = self.inputs[buffer.name].view()
                arrays[buffer.name].flags.writeable = False  # the next kernel needs it unchanged
            elif buffer.role in ("in", "inout"):
                arrays[buffer.name] = self.inputs[buffer.name].copy()
            else:
                arrays[buffer.name] = poisoned(buffer.shape, buffer.dtype)
        self.progress("simulating", 0)
        compiled = self.device.load(case).compiled
        if self.disassemble and compiled.cubin is not None:
            machine_code.begin(compiled.cubin)  # beside the simulation
        run = self.device.run(
            case, arrays, trace=self.trace, progress=lambda fraction: self.progress("simulating", fraction)
        )
        self.output = run.report.output
        self.progress("verifying", 1)
        tolerance = self.operation.tolerated(case.expects, self.problem)
        expected = self.expected(case.expects)
        verification = compare(expected, arrays, tolerance, "simulated")
        result = _counted(result, case, run, self.operation, self.problem)
        if self.disassemble and compiled.cubin is not None:
            result = replace(result, machine_code=self._machine_code(case, run, compiled, compiled.cubin))
        notes = [*unverified_warnings(verification, expected, buffers), *launch_warnings(case)]
        result = replace(result, verification=verification, warnings=tuple(notes))
        if run.report.trace:
            threads = drawings.thread_accesses(run.report.trace, case, buffers)
            result = replace(result, threads=threads, banks=drawings.bank_requests(run.report.trace))
        faults = [hazard_reason(result.hazards)] if result.hazards else []  # the cause before what came of it
        if not case.source.builtin:  # a built-in kernel's inputs are read-only
            written = verify.changed(self.inputs, {b.name: arrays[b.name] for b in buffers if b.role == "in"})
            if written:
                faults.append(written)
        if verification and verification.mismatches:
            faults.append(wrong_reason(verification))
            if run.report.suspicions:
                faults.append(f"perhaps because of {hazard_reason(run.report.suspicions)}")
        if faults:
            return replace(result, status="wrong", reason="; ".join(faults))
        return replace(result, figures=right_output(self.operation, self.problem, self.inputs, arrays))

    def _machine_code(self, case: Case, run: sim.Run, compiled: Compiled, cubin: bytes) -> MachineCode:
        entries = dict.fromkeys(compiled.entry(launch.function) for launch in case.launches)
        kernels = [machine_code.Kernel(entry, run.report.executed.get(entry)) for entry in entries]
        return machine_code.describe(cubin, kernels, self.device.architecture, compiled.ptx.splitlines())


def _counted(result: Result, case: Case, run: sim.Run, operation: Operation, problem: Problem) -> Result:
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
        access=tuple(_access(access, case) for access in report.accesses),
        hazards=tuple(_hazard(hazard, case) for hazard in report.hazards),
    )


def _access(access: simulator.Access, case: Case) -> Access:
    record = Access(
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
    )
    return replace(record, advice=advice.advise(record))


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


def hazard_reason(hazards: Sequence[Hazard | simulator.Hazard]) -> str:
    """Return the first hazard, and how many others there are."""
    first = hazards[0]
    more = f", and {len(hazards) - 1} more" if len(hazards) > 1 else ""
    return f"{first.kind} on line {first.line}: {first.message.rstrip('.')}{more}"
