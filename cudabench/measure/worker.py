"""The process that owns the GPU: carries out orders, sends events, ends."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

from cudabench.errors import CudabenchError
from cudabench.measure.session import Finished, Order, Refused, Started, Working
from cudabench.system.confined import die_with_parent

HEARTBEAT_S = 0.1


def serve(words: Sequence[str], work: Callable[[Any, Send], Callable[[Any], Finished]], device: Any = None) -> None:
    """Open a GPU, carry out each order that comes, and end the process.

    words: the pipes' ends, the GPU's number, and 'primary' for the primary context. work: makes, of the device and of
    what sends events, what carries orders out. device: what opens the GPU, unless PyCUDA does.
    """
    die_with_parent()
    orders, send = Connection(int(words[0]), writable=False), Send(Connection(int(words[1]), readable=False).send)
    if device is None:
        from cudabench.devices import cuda

        device = cuda.CudaDevice
    try:
        with device(int(words[2]), primary="primary" in words) as opened:
            send(Started(opened.info))
            carry_out = work(opened, send)
            while (order := _next(orders)) is not None:
                done = carry_out(order)
                send(done)
                if done.context_lost:
                    break
    except CudabenchError as error:
        send(Refused(error))
    sys.stdout.flush()
    # A spoilt context makes PyCUDA warn about every object and abort at exit; the driver cleans up without it.
    os._exit(0)


def _next(orders: Connection) -> Any:
    """Return the next order, None where no more come."""
    try:
        return orders.recv()
    except EOFError:
        return None


def _measuring(device: Any, send: Send) -> Callable[[Order], Finished]:
    from cudabench.measure.gpu_run import GpuRun

    run: GpuRun | None = None

    def carry_out(order: Order) -> Finished:
        nonlocal run
        if order.make is not None or run is None:
            assert order.make
            if run is not None:
                run.release()
            run = GpuRun(order.make(), order.cases[0].problem, order.settings, device)
        kernels = [case.kernel for case in order.cases]
        own = run
        own.cpu, own.until = order.cpu, order.until
        own.progress = lambda phase, fraction: send.working(kernels[own.at], phase, fraction, own.at)
        if len(order.cases) == 2:
            found = own.measure_pair(order.cases, order.always)
            return finished(device, found, any(result.status == "failed" for result in found))
        result = own.measure(order.cases[0])
        return finished(device, result, result.status == "failed", own.cpu)

    return carry_out


def finished(device: Any, result: Any, failed: bool, cpu: Any = None) -> Finished:
    """Return what a worker sends of a result: with whether a kernel that failed spoilt the context."""
    return Finished(result, cpu, failed and not device.alive(), printed_bytes())


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
        self._last: tuple[str, str, int] | None = None
        self._next = 0.0

    def __call__(self, event: Any) -> None:
        """Send an event."""
        self._emit(event)

    def working(self, kernel: str, phase: str, fraction: float, at: int = 0) -> None:
        """Tell what phase a kernel is in; `at`: which of a pair it is."""
        now = time.monotonic()
        if (kernel, phase, at) != self._last or now > self._next:
            self._last, self._next = (kernel, phase, at), now + HEARTBEAT_S
            self(Working(kernel, phase, fraction, at))


if __name__ == "__main__":
    serve(sys.argv[1:], _measuring)
