"""When to stop sampling, when clocks are up, how many runs make a sample, and what samples say against themselves."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from cudabench.records.planned import Settings
from cudabench.records.results import DeviceInfo, Result, Timing, Warning
from cudabench.results import stats
from cudabench.results.warnings import warning

RELATIVE_CI = 0.005  # of the median: the precision at which sampling stops
WARM_UP_S = 0.15
WARM_UP_STEADY = 0.01  # successive groups that differ less than this are warm
HOT_SAMPLE_S = 2e-3  # back-to-back runs fill this, so that what the first and the last do alone is under a percent
MAX_HOT_RUNS = 400  # as many launches as can wait behind a blocked stream
L2_ASSISTED = 4  # footprint over L2 under which the cache helps (measured: gone at 2 to 4 times)
DISPERSION = 0.05
INPUTS_DIFFER = 0.05  # medians of two sets of inputs that differ by more are two levels, not noise
FEWEST_OF_A_SET = 5
CLOCK_EVERY_S = 0.02  # NVML itself looks at the clock no oftener
CLOCK_SHARE = 0.02


class SmClock:
    """The SM clock beside a kernel's samples, in MHz: read between them, never within a timed region.

    `read` is the device's. It is asked every CLOCK_EVERY_S, or as seldom as keeps what it takes under CLOCK_SHARE of
    the time, so that the readings are no load.
    """

    def __init__(self, read: Callable[[], int | None]) -> None:
        self._read = read
        self._readings: list[tuple[int, int]] = []  # how many samples were taken before, and the clock
        self._next = 0.0
        self.first = self._ask(0)

    def look(self, samples: int) -> None:
        """Read the clock after so many samples, if it is time to."""
        if self.first is not None and time.monotonic() >= self._next:
            self._ask(samples)

    def beside(self, samples: int) -> tuple[tuple[int, ...], int | None]:
        """Return the clock beside each of all samples, the first reading after it, and the one at the end, which is
        taken now; () and None where the device does not tell."""
        last = self._ask(samples) if self.first is not None else None
        if last is None:
            return (), None
        taken, clocks = (np.array(column) for column in zip(*self._readings, strict=True))
        return tuple(map(int, clocks[np.searchsorted(taken, np.arange(samples), side="right")])), last

    def _ask(self, samples: int) -> int | None:
        start = time.monotonic()
        clock = self._read()
        end = time.monotonic()
        self._next = end + max(CLOCK_EVERY_S, (end - start) / CLOCK_SHARE)
        if clock is not None:
            self._readings.append((samples, clock))
        return clock


def shortened(settings: Settings, until: float | None) -> Settings:
    """Return settings that sample no longer than until an instant, but long enough for the fewest samples."""
    if until is None:
        return settings
    left = max(until - time.monotonic(), 0.0)
    return replace(settings, max_time=min(settings.max_time, left), min_time=min(settings.min_time, left))


def enough(samples: Sequence[float], elapsed: float, settings: Settings) -> bool:
    """Tell whether to stop: at least min_samples, min_time and a 95% interval of the median under 0.5%; or max_time.

    Times are of the clock on the wall, flushes and copies included.
    """
    if elapsed >= settings.max_time:
        return True
    if len(samples) < settings.min_samples or elapsed < settings.min_time:
        return False
    return stats.relative_ci(samples) < RELATIVE_CI


def warm_up(sample: Callable[[], float], budget_s: float = WARM_UP_S) -> float:
    """Sample until the clocks are up, and return the typical time in seconds.

    The clocks of an idle card rise within tens of milliseconds of work. Groups of samples follow each other until one
    is no faster than the one before by more than 1%, and at least `budget_s` of wall clock has passed.
    """
    start = time.monotonic()
    before = float("inf")
    per_group = 5 if sample() < budget_s / 10 else 1
    while True:
        group = float(np.median([sample() for _ in range(per_group)]))
        elapsed = time.monotonic() - start
        steady = group > before * (1 - WARM_UP_STEADY)
        if (steady and elapsed >= budget_s) or elapsed >= 10 * budget_s:
            return group
        before = min(group, before)


def hot_runs(typical_s: float) -> int:
    """Return how many back-to-back runs make a hot sample that an event resolves: one, or an even number."""
    return 2 * max(1, min(MAX_HOT_RUNS // 2, round(HOT_SAMPLE_S / typical_s / 2))) if typical_s < HOT_SAMPLE_S else 1


def slower_inputs(samples: Sequence[float], of_set: Sequence[int]) -> tuple[list[int], list[Warning]]:
    """Return which samples count, with a warning where one set of inputs is served faster than the other.

    Both sets are drawn alike, so a kernel that is faster on one of them knows its inputs: the slower set counts.
    """
    by_set = {name: [s for s, of in zip(samples, of_set, strict=True) if of == name] for name in dict.fromkeys(of_set)}
    everything = list(range(len(samples)))
    ranked = sorted(by_set.items(), key=lambda item: float(np.median(item[1])))
    (fast, quick), (slow, lasting) = ranked[0], ranked[-1]
    ratio = float(np.median(lasting) / np.median(quick))
    if len(ranked) < 2 or min(len(quick), len(lasting)) < FEWEST_OF_A_SET or ratio < 1 + INPUTS_DIFFER:
        return everything, []
    return [at for at in everything if of_set[at] == slow], [warning("inputs", slow=slow, fast=fast, ratio=ratio)]


def timing_warnings(timing: Timing, elapsed: float, settings: Settings, others: Sequence[str] = ()) -> list[Warning]:
    """Return what the samples say against themselves; `others` are processes that use the GPU besides."""
    notes = [warning("shared-gpu", others=", ".join(others))] if others else []
    spread, other = stats.dispersion(timing), ", ".join(others) or "something else"
    if spread > DISPERSION:
        notes.append(warning("dispersion", spread=spread, min_time=settings.min_time, other=other))
    if timing.relative_ci >= RELATIVE_CI and elapsed >= settings.max_time:
        notes.append(warning("imprecise", elapsed=elapsed, known=timing.relative_ci, wanted=RELATIVE_CI))
    return notes


def scale_warnings(result: Result, info: DeviceInfo, larger: str = "a larger --size") -> list[Warning]:
    """Return what the caches do to the figure."""
    if result.peak_fraction is not None and result.peak_fraction > 1:
        return [warning("over-peak", bandwidth=result.bandwidth_gbps, fraction=result.peak_fraction, larger=larger)]
    footprint = result.footprint_over_l2
    if footprint is None or footprint >= L2_ASSISTED or not info.l2_bytes:
        return []
    share = f"{footprint:.2g} times" if footprint >= 0.01 else "less than a hundredth of"
    return [
        warning("l2-assisted", share=share, l2_mib=info.l2_bytes / 2**20, larger=larger, enough=L2_ASSISTED),
    ]
