"""Draws the samples of a kernel in the order of measurement, as a strip: few samples as dots, many samples in bins."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import TypeVar

from cudabench.records.results import Timing
from cudabench.results import units

WIDTH, HEIGHT = 1000, 100  # the size of the drawing, in the units of its SVG viewBox
MOST_DOTS = 200
BINS = 100  # a strip has at most this many bins; fewer if the page has many strips, but at least FEWEST_BINS
FEWEST_BINS = 40
ALL_BINS = 2000  # the largest number of bins of all strips of a page together
LEAST_CLOCKS = 100  # the axis of the clock spans at least this many MHz, so that a step of 15 MHz looks small
# The strip's axis extends at least this fraction of the median above and below the median, so that low noise looks
# small.
SPAN = 0.02


Number = TypeVar("Number", int, float)


def strip(time: Timing, strips: int = 1) -> SimpleNamespace | None:
    """Return the drawing of a kernel's samples, in units of WIDTH x HEIGHT; None for fewer than two samples.

    `dots`: the path of the samples as dots, or ''; `spans`, `medians`: the paths of the range and the median of each
    bin, or ''; `top`, `bottom`: the times at the edges; `median`: the height of the median; `outside`: how many samples
    are slower than the time at the top edge (these samples are drawn at the top edge); `clock`: the path of the SM
    clock, or ''; `clock_said`: the range of the clock. The argument `strips` is the number of strips on the page.
    """
    values = time.samples_s
    if len(values) < 2:
        return None
    ordered = sorted(values)
    middle = statistics.median(ordered)
    high = max(ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))], middle * (1 + SPAN))
    low = min(ordered[0], middle * (1 - SPAN))

    def height(value: float) -> int:
        share = (min(value, high) - low) / (high - low) if high > low else 0.5
        return round(HEIGHT * (0.95 - 0.9 * share))

    def drawn(values: Sequence[float]) -> str:
        return "".join(f"M{_x(at, len(values))} {height(value)}h0" for at, value in enumerate(values))

    bins = max(FEWEST_BINS, min(BINS, ALL_BINS // strips))
    few = len(values) <= MOST_DOTS * bins // BINS
    parts = [] if few else _bins(values, bins)
    spread = (time.q3_s - time.q1_s) / time.median_s if time.median_s else 0.0
    binned = "" if few else f", in {bins} bins of neighbours: their spans and medians"
    clock, clock_said = _clock(time, bins)
    return SimpleNamespace(
        dots=drawn(values) if few else "",
        spans="".join(f"M{_x(at, bins)} {height(max(part))}V{height(min(part))}" for at, part in enumerate(parts)),
        medians=drawn([statistics.median(part) for part in parts]),
        median=height(middle),
        top=units.seconds(high),
        bottom=units.seconds(low),
        said=f"{time.samples} samples, median {units.seconds(time.median_s)}, quartiles {units.percent(spread)} apart"
        + (f"; {len(values)} of them are in the file" if len(values) < time.samples else "")
        + binned,
        outside=sum(value > high for value in values),
        clock=clock,
        clock_said=clock_said,
    )


def _clock(time: Timing, bins: int) -> tuple[str, str]:
    """Return (path of the SM clock on a separate scale, range of the clock as text). A bin shows its lowest clock."""
    clocks = time.samples_sm_mhz
    if len(clocks) != len(time.samples_s) or not clocks:
        return "", ""
    low, high = min(clocks), max(clocks)
    bottom = min(low, high - LEAST_CLOCKS)
    parts = _bins(clocks, bins) if len(clocks) > bins else [(clock,) for clock in clocks]
    path, before = "", None
    for at, lowest in enumerate(map(min, parts)):
        if lowest != before:
            x, y = round(at * WIDTH / len(parts)), round(HEIGHT * (0.9 - 0.8 * (lowest - bottom) / (high - bottom)))
            path += f"H{x}V{y}" if path else f"M0 {y}"
        before = lowest
    return f"{path}H{WIDTH}", f"{low} MHz" if low == high else f"{low}–{high} MHz"


def _bins(values: Sequence[Number], bins: int) -> list[Sequence[Number]]:
    edges = [round(at * len(values) / bins) for at in range(bins + 1)]
    return [values[a:b] for a, b in pairwise(edges)]


def _x(at: int, count: int) -> int:
    return round((at + 0.5) * WIDTH / count)
