"""A process that owns a GPU, as the parent sees it, and its start ahead of what is still being planned.

Little is imported here: a worker takes longest to start, and everything else of a command is done in that time.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from cudabench.compile import limits
from cudabench.devices import probe
from cudabench.errors import CudabenchError, DeviceError
from cudabench.system import children, confined, interrupts

if TYPE_CHECKING:
    from cudabench.records.planned import Case, Operation, Settings
    from cudabench.records.results import CpuTime, DeviceInfo

WATCHED = ("running", "warming up", "timing")  # phases in which the GPU must give a sign of life
COMPILING = "compiling"
ATTEMPTS = 4  # of a compile, with and without the host's code, each of which has a limit
START_TIMEOUT_S = 120.0
LEAST_PATIENCE_S = 2.0  # with a kernel after the end of --budget: it shortens its samples, and no more
WORKER = "cudabench.measure.worker"

Make = Callable[[], "Operation"]  # an operation, whose functions cannot travel to a worker themselves

_started: list[Worker] = []  # ahead, and not taken yet


@contextmanager
def started(index: int, *, primary: bool = False) -> Iterator[None]:
    """Start the worker of a GPU, where there is a driver, while a run on it is planned; the run's session takes it, and
    what none has taken ends here."""
    try:
        if probe.libcuda() is not None:
            with interrupts.kept():
                _started.append(Worker(WORKER, index, primary=primary))
        yield
    finally:
        end()


def taken(module: str, index: int, primary: bool) -> Worker | None:
    """Return the worker that was started ahead, if it is of this kind; another is ended."""
    worker = _started.pop() if _started and _started[-1].kind == (module, index, primary) else None
    end()
    return worker


def end() -> None:
    """End a worker that was started ahead and that nothing takes."""
    while _started:
        _started.pop().end(0)


@dataclass(frozen=True)
class Order:
    """What a worker does next: a case, or two as a pair (`measure.timing`), `always` also where their code is the same.

    `make` is None where the problem is that of the order before. `until`: when the case has to be done.
    """

    make: Make | None
    cases: tuple[Case, ...]
    settings: Settings
    cpu: CpuTime | None = None
    until: float | None = None
    always: bool = False


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
                from multiprocessing.connection import Connection  # while the process starts

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
            self._to.close()  # one that waits for an order ends
            try:
                self._process.wait(0 if sys.exc_info()[0] else seconds)  # profilers want a clean end
            except subprocess.TimeoutExpired:
                confined.end_group(self._process)
        for closing in (self._to, self._from, self._output, self._noise):
            closing.close()
        self._folder.cleanup()

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


def _content(file: int) -> bytes:
    """Return a file's bytes without moving its position, which the worker shares and writes at."""
    return os.pread(file, os.fstat(file).st_size, 0)
