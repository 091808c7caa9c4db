"""Rooflines compare a kernel's rate with the rate that the card allows at the kernel's intensity (the operations per
byte). The page and `cudabench plot` draw them.

For operations that compute, the classic roofline (Williams, Waterman and Patterson 2009): floating-point operations per
second over operations per byte that must move, so that a kernel is above the memory's roof only if caches hold its data
from launch to launch. For operations that only move data, the instruction roofline (Ding and Williams 2019): warp
instructions per second over warp instructions per 32-byte sector that requests touch. The roofs are the rates from
which limits are computed (the card's measured ceilings if known, else its theoretical values), and the speed of the
run's copy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

from cudabench.cards.load import card_for_device
from cudabench.explain.accesses import total
from cudabench.explain.card_rates import roofline_rates
from cudabench.records.file import ResultsFile, is_on_another_card
from cudabench.records.results import DeviceInfo, Result
from cudabench.results import units
from cudabench.results.groups import grouped
from cudabench.views.quantities import copy_of

SECTOR = 32  # bytes in one memory sector
# For each number format: the name of the tensor units' ceiling.
TENSOR = {"tf32": "tf32", "bfloat16": "bf16", "float16": "fp16", "float64": "fp64"}
LABEL = 5.5  # the height of a label, in percent of the drawing's height
LETTER = 1.9  # the width of a letter, in percent of the drawing's width on a phone
AWAY = 2.5  # the distance from a point to its label, in percent
LEFT, RIGHT, TOP, BOTTOM = 3.0, 97.0, 5.0, 93.0  # the ends of the axes, in percent of the drawing's width and height
MOST_LABELS = 16
MOST_LETTERS = 22


@dataclass(frozen=True)
class Line:
    """A straight line of a chart. Positions are in percent of the chart's width and height, from the upper left
    corner."""

    x1: float
    y1: float
    x2: float
    y2: float
    name: str = ""
    below: bool = False  # whether the name is written below the line
    card: int = 0  # the index of the card that has this roof

    @property
    def name_x(self) -> float:
        """The horizontal position of the name: at the end of a level line, near the middle of a rising line."""
        return self.x2 if self.y1 == self.y2 else self.x1 + (self.x2 - self.x1) * 0.55

    @property
    def name_y(self) -> float:
        """The vertical position of the name."""
        return self.y1 + (self.y2 - self.y1) * 0.55


@dataclass(frozen=True)
class Member:
    """A result, the number of its run, its file, and the name of its point."""

    run: int
    result: Result
    file: ResultsFile
    name: str


@dataclass(frozen=True)
class _Dot:
    of: Member
    x: float
    y: float
    bound: bool
    priced: Mapping[str, Any]  # the figures of the card that define the roofs, keyed by name

    @property
    def card(self) -> str:
        return str(self.priced.get("card") or "")


def charts(files: Sequence[ResultsFile], labels: Sequence[str]) -> tuple[SimpleNamespace, ...]:
    """Return a chart for each problem that has points: kernels with a time, or with limits on the time."""
    problems = grouped(
        ((result.operation, units.size(result), result.dtype), Member(run, result, file, result.kernel))
        for run, file in enumerate(files)
        for result in file.results
    )
    drawn = (chart(" ".join(filter(None, key)), members, labels) for key, members in problems.items())
    return tuple(filter(None, drawn))


def missing(results: Sequence[Result]) -> str:
    """Return a sentence that says why a roofline cannot be drawn."""
    if not any(result.status == "ok" for result in results):
        return "No kernel is right, so the roofline is empty."
    if any(result.time for result in results):
        return "A kernel that only moves data needs its instructions counted for a roofline: add --limits."
    return "The simulator does not measure time, and the file lacks limits: add --on."


def chart(
    title: str, members: Sequence[Member], labels: Sequence[str], *, still: bool = False
) -> SimpleNamespace | None:
    """Return the chart of one problem; None without points.

    `across`, `up`: the names of the axes; `x_ticks`, `y_ticks`: (position, text); `roofs`: the lines; `points`: the
    kernels with their labels (`bound`: from a limit, not from a time); `arrows`: from each kernel of the ladder to the
    next. The argument `labels` holds the labels of the runs. `still`: the chart cannot be clicked, so every point has a
    visible label.
    """
    members = [
        member
        for member in members
        if member.result.status == "ok" and not is_on_another_card(member.file, member.result)
    ]
    computes = any(member.result.flops and member.result.bytes for member in members)
    dots = [dot for member in members if (dot := _dot(member, computes))]
    if not dots:
        return None
    by_card = grouped((dot.card, dot) for dot in dots)
    allowed = [_allowed(card_dots, computes) for card_dots in by_card.values()]
    xs, ys = [dot.x for dot in dots], [dot.y for dot in dots]
    far, high, near = 300 * max(xs), 1e4 * max(ys), min(xs)
    for slopes, tops in allowed:
        ridges = [top / slope for _, slope in slopes[:1] for _, top in tops]
        # the axis extends past each ridge (the corner between a rising and a level roof), so that the corners are
        # visible
        xs += [ridge * 2 for ridge in ridges if ridge < far]
        ys += [top for _, top in tops if top < high] + [slope * near for _, slope in slopes]
    across, up = _Axis(xs, LEFT, RIGHT), _Axis(ys, BOTTOM, TOP)
    lines = [line for at, (slopes, tops) in enumerate(allowed) for line in _roofs(slopes, tops, across, up, at)]
    names = ("FLOP per byte that must move", "GFLOP/s", "GFLOP/s") if computes else (
        "warp instructions per sector of 32 bytes", "10⁹ warp instructions/s", "G instructions/s"
    )  # fmt: skip
    places = _labels(dots, lines, across, up, still)
    points = []
    for at, dot in enumerate(dots):
        x, y, name, run = across.at(dot.x), up.at(dot.y), dot.of.name, dot.of.run
        which = f" ({labels[run]})" if len(labels) > 1 else ""
        reached = f"{'at most ' if dot.bound else ''}{_short(dot.y)} {names[2]} at {_short(dot.x)} {names[0]}"
        label_y, left = places.get(at, (y, False))
        points.append(
            SimpleNamespace(
                x=x,
                y=y,
                label_y=label_y,
                left=left,
                far=abs(label_y - y) > LABEL,  # the label is far from its point, so a line connects them
                name=name,
                labelled=at in places,
                said=f"{name}{which}: {reached}",
                run=run,
                bound=dot.bound,
                card=[*by_card].index(dot.card),
            )
        )
    newest = max(point.run for point in points)
    arrows = [
        Line(a.x, a.y, b.x, b.y)
        for a, b in pairwise(points)
        if a.run == b.run == newest and math.hypot(a.x - b.x, a.y - b.y) > 2
    ]
    return SimpleNamespace(
        title=title,
        across=names[0],
        up=names[1],
        x_ticks=across.ticks,
        y_ticks=up.ticks,
        roofs=lines,
        points=points,
        arrows=arrows,
        cards=[*by_card],
    )


def instructions(result: Result) -> int | None:
    """Return the number of warp instructions of the result's machine code or, without it, the number that was counted
    for a timed kernel."""
    code = result.machine_code
    if code and code.instructions_executed:
        return code.instructions_executed
    return result.counted.instructions_executed if result.counted else None


def _dot(member: Member, computes: bool) -> _Dot | None:
    result = member.result
    work = result.flops if computes else instructions(result)
    sectors = sum(total(result.access or (), space).actual for space in ("global", "local"))
    traffic = result.bytes if computes else sectors
    time = result.true_time
    seconds = time.median_s if time else result.limits[0].time_s if result.limits else None
    if not traffic or not work or not seconds:
        return None
    return _Dot(member, work / traffic, work / seconds / 1e9, time is None, _priced(member))


def _priced(member: Member) -> Mapping[str, Any]:
    """Return the figures for the roofs of a result. They are of the card for which its limits were computed, or else of
    the card that measured the result."""
    on = member.file.settings.get("on")
    device: DeviceInfo | None = member.file.device_of(member.result) or member.file.device
    if isinstance(on, dict):
        return on
    if device is None or device.kind != "cuda":
        return {}
    if device.sm_count and device.clocks:
        return roofline_rates(card_for_device(device))
    return {"card": device.name, "memory_gbps": device.peak_gbps}


def _allowed(dots: Sequence[_Dot], computes: bool) -> tuple[list[tuple[str, float]], list[tuple[str, float]]]:
    """Return the rising and the level roofs of one card, each as (name, value).

    Rising roofs: the memory of the card and the copy of the run. Level roofs: the rates of the results' element types
    and of the tensor formats in their code, or the issue rate.
    """

    def figure(key: str) -> float:
        value = dots[0].priced.get(key)
        return float(value) if isinstance(value, (int, float)) and math.isfinite(value) and value > 0 else 0.0

    speeds = {"memory": figure("memory_gbps"), "copy": copy_of([dot.of.result for dot in dots])}
    slopes = [
        (f"{name} {units.digits(gbps)} GB/s", gbps if computes else gbps / SECTOR)
        for name, gbps in speeds.items()
        if gbps
    ]
    if not computes:
        issue = figure("issue_ginstructions")
        return slopes, [("issue", issue)] if issue else []
    wanted: dict[str, float] = {}
    for result in (dot.of.result for dot in dots):
        code, wide = result.machine_code, "float64" if result.dtype == "float64" else "float32"
        wanted[wide] = figure(f"{wide}_gflops")
        tensor = bool(code and code.pipes and code.pipes.get("tensor"))
        computed = code.arithmetic if code and (code.pipes is None or tensor) else ()
        for name in computed or ():
            if name in TENSOR and (name != "float64" or tensor):
                wanted[f"tensor {name}"] = figure(f"{TENSOR[name]}_gflops")
    return slopes, [(f"{name} {_rate(top)}", top) for name, top in wanted.items() if top]


def _rate(gflops: float) -> str:
    return f"{units.digits(gflops / 1e3, 3)} TFLOP/s" if gflops >= 1e4 else f"{units.digits(gflops, 3)} GFLOP/s"


class _Axis:
    """A logarithmic axis from position `start` to `end`. The axis spans at least a factor of 10, with free space at
    both ends."""

    def __init__(self, values: Sequence[float], start: float, end: float) -> None:
        self.low, self.high = min(values) / 1.6, max(values) * 1.6
        self._start, self._end = start, end
        if self.high / self.low < 10:
            middle = math.sqrt(self.low * self.high)
            self.low, self.high = middle / math.sqrt(10), middle * math.sqrt(10)

    def at(self, value: float) -> float:
        """Return the position of a value on the axis."""
        return self._start + (self._end - self._start) * math.log(value / self.low) / math.log(self.high / self.low)

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """The ticks, as (position, text)."""
        steps = (1, 2, 5) if self.high / self.low < 200 else (1,)
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        marks = (step * 10.0**power for power in powers for step in steps)
        return [(self.at(mark), f"{mark:g}") for mark in marks if self.low <= mark <= self.high]


def _roofs(
    slopes: Sequence[tuple[str, float]], tops: Sequence[tuple[str, float]], across: _Axis, up: _Axis, card: int
) -> list[Line]:
    """Return the lines of one card's roofs: rising ones up to the highest level roof, then the level ones."""
    most = min(up.high, max((top for _, top in tops), default=math.inf))
    roofline_rates = []
    for number, (name, slope) in enumerate(slopes):
        start, end = max(across.low, up.low / slope), min(across.high, most / slope)
        if start < end:
            low, high = up.at(slope * start), up.at(slope * end)
            roofline_rates.append(Line(across.at(start), low, across.at(end), high, name, number > 0, card))
    for name, top in tops:
        start = max(across.low, top / max((slope for _, slope in slopes), default=math.inf))
        if up.low <= top <= up.high and start < across.high:
            roofline_rates.append(
                Line(across.at(start), up.at(top), across.at(across.high), up.at(top), name, card=card)
            )
    return roofline_rates


