"""What a GPU has measured, counted in the simulator on a sample of the blocks and held against the card's ceilings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from cudabench import simulator
from cudabench.cards.load import like
from cudabench.devices.sim import Arrays, Run, SimDevice
from cudabench.errors import CudabenchError
from cudabench.explain import machine_code
from cudabench.measure import limited
from cudabench.measure.simulated_run import access_rows
from cudabench.model import Case, DeviceInfo, MachineCode, Operation, Problem, Result, Settings
from cudabench.results.warnings import warning

COUNTING_S = 60.0  # after which a kernel stays without counts


@dataclass
class Counting:
    """Counts the kernels of one series; the inputs of a problem are made once."""

    operation: Operation
    settings: Settings
    _devices: dict[str, SimDevice] = field(default_factory=dict)
    _problem: Problem | None = None
    _inputs: Arrays = field(default_factory=dict)

    def limited(
        self, result: Result, case: Case, device: DeviceInfo, progress: Callable[[float], None] = lambda fraction: None
    ) -> Result:
        """Return a measured result with accesses, executed machine code and limits; its times stay as they are.

        Where it cannot be counted, with a warning that says why.
        """
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
                simulated, case, self.operation, case.problem, self._inputs, seconds=COUNTING_S, progress=progress
            )
            found = limited.limits_of(simulated, case, run, card, self.settings, result.bytes)
            rows = access_rows(_scaled(run), simulator.merge(_reports(run)), case, simulated.blocks(case))
            code = _executed(simulated, case, run, result.machine_code)
        except CudabenchError as error:
            told = warning("uncounted", reason=str(error).rstrip("."))
            return replace(result, warnings=(*result.warnings, told))
        return replace(result, access=rows, machine_code=code, limits=found, limits_on=card.title)


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


def _executed(device: SimDevice, case: Case, run: Run, measured: MachineCode | None) -> MachineCode | None:
    """Return the record of the code that was measured, with what of it ran; as it is where the compiler for the GPU
    made other code than the simulator's."""
    images = []
    for part in case.parts:
        compiled = device.load(part).compiled
        if compiled.cubin is None:
            return measured
        kernels = []
        for function in dict.fromkeys(launch.function for launch in part.launches):
            entry = compiled.entry(function)
            kernels.append(machine_code.Kernel(entry, _executions(run, entry)))
        images.append(machine_code.Image(compiled.cubin, kernels, compiled.ptx.splitlines()))
    counted = machine_code.describe_all(images, device.architecture, "")
    if measured is None or counted is None or counted.sha256 != measured.sha256:
        return measured
    return replace(
        measured,
        instructions_executed=counted.instructions_executed,
        threads_per_instruction=counted.threads_per_instruction,
        pipes=counted.pipes,
    )


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
