"""Statistics of samples. Pure functions of numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from cudabench.records.results import Timing

CONFIDENCE_Z = 1.959964  # the quantile of the normal distribution for a two-sided 95% interval


def median_interval(ordered: Sequence[float]) -> tuple[float, float]:
    """Return the 95% confidence interval of the median, (low, high), of samples in ascending order.

    The ends of the interval are samples: the number of samples under the true median is binomial(n, 1/2), so the ranks
    of the ends are n/2 -+ z * sqrt(n)/2 (David and Nagaraja, Order Statistics, 3rd ed., section 7.1). No distribution
    is assumed. With fewer than six samples no such interval exists at 95%: the range of all samples is returned.
    """
    n = len(ordered)
    if n == 0:
        raise ValueError("no samples")
    half = CONFIDENCE_Z * math.sqrt(n) / 2
    low = max(math.floor(n / 2 - half), 0)
    high = min(math.ceil(n / 2 + half), n - 1)
    return ordered[low], ordered[high]


def relative_ci(samples: Sequence[float]) -> float:
    """Return half the width of the median's 95% interval, as a fraction of the median."""
    ordered = np.sort(np.asarray(samples, dtype=np.float64))
    low, high = median_interval(ordered)  # type: ignore[arg-type]
    return float((high - low) / 2 / np.median(ordered))


def summarize(
    samples: Sequence[float],
    cache: str,
    runs_per_sample: int = 1,
    places: int = 1,
    samples_place: Sequence[int] = (),
    samples_sm_mhz: Sequence[int] = (),
) -> Timing:
    """Return the statistics of samples in seconds. The samples keep their order of measurement.

    `samples_place`: the number of the memory place of each sample; `samples_sm_mhz`: the SM clock during each sample.
    """
    values = np.asarray(samples, dtype=np.float64)
    q1, median, q3 = np.quantile(values, [0.25, 0.5, 0.75])
    return Timing(
        median_s=float(median),
        q1_s=float(q1),
        q3_s=float(q3),
        min_s=float(values.min()),
        mean_s=float(values.mean()),
        relative_ci=relative_ci(samples),
        samples=len(values),
        cache=cache,
        samples_s=tuple(float(value) for value in values),
        runs_per_sample=runs_per_sample,
        places=places,
        samples_place=tuple(samples_place) if places > 1 else (),
        samples_sm_mhz=tuple(samples_sm_mhz),
    )


def dispersion(timing: Timing) -> float:
    """Return the interquartile range as a fraction of the median."""
    return (timing.q3_s - timing.q1_s) / timing.median_s