def _labels(
    dots: Sequence[_Dot], lines: Sequence[Line], across: _Axis, up: _Axis, still: bool
) -> dict[int, tuple[float, bool]]:
    """Return (height, whether left of its dot) for each label, by the dot's index: near its dot, without overlap."""
    newest = max(dot.of.run for dot in dots)
    named = [at for at, dot in enumerate(dots) if still or dot.of.run == newest]
    named = named if still or len(named) <= MOST_LABELS else []
    # Areas that a label must not cover: points, names of roofs and labels that are already placed. Each area is (left
    # end, right end, height of the middle).
    occupied = [(across.at(dot.x) - 1.5, across.at(dot.x) + 1.5, up.at(dot.y)) for dot in dots]
    for roof in lines:
        wide = LETTER * len(roof.name)
        left = roof.name_x if roof.below else roof.name_x - wide
        occupied.append((left, left + wide, roof.name_y + (2.5 if roof.below else -2.5)))
    places: dict[int, tuple[float, bool]] = {}
    for at in sorted(named, key=lambda at: up.at(dots[at].y)):
        width = AWAY + LETTER * min(len(dots[at].of.name), MOST_LETTERS)
        height, to_left, first, last = _free(across.at(dots[at].x), up.at(dots[at].y), width, occupied)
        places[at] = (height, to_left)
        occupied.append((first, last, height))
    return places


def _free(
    x: float, y: float, width: float, occupied: Sequence[tuple[float, float, float]]
) -> tuple[float, bool, float, float]:
    """Return the nearest free position for a point's label, as (height, whether left, left edge, right edge)."""
    outward = x > 55
    for step in range(40):
        height = y + LABEL / 2 * ((step + 1) // 2) * (1 if step % 2 else -1)
        for left in (outward, not outward):
            first, last = (x - width, x - 1.6) if left else (x + 1.6, x + width)
            clear = all(
                abs(height - middle) >= LABEL * 0.8 or last < start or first > end for start, end, middle in occupied
            )
            if clear and first >= 0 and last <= 100 and TOP / 2 <= height <= BOTTOM:
                return height, left, first, last
    return y, outward, x - width, x + width


def _short(value: float) -> str:
    return units.digits(value, 3) if value >= 1 else f"{value:.3g}"
