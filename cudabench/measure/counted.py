"""What a GPU has measured, counted in the simulator on a sample of the blocks: for the card's limits and for a page."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from cudabench import simulator
from cudabench.cards.load import like
from cudabench.devices.sim import Arrays, Run, SimDevice
from cudabench.errors import CudabenchError
from cudabench.explain import drawings, machine_code, recorded
from cudabench.measure import limited
from cudabench.measure.simulated_run import access_rows
from cudabench.records.planned import Case, Operation, Problem, Settings
from cudabench.records.results import Counted, DeviceInfo, MachineCode, Result
from cudabench.results.warnings import warning

_Counts = dict[str, dict[int, simulator.Executed]]  # by PTX function and PTX line

COUNTING_S = 60.0  # after which a kernel stays without counts


@dataclass
class Counting:
    """Counts the kernels of one series; the inputs of a problem are made once. `until`: when the run's time is over."""

    operation: Operation
    settings: Settings
    until: float | None = None
    _devices: dict[str, SimDevice] = field(default_factory=dict)
    _problem: Problem | None = None
    _inputs: Arrays = field(default_factory=dict)

    def limited(
        self, result: Result, case: Case, device: DeviceInfo, progress: Callable[[float], None] = lambda fraction: None
    ) -> Result:
        """Return a measured result with accesses, executed machine code, limits and what a page draws; its times stay
        as they are.

        Where it cannot be counted, with a warning that says why.
        """
        seconds = COUNTING_S
        if self.until is not None:
            seconds = min(seconds, self.until - time.monotonic())
        if seconds <= 0:
            told = warning("uncounted", reason=f"--budget {self.settings.budget:g} s was spent before its turn")
            return replace(result, warnings=(*result.warnings, told))
        card = like(device)
        if not card.device.sm_count or not card.sm_hz:
            told = warning("uncounted", reason=f"{device.name} does not tell its multiprocessors and their clock")
            return replace(result, warnings=(*result.warnings, told))
        architecture = "sm_" + device.compute_capability.replace(".", "")
        simulated = self._devices.setdefault(architecture, SimDevice(architecture))
        if case.problem != self._problem:
            self._problem, self._inputs = case.problem, self.operation.inputs(case.problem)
        try:
            run = limited.sampled(
                simulated, case, self.operation, case.problem, self._inputs, seconds=seconds, progress=progress,
                trace=recorded.watch(case),
            )  # fmt: skip
            found = limited.limits_of(simulated, case, run, card, self.settings, result.bytes)
            rows = access_rows(_scaled(run), simulator.merge(_reports(run)), case, simulated.blocks(case))
            counts = {entry: _executions(run, entry) for entry in _entries(simulated, case)}
            ran = _executed(simulated, case, counts, _scaled(run))
            code, same = _merged(result.machine_code, ran)
            result = self._recorded(result, simulated, case, run, counts, same)
        except CudabenchError as error:
            told = warning("uncounted", reason=str(error).rstrip("."))
            return replace(result, warnings=(*result.warnings, told))
        footprints = [one.report.footprint for one in run.launched if one.report.footprint]
        on = Counted(
            blocks=sum(each.ran for each in footprints),
            of=sum(each.blocks for each in footprints),
            same_code=same,
            instructions_executed=ran.instructions_executed if ran else None,
            inexact=ran.inexact if ran else None,
        )
        return replace(result, access=rows, machine_code=code, limits=found, limits_on=card.title, counted=on)

    def _recorded(
        self, result: Result, device: SimDevice, case: Case, run: Run, counts: _Counts, same: bool | None
    ) -> Result:
        """Return the result with what a page draws; of code that was not measured the counts by line, not the code."""
        lines = recorded.lines([(part, device.load(part).compiled) for part in case.parts], counts)
        if same is False:
            lines = tuple(replace(line, code=()) for line in lines)
        result = replace(result, lines=lines or None)
        if run.report.trace:
            tiles = drawings.tiles(run.report, case)
            result = replace(
                result,
                banks=recorded.banks(run.report.trace, tiles),
                steps=recorded.steps(run.report.trace, case, self.operation.buffers(case.problem), tiles),
            )
        return result


def _entries(device: SimDevice, case: Case) -> list[str]:
    """Return the PTX functions that a case launches."""
    return [
        device.load(part).compiled.entry(function)
        for part in case.parts
        for function in dict.fromkeys(launch.function for launch in part.launches)
    ]


def _reports(run: Run) -> Iterator[simulator.Report]:
    return (launched.report for launched in run.launched)


def _scaled(run: Run) -> list[simulator.Access]:
    """Return the accesses of all launches, each as many times as blocks stand behind those that ran."""
    found: dict[object, simulator.Access] = {}
    for launched in run.launched:
        footprint = launched.report.footprint
        assert footprint is not None
        for row in launched.report.accesses:
            own = row.times(footprint.blocks / footprint.ran)
            have = found.get(own.key)
            found[own.key] = own if have is None else have.plus(own)
    return list(found.values())


def _executed(
    device: SimDevice, case: Case, counts: _Counts, accesses: Sequence[simulator.Access]
) -> MachineCode | None:
    """Return the record of the simulator's own code with what of it ran; None without machine code."""
    images = []
    for part in case.parts:
        compiled = device.load(part).compiled
        if compiled.cubin is None:
            return None
        entries = [compiled.entry(function) for function in dict.fromkeys(one.function for one in part.launches)]
        kernels = [machine_code.Kernel(entry, counts[entry]) for entry in entries]
        images.append(machine_code.Image(compiled.cubin, kernels, compiled.lines))
    record = machine_code.describe_all(images, device.architecture, "")
    return record and replace(record, inexact=machine_code.inexact(images, accesses))


def _merged(measured: MachineCode | None, counted: MachineCode | None) -> tuple[MachineCode | None, bool | None]:
    """Return the record of the code that was measured, with what of it ran, and whether it is what was counted; as it
    is where the compiler for the GPU made other code than the simulator's."""
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


def _executions(run: Run, entry: str) -> dict[int, simulator.Executed]:
    """Return how often each PTX line of a kernel runs in all launches, from the blocks that did."""
    found: dict[int, simulator.Executed] = {}
    for launched in run.launched:
        footprint = launched.report.footprint
        assert footprint is not None
        scale = footprint.blocks / footprint.ran
        for line, times in launched.report.executed.get(entry, {}).items():
            own = simulator.Executed(*(round(count * scale) for count in times))
            found[line] = own if line not in found else found[line].plus(*own)
    return found
