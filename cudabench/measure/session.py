"""A run of several kernels on one device, as a stream of events.

A GPU is used from a process of its own: an illegal address spoils a CUDA context for good and a kernel that never ends
cannot be stopped from within. The worker that met it is ended, the kernel is reported as failed, and a new worker
goes on with the rest. The simulator runs in this process, or in several that are forked from it (`parallel`).
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
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from cudabench.cards.load import Card
from cudabench.compile import limits
from cudabench.devices import Choice
from cudabench.errors import CudabenchError, DeviceError
from cudabench.measure.budget import Budget
from cudabench.records.planned import Case, Operation, Settings
from cudabench.records.results import CpuTime, DeviceInfo, Result, Watch
from cudabench.system import children, confined, interrupts

if TYPE_CHECKING:
    from cudabench.measure.simulated_run import SimulatedRun

WATCHED = ("running", "warming up", "timing")  # phases in which the GPU must give a sign of life
COMPILING = "compiling"
ATTEMPTS = 4  # of a compile, with and without the host's code, each of which has a limit
START_TIMEOUT_S = 120.0
LEAST_PATIENCE_S = 2.0  # with a kernel after the end of --budget: it shortens its samples, and no more
WORKER = "cudabench.measure.worker"


Outcome = TypeVar("Outcome")


class Task(Protocol):
    """What a worker is sent: what it does one after the other, how long each may take, on which GPU."""

    @property
    def cases(self) -> Sequence[Any]:
        """What it does."""

    @property
    def settings(self) -> Settings:
        """Among them the timeout."""

    @property
    def index(self) -> int:
        """The GPU's number."""

    @property
    def budget(self) -> Budget | None:
        """What all of it may take together; None without end."""


@dataclass(frozen=True)
class Job:
    """What a worker does: `operation` makes the operation, whose functions cannot travel themselves.

    With `more`, cases follow one by one, each sent once the one before is finished, as itself or as an `Other`. With
    `paired` the two cases are measured as a pair (`measure.ab`), `always` also where their code is the same.
    """

    operation: Callable[[], Operation]
    cases: tuple[Case, ...]
    settings: Settings
    index: int
    cpu: CpuTime | None = None
    budget: Budget | None = None
    more: bool = False
    paired: bool = False
    always: bool = False


@dataclass(frozen=True)
class Other:
    """A case of another problem than the one before it; `operation` makes its operation."""

    operation: Callable[[], Operation]
    case: Case


@dataclass(frozen=True)
class Started:
    """The device is ready."""

    device: DeviceInfo


@dataclass(frozen=True)
class Measured:
    """The CPU baseline is known."""

    cpu: CpuTime


@dataclass(frozen=True)
class Working:
    """A kernel is in a phase, of which a fraction is done. `at`: which of a pair it is."""

    kernel: str
    phase: str
    fraction: float
    at: int | None = None


@dataclass(frozen=True)
class Finished(Generic[Outcome]):
    """A kernel is done; `output` is what it printed.

    `context_lost`: a fault spoilt the worker's CUDA context, so the worker ends now. `printed` is how many bytes the
    worker's kernels have printed so far, so that each gets its own. `at`: which of a pair it is.
    """

    result: Outcome
    output: str = ""
    context_lost: bool = False
    printed: int | None = None
    at: int | None = None


@dataclass(frozen=True)
class Refused:
    """The run cannot go on: an error for the user."""

    error: CudabenchError


Event = Started | Measured | Working | Finished[Result] | Refused


