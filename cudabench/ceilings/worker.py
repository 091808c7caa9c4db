"""The process that owns the GPU while its ceilings are measured."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from cudabench.ceilings.gpu import Ceilings, HostDevice
from cudabench.ceilings.run import Job
from cudabench.measure.session import Finished, Started
from cudabench.measure.worker import Send, printed_bytes, serve


def measure(job: Job, device: HostDevice, emit: Callable[[Any], None], **how: Any) -> None:
    """Send each ceiling of a job as it is known; the last one where a fault spoilt the device's context."""
    send = Send(emit)
    send(Started(device.info))
    ceilings = Ceilings(device, job.settings, **how)
    for name in job.cases:
        ceilings.progress = send.progress(name)
        found = ceilings.measure(name)
        context_lost = found.status == "failed" and not device.alive()
        send(Finished(found, context_lost=context_lost, printed=printed_bytes()))
        if context_lost:
            return


def _run(job: Job, emit: Callable[[Any], None], _: Callable[[], Any]) -> None:
    from cudabench.devices.cuda import CudaDevice

    with CudaDevice(job.index) as device:
        measure(job, device, emit)


if __name__ == "__main__":
    serve(int(sys.argv[1]), int(sys.argv[2]), _run)
