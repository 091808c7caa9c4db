"""Cases on one device, one after the other.

A GPU is used from a process of its own: an illegal address spoils a CUDA context for good and a kernel that never ends
cannot be stopped from within. The worker that met it is ended, the kernel is reported as failed, and a new worker
goes on with the rest. The simulator runs in this process, or in several that are forked from it (`parallel`).
A worker takes long to start: it does while the rest of a command loads and is planned, so little is imported here.
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

WATCHED = ("running", "warming up", "timing")  # phases in which the GPU must give a sign of life
COMPILING = "compiling"
ATTEMPTS = 4  # of a compile, with and without the host's code, each of which has a limit
START_TIMEOUT_S = 120.0
LEAST_PATIENCE_S = 2.0  # with a kernel after the end of --budget: it shortens its samples, and no more
WORKER = "cudabench.measure.worker"

Make = Callable[[], "Operation"]  # an operation, whose functions cannot travel to a worker themselves


@dataclass(frozen=True)
class Order:
    """What a worker does next: a case, or two as a pair (`measure.timing`), `always` also where their code is the same.

    `make`: None for the problem of the order before; `until`: when the case has to be done; `then`: what compiles next.
    """

    make: Make | None
    cases: tuple[Case, ...]
    settings: Settings
    cpu: CpuTime | None = None
    until: float | None = None
    always: bool = False
    then: Case | None = None


class Working(NamedTuple):
    """A kernel is in a phase, of which a fraction is done. `at`: which of a pair it is."""

    kernel: str
    phase: str
    fraction: float
    at: int = 0


class Finished(NamedTuple):
    """An order is carried out.

    `context_lost`: a fault spoilt the worker's CUDA context, so the worker ends now. `printed` is how many bytes the
    worker's kernels have printed so far, so that each gets its own.
    """

    result: Any
    cpu: CpuTime | None = None
    context_lost: bool = False
    printed: int | None = None


@dataclass(frozen=True)
class Budget:
    """The time that is left to a run, in seconds of the machine's monotonic clock, which its processes share.

    `seconds` is what --budget gave; `end` is when they are over; `later` counts the kernels that come after those of
    the session in hand.
    """

    seconds: float
    end: float
    later: int = 0

    def until(self, left: int) -> float | None:
        """Return when the next of `left` kernels has to be done, so that all that follow have as long as it; None
        where the time is over."""
        now = time.monotonic()
        return now + (self.end - now) / (left + self.later) if now < self.end else None


class Silent(AbstractContextManager["Silent"]):
    """Ignores what a run does; what shows it, a `views.progress.Progress`, has the same methods."""

    def __init__(self, kernels: int = 0) -> None:
        """So many kernels will run."""

    def __exit__(self, *_: object) -> None:
        """No kernel runs any more, whatever the reason."""

    def bound(self, sampling: float, end: float | None) -> None:
        """No kernel samples for longer than this, and the run's time is over then, of time.monotonic()."""

    def working(self, kernel: str, phase: str, fraction: float) -> None:
        """A kernel is in a phase, of which a fraction is done."""

    def finished(self, printed: str) -> None:
        """A kernel is through, and printed this."""


