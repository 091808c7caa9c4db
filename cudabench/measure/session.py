"""Runs cases on one device, one after the other.

A separate worker process uses the GPU, because an illegal address destroys a CUDA context, and an endless kernel cannot
be stopped from within its process. Such a worker is ended, its kernel has failed, and a new worker runs the rest. The
simulator runs in this process, or in several forked ones (`parallel`). A worker starts slowly, and it starts while the
rest of a command loads, so this module imports little.
"""

from __future__ import annotations

import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from cudabench.compile import limits
from cudabench.devices import Choice, nvml, probe
from cudabench.errors import CudabenchError, DeviceError
from cudabench.system import children, confined, interrupts

if TYPE_CHECKING:
    from cudabench.cards.load import Card
    from cudabench.devices.sim import SimDevice
    from cudabench.measure.simulated_run import SimulatedRun
    from cudabench.records.planned import Case, Operation, Problem, Settings
    from cudabench.records.results import CpuTime, DeviceInfo, Result, Watch

WATCHED = ("running", "warming up", "timing")  # phases in which the worker must send events
COMPILING = "compiling"
ATTEMPTS = 4  # most tries of a compile, each with its own limit
START_TIMEOUT_S = 120.0
LEAST_PATIENCE_S = 2.0  # time that a kernel gets even after the end of --budget
WORKER = "cudabench.measure.worker"

Make = Callable[[], "Operation"]  # makes an operation, whose functions cannot be sent to a worker


@dataclass(frozen=True)
class Order:
    """An order to a worker: measure a case, or two cases as a pair (`measure.timing`).

    always: measure a pair even if its code is the same. make: None for the problem of the last order. until: the
    time.monotonic() at which the case must end. then: the next case to compile.
    """

    make: Make | None
    cases: tuple[Case, ...]
    settings: Settings
    cpu: CpuTime | None = None
    until: float | None = None
    always: bool = False
    then: Case | None = None


class Working(NamedTuple):
    """A kernel's phase, and its done fraction. at: the kernel's index in a pair."""

    kernel: str
    phase: str
    fraction: float
    at: int = 0


class Finished(NamedTuple):
    """The result of an order.

    context_lost: a fault destroyed the worker's CUDA context, so the worker ends now. printed: the number of bytes that
    the worker's kernels have printed so far.
    """

    result: Any
    cpu: CpuTime | None = None
    context_lost: bool = False
    printed: int | None = None


@dataclass(frozen=True)
class Budget:
    """The time limit of a run, in seconds of the machine's monotonic clock, which its processes share.

    seconds: the value of --budget. end: the time of its end. later: the number of kernels after those of this session.
    """

    seconds: float
    end: float
    later: int = 0

    def until(self, left: int) -> float | None:
        """Return the time at which the next of `left` kernels must end, so that each gets the same share; None if the
        time is over."""
        now = time.monotonic()
        return now + (self.end - now) / (left + self.later) if now < self.end else None


class Silent(AbstractContextManager["Silent"]):
    """Ignores the progress of a run; `views.progress.Progress`, which shows it, has the same methods."""

    def __init__(self, kernels: int = 0) -> None:
        """Begin; `kernels` is the number of kernels that will run."""

    def __exit__(self, *_: object) -> None:
        """End: all kernels have ended."""

    def bound(self, sampling: float, end: float | None) -> None:
        """Set the most seconds of sampling per kernel, and the time.monotonic() at which the run ends."""

    def working(self, kernel: str, phase: str, fraction: float) -> None:
        """Show the phase of a kernel and its done fraction."""

    def finished(self, printed: str) -> None:
        """Show that a kernel has ended, and its printed text."""