def run(
    choice: Choice,
    operation: Callable[[], Operation],
    cases: Sequence[Case] | Iterator[Case],
    settings: Settings,
    *,
    progress: Callable[[Working], None] = lambda working: None,
    trace: Watch = False,
    record: bool = False,
    cpu: CpuTime | None = None,
    cards: Sequence[Card] = (),
    budget: Budget | None = None,
) -> Generator[Event, None, None]:
    """Run the cases in order and yield what happens: Started once, Finished once a case. An iterator is asked for the
    next case once the one before is finished.

    `progress` is called often with what is being done. `trace` keeps single accesses in the simulator, `record` what a
    report's page draws. `cpu` is the baseline where it is known already. With a `budget` the cases share its time, and
    those whose turn comes after its end are failed. `cards` price the simulator's counts.

    Closed before its end, it ends the worker. Raises CudabenchError where nothing can run at all.
    """
    if choice.kind == "sim":
        yield from _simulate(
            choice.architecture, operation(), cases, settings, progress, trace, record, cpu, cards, budget
        )
        return
    more = isinstance(cases, Iterator)
    left = list(islice(cases, 1)) if isinstance(cases, Iterator) else list(cases)
    started = False
    while left:
        with Worker(Job(operation, tuple(left), settings, choice.index, cpu, budget, more)) as worker:
            for event in worker.events():
                if isinstance(event, Refused):
                    raise event.error
                if isinstance(event, Measured):
                    cpu = event.cpu
                if isinstance(event, Finished):
                    left.pop(0)
                if isinstance(event, Working):
                    progress(event)
                    continue
                if isinstance(event, Started) and started:
                    continue
                started = started or isinstance(event, Started)
                yield event
                if isinstance(event, Finished) and isinstance(cases, Iterator):
                    left = list(islice(cases, 1))
                    if left and not event.context_lost:
                        worker.feed(left[0])
                if isinstance(event, Finished) and (event.context_lost or not left):
                    break


def pair(
    choice: Choice,
    operation: Callable[[], Operation],
    cases: Sequence[Case],
    settings: Settings,
    *,
    always: bool = False,
    progress: Callable[[Working], None] = lambda working: None,
) -> Generator[Event, None, None]:
    """Measure two cases with interleaved samples on a GPU and yield Started, then Finished of each; where the process
    with the GPU is lost, only of the one that it ran. Otherwise as `run`."""
    job = Job(operation, tuple(cases), settings, choice.index, paired=True, always=always)
    finished = 0
    with Worker(job) as worker:
        for event in worker.events():
            if isinstance(event, Refused):
                raise event.error
            if isinstance(event, Working):
                progress(event)
                continue
            finished += isinstance(event, Finished)
            yield event
            if finished == 2 or (isinstance(event, Finished) and event.context_lost):
                break


class Lane:
    """Cases of any problems one after the other on one device, each alone: on a GPU by one worker, which is replaced
    only after it ended, was ended, or may have something left of a case on the device's heap. Use as a context manager.
    """

    def __init__(self, choice: Choice, settings: Settings) -> None:
        self._choice, self._settings = choice, settings
        self._worker: Worker | None = None
        self._events: Iterator[Any] = iter(())

    def __enter__(self) -> Lane:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def result(self, operation: Callable[[], Operation], case: Case) -> Result:
        """Return the result of one case. Raises CudabenchError where it cannot run at all."""
        if self._choice.kind == "sim":
            events: Iterator[Event] = run(self._choice, operation, [case], self._settings)
            return next(event.result for event in events if isinstance(event, Finished))
        if self._worker is None:
            job = Job(operation, (case,), self._settings, self._choice.index, more=True)
            self._worker = Worker(job)
            self._events = self._worker.events()
        else:
            self._worker.feed(case, operation)
        try:
            finished = self._finished()
        except BaseException:
            self._end()
            raise
        if finished.context_lost or any(said.code == "malloc" for said in finished.result.warnings):
            self._end()
        return finished.result

    def _finished(self) -> Finished[Result]:
        for event in self._events:
            if isinstance(event, Refused):
                raise event.error
            if isinstance(event, Finished):
                return event
        raise AssertionError("a worker's events end with a case's end")

    def _end(self) -> None:
        if self._worker is not None:
            self._worker.__exit__(*sys.exc_info())
        self._worker, self._events = None, iter(())