class Session(AbstractContextManager["Session"]):
    """A device; use as a context manager. A GPU's worker is replaced after it ended or was ended.

    `device` and `cpu`, the baseline of the problem in hand, are None until they are known. `started` is told of the
    device, `shown` of the kernels, with the device where there are `several`, `spent` of the phases alone. `trace`
    keeps single accesses in the simulator, `record` what a report's page draws, `cards` price its counts. `module`
    is what a worker runs.
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
        self._peers = False  # whether a library's call comes: those want the primary context
        self._worker: Worker | None = None
        self._simulator: SimDevice | None = None
        self._simulated: SimulatedRun | None = None
        self._of: tuple[Make, Problem] | None = None  # what the last case was of,
        self._sent: tuple[Make, Problem] | None = None  # and the last of the worker in hand

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        worker = self._worker
        if worker is not None and error is None and _leaving is not None:
            worker.dismiss()  # it gives its memory back while the results are shown
            _leaving.append(worker)
            self._worker = None
        self.end()

    def working(self, kernel: str, phase: str, fraction: float) -> None:
        """Show that a kernel is in a phase, of which a fraction is done."""
        self._spent(phase)
        self._shown.working(f"{kernel} on {self.choice.name}" if self._several else kernel, phase, fraction)

    def end(self) -> None:
        """End the worker, if there is one; the next case has another."""
        worker, self._worker, self._sent = self._worker, None, None
        if worker is not None:
            worker.end()

    def result(self, make: Make, case: Case, budget: Budget | None = None, later: Sequence[Case] = ()) -> Result:
        """Return the result of a case, which shares what is left of a budget with later ones.

        Raises CudabenchError where it cannot run at all.
        """
        self._begin([case])
        until = budget.until(1 + len(later)) if budget else None
        if late := self._late(case, budget):
            self._shown.finished("")
            return late
        if self._simulator:
            run = self._run_of(self._simulator, make, case, budget)
            found = run.measure(case)
            self.cpu = run.cpu
            self._shown.finished(run.output)
            return found
        then = next((later_case for later_case in later if not (later_case.peer or later_case.skip_reason)), None)
        order = Order(self._turn_to(make, case), (case,), self.settings, self.cpu, until, then=then)
        answer: Result = self.ask(order, lambda _, why: self._failed(case, why), budget.end if budget else math.inf)
        return answer

    def results(self, make: Make, cases: Sequence[Case], budget: Budget | None = None) -> Generator[Result, None, None]:
        """Yield the results of cases of one problem in their order; some at the same time in the simulator. Those whose
        turn comes after the end of a budget have failed. Closed before its end, it ends all processes."""
        self._begin(cases)
        together = 1
        if self._simulator and len(cases) > 1 and all(case.problem == cases[0].problem for case in cases):
            from cudabench.measure import parallel

            together = parallel.jobs(self.settings.jobs, len(cases), make().buffers(cases[0].problem))
        if self._simulator:
            from cudabench.simulator import api as simulator

            simulator.THREADS.set(self.settings.sim_threads or max(1, children.processors() // together))
        if self._simulator is None or together == 1:
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
        for found, printed in parallel.results(cases, simulate, together, self.working, late, self._failed):
            self._shown.finished(printed)
            yield found

    def pair(self, make: Make, cases: Sequence[Case], always: bool = False) -> list[Result]:
        """Return the results of two cases that a GPU measured with interleaved samples. Where its worker is lost, the
        one that it ran has failed, and the other is 'skipped'."""
        from cudabench.measure.context import stopped_pair

        def lost(at: int, reason: str) -> list[Result]:
            failed = [self._failed(case, reason) for case in cases]
            return stopped_pair(failed, at, failed[at])

        self._begin(cases)
        found: list[Result] = self.ask(
            Order(self._turn_to(make, cases[0]), tuple(cases), self.settings, always=always), lost
        )
        return found

    def ask(self, order: Any, lost: Callable[[int, str], Any], end: float = math.inf) -> Any:
        """Return what a worker makes of an order. Where it is lost, what `lost` makes of the case that it ran, the
        first or the second of a pair, and of why; `end`: when the run's time is over. Raises CudabenchError where the
        GPU does not start, or the order cannot be carried out."""
        self._start()
        assert self._worker
        try:
            done = self._worker.carry_out(order, self.settings.timeout, end, self.working, lost)
        except BaseException:
            self.end()
            raise
        printed = self._worker.printed(done.printed)
        if done.context_lost:
            self.end()
        self.cpu = done.cpu or self.cpu
        self._shown.finished(printed)
        return done.result

    def _begin(self, cases: Sequence[Case]) -> None:
        """Have the device ready for some cases."""
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
            words = self._module or WORKER, self.choice.index, self._peers
            with interrupts.kept():
                self._worker = _taken(*words) or Worker(words[0], words[1], primary=words[2])
            nvml.management()  # what `started` asks of the card is ready when the worker is
            try:
                self._know(self._worker.device())
            except BaseException:
                self.end()
                raise

    def _know(self, device: DeviceInfo) -> None:
        if self.device is None:
            self.device = device
            self._started(device)

    def _turn_to(self, make: Make, case: Case) -> Make | None:
        """Return what makes the operation of a case; None where the worker has it."""
        of = (make, case.problem)
        if self._of not in (None, of):
            self.cpu, self._simulated = None, None
        known = self._sent == of
        self._of = self._sent = of
        return None if known else make

    def _failed(self, case: Case, reason: str) -> Result:
        from cudabench.measure.context import describe

        return replace(describe(case, self.choice.name), status="failed", reason=reason)

    def _late(self, case: Case, budget: Budget | None) -> Result | None:
        """Return the result of a case whose turn comes after the end of the budget."""
        if budget is None or budget.until(1) is not None:
            return None
        return self._failed(
            case,
            f"not measured: --budget {budget.seconds:g} s was spent before its turn; give more, or fewer kernels",
        )

    def _run_of(self, device: SimDevice, make: Make, case: Case, budget: Budget | None) -> SimulatedRun:
        """Return the run in the simulator that a case is of, ready for it."""
        from cudabench.measure.simulated_run import SimulatedRun

        self._turn_to(make, case)
        self._simulated = run = self._simulated or SimulatedRun(
            make(), case.problem, self.settings, device, self._trace, cards=self._cards, record=self._record,
            cpu=self.cpu,
        )  # fmt: skip
        run.until = budget.end if budget else None  # simulated whole: those that follow get what it leaves
        run.progress = partial(self.working, case.kernel)
        return run


class Worker:
    """The parent's end of a process that owns a GPU."""

    def __init__(self, module: str, index: int, *, primary: bool = False) -> None:
        self.kind = module, index, primary
        begun = False
        try:
            with interrupts.kept():
                ours, theirs = os.pipe()
                back_read, back_write = os.pipe()
                # What libraries and kernels print goes to files, never between the lines of a report.
                self._output = tempfile.TemporaryFile()  # noqa: SIM115 (closed in `end`)
                self._noise = tempfile.TemporaryFile()  # noqa: SIM115
                self._shown = 0
                # What it leaves behind, since it just ends or is killed, goes with its folder: compilers' files.
                self._folder = tempfile.TemporaryDirectory(prefix="cudabench-", ignore_cleanup_errors=True)
                self._process = subprocess.Popen(
                    [*children.module(module), str(ours), str(back_write), str(index), *["primary"] * primary],
                    stdin=subprocess.DEVNULL,
                    stdout=self._output,
                    stderr=self._noise,
                    pass_fds=(ours, back_write),
                    env={**os.environ, "TMPDIR": self._folder.name},
                    start_new_session=True,  # Ctrl-C reaches the parent alone, which ends the worker
                )
                os.close(ours)
                os.close(back_write)
                from multiprocessing.connection import Connection  # while it starts

                self._to = Connection(theirs, readable=False)
                self._from = Connection(back_read, writable=False)
                begun = True
        except BaseException:
            if begun:  # a signal has come meanwhile
                self.end()
            raise

    def end(self, seconds: float = 5) -> None:
        """End the process, with its files; it has so long to end by itself, and no time where an exception ends it."""
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
        """Let the process end once it waits for an order."""
        self._to.close()

    def device(self) -> DeviceInfo:
        """Return the device once it is ready. Raises CudabenchError where it does not start."""
        if not self._from.poll(START_TIMEOUT_S):
            confined.end_group(self._process)
            raise DeviceError(f"The GPU did not start within {START_TIMEOUT_S:g} s; check it with nvidia-smi.")
        try:
            device: DeviceInfo = self._heard()
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
        """Send an order and return what comes of it; where the worker dies or hangs, what `lost` makes of that."""
        phase, at = "starting", 0
        with suppress(BrokenPipeError):  # a worker that died before: reading tells
            self._to.send(order)
        while True:
            limit = None  # where only this machine is at work
            if phase == COMPILING:
                limit = ATTEMPTS * limits.compile_seconds()
            elif phase in WATCHED:
                limit = min(timeout, max(end - time.monotonic(), LEAST_PATIENCE_S))
            if not self._from.poll(limit):
                confined.end_group(self._process)
                more = f"{limits.VARIABLE}=SECONDS gives it longer" if phase == COMPILING else "raise --timeout"
                why = f"no sign of life for {limit:g} s while {phase}; {more} if it is just slow"
                return Finished(lost(at, why), context_lost=True)
            try:
                event = self._heard()
            except (EOFError, ConnectionResetError):
                self._process.wait()
                return Finished(lost(at, f"the process that ran it ended ({self._last_words()})"), context_lost=True)
            if isinstance(event, Finished):
                return event
            phase, at = event.phase, event.at
            working(event.kernel, phase, event.fraction)

    def _heard(self) -> Any:
        event = self._from.recv()
        if isinstance(event, CudabenchError):
            raise event
        return event

    def printed(self, end: int | None = None) -> str:
        """Return what kernels printed since the last time, up to a byte of all that they did."""
        text = _content(self._output.fileno())[self._shown : end]
        self._shown += len(text)
        return text.decode("utf-8", "replace")

    def _last_words(self) -> str:
        lines = _content(self._noise.fileno()).decode("utf-8", "replace").strip().splitlines()
        # Python names the error in its last line; PyCUDA, leaving, may print more below it.
        named = [line for line in lines if re.match(r"[A-Za-z_][\w.]*(Error|Exception|Interrupt)\b", line)]
        lines = named or [line for line in lines if not re.fullmatch(r"[-=\s]*", line)]
        status = self._process.returncode
        if status < 0:  # what it printed last need not be why
            ended = f"by {signal.Signals(-status).name}"
            return f"{ended}, after: {lines[-1]}" if lines else ended
        return lines[-1] if lines else f"exit status {status}"


_ahead: list[Worker] = []  # started before it is known what it will run
_leaving: list[Worker] | None = None  # dismissed by sessions of a command that ends them at last


@contextmanager
def ahead(index: int, *, primary: bool = False) -> Iterator[None]:
    """Start the worker of a GPU, where there is a driver, for a session to take; one that none has taken ends here, and
    those that sessions have dismissed."""
    global _leaving
    _leaving = []
    try:
        if probe.libcuda() is not None:
            with interrupts.kept():
                _ahead.append(Worker(WORKER, index, primary=primary))
        yield
    finally:
        _taken()
        _await_dismissed()
        _leaving = None


def _taken(*kind: object) -> Worker | None:
    """Return the worker that was started ahead, if it is of this kind; another is ended.

    No worker of an earlier session has memory of the GPU by then.
    """
    _await_dismissed()
    found = _ahead.pop() if _ahead else None
    if found is None or found.kind == kind:
        return found
    found.end(0)
    return None


def _await_dismissed() -> None:
    while _leaving:
        _leaving.pop().end()


def _content(file: int) -> bytes:
    """Return a file's bytes without moving its position, which the worker shares and writes at."""
    return os.pread(file, os.fstat(file).st_size, 0)
