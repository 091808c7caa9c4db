"""Runs cases on one device, one after another.

A GPU is used by a separate process, the worker, because an illegal address destroys a CUDA context, and an endless
kernel cannot be stopped from within its process. In both cases the worker is ended, the kernel gets the status
'failed', and a new worker runs the remaining kernels. The simulator runs in this process, or in several forked
processes (`parallel`). A worker takes long to start, so it is started while the rest of the command is imported; to
make this possible, this module itself imports little.
"""

from __future__ import annotations

import math
import mmap
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
from cudabench.system import children, interrupts, limited_process

if TYPE_CHECKING:
    from cudabench.cards.load import Card
    from cudabench.devices.sim import SimDevice
    from cudabench.measure.simulated_run import SimulatedRun
    from cudabench.records.plan import Case, Operation, Problem, Settings
    from cudabench.records.results import CpuTime, DeviceInfo, Result, Watch

# In these phases the worker is stopped if it sends no event before a timeout.
WATCHED = ("running", "warming up", "timing")
COMPILING = "compiling"
ATTEMPTS = 4  # a source is compiled at most this many times, each time with its own time limit
START_TIMEOUT_S = 120.0
LEAST_PATIENCE_S = 2.0  # the shortest timeout, even if the time of --budget is over
WORKER = "cudabench.measure.worker"

# Makes an operation. The worker receives this function, because an operation itself cannot be sent to another process.
Make = Callable[[], "Operation"]


@dataclass(frozen=True)
class Task:
    """A task for a worker: measure a case, or two cases as a pair (`measure.timing`).

    `make`: makes the operation; None if operation and problem are the same as in the last task. `cpu`: the time of the
    CPU baseline, if known. `until`: the time.monotonic() at which the case must end. `always`: whether a pair is
    measured even if both kernels have the same code. `next_case`: the next case, which is compiled in advance.
    """

    make: Make | None
    cases: tuple[Case, ...]
    settings: Settings
    cpu: CpuTime | None = None
    until: float | None = None
    always: bool = False
    next_case: Case | None = None


class ProgressEvent(NamedTuple):
    """An event that reports which phase a kernel is in, and the done fraction of this phase. `at`: the kernel's index
    in a pair."""

    kernel: str
    phase: str
    fraction: float
    at: int = 0


class FinishedEvent(NamedTuple):
    """The event that reports the result of a task.

    `cpu`: the time of the CPU baseline, if it was measured. `context_lost`: whether a fault has destroyed the worker's
    CUDA context, so that the worker ends now. `printed`: how many bytes the worker's kernels have printed so far.
    """

    result: Any
    cpu: CpuTime | None = None
    context_lost: bool = False
    printed: int | None = None


@dataclass(frozen=True)
class Budget:
    """The time limit of a run. `seconds`: the value of --budget. `end`: the time.monotonic() at which the run must end;
    all processes of a machine have the same clock. `later`: how many kernels run after the kernels of this session."""

    seconds: float
    end: float
    later: int = 0

    def until(self, left: int) -> float | None:
        """Return the time.monotonic() at which the next kernel must end, so that each remaining kernel gets the same
        share of the time; None if the time is over. `left`: the number of remaining kernels of this session."""
        now = time.monotonic()
        return now + (self.end - now) / (left + self.later) if now < self.end else None


class SilentProgress(AbstractContextManager["SilentProgress"]):
    """Ignores the progress of a run. `views.progress.Progress` has the same methods and shows the progress."""

    def __init__(self, kernels: int = 0) -> None:
        """Begin; `kernels` is the number of kernels that will run."""

    def __exit__(self, *_: object) -> None:
        """End the display, because all kernels have ended."""

    def bound(self, sampling: float, end: float | None) -> None:
        """Set `sampling`, the most seconds of sampling per kernel, and `end`, the time.monotonic() at which the run
        ends, or None without a limit."""

    def show_progress(self, kernel: str, phase: str, fraction: float) -> None:
        """Show in which phase a kernel is, and which fraction of the phase is done."""

    def finished(self, printed: str) -> None:
        """Show that a kernel has ended, and the text that it printed."""