class Session(AbstractContextManager["Session"]):
    """A device that runs cases; use it as a context manager. A GPU's worker is replaced after its end.

    `device`, and `cpu`, the baseline of the current problem, are None until they are known. started: called with the
    device. shown: shows the progress, with the device's name if there are `several`. spent: called with each phase.
    trace, record, cards: see `measure.run.Run`. module: the module that a worker runs.
    """

    def __init__(
        self,
        choice: Choice,
        settings: Settings,
        *,
        started: Callable[[DeviceInfo], None] = lambda device: None,
        shown: Any = None,
        spent: Callable[[str], None] = lambda phase: None,
        several: bool = False,
        trace: Watch = False,
        record: bool = False,
        cards: Sequence[Card] = (),
        cpu: CpuTime | None = None,
        module: str | None = None,
    ) -> None:
        self.choice, self.settings, self.cpu = choice, settings, cpu
        self.device: DeviceInfo | None = None
        self._started, self._shown, self._spent, self._several = started, shown or Silent(), spent, several
        self._trace, self._record, self._cards, self._module = trace, record, cards, module
        self._peers = False  # whether a case calls a library, which needs the primary context
        self._worker: Worker | None = None
        self._simulator: SimDevice | None = None
        self._simulated: SimulatedRun | None = None
        self._current: tuple[Make, Problem] | None = None  # of the last case
        self._sent: tuple[Make, Problem] | None = None  # of the current worker's last case

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        worker = self._worker
        if worker is not None and error is None and _leaving is not None:
            worker.dismiss()  # it frees its memory while the results are shown
            _leaving.append(worker)
            self._worker = None
        self.end()

    def working(self, kernel: str, phase: str, fraction: float) -> None:
        """Show a kernel's phase and its done fraction."""
        self._spent(phase)
        self._shown.working(f"{kernel} on {self.choice.name}" if self._several else kernel, phase, fraction)

    def end(self) -> None:
        """End the worker, if any; the next case starts a new one."""
        worker, self._worker, self._sent = self._worker, None, None
        if worker is not None:
            worker.end()

    def result(self, make: Make, case: Case, budget: Budget | None = None, later: Sequence[Case] = ()) -> Result:
        """Return the result of a case; it shares the rest of a budget with `later` cases.

        Raises CudabenchError if it cannot run at all.
        """
        self._begin([case])
        until = budget.until(1 + len(later)) if budget else None
        if late := self._late(case, budget):
            self._shown.finished("")
            return late
        if self._simulator:
            run = self._run_of(self._simulator, make, case, budget)
            result = run.measure(case)
            self.cpu = run.cpu
            self._shown.finished(run.output)
            return result
        then = next((later_case for later_case in later if not (later_case.peer or later_case.skip_reason)), None)
        order = Order(self._switch_to(make, case), (case,), self.settings, self.cpu, until, then=then)
        answer: Result = self.ask(order, lambda _, why: self._failed(case, why), budget.end if budget else math.inf)
        return answer

    def results(self, make: Make, cases: Sequence[Case], budget: Budget | None = None) -> Generator[Result, None, None]:
        """Yield the results of one problem's cases in their order; the simulator may run some at the same time. Cases
        that would start after the end of a budget have failed. Closing the generator ends all processes."""
        self._begin(cases)
        processes = 1
        if self._simulator and len(cases) > 1 and all(case.problem == cases[0].problem for case in cases):
            from cudabench.measure import parallel

            processes = parallel.process_count(self.settings.jobs, len(cases), make().buffers(cases[0].problem))
        if self._simulator:
            from cudabench.simulator import api as simulator

            simulator.THREADS.set(self.settings.sim_threads or max(1, children.processors() // processes))
        if self._simulator is None or processes == 1:
            for at, case in enumerate(cases):
                yield self.result(make, case, budget, cases[at + 1 :])
            return
        run = self._run_of(self._simulator, make, cases[0], budget)
        run.prepare(cases)
        self.cpu = run.cpu

        def simulate(case: Case, working: Callable[[str, float], None]) -> tuple[Result, str]:
            run.progress = working
            return run.measure(case), run.output

        late = partial(self._late, budget=budget)
        for result, printed in parallel.simulate_in_order(cases, simulate, processes, self.working, late, self._failed):
            self._shown.finished(printed)
            yield result

    def pair(self, make: Make, cases: Sequence[Case], always: bool = False) -> list[Result]:
        """Return the results of two cases with interleaved samples on a GPU. If the worker dies, its current case has
        failed, and the other one is 'skipped'."""
        from cudabench.measure.context import stopped_pair

        def lost(at: int, reason: str) -> list[Result]:
            failed = [self._failed(case, reason) for case in cases]
            return stopped_pair(failed, at, failed[at])

        self._begin(cases)
        results: list[Result] = self.ask(
            Order(self._switch_to(make, cases[0]), tuple(cases), self.settings, always=always), lost
        )
        return results

    def ask(self, order: Any, lost: Callable[[int, str], Any], end: float = math.inf) -> Any:
        """Return a worker's result of an order. If the worker dies, return `lost(at, reason)` for its current case, by
        the index in a pair. end: the end of the run's time. Raises CudabenchError if the GPU does not start, or the
        order cannot be carried out."""
        self._start()
        assert self._worker
        try:
            finished = self._worker.carry_out(order, self.settings.timeout, end, self.working, lost)
        except BaseException:
            self.end()
            raise
        printed = self._worker.printed(finished.printed)
        if finished.context_lost:
            self.end()
        self.cpu = finished.cpu or self.cpu
        self._shown.finished(printed)
        return finished.result

    def _begin(self, cases: Sequence[Case]) -> None:
        """Prepare the device for cases."""
        self._peers = self._peers or any(case.peer for case in cases)
        if self.device is not None:
            return
        if self.choice.kind == "cuda":
            self._start()
            return
        from cudabench.devices.sim import SimDevice

        self._simulator = SimDevice(self.choice.architecture)
        self._know(self._simulator.info)

    def _start(self) -> None:
        if self._worker is None:
            kind = self._module or WORKER, self.choice.index, self._peers
            with interrupts.delayed():
                self._worker = _take_ahead(*kind) or Worker(kind[0], kind[1], primary=kind[2])
            nvml.management()  # loads for `started` while the worker starts
            try:
                self._know(self._worker.device())
            except BaseException:
                self.end()
                raise

    def _know(self, device: DeviceInfo) -> None:
        if self.device is None:
            self.device = device
            self._started(device)

    def _switch_to(self, make: Make, case: Case) -> Make | None:
        """Return the function that makes a case's operation; None if the worker has the operation."""
        key = (make, case.problem)
        if self._current not in (None, key):
            self.cpu, self._simulated = None, None
        sent = self._sent == key
        self._current = self._sent = key
        return None if sent else make

    def _failed(self, case: Case, reason: str) -> Result:
        from cudabench.measure.context import describe

        return replace(describe(case, self.choice.name), status="failed", reason=reason)

    def _late(self, case: Case, budget: Budget | None) -> Result | None:
        """Return the failed result of a case after the end of the budget, else None."""
        if budget is None or budget.until(1) is not None:
            return None
        return self._failed(
            case, f"not measured: --budget {budget.seconds:g} s was used up; give more, or run fewer kernels"
        )

    def _run_of(self, device: SimDevice, make: Make, case: Case, budget: Budget | None) -> SimulatedRun:
        """Return the simulator's run for a case's problem, prepared for the case."""
        from cudabench.measure.simulated_run import SimulatedRun

        self._switch_to(make, case)
        self._simulated = run = self._simulated or SimulatedRun(
            make(), case.problem, self.settings, device, self._trace, cards=self._cards, record=self._record,
            cpu=self.cpu,
        )  # fmt: skip
        run.until = budget.end if budget else None  # each kernel may use all the remaining time
        run.progress = partial(self.working, case.kernel)
        return run


class Worker:
    """The parent's side of a process that owns a GPU."""

    def __init__(self, module: str, index: int, *, primary: bool = False) -> None:
        self.kind = module, index, primary
        begun = False
        try:
            with interrupts.delayed():
                ours, theirs = os.pipe()
                back_read, back_write = os.pipe()
                # Libraries and kernels print to files, so that their text does not mix with the report.
                self._output = tempfile.TemporaryFile()  # noqa: SIM115 (closed in `end`)
                self._noise = tempfile.TemporaryFile()  # noqa: SIM115
                self._shown = 0
                # Compilers' files that a killed worker leaves are deleted with this folder.
                self._folder = tempfile.TemporaryDirectory(prefix="cudabench-", ignore_cleanup_errors=True)
                self._process = subprocess.Popen(
                    [*children.module_command(module), str(ours), str(back_write), str(index), *["primary"] * primary],
                    stdin=subprocess.DEVNULL,
                    stdout=self._output,
                    stderr=self._noise,
                    pass_fds=(ours, back_write),
                    env={**os.environ, "TMPDIR": self._folder.name},
                    start_new_session=True,  # Ctrl-C reaches only the parent, which ends the worker
                )
                os.close(ours)
                os.close(back_write)
                from multiprocessing.connection import Connection  # while it starts

                self._to = Connection(theirs, readable=False)
                self._from = Connection(back_read, writable=False)
                begun = True
        except BaseException:
            if begun:  # a signal came during the start
                self.end()
            raise

    def end(self, seconds: float = 5) -> None:
        """End the process and delete its files. It gets `seconds` to end itself, or none during an exception."""
        if self._process.poll() is None:
            self.dismiss()
            try:
                self._process.wait(0 if sys.exc_info()[0] else seconds)  # profilers want a clean end
            except subprocess.TimeoutExpired:
                confined.end_group(self._process)
        for closing in (self._to, self._from, self._output, self._noise):
            closing.close()
        self._folder.cleanup()

    def dismiss(self) -> None:
        """Let the process end instead of waiting for another order."""
        self._to.close()

    def device(self) -> DeviceInfo:
        """Wait for the device and return it. Raises CudabenchError if it does not start."""
        if not self._from.poll(START_TIMEOUT_S):
            confined.end_group(self._process)
            raise DeviceError(f"The GPU did not start within {START_TIMEOUT_S:g} s; check it with nvidia-smi.")
        try:
            device: DeviceInfo = self._receive()
        except (EOFError, ConnectionResetError):
            self._process.wait()
            raise DeviceError(f"The GPU did not start: {self._last_words()}.") from None
        return device

    def carry_out(
        self,
        order: Any,
        timeout: float,
        end: float,
        working: Callable[[str, str, float], None],
        lost: Callable[[int, str], Any],
    ) -> Finished:
        """Send an order and return its result; if the worker dies or hangs, the result of `lost`."""
        phase, at = "starting", 0
        with suppress(BrokenPipeError):  # a dead worker is detected below
            self._to.send(order)
        while True:
            limit = None  # without a limit while only the host works
            if phase == COMPILING:
                limit = ATTEMPTS * limits.compile_seconds()
            elif phase in WATCHED:
                limit = min(timeout, max(end - time.monotonic(), LEAST_PATIENCE_S))
            if not self._from.poll(limit):
                confined.end_group(self._process)
                repair = f"{limits.VARIABLE}=SECONDS gives it longer" if phase == COMPILING else "raise --timeout"
                why = f"no sign of life for {limit:g} s while {phase}; {repair} if it is only slow"
                return Finished(lost(at, why), context_lost=True)
            try:
                event = self._receive()
            except (EOFError, ConnectionResetError):
                self._process.wait()
                return Finished(lost(at, f"the process that ran it ended ({self._last_words()})"), context_lost=True)
            if isinstance(event, Finished):
                return event
            phase, at = event.phase, event.at
            working(event.kernel, phase, event.fraction)

    def _receive(self) -> Any:
        event = self._from.recv()
        if isinstance(event, CudabenchError):
            raise event
        return event

    def printed(self, end: int | None = None) -> str:
        """Return the text that kernels printed since the last call, up to byte `end` of their whole output."""
        text = _content(self._output.fileno())[self._shown : end]
        self._shown += len(text)
        return text.decode("utf-8", "replace")

    def _last_words(self) -> str:
        lines = _content(self._noise.fileno()).decode("utf-8", "replace").strip().splitlines()
        # Python names the error in its last line; PyCUDA may print more below it at its end.
        errors = [line for line in lines if re.match(r"[A-Za-z_][\w.]*(Error|Exception|Interrupt)\b", line)]
        lines = errors or [line for line in lines if not re.fullmatch(r"[-=\s]*", line)]
        status = self._process.returncode
        if status < 0:  # its last line need not be the reason
            ended = f"by {signal.Signals(-status).name}"
            return f"{ended}, after: {lines[-1]}" if lines else ended
        return lines[-1] if lines else f"exit status {status}"


_ahead: list[Worker] = []  # the worker that a command starts first
_leaving: list[Worker] | None = None  # dismissed workers, for whose end the command waits


@contextmanager
def ahead(index: int, *, primary: bool = False) -> Iterator[None]:
    """Start a GPU's worker, if there is a driver, before a session needs it. At the end, end it if no session took it,
    and wait for dismissed workers."""
    global _leaving
    _leaving = []
    try:
        if probe.libcuda() is not None:
            with interrupts.delayed():
                _ahead.append(Worker(WORKER, index, primary=primary))
        yield
    finally:
        _take_ahead()
        _await_dismissed()
        _leaving = None


def _take_ahead(*kind: object) -> Worker | None:
    """Return the worker that was started ahead, if it has this kind; end one of another kind.

    Earlier workers have then ended, so that they hold no memory of the GPU.
    """
    _await_dismissed()
    worker = _ahead.pop() if _ahead else None
    if worker is None or worker.kind == kind:
        return worker
    worker.end(0)
    return None


def _await_dismissed() -> None:
    while _leaving:
        _leaving.pop().end()


def _content(file: int) -> bytes:
    """Return a file's bytes without changing its position, at which the worker writes."""
    return os.pread(file, os.fstat(file).st_size, 0)
