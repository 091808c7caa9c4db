"""Computes the ratio of the times in two runs, with its confidence interval. Pure functions.

Two things make a ratio of medians uncertain. First, the samples of a run scatter. A bootstrap of the median measures
this scatter; it resamples blocks of neighbouring samples, because neighbours are not independent (on an H200 their
autocorrelation reaches -0.7 if samples alternate between two levels, and times drift while a card warms up). Second,
all samples shift between two runs with the addresses and the clocks: by a fraction of the time, and by a time that is
the same for short and long kernels. Both shifts are many times the spread of one run's samples, so with an interval
from samples alone, noise would look like a change. All these parts are added in quadrature on a logarithmic scale. So
if base and new are exchanged, the interval becomes its exact inverse.
"""

from __future__ import annotations

import functools
import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cudabench.records.results import Timing

# The confidence of the interval of one kernel. With 95%, every second comparison of a dozen kernels would show a false
# change.
CONFIDENCE = 0.99
RESAMPLES = 1000
# At most this many samples are resampled, so that a comparison takes less than a second and 100 MB.
MOST_RESAMPLED = 20000
# How much the medians of one kernel may differ between two runs. On an H200 they differ by up to 1%. With 1.5% there is
# no false verdict among a dozen kernels, and a kernel that is 3% slower is still found. In addition, the times of all
# kernels of a process may be longer or shorter by the same time, up to 0.25 us (benchmarks/verdicts.py).
RUN_TO_RUN = 0.015
RUN_TO_RUN_S = 0.25e-6
# The samples may alternate between two levels. The share of each level then differs from run to run, which moves the
# median by up to this fraction of the interquartile range. `time_ratio` adds this and RUN_TO_RUN in quadrature.
SPREAD_SHARE = 0.25


@dataclass(frozen=True)
class Ratio:
    """A ratio of times, new over base, with its interval."""

    value: float
    low: float
    high: float

    @property
    def change(self) -> float:
        """The ratio minus 1: 0.06 is 6% slower."""
        return self.value - 1

    @property
    def reach(self) -> float:
        """The largest change in the interval, slower or faster: 0.05 if an end of the interval is 1.05 or 1/1.05."""
        return max(self.high, 1 / self.low) - 1 if self.low > 0 else math.inf


def time_ratio(base: Timing, new: Timing, run_to_run: float = RUN_TO_RUN, run_to_run_s: float = RUN_TO_RUN_S) -> Ratio:
    """Return the ratio of two medians, with the interval of the samples, widened by the noise between runs.

    The half width is sqrt(within^2 + run_to_run^2 + (run_to_run_s / median)^2 + (SPREAD_SHARE * spread)^2 +
    resolution^2) on the logarithmic scale. within: from a block bootstrap; spread: the larger relative interquartile
    range of both sides; resolution: half a tick of the clock that took the samples, for each side.
    """
    old, latest = _samples(tuple(base.samples_s)), _samples(tuple(new.samples_s))
    before = base.median_s if old.median is None else old.median
    after = new.median_s if latest.median is None else latest.median
    middle = math.log(after / before)
    draws = latest.log_medians - old.log_medians
    low, high = np.quantile(draws, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    spread = max(old.spread, latest.spread)
    tick = (old.tick / before + latest.tick / after) / 2
    level = run_to_run_s / min(before, after)
    between = math.hypot(math.log1p(run_to_run), level, SPREAD_SHARE * spread, tick)
    return Ratio(
        math.exp(middle),
        math.exp(middle - math.hypot(min(float(low), 0.0), between)),
        math.exp(middle + math.hypot(max(float(high), 0.0), between)),
    )


@dataclass(frozen=True)
class _Samples:
    """The statistics of one side's samples.

    `median`: None without samples; `log_medians`: the logarithms of the resampled medians; `spread`: the relative
    interquartile range; `tick`: the tick of the clock, in seconds.
    """

    median: float | None
    log_medians: np.ndarray
    spread: float
    tick: float


@functools.lru_cache(maxsize=256)  # the same base may be compared with several runs
def _samples(samples: tuple[float, ...]) -> _Samples:
    median = float(np.median(samples)) if samples else None
    return _Samples(median, _log_medians(samples), spread_of(samples), resolution(samples))


def _log_medians(samples: Sequence[float]) -> np.ndarray:
    """Return an array with the logarithms of resampled medians, each relative to the median of the samples.

    The method is a circular block bootstrap (Politis and Romano 1992) with blocks of sqrt(n) samples. The seed is
    computed from the samples, so that a comparison is repeatable and does not depend on the order of the files.
    """
    values = np.asarray(samples, dtype=np.float64)
    # If there are too many samples, use only every k-th one. The interval becomes a little wider, but stays far below
    # the noise between runs.
    values = values[:: -(-len(values) // MOST_RESAMPLED) or 1]
    n = len(values)
    if n < 2:
        return np.zeros(RESAMPLES)
    # Replace the values by their ranks: small integers are resampled and partitioned fifteen times as fast.
    levels, ranks = np.unique(values, return_inverse=True)
    ranks = ranks.astype(np.int16 if len(levels) < 2**15 else np.int32)
    block = max(1, round(math.sqrt(n)))
    rng = np.random.default_rng(zlib.crc32(values.tobytes()))
    starts = rng.integers(0, n, (RESAMPLES, -(-n // block)))
    windows = np.lib.stride_tricks.sliding_window_view(np.concatenate([ranks, ranks[:block]]), block)
    resamples = windows[starts].reshape(RESAMPLES, -1)[:, :n]
    middle = [(n - 1) // 2, n // 2]
    resamples.partition(middle, axis=1)
    medians = levels[resamples[:, middle]].mean(axis=1)
    logs: np.ndarray = np.log(medians / np.median(values))
    return logs


def spread_of(samples: Sequence[float]) -> float:
    """Return the interquartile range as a fraction of the median."""
    if len(samples) < 2:
        return 0.0
    q1, median, q3 = np.quantile(samples, [0.25, 0.5, 0.75])
    return float((q3 - q1) / median)


def resolution(samples: Sequence[float]) -> float:
    """Return the tick of the clock in seconds: the smallest difference between two samples (32 ns on an H200)."""
    levels = np.unique(samples)
    return float(np.diff(levels).min()) if len(levels) > 1 else 0.0
