"""The process that owns the GPU: carries out orders, sends events, ends."""

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
from cudabench.measure.session import Finished, Order, Working
from cudabench.system.confined import die_with_parent

HEARTBEAT_S = 0.1


Told = Callable[..., None]  # of a kernel, its phase, the fraction of that, and which of a pair it is


def serve(words: Sequence[str], work: Callable[[Any, Told], Callable[[Any], Finished]], device: Any = None) -> None:
    """Open a GPU, carry out each order that comes, and end the process.

    words: the pipes' ends, the GPU's number, and 'primary' for the primary context. work: makes, of the device and of
    what is told of a kernel's progress, what carries orders out. device: what opens the GPU, unless PyCUDA does.
    """
    die_with_parent()
    orders, events = Connection(int(words[0]), writable=False), Connection(int(words[1]), readable=False)
    starting = threading.Thread(target=lambda: (probe.driver(), nvml.management()))  # beside what loads here
    starting.start()
    if device is None:
        from cudabench.devices import cuda
        from cudabench.measure import gpu_run  # noqa: F401 (what the first order needs)

        device = cuda.CudaDevice
    starting.join()
    try:
        with device(int(words[2]), primary="primary" in words) as opened:
            events.send(opened.info)
            carry_out = work(opened, _telling(events))
            with suppress(EOFError):  # no order comes any more
                lost = False
                while not lost:
                    done = carry_out(orders.recv())
                    events.send(done)
                    lost = done.context_lost
    except CudabenchError as error:
        events.send(error)
    sys.stdout.flush()
    # A spoilt context makes PyCUDA warn about every object and abort at exit; the driver cleans up without it.
    os._exit(0)


def _telling(events: Connection) -> Told:
    """Return what sends what is being done, no more than ten times a second."""
    last, following = ("", "", 0), 0.0

    def tell(kernel: str, phase: str, fraction: float, at: int = 0) -> None:
        nonlocal last, following
        now = time.monotonic()
        if (kernel, phase, at) != last or now > following:
            last, following = (kernel, phase, at), now + HEARTBEAT_S
            events.send(Working(kernel, phase, fraction, at))

    return tell


def _measuring(device: Any, tell: Told) -> Callable[[Order], Finished]:
    from cudabench.measure.gpu_run import GpuRun

    runs: list[GpuRun] = []

    def carry_out(order: Order) -> Finished:
        if order.make is not None:
            for before in runs:
                before.release()
            runs[:] = [GpuRun(order.make(), order.cases[0].problem, order.settings, device)]
        (run,) = runs
        run.cpu, run.until, run.then = order.cpu, order.until, order.then
        run.progress = lambda phase, fraction: tell(order.cases[run.at].kernel, phase, fraction, run.at)
        pair = len(order.cases) == 2
        found = run.measure_pair(order.cases, order.always) if pair else [run.measure(order.cases[0])]
        failed = any(result.status == "failed" for result in found)
        return finished(device, found if pair else found[0], failed, run.cpu)

    return carry_out


def finished(device: Any, result: Any, failed: bool, cpu: Any = None) -> Finished:
    """Return what a worker sends of a result: with whether a kernel that failed spoilt the context, and how much has
    been printed, where standard output is a file."""
    lost, printed = failed and not device.alive(), None
    sys.stdout.flush()
    if os.name == "posix":
        ctypes.CDLL(None).fflush(None)  # kernels print through the C library, which keeps what goes to a file
    with suppress(OSError):
        printed = os.lseek(1, 0, os.SEEK_CUR)
    return Finished(result, cpu, lost, printed)


if __name__ == "__main__":
    serve(sys.argv[1:], _measuring)
