"""Computes the ratio of the times of two kernels from pairs of samples, and the verdict on it. Pure functions.

A pair is two samples, one of each kernel, taken one after the other at the same memory address, in random order.
Clocks, temperature, addresses and other programs change both samples in the same way, so these effects cancel in the
logarithm of the ratio. If the kernels are equally fast, the sign of the logarithm is random. The estimate is the mean
of the logarithms without the highest and the lowest tenth. A mean is used because a clock tick of 32 ns is a third of a
percent of 10 us, and a median cannot resolve less. The interval comes from a block bootstrap, as in `ratio`, of the
winsorised logarithms (Tukey and McLaughlin 1963). The noise between two measurements of one kernel, and the clock's
resolution, are added to the interval in quadrature.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from functools import partial

import numpy as np

from cudabench import errors
from cudabench.records.plan import Settings
from cudabench.records.results import Result
from cudabench.records.revisions import Ab
from cudabench.results.compare import MIN_SAMPLES, interval_verdict
from cudabench.results.ratio import CONFIDENCE, RESAMPLES, Ratio, resolution

# Even two equal kernels in one run differ by this much: by NOISE, a fraction of the time, for kernels of 10 us or more,
# and by NOISE_S, a fixed time, for shorter kernels. benchmarks/ab_runs.py measures these numbers.
NOISE = 0.002
NOISE_S = 20e-9
# The verdict is "same" if the interval contains 1 and no value in it differs from 1 by more than SAME_WITHIN, or more
# than the threshold if that is larger.
SAME_WITHIN = 0.005
TRIMMED = 0.1  # this fraction of the pairs is left out at each end
# Sampling stops when no value in the interval (without noise) differs from the ratio by more than this fraction.
PRECISE = 0.001


def pair_logs(old: Sequence[float], new: Sequence[float]) -> np.ndarray:
    """Return an array with the logarithm of new / old for each pair."""
    logs: np.ndarray = np.log(np.asarray(new, dtype=np.float64) / np.asarray(old, dtype=np.float64))
    return logs


def trimmed_mean(logs: np.ndarray) -> tuple[float, float, float]:
    """Return (trimmed mean, distance to the lower end of its interval at `CONFIDENCE`, distance to the upper end).

    A circular block bootstrap with blocks of sqrt(n) neighbours (Politis and Romano 1992) resamples the mean of the
    winsorised values, divided by the fraction that is kept. Its random seed is computed from the values, so that a
    verdict is repeatable.
    """
    n = len(logs)
    cut = int(TRIMMED * n)
    ordered = np.sort(logs)
    middle = float(ordered[cut : n - cut].mean())
    winsorised = np.clip(logs, ordered[cut], ordered[n - cut - 1])
    block = max(1, round(math.sqrt(n)))
    sums = np.cumsum(np.concatenate([[0.0], winsorised, winsorised[:block]]))
    # The sum of each block, indexed by the first element of the block. A block at the end of the data continues at the
    # beginning, so the last entry is the sum of the first block again.
    of_block = sums[block:] - sums[:-block]
    rng = np.random.default_rng(zlib.crc32(np.ascontiguousarray(logs).tobytes()))
    starts = rng.integers(0, n, (RESAMPLES, max(1, round(n / block))))
    means = of_block[starts].mean(axis=1) / block
    low, high = np.quantile(means - winsorised.mean(), [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2]) / (1 - 2 * cut / n)
    # With k blocks, the spread that the bootstrap finds is too small by the factor sqrt(k / (k - 1)).
    correction = math.sqrt(n / (n - block)) if n > block else 1.0
    return middle, max(-float(low), 0.0) * correction, max(float(high), 0.0) * correction


def pair_ratio(old: Sequence[float], new: Sequence[float], noise: float = NOISE) -> Ratio:
    """Return the ratio of the kernels' times, new over old, with its interval.

    `old[i]` and `new[i]` are a pair, in seconds.

    `noise`: the difference, as a fraction, between two measurements of one kernel; at least NOISE_S seconds are used.
    """
    middle, down, up = trimmed_mean(pair_logs(old, new))
    level = noise_at(old, new, noise)
    grain = math.hypot(*(_grain(side) for side in (old, new)))
    return Ratio(
        math.exp(middle),
        math.exp(middle - math.hypot(down, math.log1p(level), grain)),
        math.exp(middle + math.hypot(up, math.log1p(level), grain)),
    )


def noise_at(old: Sequence[float], new: Sequence[float], noise: float = NOISE) -> float:
    """Return the difference that two equal kernels with these times may show, as a fraction; 0 if `noise` is 0."""
    return max(noise, NOISE_S / float(min(np.median(old), np.median(new)))) if noise else 0.0


def _grain(samples: Sequence[float]) -> float:
    """Return the error from the clock's resolution, as a fraction of the time.

    The error is half a tick times the fraction of the samples that have the most frequent value, because a mean of
    samples with several values is more precise than a tick.
    """
    levels, counts = np.unique(np.asarray(samples), return_counts=True)
    share = float(counts.max() / counts.sum())
    return resolution(samples) / 2 / float(np.median(samples)) * share if len(levels) > 1 else 0.0


def enough_pairs(old: Sequence[float], new: Sequence[float], elapsed: float, settings: Settings) -> bool:
    """Return whether to stop sampling.

    Stop after max_time; or with at least min_samples pairs, after min_time, if the interval is within PRECISE. The rule
    uses only the width of the interval, never its position.
    """
    if elapsed >= settings.max_time:
        return True
    if len(old) < max(settings.min_samples, MIN_SAMPLES) or elapsed < settings.min_time:
        return False
    _, down, up = trimmed_mean(pair_logs(old, new))
    return max(down, up) < PRECISE


def verdict(old: Result, new: Result, labels: tuple[str, str], threshold: float | None, noise: float = NOISE) -> Ab:
    """Return the verdict on two results whose samples are pairs.

    `threshold`: the allowed slow-down, as a fraction, or None.
    """
    record = partial(Ab, *labels, old, new)
    faulty = next((side_result for side_result in (new, old) if side_result.status in ("wrong", "failed")), None)
    if faulty:
        side = labels[1] if faulty is new else labels[0]
        return record("wrong" if faulty.status == "wrong" else "failed", reason=f"{side}: {faulty.reason}")
    if old.time is None or new.time is None:
        return record("same code", reason=new.reason)
    before, after = old.time.samples_s, new.time.samples_s
    if len(before) < MIN_SAMPLES:
        reason = f"{len(before)} pairs are too few: {MIN_SAMPLES} are the least for an interval"
        return record("unclear", pairs=len(before), noise=noise, reason=reason)
    ratio = pair_ratio(before, after, noise)
    margin = max(threshold or 0.0, SAME_WITHIN, 2 * noise_at(before, after, noise))
    outcome = interval_verdict(ratio, margin)
    why = f"the interval holds 1 and reaches {ratio.reach:.2%}, over the {margin:.2%} that would be the same"
    return record(
        outcome, ratio=ratio.value, ratio_low=ratio.low, ratio_high=ratio.high, pairs=len(before), noise=noise,
        reason=why if outcome == "unclear" else None,
    )  # fmt: skip


def regression(record: Ab, threshold: float | None) -> str | None:
    """Return a sentence if the verdict is "slower" and the new side is slower by more than the threshold, else None."""
    if threshold is None or record.verdict != "slower" or record.ratio is None or record.ratio - 1 <= threshold:
        return None
    return f"{record.new_label} is {record.ratio - 1:.2%} slower than {record.old_label}, over {threshold:.3g} allowed"


def exit_code(record: Ab, threshold: float | None) -> int:
    """Return the exit code: that of a wrong side, else that of a failed side, else that of a regression."""
    # Two sides with the same code are skipped, which is not an error.
    faulty = record.verdict in ("wrong", "failed")
    statuses = (record.old.status, record.new.status) if faulty else ()
    return errors.exit_code(statuses, missed=regression(record, threshold) is not None)


def sentence(record: Ab) -> str:
    """Return the verdict in a sentence, with the ratio and its interval if they are known."""
    old, new = record.old_label, record.new_label
    if record.verdict == "same code":
        return f"Same code: {new} is the same machine code and launch as {old}, so there is nothing to measure."
    if record.ratio is None or record.ratio_low is None or record.ratio_high is None:
        return f"{record.verdict.capitalize()}: {record.reason}."
    interval = f"ratio {record.ratio:.4f}, {record.ratio_low:.4f} to {record.ratio_high:.4f}, {record.pairs} pairs"
    change = abs(record.ratio - 1)
    text = {
        "slower": f"Slower: {new} takes {change:.2%} longer than {old}",
        "faster": f"Faster: {new} takes {change:.2%} less time than {old}",
        "same": f"Same: {new} and {old} take the same time",
    }.get(record.verdict, f"Unclear: {record.reason}")
    return f"{text} ({interval})."


def code_lines(record: Ab) -> list[str]:
    """Return a list with a line on how the machine code of both sides differs; empty if the code is unknown."""
    old, new = record.old.machine_code, record.new.machine_code
    if record.verdict == "same code" or (old is None and new is None):
        return []
    if old is not None and new is not None and old.sha256 == new.sha256:
        return ["The instructions are the same."]
    fits = [f"{result.occupancy.fraction:.0%}" for result in (record.old, record.new) if result.occupancy]
    figures = (
        ("registers", record.old.registers, record.new.registers),
        ("shared bytes", record.old.shared_bytes, record.new.shared_bytes),
        ("spilled bytes", old.spill_bytes if old else None, new.spill_bytes if new else None),
        ("local bytes", record.old.local_bytes, record.new.local_bytes),
        ("occupancy", *(fits if len(fits) == 2 else ("", ""))),
    )
    changed = [f"{name} {before} -> {after}" for name, before, after in figures if before != after]
    details = f": {', '.join(changed)}" if changed else ""
    return [f"The machine code differs{details}; 'cudabench diff' shows where."]
