"""Verdicts, ratios, stopping rules and shares at their boundaries, with hand-computed numbers."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from cudabench.errors import EXIT_THRESHOLD
from cudabench.records.plan import Settings
from cudabench.records.results import Result, Timing
from cudabench.results import ab, compare, ratio, slow_kernels, stats
from cudabench.results.ratio import Ratio
from tests.results.test_compare import simulated
from tests.results.test_slow_kernels import SMS, row


def timed(*samples: float, **more: Any) -> Result:
    """Return a result with these samples, in microseconds."""
    time = stats.summarize([sample * 1e-6 for sample in samples], more.pop("cache", "cold"))
    return replace(row("x", 1), time=time, **more)


def verdict_of(base: Result, new: Result) -> tuple[str, str | None]:
    """Return the verdict of two results of one kernel, and the reason if it is unclear."""
    word, _, why = compare._timed(base, new, 0.05, ratio.RUN_TO_RUN)
    return word, why


@pytest.mark.parametrize(
    ("low", "high", "word"),
    [
        (1.0, 1.04, "same"),
        (1.001, 1.04, "slower"),
        (0.96, 1.0, "same"),
        (0.96, 0.999, "faster"),
        (0.9, 1.01, "unclear"),
    ],
)
def test_an_interval_that_touches_one(low: float, high: float, word: str) -> None:
    """An interval that ends at 1 contains 1; `same` limits the change in both directions."""
    assert compare.interval_verdict(Ratio((low + high) / 2, low, high), 0.05) == word


def test_a_change_of_the_threshold_is_no_failure() -> None:
    """A change equal to the threshold passes; a larger one fails."""
    file = simulated()
    key = next(iter(compare.results_by_key(file)))
    for value, found in ((1.25, []), (1.2500001, [EXIT_THRESHOLD])):
        row_ = compare.Row(key, file.results[0], file.results[0], "slower", Ratio(value, 1.1, 1.4))
        failures = compare.failures(compare.Comparison(file, file, "times", (row_,)), 0.25)  # type: ignore[arg-type]
        assert [failure.code for failure in failures] == found


def test_the_reach_of_an_interval() -> None:
    """The reach is the largest change, faster or slower; it is infinite if the interval begins at 0."""
    assert Ratio(1, 0.5, 1.2).reach == 1.0
    assert Ratio(1, 0.9, 1.5).reach == 0.5
    assert Ratio(1, 0.0, 1.5).reach == math.inf


def test_one_hazard_more_than_none_is_wrong() -> None:
    """A kernel that had no hazard and now has one is wrong, unless the base was not checked for hazards."""
    base, new = simulated().results[0], simulated(hazards=1).results[0]
    key = next(iter(compare.results_by_key(simulated())))
    assert compare._row(key, base, new, "same", 0.05, 0.0).verdict == "wrong"
    assert compare._row(key, replace(base, hazards=None), new, "same", 0.05, 0.0).verdict != "wrong"


def test_what_a_comparison_of_times_needs() -> None:
    """Eight samples are enough for a verdict, seven are not; a time of zero gives no verdict."""
    eight = [100.0 + at for at in range(8)]
    assert verdict_of(timed(*eight), timed(*(2 * each for each in eight)))[0] == "slower"
    assert verdict_of(timed(*eight), timed(*eight[1:])) == ("unclear", "7 samples, at least 8 are needed")
    assert verdict_of(timed(*eight), timed(0.0, *eight[1:])) == ("unclear", "a time of zero")


def test_a_copy_that_moved_too() -> None:
    """A slowdown that the copy shares is unclear, since the GPU changed; a larger or smaller slowdown is the
    kernel's."""
    eight = [1000.0 + at / 10 for at in range(8)]
    slower, more = [1.1 * each for each in eight], [1.3 * each for each in eight]
    base = timed(*eight, copy_gbps=3300.0, bytes=10**9)
    assert verdict_of(base, timed(*slower, copy_gbps=3000.0, bytes=10**9))[1] == (
        "the copy is 10.0% slower too: the card changed"
    )
    assert verdict_of(base, timed(*more, copy_gbps=3000.0, bytes=10**9))[0] == "slower"
    assert verdict_of(base, timed(*slower, copy_gbps=2500.0, bytes=10**9))[0] == "slower"  # the copy slowed down more