class Session(AbstractContextManager["Session"]):
    """Runs cases on one device; use it as a context manager. If a GPU's worker ends, the next case starts a new one.

    `device`: the device. `cpu`: the time of the CPU baseline for the current problem. Both are None until they are
    known. Parameters: `started`: a function that is called with the device when the device is known. `shown`: an object
    that shows the progress, with the device's name if `several` is set. `spent`: a function that is called with each
    phase. `trace`, `record`, `cards`: see `measure.run.Run`. `module`: the module that a worker runs, by default
    `measure.worker`.
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
        self._started, self._shown, self._spent, self._several = started, shown or SilentProgress(), spent, several
        self._trace, self._record, self._cards, self._module = trace, record, cards, module
        self._peers = False  # whether a case calls a library; if so, the worker must use the GPU's primary context
        self._worker: Worker | None = None
        self._simulator: SimDevice | None = None
        self._simulated: SimulatedRun | None = None
        self._current: tuple[Make, Problem] | None = None  # operation and problem of the last case
        self._sent: tuple[Make, Problem] | None = None  # operation and problem that the present worker got last

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        worker = self._worker
        if worker is not None and error is None and _ending_workers is not None:
            worker.close_pipe()  # the worker ends and frees its memory while the results are shown
            _ending_workers.append(worker)
            self._worker = None
        self.end()

    def show_progress(self, kernel: str, phase: str, fraction: float) -> None:
        """Show in which phase a kernel is and which fraction of the phase is done, and add the time to this phase."""
        self._spent(phase)
        self._shown.show_progress(f"{kernel} on {self.choice.name}" if self._several else kernel, phase, fraction)

    def end(self) -> None:
        """End the worker if there is one; the next case starts a new one."""
        worker, self._worker, self._sent = self._worker, None, None
        if worker is not None:
            worker.end()

    def result(self, make: Make, case: Case, budget: Budget | None = None, later: Sequence[Case] = ()) -> Result:
        """Run a case, and return its result. `later`: the cases that run after it and need a share of the budget.

        Raises CudabenchError if the case cannot run at all.
        """
        self._begin([case])
        until = budget.until(1 + len(later)) if budget else None
        if late := self._over_budget(case, budget):
            self._shown.finished("")
            return late
        if self._simulator:
            run = self._simulated_run(self._simulator, make, case, budget)
            result = run.measure(case)
            self.cpu = run.cpu
            self._shown.finished(run.output)
            return result
        next_case = next((later_case for later_case in later if not (later_case.peer or later_case.skip_reason)), None)
        task = Task(self._switch_to(make, case), (case,), self.settings, self.cpu, until, next_case=next_case)
        answer: Result = self.run_in_worker(
            task, lambda _, why: self._failed(case, why), budget.end if budget else math.inf
        )
        return answer

    def results(self, make: Make, cases: Sequence[Case], budget: Budget | None = None) -> Generator[Result, None, None]:
        """Run cases of an operation, and yield their results in order; the simulator may run several at the same time.

        A case that would start after the end of the budget gets the status 'failed'. When the generator is closed, it
        ends all processes of the simulator.
        """
        self._begin(cases)
        processes = 1
        if self._simulator and len(cases) > 1 and all(case.problem == cases[0].problem for case in cases):
            from cudabench.measure import parallel

            processes = parallel.process_count(self.settings.jobs, len(cases), make().buffers(cases[0].problem))
        if self._simulator:
            from cudabench.simulator import api as simulator

            cores, wanted = children.processors(), self.settings.sim_threads
            each = mmap.mmap(-1, 1)  # how many threads each process may use: memory that forked processes share

            def share_cores(running: int) -> None:
                each[0] = min(wanted or cores // max(1, running) or 1, 255)

            share_cores(processes)
            simulator.THREADS.set(lambda: each[0])
        if self._simulator is None or processes == 1:
            for at, case in enumerate(cases):
                yield self.result(make, case, budget, cases[at + 1 :])
            return
        run = self._simulated_run(self._simulator, make, cases[0], budget)
        run.prepare(cases)
        self.cpu = run.cpu

        def simulate(case: Case, show_progress: Callable[[str, float], None]) -> tuple[Result, str]:
            run.progress = show_progress
            return run.measure(case), run.output

        late = partial(self._over_budget, budget=budget)
        for result, printed in parallel.simulate_in_order(
            cases, simulate, processes, self.show_progress, late, self._failed, share_cores
        ):
            self._shown.finished(printed)
            yield result

    def pair(self, make: Make, cases: Sequence[Case], always: bool = False) -> list[Result]:
        """Measure two cases as a pair on a GPU (samples alternate), and return their results. If the worker dies, the
        case that it was running gets the status 'failed', the other case 'skipped'. `always`: see `Task`."""
        from cudabench.measure.context import stopped_pair

        def lost(at: int, reason: str) -> list[Result]:
            failed = [self._failed(case, reason) for case in cases]
            return stopped_pair(failed, at, failed[at])

        self._begin(cases)
        results: list[Result] = self.run_in_worker(
            Task(self._switch_to(make, cases[0]), tuple(cases), self.settings, always=always), lost
        )
        return results

    def run_in_worker(self, task: Any, lost: Callable[[int, str], Any], end: float = math.inf) -> Any:
        """Send a task to the worker, and return the task's result. If the worker dies, return `lost(at, reason)`; `at`:
        the index in a pair of the case that was running. `end`: the time.monotonic() at which the run must end.

        Raises CudabenchError if the GPU does not start, or if the task cannot run.
        """
        self._start()
        assert self._worker
        try:
            finished = self._worker.run_task(task, self.settings.timeout, end, self.show_progress, lost)
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
        """Start the device, if it is not running yet, for these cases."""
        self._peers = self._peers or any(case.peer for case in cases)
        if self.device is not None:
            return
        if self.choice.kind == "cuda":
            self._start()
            return
        from cudabench.devices.sim import SimDevice

        self._simulator = SimDevice(self.choice.architecture)
        self._set_device(self._simulator.info)

    def _start(self) -> None:
        if self._worker is None:
            kind = self._module or WORKER, self.choice.index, self._peers
            with interrupts.delayed():
                self._worker = _take_early_worker(*kind) or Worker(kind[0], kind[1], primary=kind[2])
            nvml.management()  # `started` needs NVML; load it while the worker starts
            try:
                self._set_device(self._worker.device())
            except BaseException:
                self.end()
                raise

    def _set_device(self, device: DeviceInfo) -> None:
        if self.device is None:
            self.device = device
            self._started(device)

    def _switch_to(self, make: Make, case: Case) -> Make | None:
        """Make a case's problem the current problem. Return None if the worker already has this operation and problem,
        else `make`."""
        key = (make, case.problem)
        if self._current not in (None, key):
            self.cpu, self._simulated = None, None
        sent = self._sent == key
        self._current = self._sent = key
        return None if sent else make

    def _failed(self, case: Case, reason: str) -> Result:
        from cudabench.measure.context import describe

        return replace(describe(case, self.choice.name), status="failed", reason=reason)

    def _over_budget(self, case: Case, budget: Budget | None) -> Result | None:
        """Return a 'failed' result for a case if the time of the budget is over, else None."""
        if budget is None or budget.until(1) is not None:
            return None
        return self._failed(
            case, f"not measured: --budget {budget.seconds:g} s was used up; give a larger budget, or run fewer kernels"
        )

    def _simulated_run(self, device: SimDevice, make: Make, case: Case, budget: Budget | None) -> SimulatedRun:
        """Return the simulator's run for a case's problem, with its time limit and progress set for the case."""
        from cudabench.measure.simulated_run import SimulatedRun

        self._switch_to(make, case)
        self._simulated = run = self._simulated or SimulatedRun(
            make(), case.problem, self.settings, device, self._trace, cards=self._cards, record=self._record,
            cpu=self.cpu,
        )  # fmt: skip
        run.until = budget.end if budget else None  # each kernel may use all of the remaining time
        run.progress = partial(self.show_progress, case.kernel)
        return run


class Worker:
    """A worker, the process that uses a GPU, as seen by its parent."""

    def __init__(self, module: str, index: int, *, primary: bool = False) -> None:
        self.kind = module, index, primary
        begun = False
        try:
            with interrupts.delayed():
                ours, theirs = os.pipe()
                back_read, back_write = os.pipe()
                # Libraries and kernels print to these files, so that their text does not mix with the report.
                self._output = tempfile.TemporaryFile()  # noqa: SIM115 (closed in `end`)
                self._error_output = tempfile.TemporaryFile()  # noqa: SIM115
                self._shown = 0
                # Compilers write their temporary files here. If the worker is killed, the files are deleted with the
                # folder.
                self._folder = tempfile.TemporaryDirectory(prefix="cudabench-", ignore_cleanup_errors=True)
                self._process = subprocess.Popen(
                    [*children.module_command(module), str(ours), str(back_write), str(index), *["primary"] * primary],
                    stdin=subprocess.DEVNULL,
                    stdout=self._output,
                    stderr=self._error_output,
                    pass_fds=(ours, back_write),
                    env={**os.environ, "TMPDIR": self._folder.name},
                    start_new_session=True,  # Ctrl-C reaches only the parent, which then ends the worker
                )
                os.close(ours)
                os.close(back_write)
                # This slow import runs while the worker starts.
                from multiprocessing.connection import Connection

                self._to = Connection(theirs, readable=False)
                self._from = Connection(back_read, writable=False)
                begun = True
        except BaseException:
            if begun:  # a signal or an error came after the worker had started
                self.end()
            raise

    def end(self, seconds: float = 5) -> None:
        """End the process and delete its files. The process is killed if it has not ended by itself after `seconds`;
        during an exception it is killed at once."""
        if self._process.poll() is None:
            self.close_pipe()
            try:
                # Let the worker end by itself, so that a profiler can write its results.
                self._process.wait(0 if sys.exc_info()[0] else seconds)
            except subprocess.TimeoutExpired:
                limited_process.end_group(self._process)
        for closing in (self._to, self._from, self._output, self._error_output):
            closing.close()
        self._folder.cleanup()

    def close_pipe(self) -> None:
        """Close the pipe of tasks: the process then ends by itself, because there are no more tasks."""
        self._to.close()

    def device(self) -> DeviceInfo:
        """Wait until the worker has opened the GPU, and return the device.

        Raises CudabenchError if the GPU does not start.
        """
        if not self._from.poll(START_TIMEOUT_S):
            limited_process.end_group(self._process)
            raise DeviceError(f"The GPU did not start within {START_TIMEOUT_S:g} s; check it with nvidia-smi.")
        try:
            device: DeviceInfo = self._receive()
        except (EOFError, ConnectionResetError):
            self._process.wait()
            raise DeviceError(f"The GPU did not start: {self._exit_reason()}.") from None
        return device

    def run_task(
        self,
        task: Any,
        timeout: float,
        end: float,
        show_progress: Callable[[str, str, float], None],
        lost: Callable[[int, str], Any],
    ) -> FinishedEvent:
        """Send a task to the worker, and return the event with the task's result. If the worker dies or hangs, the
        event has the result of `lost(at, reason)`. `show_progress` is called with the progress."""
        phase, at = "starting", 0
        with suppress(BrokenPipeError):  # if the worker has died, this is detected below
            self._to.send(task)
        while True:
            limit = None  # no time limit while the worker uses only the host
            if phase == COMPILING:
                limit = ATTEMPTS * limits.compile_seconds()
            elif phase in WATCHED:
                limit = min(timeout, max(end - time.monotonic(), LEAST_PATIENCE_S))
            if not self._from.poll(limit):
                limited_process.end_group(self._process)
                repair = f"set a longer {limits.VARIABLE}=SECONDS" if phase == COMPILING else "raise --timeout"
                why = f"no progress for {limit:g} s while {phase}; if the kernel is only slow, {repair}"
                return FinishedEvent(lost(at, why), context_lost=True)
            try:
                event = self._receive()
            except (EOFError, ConnectionResetError):
                self._process.wait()
                return FinishedEvent(
                    lost(at, f"the process of the kernel ended ({self._exit_reason()})"), context_lost=True
                )
            if isinstance(event, FinishedEvent):
                return event
            phase, at = event.phase, event.at
            show_progress(event.kernel, phase, event.fraction)

    def _receive(self) -> Any:
        event = self._from.recv()
        if isinstance(event, CudabenchError):
            raise event
        return event

    def printed(self, end: int | None = None) -> str:
        """Return the text that kernels printed since the last call, up to byte `end` of the whole output."""
        text = _content(self._output.fileno())[self._shown : end]
        self._shown += len(text)
        return text.decode("utf-8", "replace")

    def _exit_reason(self) -> str:
        lines = _content(self._error_output.fileno()).decode("utf-8", "replace").strip().splitlines()
        # Python names the error in the last line of its traceback. PyCUDA may print more lines after it.
        errors = [line for line in lines if re.match(r"[A-Za-z_][\w.]*(Error|Exception|Interrupt)\b", line)]
        lines = errors or [line for line in lines if not re.fullmatch(r"[-=\s]*", line)]
        status = self._process.returncode
        if status < 0:  # a signal ended the worker, so its last line may not be the reason
            ended = f"by {signal.Signals(-status).name}"
            return f"{ended}, after: {lines[-1]}" if lines else ended
        return lines[-1] if lines else f"exit status {status}"


_early_workers: list[Worker] = []  # the worker that was started in advance; empty if a session has taken it
# Workers whose pipe is closed, so that they end by themselves; the command waits for them. None outside `early_worker`.
_ending_workers: list[Worker] | None = None


@contextmanager
def early_worker(index: int, *, primary: bool = False) -> Iterator[None]:
    """Context manager: if there is a CUDA driver, start a GPU's worker before a session needs it. On exit, end the
    worker if no session took it, and wait for the workers in `_ending_workers`."""
    global _ending_workers
    _ending_workers = []
    try:
        if probe.libcuda() is not None:
            with interrupts.delayed():
                _early_workers.append(Worker(WORKER, index, primary=primary))
        yield
    finally:
        _take_early_worker()
        _await_ending_workers()
        _ending_workers = None


def _take_early_worker(*kind: object) -> Worker | None:
    """Return the worker that was started in advance, if it is of this kind (module, GPU, primary context); else end
    this worker and return None.

    First wait for the workers in `_ending_workers`, so that they have freed their memory of the GPU.
    """
    _await_ending_workers()
    worker = _early_workers.pop() if _early_workers else None
    if worker is None or worker.kind == kind:
        return worker
    worker.end(0)
    return None


def _await_ending_workers() -> None:
    while _ending_workers:
        _ending_workers.pop().end()


def _content(file: int) -> bytes:
    """Return a file's bytes without moving the file position, because the worker writes at the same file position."""
    return os.pread(file, os.fstat(file).st_size, 0)