def _simulate(
    architecture: str,
    operation: Operation,
    cases: Iterable[Case],
    settings: Settings,
    progress: Callable[[Working], None],
    trace: Watch,
    record: bool,
    cpu: CpuTime | None,
    cards: Sequence[Card],
    budget: Budget | None,
) -> Iterator[Event]:
    from cudabench.devices.sim import SimDevice
    from cudabench.measure.simulated_run import SimulatedRun

    device = SimDevice(architecture)
    yield Started(device.info)
    if not isinstance(cases, Iterator) and (together := _together(operation, list(cases), settings)) > 1:
        whole = SimulatedRun(
            operation, next(iter(cases)).problem, settings, device, trace, cards=cards, record=record, cpu=cpu
        )
        yield from _in_parallel(whole, list(cases), together, progress, budget)
        return
    simulated = None
    for case in cases:
        simulated = simulated or SimulatedRun(
            operation, case.problem, settings, device, trace, cards=cards, record=record, cpu=cpu
        )
        if budget and budget.until(1) is None:
            yield Finished(budget.left_out(case, f"sim:{architecture}"))
            continue
        if budget:  # a kernel is simulated whole: those that follow get what it leaves
            simulated.until = budget.end
        simulated.progress = partial(_working, progress, case.kernel)
        result = simulated.simulate(case)
        if simulated.cpu is not None and simulated.cpu is not cpu:
            cpu = simulated.cpu
            yield Measured(cpu)
        yield Finished(result, simulated.output)


def _together(operation: Operation, cases: Sequence[Case], settings: Settings) -> int:
    """Return how many cases to simulate at the same time."""
    if settings.jobs == 1 or len(cases) < 2 or any(case.problem != cases[0].problem for case in cases):
        return 1
    from cudabench.measure import parallel

    return parallel.jobs(settings.jobs, len(cases), operation.buffers(cases[0].problem))


def _in_parallel(
    whole: SimulatedRun,
    cases: Sequence[Case],
    together: int,
    progress: Callable[[Working], None],
    budget: Budget | None,
) -> Iterator[Event]:
    """Yield what `_simulate` does, of cases that are simulated at the same time."""
    from cudabench.measure import parallel

    device = f"sim:{whole.device.architecture}"
    known = whole.cpu
    whole.progress = partial(_working, progress, cases[0].kernel)
    whole.prepare(cases)
    if whole.cpu is not None and whole.cpu is not known:
        yield Measured(whole.cpu)
    if budget:
        whole.until = budget.end

    def simulate(case: Case, working: Callable[[str, float], None]) -> tuple[Result, str]:
        whole.progress = working
        return whole.simulate(case), whole.output

    def refused(case: Case) -> Result | None:
        return budget.left_out(case, device) if budget and budget.until(1) is None else None

    def failure(case: Case, reason: str) -> Result:
        from cudabench.measure.context import describe

        return replace(describe(case, device), status="failed", reason=reason)

    tell = partial(_working, progress)
    for result, output in parallel.results(cases, simulate, together, tell, refused, failure):
        yield Finished(result, output)


def _working(progress: Callable[[Working], None], kernel: str, phase: str, fraction: float) -> None:
    progress(Working(kernel, phase, fraction))