def test_the_clock_of_the_samples() -> None:
    """The interval of a ratio is wider by half a clock tick for each side."""
    coarse = stats.summarize([1e-5, 1e-5, 1e-5, 1.1e-5] * 3, "cold")
    found = ratio.time_ratio(coarse, coarse, run_to_run=0.0, run_to_run_s=0.0)
    assert found.high >= math.exp(0.1 * 0.99)  # half of two ticks of 10%


def test_places_of_samples_are_kept_for_two_places() -> None:
    """A timing with one buffer set does not record the buffer set of each sample."""
    assert stats.summarize([1.0, 1.0], "cold", places=2, samples_place=(0, 1)).samples_place == (0, 1)
    assert stats.summarize([1.0, 1.0], "cold", places=1, samples_place=(0, 0)).samples_place == ()


def test_when_pairs_are_enough() -> None:
    """Sampling pairs stops with enough pairs (the setting and the minimum) and enough time, or at the maximum time."""
    settings = Settings(min_time=1.0, max_time=9.0, min_samples=20)

    def stops(count: int, elapsed: float, samples: int = 20) -> bool:
        return ab.enough_pairs([1e-3] * count, [2e-3] * count, elapsed, replace(settings, min_samples=samples))

    assert [stops(count, 2.0) for count in (8, 19, 20)] == [False, False, True]
    assert [stops(count, 2.0, 1) for count in (ab.MIN_SAMPLES - 1, ab.MIN_SAMPLES)] == [False, True]
    assert [stops(1, elapsed) for elapsed in (8.9, 9.0)] == [False, True]
    assert [stops(20, elapsed) for elapsed in (0.9, 1.0)] == [False, True]


def test_eight_pairs_have_a_verdict() -> None:
    """Eight pairs are enough for a verdict, and for short kernels the noise is a fixed time."""
    old, new = timed(*[10.0] * 8), timed(*[20.0] * 8)
    assert ab.verdict(old, new, ("a", "b"), None).verdict == "slower"
    assert ab.noise_at([1e-6], [2e-6]) == pytest.approx(ab.NOISE_S / 1e-6)
    assert ab.noise_at([1e-3], [2e-3]) == ab.NOISE
    assert ab.noise_at([1e-6], [2e-6], 0.0) == 0.0


def test_just_far_behind() -> None:
    """A kernel with half of the best speed is not far behind, a slower one is; 75% busy multiprocessors are
    reported."""
    assert list(slow_kernels.slow_rungs([row("x", 2), row("best", 1)], SMS, dict)) == []
    assert [found[0].kernel for found in slow_kernels.slow_rungs([row("x", 2.001), row("best", 1)], SMS, dict)] == ["x"]
    (found,) = slow_kernels.slow_rungs([row("x", 3, grid=(99, 1, 1)), row("best", 1)], SMS, dict)
    assert found[3] == "Its 99 blocks keep 75% of 132 multiprocessors at work on average."


def test_ties_are_within_their_interval() -> None:
    """A finalist ties with the best if the interval of their ratio contains 1."""
    from cudabench.results.sweep_points import Final, ties

    eight = [100.0 + at / 100 for at in range(8)]
    best, close, far = (Final(timed(*(by * each for each in eight)), 0.01) for by in (1.0, 1.005, 1.05))
    assert ties([best, close, far]) == [close]


def test_an_interval_needs_an_order() -> None:
    """The interval of one sample is that sample."""
    assert stats.median_interval([3.0]) == (3.0, 3.0)
    assert isinstance(stats.summarize([3.0], "hot"), Timing)
