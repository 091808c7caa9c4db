"""Makes a program's results from checked launches: one result, like a result of `run`, for each launched kernel."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from cudabench.cards.load import Card
from cudabench.devices import sim
from cudabench.errors import CudabenchError
from cudabench.measure.context import SIMULATED, describe
from cudabench.measure.counting import hazard_reason, hazards_of, kernels
from cudabench.measure.simulated_run import SimulatedRun
from cudabench.occupancy import occupancy
from cudabench.programs.launches import KernelLaunches
from cudabench.records.plan import EXACT, Baseline, Operation, Problem, Settings
from cudabench.records.results import Result
from cudabench.results.warnings import warning
from cudabench.simulator import api as simulator

# All kinds of warnings of simulated runs, except three that make no sense for a program: a program gives no expected
# values, and may change its variables.
WARNINGS = tuple(kind for kind in SIMULATED if kind not in ("unverified", "state", "extent"))
OPERATION = Operation(
    name="exec", summary="", source="", dimensions=(), default_size=(), block_dimensions=3, dtypes={}, kernels=(),
    buffers=lambda problem: (), arguments=lambda problem: (), inputs=lambda problem: {},
    reference=lambda problem, inputs: {}, baseline=Baseline("", lambda inputs, outputs, threads: None),
    tolerance=lambda problem: EXACT, bytes=lambda problem: 0, bytes_formula="",
)  # fmt: skip


def result_of(
    kernel: KernelLaunches, settings: Settings, cards: Sequence[Card], *, record: bool, disassemble: bool
) -> Result:
    """Return the result of a kernel.

    The status is 'wrong' if a launch had hazards, else 'failed' if a launch failed, else 'skipped' if the simulator
    lacks a feature that the kernel needs.
    """
    device, case = kernel.device, kernel.case
    about = SimulatedRun(
        OPERATION, Problem({}, ""), settings, device, cards=cards, record=record, disassemble=disassemble
    )
    result = describe(case, about.name)
    launched = kernel.launched
    if launched:
        try:
            result = _with_counts(result, kernel, about, launched)
        except CudabenchError as error:
            result = replace(result, status="failed", reason=str(error))
    if result.hazards:
        return replace(result, status="wrong", reason=hazard_reason(result.hazards))
    if kernel.failures and result.status == "ok":
        reason, lacks = next(iter(kernel.failures.items()))
        return replace(result, status="skipped" if lacks else "failed", reason=reason)
    return result


def _with_counts(
    result: Result, kernel: KernelLaunches, about: SimulatedRun, launched: Sequence[sim.Launched]
) -> Result:
    case, device = kernel.case, kernel.device
    static = device.load(case).compiled.resources.get(kernel.entry)
    report = simulator.merge(row.report for row in launched)
    if static is None:
        why = warning("uncounted", reason=f"it has no machine code for {device.architecture}")
        hazards = hazards_of(report.hazards, case)
        return replace(result, hazards=hazards, instructions=report.instructions, warnings=(why,))
    main = max(launched, key=lambda row: row.report.instructions)
    dynamic = max(row.launch.shared_bytes for row in launched)
    resources = replace(static, shared_bytes=static.shared_bytes + dynamic)
    threads = math.prod(main.launch.block)
    fits = occupancy(device.architecture, threads, static.registers, resources.shared_bytes, barriers=static.barriers)
    run = sim.Run(report, resources, fits, tuple(row for row in launched if row.report.footprint))
    own = kernels(device, case)
    run = about.with_machine_code(case, run, own)
    return about.with_findings(result, case, run, own, None, WARNINGS)
