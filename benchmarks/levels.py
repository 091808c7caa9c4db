"""What changes the time of a short kernel from run to run? Needs a GPU: `python benchmarks/levels.py [SIZE ...]`.

One process times the last kernel of transpose and a copy of the same number of bytes, with a cold L2: six times on the
same buffers, then with the code loaded again, and then on eight sets of buffers. It prints the medians; a change that
leaves them equal to within a clock tick has no effect. The sets are timed twice, to separate the effect of a set's
address from changes over time.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Sequence
from typing import Any

from cudabench import operations
from cudabench.devices.cuda import CudaDevice
from cudabench.devices.protocol import Work
from cudabench.measure.buffers import BufferSet, allocate_places
from cudabench.measure.timing import warm_up
from cudabench.plan import cases
from cudabench.records.plan import Case

SECONDS = 0.2  # seconds of sampling for each printed time
GROUP = 16  # samples of the kernel and samples of the copy alternate in groups of this size
TIMES = 6
PLACES = 8


def median(device: CudaDevice, case: Case, module: Any, where: BufferSet) -> tuple[float, float]:
    """Return the median times of the kernel and of a copy on a set of buffers, in seconds."""
    kernel_work = device.bind(module, case.launches, where.addresses)
    works: list[Work | None] = [kernel_work, where.copy()]
    found: list[list[float]] = [[], []]
    warm_up(lambda: device.sample([kernel_work], "cold"))
    start = time.monotonic()
    while time.monotonic() - start < SECONDS:
        for work, samples in zip(works, found, strict=True):
            if work is not None:
                samples += [device.sample([work], "cold") for _ in range(GROUP)]
    kernel, copy = (statistics.median(samples) if samples else float("nan") for samples in found)
    return kernel, copy


def report(what: str, found: Sequence[tuple[float, float]]) -> None:
    """Print medians and their relative spread."""
    for name, times in zip(("kernel", "copy"), zip(*found, strict=True), strict=True):
        apart = (max(times) - min(times)) / statistics.median(times)
        print(
            f"  {what:<18}{name:<8}{' '.join(f'{time * 1e6:9.3f}' for time in times)}   apart {apart:.1%}", flush=True
        )


def size(device: CudaDevice, n: int) -> None:
    """Print how the median time of n x n elements changes if only the address of the code or of the buffers changes."""
    operation = operations.get("transpose")
    (case,) = cases.build(operation, cases.Request(kernels=(operation.kernels[-1].name,), size=(n, n)))

    def load(number: int) -> Any:
        # No code uses this define, so the second module has the same code as the first, at another address.
        return device.load(case.source, {**case.defines, "UNUSED": str(number)}, [case.function])

    def another() -> BufferSet:
        made = allocate_places(device, operation, case.problem)[0]
        made.fill(inputs)
        return made

    inputs = operation.inputs(case.problem)
    module, here = load(0), another()
    print(f"{case.kernel} {n} x {n}, medians in us")
    report("nothing changed", [median(device, case, module, here) for _ in range(TIMES)])
    report("code elsewhere", [median(device, case, load(1 + at), here) for at in range(TIMES)])
    elsewhere = [another() for _ in range(PLACES)]
    report("buffers elsewhere", [median(device, case, module, buffers) for buffers in elsewhere])
    report("the same again", [median(device, case, module, buffers) for buffers in elsewhere])


def main() -> None:
    """Run for all sizes."""
    with CudaDevice(0) as device:
        for n in map(int, sys.argv[1:] or (256, 1024, 2048, 4096)):
            size(device, n)


if __name__ == "__main__":
    main()