class Worker:
    """The parent's end of a worker process, which runs a module."""

    def __init__(self, job: Task, module: str | None = None) -> None:
        begun = False
        try:
            with interrupts.kept():
                self._begin(job, module)
                begun = True
        except BaseException:
            if begun:  # a signal has come meanwhile
                self.__exit__()
            raise

    def _begin(self, job: Task, module: str | None) -> None:
        from multiprocessing.connection import Connection

        self._job = job
        self._waiting = deque(job.cases)
        ours, theirs = os.pipe()
        back_read, back_write = os.pipe()
        # What libraries and kernels print goes to files, never between the lines of a report.
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 (closed in __exit__)
        self._noise = tempfile.TemporaryFile()  # noqa: SIM115
        self._shown = 0
        # What it leaves behind, since it just ends or is killed, goes with its folder: compilers' files, above all.
        self._folder = tempfile.TemporaryDirectory(prefix="cudabench-", ignore_cleanup_errors=True)
        self._process = subprocess.Popen(
            [*children.module(module or WORKER), str(ours), str(back_write)],
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._noise,
            pass_fds=(ours, back_write),
            env={**os.environ, "TMPDIR": self._folder.name},
            start_new_session=True,  # Ctrl-C reaches the parent alone, which ends the worker
        )
        os.close(ours)
        os.close(back_write)
        self._to = Connection(theirs, readable=False)
        self._from = Connection(back_read, writable=False)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._to.close()  # one that waits for more cases ends
            try:
                self._process.wait(0 if sys.exc_info()[0] else 5)  # profilers want a clean end
            except subprocess.TimeoutExpired:
                confined.end_group(self._process)
        for closing in (self._to, self._from, self._output, self._noise):
            closing.close()
        self._folder.cleanup()

    def feed(self, case: Any, operation: Callable[[], Operation] | None = None) -> None:
        """Send one case more, which has an operation of its own unless None."""
        self._waiting.append(case)
        with suppress(BrokenPipeError):  # as below
            self._to.send(case if operation is None else Other(operation, case))

    def events(self) -> Iterator[Any]:
        """Yield the worker's events; a death or a hang becomes a failed result of the kernel in hand."""
        case, phase, started = self._waiting.popleft(), "starting", False
        at = 0 if getattr(self._job, "paired", False) else None
        with suppress(BrokenPipeError):  # a worker that died at once: reading tells
            self._to.send(self._job)
        while True:
            limit = self._limit(phase) if started else START_TIMEOUT_S
            if not self._from.poll(limit):
                confined.end_group(self._process)
                if not started:
                    raise DeviceError(f"The GPU did not start within {START_TIMEOUT_S:g} s; check it with nvidia-smi.")
                more = f"{limits.VARIABLE}=SECONDS gives it longer" if phase == COMPILING else "raise --timeout"
                why = f"no sign of life for {limit:g} s while {phase}; {more} if it is just slow"
                yield self._failed(case, why, at)
                return
            try:
                event: Any = self._from.recv()
            except (EOFError, ConnectionResetError):
                self._process.wait()
                if not started:
                    raise DeviceError(f"The GPU did not start: {self._last_words()}.") from None
                yield self._failed(case, f"the process that ran it ended ({self._last_words()})", at)
                return
            if isinstance(event, Started):
                started = True
            elif isinstance(event, Working):
                phase = event.phase
                if event.at is not None:
                    at, case = event.at, self._job.cases[event.at]
            elif isinstance(event, Finished):
                phase = "between"
                event = replace(event, output=self._printed(event.printed))
            yield event
            if isinstance(event, Finished) and self._waiting:  # whoever was told of it may have fed the next
                case = self._waiting.popleft()

    def _limit(self, phase: str) -> float | None:
        """Return how long the worker may be silent in a phase; None where only this machine is at work."""
        if phase == COMPILING:
            return ATTEMPTS * limits.compile_seconds()
        if phase not in WATCHED:
            return None
        left = self._job.budget.end - time.monotonic() if self._job.budget else math.inf
        return min(self._job.settings.timeout, max(left, LEAST_PATIENCE_S))

    def _failed(self, case: Any, reason: str, at: int | None = None) -> Finished[Any]:
        return Finished(self.failure(case, reason), self._printed(), context_lost=True, at=at)

    def failure(self, case: Any, reason: str) -> Any:
        """Return the failed result of what was in hand."""
        from cudabench.measure.context import describe

        blank = describe(case, f"cuda:{self._job.index}")
        return replace(blank, status="failed", reason=reason)

    def _printed(self, end: int | None = None) -> str:
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


def _content(file: int) -> bytes:
    """Return a file's bytes without moving its position, which the worker shares and writes at."""
    return os.pread(file, os.fstat(file).st_size, 0)
