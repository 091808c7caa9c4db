"""Statistics compared with hand-computed values, and their mathematical properties."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cudabench.results import stats

samples = st.lists(st.floats(1e-6, 1e-2), min_size=1, max_size=200)


def test_summary_of_five_samples() -> None:
    """The statistics of the samples 1 to 5 ms follow the definitions."""
    timing = stats.summarize([3e-3, 1e-3, 2e-3, 5e-3, 4e-3], "cold")
    assert (timing.median_s, timing.q1_s, timing.q3_s, timing.min_s, timing.mean_s) == pytest.approx(
        (3e-3, 2e-3, 4e-3, 1e-3, 3e-3)
    )
    assert timing.samples_s == (3e-3, 1e-3, 2e-3, 5e-3, 4e-3)
    assert timing.cache == "cold"


def test_equal_samples_have_no_interval() -> None:
    """For 100 equal samples the relative interval of the median is 0."""
    assert stats.relative_ci([2e-5] * 100) == 0


def test_median_interval_ranks() -> None:
    """For 100 samples the 95% interval of the median is from the 41st to the 61st sorted sample."""
    assert stats.median_interval(list(range(100))) == (40, 60)


def test_median_interval_needs_samples() -> None:
    """The interval of no samples raises ValueError."""
    with pytest.raises(ValueError, match="no samples"):
        stats.median_interval([])


def test_median_interval_covers_the_true_median() -> None:
    """In 2000 draws of 50 exponential samples, 93 to 98.5% of the intervals contain the true median."""
    rng = np.random.default_rng(1)
    hits = 0
    for _ in range(2000):
        low, high = stats.median_interval(np.sort(rng.exponential(size=50)).tolist())
        hits += low <= np.log(2) <= high
    assert 0.93 <= hits / 2000 <= 0.985


@given(samples)
def test_order_does_not_matter(values: list[float]) -> None:
    """Statistics do not depend on the order of the samples."""
    a, b = stats.summarize(values, "hot"), stats.summarize(values[::-1], "hot")
    assert (a.median_s, a.q1_s, a.relative_ci) == (b.median_s, b.q1_s, b.relative_ci)


@given(samples, st.floats(0.5, 100))
def test_scale_law(values: list[float], factor: float) -> None:
    """Scaling the samples scales the median and keeps the relative figures."""
    a, b = stats.summarize(values, "hot"), stats.summarize([v * factor for v in values], "hot")
    assert b.median_s == pytest.approx(a.median_s * factor)
    assert b.relative_ci == pytest.approx(a.relative_ci, abs=1e-9)
    assert stats.dispersion(b) == pytest.approx(stats.dispersion(a), abs=1e-9)
