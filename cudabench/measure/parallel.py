"""Simulates several kernels of a run at the same time, in forked processes that share inputs and references.

A process that has finished a kernel gets another kernel: the first process gets the first remaining kernel; all other
processes get the one with the most launches, and of equal ones the last, because these take longest to simulate.
Results are returned in the order of the kernels. If a process dies, its kernel gets the status 'failed', and a new
process starts.
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
from cudabench.records.plan import Buffer, Case
from cudabench.records.results import Result
from cudabench.system import interrupts, limited_process

VARIABLE = "CUDABENCH_JOBS"
EACH_BYTES = 1 << 30  # bytes of memory that a simulation needs in addition to its copies of the buffers
COPIES = 4  # number of copies of the buffers that a simulation makes
SPARE = 0.8  # all simulations together may use at most this share of the free memory
SECONDS_BETWEEN = 0.1  # a process sends a progress message at most once in this many seconds

# Takes the name of a kernel, its phase, and the fraction of the phase that is done.
Progress = Callable[[str, str, float], None]
# Takes a case, and a function that is called with the progress (phase, fraction done). Returns (result, printed text).
Simulate = Callable[[Case, Callable[[str, float], None]], tuple[Result, str]]


def process_count(wanted: int | None, cases: int, buffers: Sequence[Buffer]) -> int:
    """Return how many kernels to simulate at the same time.

    `wanted`: the value of --jobs, or None. Without --jobs, the value of the variable CUDABENCH_JOBS is used; without
    this variable, the number of usable cores, or less if there is too little memory. Raises UsageError if
    CUDABENCH_JOBS is not a positive whole number.
    """
    # A daemon process of multiprocessing must not start children.
    if not limited_process.FORKS or current_process().daemon:
        return 1
    wanted_text = os.environ.get(VARIABLE, "") if wanted is None else str(wanted)
    if wanted_text and not (wanted_text.isdecimal() and int(wanted_text) > 0):
        raise UsageError(f"{VARIABLE}={wanted_text} is not a number of processes: set it to 1 or more, or unset it.")
    if wanted_text:
        return min(int(wanted_text), cases)
    bytes_each = EACH_BYTES + COPIES * sum(buffer.nbytes for buffer in buffers)
    return max(1, min(len(os.sched_getaffinity(0)), cases, int(SPARE * limited_process.host_memory()) // bytes_each))


@dataclass
class _Process:
    """A forked process. `to_child`, `from_child`: the parent's ends of the pipes to and from the process.
    `case_number`: the number of the case that the process runs, None if it is idle."""

    process: BaseProcess
    to_child: Connection
    from_child: Connection
    case_number: int | None = None

    def begin(self, number: int) -> None:
        """Send the number of a case to the process, which must be idle."""
        self.case_number = number
        with suppress(BrokenPipeError):  # if the process has ended, `receive` detects it
            self.to_child.send(number)

    def receive(self) -> tuple[int | None, str, Any]:
        """Receive a message, and return (the number of the case, the kind of the message, its content).

        Kinds: 'working', with the progress; 'finished', with the answer; 'ended', with the reason, if the process died.
        """
        number = self.case_number
        try:
            kind, content = self.from_child.recv()
        except (EOFError, ConnectionResetError):
            return number, "ended", f"the process of the kernel ended ({self.end()}); try --jobs 1"
        if kind == "finished":
            self.case_number = None
        return number, kind, content

    def end(self) -> str:
        """End the process if it still runs, and return a text that says how the process ended."""
        self.to_child.close()
        self.from_child.close()
        self.process.kill()
        self.process.join()
        code = self.process.exitcode or 0
        return "out of memory" if code == 12 else f"signal {-code}" if code < 0 else f"exit status {code}"


def simulate_in_order(
    cases: Sequence[Case],
    simulate: Simulate,
    count: int,
    progress: Progress,
    refused: Callable[[Case], Result | None],
    failure: Callable[[Case, str], Result],
    share_cores: Callable[[int], None] = lambda running: None,
) -> Generator[tuple[Result, str], None, None]:
    """Simulate cases in up to `count` processes, and yield (result, printed text) for each case, in their order.

    `refused`: called before a case starts; if it returns a result, the case does not run. `failure`: takes a case whose
    process died, and the reason, and returns the result. `share_cores`: called with the number of running cases when
    it may have changed. When the generator is closed, it ends all processes. If a case
    raises an error, the generator first yields the results of earlier cases, and then raises this error.
    """
    pending = list(range(len(cases)))
    answers: dict[int, Any] = {}
    processes: list[_Process] = []
    next_number = 0
    try:
        while next_number < len(cases):
            while pending and len(processes) < min(count, len(pending) + len(_running_cases(processes))):
                processes.append(_fork(cases, simulate, processes))
            _assign_cases(processes, pending, cases, refused, answers)
            while next_number in answers:
                answer = answers.pop(next_number)
                if isinstance(answer, CudabenchError):
                    raise answer
                next_number += 1
                yield answer
            if next_number == len(cases):
                break
            share_cores(len(_running_cases(processes)))
            ready = set(wait([process.from_child for process in processes]))
            for process in [process for process in processes if process.from_child in ready]:
                number, kind, content = process.receive()
                if kind == "ended":
                    processes.remove(process)
                if kind == "working":
                    if number is not None and number == min(_running_cases(processes)):
                        progress(cases[number].kernel, *content)
                elif number is not None:
                    answers[number] = content if kind == "finished" else (failure(cases[number], content), "")
    finally:
        for process in processes:
            process.end()


def _assign_cases(
    processes: Sequence[_Process],
    pending: list[int],
    cases: Sequence[Case],
    refused: Callable[[Case], Result | None],
    answers: dict[int, Any],
) -> None:
    """Send each idle process a case from `pending`; a refused case is not sent, and its result is put into
    `answers`."""
    for process in processes:
        while pending and process.case_number is None:
            if process is processes[0]:
                number = pending[0]
            else:
                number = max(pending, key=lambda at: (len(cases[at].launches), at))
            pending.remove(number)
            if refusal := refused(cases[number]):
                answers[number] = (refusal, "")
            else:
                process.begin(number)


def _running_cases(processes: Sequence[_Process]) -> list[int]:
    """Return the numbers of the cases that processes run now."""
    return [process.case_number for process in processes if process.case_number is not None]


def _fork(cases: Sequence[Case], simulate: Simulate, running: Sequence[_Process]) -> _Process:
    from_child, back = Pipe(duplex=False)
    tasks, to_child = Pipe(duplex=False)
    parent_ends = [
        from_child,
        to_child,
        *(end for sibling in running for end in (sibling.to_child, sibling.from_child)),
    ]
    process = get_context("fork").Process(target=_work, args=(cases, simulate, tasks, back, parent_ends), daemon=True)
    # The parent handles Ctrl-C and ends this process. The child must not receive the signal, even while it starts.
    with interrupts.deferred(), warnings.catch_warnings():
        # Python warns about a fork while other threads run, since the child may wait for their locks forever. This
        # child uses none of these locks.
        warnings.simplefilter("ignore", DeprecationWarning)
        process.start()
    tasks.close()
    back.close()
    return _Process(process, to_child, from_child)


def _work(
    cases: Sequence[Case], simulate: Simulate, tasks: Connection, back: Connection, parents: Sequence[Connection]
) -> None:
    """The main function of the child: simulate the cases whose numbers it receives, until the parent closes the pipe.

    The child exits by os._exit, so that the parent's exit handlers do not run in it. `parents`: the parent's ends of
    the pipes, which the child closes.
    """
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    interrupts.unblock_signals()
    for connection in parents:
        connection.close()
    # Without `freeze`, the garbage collector would write to objects of the parent, whose memory is then not shared.
    gc.freeze()
    limited_process.die_with_parent()
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
