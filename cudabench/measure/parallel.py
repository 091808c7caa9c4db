"""Kernels of a run simulated at the same time: processes forked from this one, which share its inputs and references.

Once a process has finished a kernel, it takes the next: the first process from the front, the others from the end,
where a ladder has most to do. Results come in the order of the kernels, whichever is ready first. A process that ends
by itself fails the kernel that it had, and another goes on with the rest.
"""

from __future__ import annotations

import gc
import os
import signal
import time
import warnings
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import current_process, get_context
from multiprocessing.connection import Connection, Pipe, wait
from multiprocessing.process import BaseProcess
from typing import Any

from cudabench.errors import CudabenchError, UsageError
from cudabench.records.planned import Buffer, Case
from cudabench.records.results import Result
from cudabench.system import confined, interrupts

VARIABLE = "CUDABENCH_JOBS"
EACH_BYTES = 1 << 30  # what a simulation takes besides copies of the buffers,
COPIES = 4  # of which it makes about so many
SPARE = 0.8  # of the memory that is free
SECONDS_BETWEEN = 0.1  # of what a process says of its progress

Progress = Callable[[str, str, float], None]  # of a kernel: its phase, and what fraction of it is done
Simulate = Callable[[Case, Callable[[str, float], None]], tuple[Result, str]]


def jobs(wanted: int | None, cases: int, buffers: Sequence[Buffer]) -> int:
    """Return how many kernels to simulate at the same time.

    wanted: by --jobs or, where that is left out, by CUDABENCH_JOBS; else one for each core that this process may use,
    as long as the memory that is free holds them. Raises UsageError if CUDABENCH_JOBS is not a number over 0.
    """
    if not confined.FORKS or current_process().daemon:  # a daemon of multiprocessing may have no children
        return 1
    wanted_text = os.environ.get(VARIABLE, "") if wanted is None else str(wanted)
    if wanted_text and not (wanted_text.isdecimal() and int(wanted_text) > 0):
        raise UsageError(f"{VARIABLE}={wanted_text} is not a number of processes: set it to 1 or more, or unset it.")
    if wanted_text:
        return min(int(wanted_text), cases)
    bytes_each = EACH_BYTES + COPIES * sum(buffer.nbytes for buffer in buffers)
    return max(1, min(len(os.sched_getaffinity(0)), cases, int(SPARE * confined.host_memory()) // bytes_each))


@dataclass
class _Process:
    """One forked process: the ends of its pipes here, and which kernel it has."""

    process: BaseProcess
    to: Connection
    out_of: Connection
    has: int | None = None

    def begin(self, number: int) -> None:
        """Give a case to the process, which has none."""
        self.has = number
        with suppress(BrokenPipeError):  # `receive` finds that the process has ended
            self.to.send(number)

    def receive(self) -> tuple[int | None, str, Any]:
        """Return the process's case, the kind of what it sent, working, finished or ended, and the content."""
        number = self.has
        try:
            kind, content = self.out_of.recv()
        except (EOFError, ConnectionResetError):
            return number, "ended", f"the process that ran it ended ({self.end()}); --jobs 1"
        if kind == "finished":
            self.has = None
        return number, kind, content

    def end(self) -> str:
        """End the process, and return how it ended."""
        self.to.close()
        self.out_of.close()
        self.process.kill()
        self.process.join()
        code = self.process.exitcode or 0
        return "out of memory" if code == 12 else f"signal {-code}" if code < 0 else f"exit status {code}"


def results(
    cases: Sequence[Case],
    simulate: Simulate,
    count: int,
    progress: Progress,
    refused: Callable[[Case], Result | None],
    failure: Callable[[Case, str], Result],
) -> Generator[tuple[Result, str], None, None]:
    """Yield the result of each case and what it printed, in the order of the cases; `count` processes make them.

    refused: asked before a case is begun; a result of its is taken instead. failure: the result of a case whose process
    ended. Closed before its end, it ends all processes. Raises the error of a case once those before it are through.
    """
    waiting = list(range(len(cases)))[::-1]
    done: dict[int, Any] = {}
    processes: list[_Process] = []
    following = 0
    try:
        while following < len(cases):
            while waiting and len(processes) < min(count, len(waiting) + len(_busy(processes))):
                processes.append(_fork(cases, simulate, processes))
            _hand_out(processes, waiting, cases, refused, done)
            while following in done:
                answer = done.pop(following)
                if isinstance(answer, CudabenchError):
                    raise answer
                following += 1
                yield answer
            if following == len(cases):
                break
            ready = set(wait([process.out_of for process in processes]))
            for process in [process for process in processes if process.out_of in ready]:
                number, kind, content = process.receive()
                if kind == "ended":
                    processes.remove(process)
                if kind == "working":
                    if number is not None and number == min(_busy(processes)):
                        progress(cases[number].kernel, *content)
                elif number is not None:
                    done[number] = content if kind == "finished" else (failure(cases[number], content), "")
    finally:
        for process in processes:
            process.end()


def _hand_out(
    processes: Sequence[_Process],
    waiting: list[int],
    cases: Sequence[Case],
    refused: Callable[[Case], Result | None],
    done: dict[int, Any],
) -> None:
    """Give each process that has no case the next one that waits; those that are refused are done."""
    for process in processes:
        while waiting and process.has is None:
            number = waiting.pop(-1 if process is processes[0] else 0)
            if instead := refused(cases[number]):
                done[number] = (instead, "")
            else:
                process.begin(number)


def _busy(processes: Sequence[_Process]) -> list[int]:
    """Return the numbers of the cases that processes have."""
    return [process.has for process in processes if process.has is not None]


def _fork(cases: Sequence[Case], simulate: Simulate, running: Sequence[_Process]) -> _Process:
    out_of, back = Pipe(duplex=False)
    tasks, to = Pipe(duplex=False)
    mine = [out_of, to, *(end for other in running for end in (other.to, other.out_of))]
    process = get_context("fork").Process(target=_work, args=(cases, simulate, tasks, back, mine), daemon=True)
    # Ctrl-C is for the parent, which ends this process: not even in its first moments does it see one.
    with interrupts.deferred(), warnings.catch_warnings():
        # Python warns of other threads: the child takes no lock of theirs, simulates and leaves.
        warnings.simplefilter("ignore", DeprecationWarning)
        process.start()
    tasks.close()
    back.close()
    return _Process(process, to, out_of)


def _work(
    cases: Sequence[Case], simulate: Simulate, tasks: Connection, back: Connection, parents: Sequence[Connection]
) -> None:
    """Be the child: simulate what comes until no more does, and leave, without the parent's handlers."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    interrupts.ready()
    for end in parents:
        end.close()
    gc.freeze()  # what the parent made stays shared
    confined.die_with_parent()
    last_sent = 0.0

    def progress(phase: str, fraction: float) -> None:
        nonlocal last_sent
        if time.monotonic() - last_sent > SECONDS_BETWEEN:
            last_sent = time.monotonic()
            back.send(("working", (phase, fraction)))

    try:
        while True:
            number = tasks.recv()
            try:
                answer: Any = simulate(cases[number], progress)
            except CudabenchError as error:
                answer = error
            back.send(("finished", answer))
    except (EOFError, BrokenPipeError):
        os._exit(0)
    except MemoryError:
        os._exit(12)
    except BaseException:
        if os.environ.get("CUDABENCH_TRACEBACK"):
            import traceback

            traceback.print_exc()
        os._exit(1)
