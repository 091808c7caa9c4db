"""Launches a kernel in which `check` found no fault again: with its blocks in other orders, and compiled without
optimisation.

The blocks run in other orders if they may exchange data during a launch (through results of atomics, through flags, or
through volatile and ordered reads). For other kernels the order of the blocks has no effect.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from cudabench.devices import sim
from cudabench.errors import CudabenchError
from cudabench.measure import unwritten, verify
from cudabench.measure.context import Arrays, wrong_reason
from cudabench.measure.counting import arrays_of, hazard_reason, hazards_of, source_texts
from cudabench.measure.simulated_launches import SimulatedLaunches
from cudabench.records.plan import Case
from cudabench.records.results import Hazard, Result, Warning
from cudabench.results.warnings import warning
from cudabench.simulator import api as simulator

LONG_S = 2.0  # a kernel whose first run took longer than this is not run again in another order
UNWRITTEN_SEARCH_S = 10.0  # the search for reads of unwritten memory takes at most this many seconds
# A run in another order is stopped after this time: only blocks that wait for each other forever take so long.
MOST_S = 30.0
# The relative error by which a sum of floats may differ if its additions are in another order, by the size of a float
# in bytes.
ROUNDING = {2: 2e-3, 4: 1e-5, 8: 1e-12}
RANDOM = "random:1"
ORDERS = {None: "in their own order", "reverse": "in reverse order"}


def run_in_other_orders(
    run: SimulatedLaunches, case: Case, result: Result, arrays: Arrays, began: float, took: float
) -> tuple[Result, list[str]]:
    """Launch a kernel in other orders of its blocks, until one order shows a difference or a fault.

    Return (the result with new hazards or a new warning, texts of the faults). `arrays`: the arrays after the first
    run; `began`: the time.monotonic() at the start of the first run; `took`: the seconds of the first run.
    """
    schedule = run.settings.schedule
    exchanges, waits = run.device.block_dependences(case)
    if not exchanges:
        return result, []

    def undecided(another: str | None, reason: str) -> tuple[Result, list[str]]:
        order, option = order_name(schedule), another or RANDOM
        note = warning("undecided", kernel=case.kernel, order=order, reason=reason, option=option)
        return replace(result, warnings=(*result.warnings, note)), []

    def with_hazards(hazards: Sequence[simulator.Hazard], prefix: str) -> tuple[Result, list[str]]:
        converted = hazards_of((hazard._replace(message=f"{prefix} {hazard.message}") for hazard in hazards), case)
        return replace(result, hazards=(*(result.hazards or ()), *converted)), [hazard_reason(converted)]

    tried = other_orders(schedule, waits)
    if took > LONG_S:
        return undecided(tried[0], f"that took {took:.1f} s")
    expected = run.expected(case.expects)
    written = [buffer.name for buffer in run.operation.buffers(run.problem) if buffer.role in ("out", "inout")]
    for another in tried:
        start, prefix = time.monotonic(), f"with the blocks {order_name(another)}"
        run.device.reset(case)
        other_arrays = run.arrays(case, run.input_sets[0])
        seconds = min(MOST_S, run.seconds() - (start - began))
        try:
            other = run.launch(case, other_arrays, "in another order", seconds=seconds, schedule=another)
        except simulator.BudgetExceeded as stopped:
            if stopped.hazards:
                return with_hazards(stopped.hazards, prefix)
            ran = f"{order_name(another)} they had not ended after {time.monotonic() - start:.1f} s"
            return undecided(another, ran)
        except CudabenchError as error:
            return result, [f"{prefix}: {error}"]
        if other.report.hazards:
            return with_hazards(other.report.hazards, prefix)
        verification = run.input_sets[0].compare(case.expects, other_arrays, "simulated")
        if verification and verification.mismatches:
            return result, [f"{prefix}: {wrong_reason(verification)}"]
        for name in (name for name in written if name not in expected):
            place = first_difference(arrays[name], other_arrays[name])
            if place is not None:
                first, second = (_text(array[name][place]) for array in (arrays, other_arrays))
                note = warning(
                    "order-dependent", place=verify.element_name(name, place), name=name, one=first, two=second,
                    order=order_name(schedule), other=order_name(another),
                )  # fmt: skip
                return replace(result, warnings=(*result.warnings, note)), []
    return result, []


def run_unoptimised(
    run: SimulatedLaunches, case: Case, seconds: float
) -> tuple[tuple[Hazard, ...], tuple[Warning, ...]]:
    """Compile a kernel without optimisation, run it, and return (hazards, warnings). There is a warning if the kernel
    does not compile or does not run to its end.

    Without optimisation, local arrays are in memory. An optimising compiler keeps a small array in registers, and
    removes accesses past the end of the array and stores that depend on them, so the simulator cannot see these faults.
    """
    plain = replace(case, source=replace(case.source, debug=True))
    try:
        run.device.reset(plain)
        arrays = run.arrays(case, run.input_sets[0])
        other = run.launch(plain, arrays, seconds=seconds, **source_texts(case))
    except CudabenchError as error:
        return (), (warning("unchecked", kernel=case.kernel, reason=_reason(error)),)
    beyond = [*filter(_is_source_fault, other.report.hazards)]
    notes: tuple[Warning, ...] = ()
    if not beyond:
        until = time.monotonic() + min(UNWRITTEN_SEARCH_S, seconds)
        try:
            beyond = unwritten.hazards(partial(_run_with_byte, run, plain, until), run.operation.buffers(run.problem))
            if not beyond and time.monotonic() >= until:  # the second run was stopped, so it shows nothing
                raise CudabenchError("that took too long")
        except CudabenchError as error:
            notes = (warning("unwritten", kernel=case.kernel, reason=_reason(error)),)
    # A fault of the source also causes hazards in headers, such as those of cooperative groups. Report only the former.
    found = hazards_of(beyond, case)
    return tuple(hazard for hazard in found if not hazard.file) or found, notes


def _is_source_fault(hazard: simulator.Hazard) -> bool:
    """Return whether a hazard in unoptimised code is a fault of the source. Races with wgmma are not, because only
    unoptimised code copies registers that a wgmma still writes."""
    if hazard.kind == "race":
        return "wgmma" not in hazard.message
    return hazard.kind in ("out-of-bounds", "misaligned", "stale-read")


def _run_with_byte(
    run: SimulatedLaunches, case: Case, until: float, byte: int, tracked: simulator.Unwritten
) -> tuple[sim.Run, Arrays]:
    """Launch a case with `byte` in all unwritten memory, and return the run and its arrays; see `unwritten.hazards`."""
    run.device.reset(case)
    buffers = run.operation.buffers(run.problem)
    arrays = arrays_of(buffers, run.input_sets[0].arrays, byte, kept=case.source.builtin)
    alone = len(case.launches) == 1 and not run.device.block_dependences(case)[0]
    ran = run.launch(
        case, arrays, "looking for unwritten memory", seconds=until - time.monotonic(), unwritten=tracked,
        sample=unwritten.SAMPLE if alone else None,
    )  # fmt: skip
    return ran, arrays


def other_orders(schedule: str | None, waits: bool) -> tuple[str | None, ...]:
    """Return the orders of blocks to try after order `schedule`; `waits`: whether blocks may wait for each other."""
    other = None if schedule == "reverse" else "reverse"
    return (other, RANDOM) if waits and schedule != RANDOM else (other,)


def order_name(schedule: str | None) -> str:
    """Return the words for an order of blocks in messages, such as 'in reverse order'."""
    return ORDERS.get(schedule, f"in the order {schedule}")


def first_difference(first: np.ndarray, second: np.ndarray) -> tuple[int, ...] | None:
    """Return the index of the first element that differs by more than the rounding of a sum of floats, or None."""
    if first.tobytes() == second.tobytes():
        return None
    if first.dtype.kind in "fc":
        rtol = ROUNDING.get(first.itemsize >> (first.dtype.kind == "c"), 0.0)
        finite = np.abs(first[np.isfinite(first)])
        largest = float(finite.max()) if finite.size else 0.0
        with np.errstate(invalid="ignore", over="ignore"):
            differs = ~np.isclose(second, first, rtol=rtol, atol=rtol * largest, equal_nan=True)
    else:
        differs = first != second
    if not differs.any():
        return None
    return tuple(int(index) for index in np.unravel_index(int(np.argmax(differs)), first.shape))


def _reason(error: CudabenchError) -> str:
    """Return the first part of an error's message."""
    return str(error).partition("\n")[0].partition(";")[0].removeprefix("Error: ").rstrip(".:")


def _text(value: Any) -> str:
    return f"{value:g}" if value.dtype.kind == "f" else str(value)
