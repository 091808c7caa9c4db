"""The process that owns the GPU: takes one job, sends events, ends."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any

from cudabench.devices.protocol import Device
from cudabench.errors import CudabenchError
from cudabench.measure.session import Event, Finished, Job, Measured, Other, Refused, Started, Working
from cudabench.records.planned import Case, Operation

HEARTBEAT_S = 0.1


def main(receive: int, send: int) -> None:
    """Run the job that arrives on one pipe and send events through the other."""
    serve(receive, send, _run)


def serve(receive: int, send: int, work: Callable[..., None]) -> None:
    """Give what arrives on one pipe to `work`, with what sends events through the other and what receives more from the
    first, and end the process."""
    _die_with_parent()
    incoming = Connection(receive, writable=False)
    job = incoming.recv()
    channel = Connection(send, readable=False)
    try:
        work(job, channel.send, incoming.recv)
    except CudabenchError as error:
        channel.send(Refused(error))
    sys.stdout.flush()
    # A spoilt context makes PyCUDA warn about every object and abort at exit; the driver cleans up without it.
    os._exit(0)


def _run(job: Job, emit: Callable[[Event], None], receive: Callable[[], Case | Other]) -> None:
    from cudabench.devices.cuda import CudaDevice
    from cudabench.measure.gpu_run import GpuRun

    send = Send(emit)
    operation = job.operation()
    with CudaDevice(job.index, primary=any(case.peer for case in job.cases)) as device:
        send(Started(device.info))
        if job.paired:
            _run_pair(job, operation, device, send)
            return
        gpu_run = GpuRun(operation, job.cases[0].problem, job.settings, device, cpu=job.cpu)
        for at, item in enumerate(_cases(job, receive)):
            if isinstance(item, Other):
                gpu_run.release()
                gpu_run = GpuRun(item.operation(), item.case.problem, job.settings, device)
            case = item.case if isinstance(item, Other) else item
            if job.budget:
                gpu_run.until = job.budget.until(len(job.cases) - at)
                if gpu_run.until is None:
                    send(Finished(job.budget.left_out(case, f"cuda:{job.index}"), printed=printed_bytes()))
                    continue
            gpu_run.progress = send.progress(case.kernel)
            result = gpu_run.measure(case)
            if gpu_run.cpu is not None and job.cpu is None:
                send(Measured(gpu_run.cpu))
                job = replace(job, cpu=gpu_run.cpu)
            context_lost = result.status == "failed" and not device.alive()
            send(Finished(result, context_lost=context_lost, printed=printed_bytes()))
            if context_lost:
                return


def _cases(job: Job, receive: Callable[[], Case | Other]) -> Iterator[Case | Other]:
    yield from job.cases
    while job.more:
        try:
            yield receive()
        except EOFError:
            return


def _run_pair(job: Job, operation: Operation, device: Device, send: Send) -> None:
    from cudabench.measure.ab import PairedRun

    def progress(at: int) -> Callable[[str, float], None]:
        return send.progress(job.cases[at].kernel, at)

    paired = PairedRun(operation, job.cases[0].problem, job.settings, device, progress=progress(0), of=progress)
    results = paired.measure_pair(job.cases, job.always)
    context_lost = any(result.status == "failed" for result in results) and not device.alive()
    printed = printed_bytes()
    # The one that is to blame first: nothing is read after it where the context is lost.
    for at in sorted((0, 1), key=lambda at: results[at].status != "failed"):
        send(Finished(results[at], context_lost=context_lost, printed=printed, at=at))


def printed_bytes() -> int | None:
    """Return how much has been printed, where standard output is a file."""
    sys.stdout.flush()
    if os.name == "posix":
        ctypes.CDLL(None).fflush(None)  # kernels print through the C library, which keeps what goes to a file
    try:
        return os.lseek(1, 0, os.SEEK_CUR)
    except OSError:
        return None


class Send:
    """Sends events, and what is being done no more than ten times a second."""

    def __init__(self, emit: Callable[[Any], None]) -> None:
        self._emit = emit
        self._last: tuple[str, str, int | None, float] = ("", "", None, 0.0)

    def __call__(self, event: Any) -> None:
        """Send an event."""
        self._emit(event)

    def progress(self, kernel: str, at: int | None = None) -> Callable[[str, float], None]:
        """Return what a kernel reports its phase to; `at`: which of a pair it is."""

        def report(phase: str, fraction: float) -> None:
            now = time.monotonic()
            if (kernel, phase, at) != self._last[:3] or now - self._last[3] > HEARTBEAT_S:
                self._last = (kernel, phase, at, now)
                self(Working(kernel, phase, fraction, at))

        return report


def _die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
