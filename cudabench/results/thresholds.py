"""Finds the results of a run that miss a threshold. Pure functions, for the exit code and for exports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from cudabench.records.results import Result

THRESHOLDS = ("min_bandwidth", "min_copy_fraction")


class MissedThreshold(NamedTuple):
    """A threshold that a correct result missed: a sentence without its full stop, and the repair, or ''."""

    sentence: str
    repair: str = ""


def missed_thresholds(result: Result, limits: Mapping[str, Any]) -> Iterator[MissedThreshold]:
    """Yield the thresholds that a correct result missed.

    `limits`: the thresholds by option name; values that are not numbers are ignored.
    """
    figures = (result.bandwidth_gbps, result.copy_fraction)
    for key, figure, unit in zip(THRESHOLDS, figures, ("GB/s", "of the copy"), strict=True):
        limit = limits.get(key)
        if result.status != "ok" or not isinstance(limit, (int, float)):
            continue
        option = f"--{key.replace('_', '-')} {limit:g}"
        if result.verification is None:
            yield MissedThreshold(f"{result.kernel} is unverified, so {option} was not checked", "add --expect")
        elif result.true_time is None and result.time:
            yield MissedThreshold(
                f"{result.kernel} lacks a bandwidth for {option}: a simulated driver invented its time",
                "choose a GPU with --device",
            )
        elif figure is None:
            yield MissedThreshold(
                f"{result.kernel} lacks a bandwidth for {option}", "give the bytes that it moves with --bytes"
            )
        elif figure < limit:
            yield MissedThreshold(f"{result.kernel} reached {figure:.4g} {unit}, under {option}")
