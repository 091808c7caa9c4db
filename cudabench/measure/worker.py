"""The main program of a worker, the process that uses a GPU: runs tasks from the parent process and sends events."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from cudabench.devices import nvml, probe
from cudabench.errors import CudabenchError
from cudabench.measure.session import FinishedEvent, ProgressEvent, Task
from cudabench.system.limited_process import die_with_parent

HEARTBEAT_S = 0.1

# A function that takes a kernel, its phase, the done fraction of the phase, and the index of the kernel in a pair.
ReportProgress = Callable[..., None]


def serve(
    words: Sequence[str], work: Callable[[Any, ReportProgress], Callable[[Any], FinishedEvent]], device: Any = None
) -> None:
    """Open a GPU, run tasks until the parent closes the pipe, and end the process.

    `words`: the arguments of the process: the descriptors of the pipes for tasks and for events, the GPU's number, and
    'primary' to use its primary context. `work`: takes the device and a function for progress, and returns the function
    that runs a task. `device`: opens the GPU, by default with PyCUDA.
    """
    die_with_parent()
    tasks, events = Connection(int(words[0]), writable=False), Connection(int(words[1]), readable=False)
    # This thread loads the libraries while the main thread imports modules.
    starting = threading.Thread(target=lambda: (probe.driver(), nvml.management()))
    starting.start()
    if device is None:
        from cudabench.devices import cuda
        from cudabench.measure import gpu_run  # noqa: F401 (the first task needs it)

        device = cuda.CudaDevice
    starting.join()
    try:
        with device(int(words[2]), primary="primary" in words) as opened:
            events.send(opened.info)
            run_task = work(opened, _progress_sender(events))
            with suppress(EOFError):  # raised when the parent has closed the pipe
                lost = False
                while not lost:
                    event = run_task(tasks.recv())
                    events.send(event)
                    lost = event.context_lost
    except CudabenchError as error:
        events.send(error)
    sys.stdout.flush()
    # At a normal exit PyCUDA would warn about every object of a broken context, and abort. It is not needed, because
    # the driver frees everything.
    os._exit(0)


def _progress_sender(events: Connection) -> ReportProgress:
    """Return a function that sends the progress to the parent, at most ten times a second for the same phase."""
    last, following = ("", "", 0), 0.0

    def report_progress(kernel: str, phase: str, fraction: float, at: int = 0) -> None:
        nonlocal last, following
        now = time.monotonic()
        if (kernel, phase, at) != last or now > following:
            last, following = (kernel, phase, at), now + HEARTBEAT_S
            events.send(ProgressEvent(kernel, phase, fraction, at))

    return report_progress


def _measuring(device: Any, report_progress: ReportProgress) -> Callable[[Task], FinishedEvent]:
    from cudabench.measure.gpu_run import GpuRun

    runs: list[GpuRun] = []

    def run_task(task: Task) -> FinishedEvent:
        if task.make is not None:
            for old_run in runs:
                old_run.release()
            runs[:] = [GpuRun(task.make(), task.cases[0].problem, task.settings, device)]
        (run,) = runs
        run.cpu, run.until, run.next_case = task.cpu, task.until, task.next_case
        run.progress = lambda phase, fraction: report_progress(task.cases[run.at].kernel, phase, fraction, run.at)
        pair = len(task.cases) == 2
        results = run.measure_pair(task.cases, task.always) if pair else [run.measure(task.cases[0])]
        failed = any(result.status == "failed" for result in results)
        return finished_event(device, results if pair else results[0], failed, run.cpu)

    return run_task


def finished_event(device: Any, result: Any, failed: bool, cpu: Any = None) -> FinishedEvent:
    """Return the event with a result. The event also has whether a failed kernel destroyed the context and, if standard
    output is a file, how many bytes were printed so far."""
    lost, printed = failed and not device.alive(), None
    sys.stdout.flush()
    if os.name == "posix":
        ctypes.CDLL(None).fflush(None)  # kernels print through the C library, which keeps the text in a buffer
    with suppress(OSError):
        printed = os.lseek(1, 0, os.SEEK_CUR)
    return FinishedEvent(result, cpu, lost, printed)


if __name__ == "__main__":
    serve(sys.argv[1:], _measuring)
