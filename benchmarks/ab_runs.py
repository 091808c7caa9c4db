"""Does `cudabench ab` detect real differences, and only those? Needs a GPU:

    python benchmarks/ab_runs.py SECONDS [ROUNDS]

Compares kernels of slowed.cu with themselves, and with versions that are slower by 0.5, 1 and 3% of bytes, arithmetic
or latency; each round has newly allocated memory. `ratio` is the median over the rounds, `spread` the largest distance
from it. The next columns count the verdicts, the failures of the gate at half of the slow-down (at 0.2% for a kernel
with itself), and the pairs of a kernel with itself whose ratio differs from 1 by more than 0.2%. Stops after ROUNDS
(20) or when SECONDS are over, and prints what it has measured.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from cudabench.devices.cuda import CudaDevice
from cudabench.measure.gpu_run import GpuRun
from cudabench.records.plan import Settings
from cudabench.records.revisions import Ab
from cudabench.results import ab
from cudabench.userkernel.plan import pair
from cudabench.userkernel.request import UserRequest

PERCENTS = ("0", "0.5", "1", "3")
WORDS = ("faster", "same", "unclear", "slower")
AIM = 0.002  # the desired precision: a kernel compared with itself must differ by less than this fraction
SETTINGS = Settings(min_time=0.3, max_time=2.0, cpu=False)
# name: (kernel, elements, grid). On an H200 the four kernels take about 13, 36, 140 and 74 us.
TASKS = {
    "stream 2^22": ("stream", 1 << 22, "2112"),
    "stream 2^24": ("stream", 1 << 24, "2112"),
    "arithmetic": ("arithmetic", 1 << 21, "2112"),
    "chase": ("chase", 4096, "cdiv(n,256)"),
}


def request(kernel: str, n: int, grid: str, percent: str) -> UserRequest:
    """Return the request for a kernel that is slower by `percent`."""
    return UserRequest(
        file=str(Path(__file__).with_name("slowed.cu")),
        kernels=(kernel,),
        grid=grid,
        block="256",
        arguments=("in=float32[n]:random", "out=float32[n]:empty", f"n={n}", "zero=0"),
        expect=("out=in",),
        bytes="8*n",
        defines={"PERCENT": percent},
    )


def rounds(device: Any, count: int, until: float) -> Iterator[tuple[str, str, Ab, float]]:
    """Yield the task's name, the percent, the record of `ab`, and the seconds that it took, until the time is over."""
    runs: dict[str, GpuRun] = {}
    for _ in range(count):
        for name, (kernel, n, grid) in TASKS.items():
            for percent in PERCENTS:
                begin = time.monotonic()
                if begin > until:
                    return
                series = pair(request(kernel, n, grid, "0"), request(kernel, n, grid, percent))
                if name not in runs:
                    runs[name] = GpuRun(series.make(), series.cases[0].problem, SETTINGS, device)
                old, new = runs[name].measure_pair(series.cases, always=True)
                runs[name].release()  # the buffers are freed, so that the next run gets other addresses
                threshold = max(float(percent) / 200, AIM)
                yield name, percent, ab.verdict(old, new, ("old", "new"), threshold), time.monotonic() - begin


def table(found: dict[tuple[str, str], list[tuple[Ab, float]]]) -> None:
    """Print a line for each task and percentage by which the kernel is slower."""
    print(f"{'task':<13}{'slower by':>10}{'time us':>9}{'ratio':>9}{'spread':>9}{'runs':>6}{'s/run':>7}", end="")
    print("".join(f"{word:>9}" for word in (*WORDS, "exit 4", ">0.2%")))
    for (name, percent), records in found.items():
        bad = [f"{record.verdict}: {record.reason}" for record, _ in records if record.ratio is None]
        ratios = np.array([record.ratio for record, _ in records if record.ratio is not None])
        for line in dict.fromkeys(bad):
            print(f"{name} {percent}%: {line}")
        if not len(ratios):
            continue
        middle = float(np.median(ratios))
        spread = float(np.abs(ratios / middle - 1).max())
        micro = 1e6 * float(np.median([r.old.time.median_s for r, _ in records if r.old.time]))
        seconds = float(np.mean([s for _, s in records]))
        print(
            f"{name:<13}{percent + '%':>10}{micro:>9.2f}{middle:>9.4f}{spread:>9.2%}{len(ratios):>6}{seconds:>7.2f}",
            end="",
        )
        shares = [sum(record.verdict == word for record, _ in records) for word in WORDS]
        shares.append(sum(ab.exit_code(record, max(float(percent) / 200, AIM)) == 4 for record, _ in records))
        shares.append(int((np.abs(ratios - 1) > AIM).sum()) if percent == "0" else -1)
        print("".join(f"{share if share >= 0 else '':>9}" for share in shares), flush=True)


def main() -> None:
    """Measure and print."""
    if not sys.argv[1:] or not all(word.isdecimal() for word in sys.argv[1:]):
        sys.exit(__doc__)
    seconds, count = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 20
    found: dict[tuple[str, str], list[tuple[Ab, float]]] = {(t, p): [] for t in TASKS for p in PERCENTS}
    until = time.monotonic() + seconds
    with suppress(KeyboardInterrupt), CudaDevice(0) as device:
        print(device.info.name)
        for name, percent, record, took in rounds(device, count, until):
            found[name, percent].append((record, took))
    table(found)
    equal = [record for (_, percent), records in found.items() if percent == "0" for record, _ in records]
    called = sum(record.verdict in ("faster", "slower") for record in equal)
    print(f"{called} false calls of {len(equal)} pairs of a kernel with itself")


if __name__ == "__main__":
    main()
