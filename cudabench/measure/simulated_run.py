"""One kernel, simulated: run, verify, count, check. What `gpu_run` is for a GPU.

A clean kernel runs once more with its blocks in another order, where they may tell each other something during a
launch: by what atomics return, by flags, by volatile and ordered reads. Elsewhere no order can be told from another.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from cudabench.compile import limits
from cudabench.compile.limits import CompilerStopped
from cudabench.devices import sim
from cudabench.devices.sim import SimDevice
from cudabench.errors import CompilerError, CudabenchError, NoRoom
from cudabench.explain import costly, drawings, machine_code, recorded, statements
from cudabench.measure import verify
from cudabench.measure.context import (
    SIMULATED,
    Arrays,
    Evidence,
    InputSet,
    RunContext,
    concluded,
    constants_of,
    extent_warnings,
    kept_sentence,
    wrong_reason,
)
from cudabench.measure.counting import (
    Kernel,
    Lines,
    arrays_of,
    as_loaded,
    by_card,
    counted,
    described,
    hazard_reason,
    hazards_of,
    kernels,
    merged_in,
    uncounted,
)
from cudabench.occupancy import capability
from cudabench.records.planned import Case
from cudabench.records.results import Hazard, Result, Verification, Warning, Watch
from cudabench.results.warnings import warning
from cudabench.simulator import api as simulator
from cudabench.simulator.machine_code.launch import DIFFERS

LITERALS = 4  # of a line that a warning names

LONG_S = 2.0  # a kernel that took longer is not run again in another order
MOST_S = 30.0  # of that run, which takes long only where it waits in vain
# The relative error of a sum of floats in another order, by the bytes of a float.
ROUNDING = {2: 2e-3, 4: 1e-5, 8: 1e-12}
RANDOM = "random:1"
ORDERS = {None: "in their own order", "reverse": "in reverse order"}

# Suspicions that are said of every kernel, and those that are said of one that is only checked.
ALWAYS = ("skipped-barrier", "early-exit", "unsearched")
OF_CHECKS = ("ended-before-barrier", "too-large")
CODES = {"too-large": "unsearched"}  # of warnings, where they differ
BESIDE = ("skipped-barrier", "ended-before-barrier")  # not said beside a barrier that is called divergent
# Faults from which races within a block follow, which are then not reported beside them.
EXCUSES = ("divergent-barrier", "invalid-mask")


@dataclass
class SimulatedRun(RunContext):
    """The kernels of one run in the simulator.

    `record` keeps what a report's page draws, bounded. The cards of this architecture price the counts; with several
    cards a kernel that the architecture cannot run is skipped, since another may.
    """

    device: SimDevice
    trace: Watch = False
    disassemble: bool = True  # whether to read the machine code
    record: bool = False
    _done: Arrays = field(default_factory=dict, init=False)  # what the last kernel wrote

    def ready(self, blank: Result) -> Result:
        """Time the CPU."""
        return replace(blank, cpu=self.measure_cpu() if self.settings.cpu else self.cpu)

    def work(self, case: Case, blank: Result) -> Result:
        """Simulate; what was found before the time was up makes a kernel wrong."""
        try:
            return self._simulate(case, blank)
        except simulator.BudgetExceeded as stopped:
            if not stopped.hazards:
                raise
            found = hazards_of(stopped.hazards, case)
            return replace(blank, status="wrong", hazards=found, reason=f"{hazard_reason(found)}; {stopped}")

    def skips(self, case: Case, error: CudabenchError) -> bool:
        """Skip what another of the cards' architectures takes: one with more room, or whose compiler, of the newest or
        the oldest, takes what this one's refuses, which then lacks what the kernel uses."""
        if isinstance(error, NoRoom):
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
        """Make what several cases share: inputs, references, the baseline, a built-in chapter compiled and read.

        What is wrong with a source is left for the case itself to say.
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
                        machine_code.read(image)

    def _simulate(self, case: Case, result: Result) -> Result:
        self.progress("compiling", 0)
        with self._compile_limit():
            own = kernels(self.device, case)
            for cubin in {kernel.compiled.cubin for kernel in own} if self.disassemble else ():
                if cubin is not None:
                    machine_code.begin(cubin)  # beside the simulation
        arrays = self._arrays(case, self.input_sets[0], self._done)
        self._done = {
            buffer.name: arrays[buffer.name] for buffer in self.operation.buffers(self.problem) if buffer.role == "out"
        }
        self.device.reset(case)
        case = replace(case, constants={**case.constants, **constants_of(self.operation, self.inputs)})
        self.progress("reading the machine code", 0)
        merged = merged_in(self.device, case) if self.disassemble else {}
        self.progress("simulating", 0)
        began = time.monotonic()
        trace = self.trace or (self.record and recorded.watch(case))
        run = self._launch(
            case,
            arrays,
            trace=trace,
            merged=merged,
            footprint=bool(self.cards),
            machine=uncounted(self.device, case) if self.disassemble else None,
            **in_words(case),
        )
        took = time.monotonic() - began
        run = self.settled(case, run, own)
        self.output = run.report.output
        verification = self.input_sets[0].compare(case.expects, arrays, "simulated")
        self.progress("verifying", 1)
        result = self.told(result, case, run, own, verification)
        result = replace(result, inputs="fixed" if self.fixed else "fresh")
        result, faults = self._checked(case, run, result, arrays, began, took)
        if faults:
            return replace(result, status="wrong", reason="; ".join(faults))
        return replace(result, figures=self.figures(arrays))

    def settled(self, case: Case, run: sim.Run, own: Sequence[Kernel]) -> sim.Run:
        """Return a run as its machine code, where that is read, has accesses and barriers."""
        return settled(as_loaded(self.device, case, run) if self.disassemble else run, own, self.disassemble)

    def told(
        self, result: Result, case: Case, run: sim.Run, own: Sequence[Kernel], verification: Verification | None,
        order: Sequence[str] = SIMULATED,
    ) -> Result:  # fmt: skip
        """Return the result with what a settled run came to; order: of warnings, by what they are of."""
        evidence = Evidence(
            verification,
            self.device.changed(case),
            described(self.device, case, run.report.executed, run.report.accesses) if self.disassemble else None,
            [self.device.load(part).compiled.ptx for part in case.parts],
            {kernel.entry for kernel in own},
        )
        leaks = self.device.leaks(case)
        result = counted(result, case, run, self.operation, self.problem, self.device.blocks(case))
        result = self._priced(self._with_drawings(result, case, run), case, run)
        notes = {
            "suspected": left_open(run.report, case.bounds, evidence.verification is not None),
            "costly": self._costly(run, own),
            "differs": _differing(run, own),
        }
        if result.hazards:
            buffers = self.operation.buffers(self.problem)
            notes["extent"] = extent_warnings(evidence.verification, result.hazards, buffers)
        if leaks is not None:
            notes["leak"] = [
                warning("leak", line=at, count=count, bytes=nbytes, heap_mib=simulator.HEAP_BYTES >> 20)
                for at, count, nbytes in leaks
            ]
        if not case.source.builtin and _wrote_nothing(run, own):
            notes["unreached"] = [warning("unreached", kernel=case.kernel)]
        return concluded(result, self, case, evidence, notes, order)

    def _with_drawings(self, result: Result, case: Case, run: sim.Run) -> Result:
        """Return the result with what is drawn of it: single accesses, and the code by line."""
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

    def _priced(self, result: Result, case: Case, run: sim.Run) -> Result:
        """Return the result with its limits on the cards of this architecture."""
        several = len(self.cards) > 1
        mine = [card for card in self.cards if not several or card.architecture == self.device.architecture]
        if not mine:
            return result
        with suppress(CudabenchError):  # the counts stand; the row says that it has no bound
            found = by_card(self.device, case, run, mine, self.settings, result.bytes)
            shown = found if several or mine[0].per_hour is not None else result.limits_by_card
            result = replace(result, limits=found[0].limits, limits_on=found[0].on, limits_by_card=shown)
        return result

    def _checked(
        self, case: Case, run: sim.Run, result: Result, arrays: Arrays, began: float, took: float
    ) -> tuple[Result, list[str]]:
        """Return the result with what further launches tell, where they are to, and what is wrong."""
        faults = self._faults(case, run, result, arrays)
        if result.state and not faults:
            # Once more, on other inputs and with what the first launch left.
            inputs = self.input_sets[1]
            left = self._arrays(case, inputs)
            self._launch(case, left, "launching again")
            again = inputs.compare(case.expects, left, "again")
            if again and again.mismatches:
                faults = [f"{wrong_reason(again)}: {kept_sentence(result.state)}"]
        if case.bounds and not faults:
            result, faults = self._in_another_order(case, result, arrays, began, took)
        if case.bounds and not faults:
            more, unchecked = self._beyond_registers(case, self._seconds() - (time.monotonic() - began))
            result = replace(result, hazards=(*(result.hazards or ()), *more), warnings=(*result.warnings, *unchecked))
            faults = [hazard_reason(more)] if more else []
        return result, faults

    def _launch(
        self, case: Case, arrays: Arrays, phase: str = "simulating", *, trace: Watch = False, **how: Any
    ) -> sim.Run:
        how = {"seconds": self._seconds(), "schedule": self.settings.schedule, **how}
        return self.device.run(case, arrays, trace=trace, progress=partial(self.progress, phase), **how)

    def _in_another_order(
        self, case: Case, result: Result, arrays: Arrays, began: float, took: float
    ) -> tuple[Result, list[str]]:
        """Launch a clean kernel in other orders of its blocks, until one of them tells something; return its result
        with that, and faults. `took`: the seconds of the first run, which left `arrays`."""
        schedule = self.settings.schedule
        meets, waits = self.device.meetings(case)
        if not meets:
            return result, []

        def undecided(another: str | None, reason: str) -> tuple[Result, list[str]]:
            order, option = in_order(schedule), another or RANDOM
            note = warning("undecided", kernel=case.kernel, order=order, reason=reason, option=option)
            return replace(result, warnings=(*result.warnings, note)), []

        def told(hazards: Sequence[simulator.Hazard], prefix: str) -> tuple[Result, list[str]]:
            found = hazards_of((hazard._replace(message=f"{prefix} {hazard.message}") for hazard in hazards), case)
            return replace(result, hazards=(*(result.hazards or ()), *found)), [hazard_reason(found)]

        tried = others(schedule, waits)
        if took > LONG_S:
            return undecided(tried[0], f"that took {took:.1f} s")
        expected = self.expected(case.expects)
        written = [buffer.name for buffer in self.operation.buffers(self.problem) if buffer.role in ("out", "inout")]
        for another in tried:
            start, prefix = time.monotonic(), f"with the blocks {in_order(another)}"
            self.device.reset(case)
            found = self._arrays(case, self.input_sets[0])
            seconds = min(MOST_S, self._seconds() - (start - began))
            try:
                run = self._launch(case, found, "in another order", seconds=seconds, schedule=another)
            except simulator.BudgetExceeded as stopped:
                if stopped.hazards:
                    return told(stopped.hazards, prefix)
                ran = f"{in_order(another)} they had not ended after {time.monotonic() - start:.1f} s"
                return undecided(another, ran)
            except CudabenchError as error:
                return result, [f"{prefix}: {error}"]
            if run.report.hazards:
                return told(run.report.hazards, prefix)
            verification = self.input_sets[0].compare(case.expects, found, "simulated")
            if verification and verification.mismatches:
                return result, [f"{prefix}: {wrong_reason(verification)}"]
            for name in (name for name in written if name not in expected):
                place = first_difference(arrays[name], found[name])
                if place is not None:
                    first, second = (_text(array[name][place]) for array in (arrays, found))
                    index = f"[{', '.join(map(str, place))}]" if place else ""
                    note = warning(
                        "order-dependent", place=f"{name}{index}", name=name, one=first, two=second,
                        order=in_order(schedule), other=in_order(another),
                    )  # fmt: skip
                    return replace(result, warnings=(*result.warnings, note)), []
        return result, []

    def _beyond_registers(self, case: Case, seconds: float) -> tuple[tuple[Hazard, ...], tuple[Warning, ...]]:
        """Return what the kernel compiled without optimisation accesses out of bounds, or races for: then local arrays
        lie in memory. And a warning where the compiler refuses it so, or it does not run to its end.

        An optimising compiler holds a small array in registers, and leaves out what goes past its end, with the stores
        that follow from it.
        """
        plain = replace(case, source=replace(case.source, debug=True))
        try:
            self.device.reset(plain)
            arrays = self._arrays(case, self.input_sets[0])
            run = self._launch(plain, arrays, seconds=seconds, **in_words(case))
        except CudabenchError as error:
            reason = str(error).partition("\n")[0].partition(";")[0].removeprefix("Error: ").rstrip(".:")
            return (), (warning("unchecked", kernel=case.kernel, reason=reason),)
        return hazards_of(filter(_is_beyond, run.report.hazards), case), ()

    def _seconds(self) -> float:
        """Return how long a kernel may be simulated: --timeout, or what is left of --budget."""
        left = math.inf if self.until is None else max(self.until - time.monotonic(), 0.0)
        return min(self.settings.timeout, left)

    def _compile_limit(self) -> AbstractContextManager[None]:
        """Return the context of compiling and reading a kernel: however short its time is, a compile has its own."""
        return limits.within(self._seconds() + limits.longest_seconds())

    def _arrays(self, case: Case, inputs: InputSet, done: Mapping[str, Any] = {}) -> Arrays:
        """Return the buffers of a problem: inputs, and poison where the kernel has to write; done: see `arrays_of`."""
        poison, _ = inputs.poisons(case.expects)
        buffers = self.operation.buffers(self.problem)
        return arrays_of(buffers, inputs.arrays, poison, kept=case.source.builtin, done=done)

    def _faults(self, case: Case, run: sim.Run, result: Result, arrays: Arrays) -> list[str]:
        """Return what is wrong with a launch and its output, the cause before what came of it."""
        faults = [hazard_reason(result.hazards)] if result.hazards else []
        if not case.source.builtin:  # a built-in kernel's inputs are read-only
            inputs = [b.name for b in self.operation.buffers(self.problem) if b.role == "in"]
            if written := verify.changed(self.inputs, {name: arrays[name] for name in inputs}):
                faults.append(written)
        if result.verification and result.verification.mismatches:
            faults.append(wrong_reason(result.verification))
        if faults and run.report.suspicions:
            faults.append(f"perhaps because of {hazard_reason(hazards_of(run.report.suspicions, case))}")
        return faults

    def _costly(self, run: sim.Run, own: Sequence[Kernel]) -> list[Warning]:
        """Return what is to be said of arithmetic that costs more than it looks."""
        notes = []
        for kernel in own:
            part, lines = kernel.part, kernel.compiled.lines
            executions = run.report.executed.get(kernel.entry, {})
            found = costly.find(lines, executions, part.source.name)
            if self.disassemble and kernel.code:
                found += filter(None, [costly.spills(kernel.code, executions, lines, part.source.name)])
            for cost in found:
                texts = [Lines(part).text(part.source.name, number) for number in cost.lines]
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


def in_words(case: Case) -> dict[str, Any]:
    """Return what lets hazards speak of the source."""
    texts = {part.source.name: part.source.text for part in case.parts}
    return {"declared": partial(drawings.declared_shape, case), "between": partial(statements.gap, texts)}


# What writes memory that outlives a block.
_WRITES = re.compile(
    r"\s*(?:@!?%\w+\s+)?(?:(?:st|atom|red)\.(?![\w.:]*(?:shared|local|param))|sust\.|multimem\.|cp\.[\w.:]*global\.shared)"
)


def _differing(run: sim.Run, kernels: Sequence[Kernel]) -> list[Warning]:
    """Return a warning for each kernel whose machine code had other results than its PTX."""
    codes = {kernel.function: getattr(run.report.executed.get(kernel.entry), "code", None) for kernel in kernels}
    return [
        warning("differs", kernel=function, names=code.removeprefix(DIFFERS).strip())
        for function, code in codes.items()
        if isinstance(code, str) and code.startswith(DIFFERS)
    ]


def _wrote_nothing(run: sim.Run, kernels: Sequence[Kernel]) -> bool:
    """Return whether kernels that have stores to global memory came to none of them."""
    if any(row.op != "load" and row.space not in ("shared", "local") for row in run.report.accesses):
        return False  # as nearly always, without a look at the PTX
    lanes = [
        executed[number].lanes
        for kernel in kernels
        if (executed := run.report.executed.get(kernel.entry))
        for number, text in enumerate(kernel.compiled.lines, 1)
        if number in executed and _WRITES.match(text)
    ]
    return bool(lanes) and not any(lanes)


def _is_beyond(hazard: simulator.Hazard) -> bool:
    """Tell whether a hazard of unoptimised code is the source's: such code alone copies registers that a wgmma still
    writes."""
    if hazard.kind == "race":
        return "wgmma" not in hazard.message
    return hazard.kind in ("out-of-bounds", "misaligned", "stale-read")


def settled(run: sim.Run, kernels: Sequence[Kernel], disassemble: bool) -> sim.Run:
    """Return a run whose barriers that part warps are told by the machine code: divergent, or passed by.

    Where it cannot be read, those count as divergent that lanes pass by to go on.
    """
    hazards = {(hazard.kind, hazard.file, hazard.line): hazard for hazard in run.report.hazards}
    suspicions = []
    for suspicion in run.report.suspicions:
        if not suspicion.kind.startswith("divergent-barrier"):
            suspicions.append(suspicion)
            continue
        parted = passed_by = suspicion.kind == "divergent-barrier"
        if disassemble and all(kernel.code for kernel in kernels):
            parted = any(machine_code.predicated(kernel.code, suspicion.instruction) for kernel in kernels)
        if parted:
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
            f"races within a block in {lines} {places} may follow from line {cause.line} and are left out: mend that"
        )
        suspicions.append(cause._replace(kind="unsearched", message=message))
    ordered = sorted(left, key=lambda hazard: (hazard.file, hazard.line, hazard.kind))
    return replace(run, report=replace(run.report, hazards=tuple(ordered), suspicions=tuple(suspicions)))


def left_open(report: simulator.Report, checked: bool, expected: bool) -> list[Warning]:
    """Return what is said of a launch whose result does not tell.

    checked: whether hazards are all that is asked for. expected: whether a result was held against what was expected.
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


# Other orders of the blocks ------------------------------------------------------------------------------------------


def others(schedule: str | None, waits: bool) -> tuple[str | None, ...]:
    """Return the orders that are tried besides another; waits: blocks may wait for each other."""
    other = None if schedule == "reverse" else "reverse"
    return (other, RANDOM) if waits and schedule != RANDOM else (other,)


def in_order(schedule: str | None) -> str:
    """Return what messages call an order."""
    return ORDERS.get(schedule, f"in the order {schedule}")


def first_difference(first: np.ndarray, second: np.ndarray) -> tuple[int, ...] | None:
    """Return the index of the first element that differs by more than what a sum of floats is rounded by, or None."""
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


def _text(value: Any) -> str:
    return f"{value:g}" if value.dtype.kind == "f" else str(value)
