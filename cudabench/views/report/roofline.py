"""Rooflines: what a kernel reaches against what the card allows at its intensity.

Where an operation computes, the classic one (Williams, Waterman and Patterson 2009): floating-point operations a second
over operations a byte. Where it only moves data, the instruction roofline (Ding and Williams 2019): warp instructions a
second over warp instructions a sector of 32 bytes. Bytes and sectors are those that the requests of the kernel touch,
where they were counted, else those that must move.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeGuard

from cudabench.explain.accesses import total
from cudabench.records.file import ResultsFile, under_another_roof
from cudabench.records.results import DeviceInfo, Result
from cudabench.results import units

SECTOR = 32  # bytes
SCHEDULERS = 4  # of a multiprocessor since Maxwell, a warp instruction a clock each
# float32 lanes of a multiprocessor, by compute capability: CUDA C++ Programming Guide, "Arithmetic Instructions".
FP32_LANES = {
    "7.0": 64, "7.2": 64, "7.5": 64, "8.0": 64, "8.6": 128, "8.7": 128, "8.9": 128, "9.0": 128, "10.0": 128,
    "10.3": 128, "11.0": 128, "12.0": 128, "12.1": 128,
}  # fmt: skip
LABEL = 5.5  # percent of the height that a label takes
LETTER = 1.9  # percent of a phone's width that a letter takes
AWAY = 2.5  # percent from a point to its label
LEFT, RIGHT, TOP, BOTTOM = 3.0, 97.0, 5.0, 93.0  # of the drawing, where the axes end
MOST_LABELS = 16
MOST_LETTERS = 22


@dataclass(frozen=True)
class Line:
    """A straight line of a chart, in percent of its width and height from its upper left corner."""

    x1: float
    y1: float
    x2: float
    y2: float
    name: str = ""
    below: bool = False  # its name stands below it

    @property
    def name_x(self) -> float:
        """Where its name is: at the end of a level line, along a rising one."""
        return self.x2 if self.y1 == self.y2 else self.x1 + (self.x2 - self.x1) * 0.55

    @property
    def name_y(self) -> float:
        """The height of the same."""
        return self.y1 + (self.y2 - self.y1) * 0.55


@dataclass(frozen=True)
class Point:
    """A kernel: where it is, where its label is, and what it says. bound: by a limit instead of a time."""

    x: float
    y: float
    label_y: float
    left: bool
    name: str
    labelled: bool
    said: str
    run: int
    bound: bool

    @property
    def far(self) -> bool:
        """Whether a line must lead to its label."""
        return abs(self.label_y - self.y) > LABEL


@dataclass(frozen=True)
class Tick:
    """A mark on an axis: where, and its number."""

    at: float
    text: str


@dataclass(frozen=True)
class Chart:
    """A roofline of one problem: axes, roofs, points, and the arrows from rung to rung."""

    title: str
    across: str
    up: str
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    roofs: tuple[Line, ...]
    points: tuple[Point, ...]
    arrows: tuple[Line, ...]


@dataclass(frozen=True)
class _Kind:
    across: str
    up: str
    unit: str
    x: Callable[[Result], float | None]
    work: Callable[[Result], float | None]
    slope: Callable[[float], float]  # from GB/s
    ceilings: Callable[[DeviceInfo, Sequence[Result]], list[tuple[str, float]]]
    priced: str  # what `explain.limits.roofs` calls the same


@dataclass(frozen=True)
class _Dot:
    result: Result
    run: int
    x: float
    y: float
    bound: bool


def charts(files: Sequence[ResultsFile], labels: Sequence[str]) -> tuple[Chart, ...]:
    """Return a chart a problem that has points: kernels with a time, or with limits that bound one."""
    problems: dict[tuple[str, str, str], list[tuple[int, Result, DeviceInfo | None]]] = {}
    for run, file in enumerate(files):
        for result in file.results:
            if result.status == "ok" and not under_another_roof(file, result):
                key = (result.operation, units.size(result), result.dtype)
                problems.setdefault(key, []).append((run, result, file.device_of(result)))
    found = []
    priced = next((on for file in files if isinstance(on := file.settings.get("on"), dict)), {})
    for key, members in problems.items():
        title = " ".join(part for part in key if part)
        kind = _kind([result for _, result, _ in members])
        dots = [dot for run, result, _ in members if (dot := _dot(kind, run, result)) is not None]
        if dots:
            device = next((d for _, _, d in members if d is not None and d.kind == "cuda"), None)
            found.append(_chart(title, kind, dots, device, labels, priced))
    return tuple(found)


def missing(results: Sequence[Result]) -> str:
    """Return why there is no roofline, as a sentence."""
    if not any(result.status == "ok" for result in results):
        return "No kernel is right, so there is nothing to place under a roof."
    if any(result.time for result in results):
        return "A kernel that computes nothing needs its instructions counted to be placed under a roof: add --limits."
    return "The simulator measures no time, and the file has no limits to place the kernels by."


def _kind(results: Sequence[Result]) -> _Kind:
    counted = all(moved(result) is not None for result in results)
    if any(result.flops for result in results):
        whose = "byte that requests touch" if counted else "byte that must move"

        def intensity(result: Result) -> float | None:
            nbytes = moved(result) if counted else result.bytes
            return result.flops / nbytes if result.flops and nbytes else None

        return _Kind(
            f"FLOP per {whose}",
            "GFLOP/s",
            "GFLOP/s",
            intensity,
            lambda r: r.flops,
            lambda gbps: gbps,
            _fp32,
            "float32_gflops",
        )

    def per_sector(result: Result) -> float | None:
        nbytes, count = moved(result), instructions(result)
        return count / (nbytes / SECTOR) if nbytes and count else None

    return _Kind(
        "warp instructions per sector of 32 bytes",
        "10⁹ warp instructions/s",
        "G instructions/s",
        per_sector,
        instructions,
        lambda gbps: gbps / SECTOR,
        _issue,
        "issue_ginstructions",
    )


def moved(result: Result) -> int | None:
    """Return the bytes of all sectors that a kernel's requests touch, None where nobody counted."""
    if result.access is None:
        return None
    return SECTOR * (total(result.access, "global").actual + total(result.access, "local").actual) or None


def instructions(result: Result) -> int | None:
    """Return the warp instructions that a kernel executes: of the code that was measured, else of that which the
    simulator counted in its place; None where nobody counted."""
    code = result.machine_code
    if code and code.instructions_executed:
        return code.instructions_executed
    return result.counted.instructions_executed if result.counted else None


def _fp32(device: DeviceInfo, results: Sequence[Result]) -> list[tuple[str, float]]:
    lanes, clock = FP32_LANES.get(device.compute_capability), device.clocks.get("sm_mhz")
    if lanes is None or not clock or not device.sm_count or any(r.dtype != "float32" for r in results):
        return []
    return [(f"float32 at {clock} MHz", 2 * lanes * device.sm_count * clock / 1e3)]


def _issue(device: DeviceInfo, results: Sequence[Result]) -> list[tuple[str, float]]:
    clock = device.clocks.get("sm_mhz")
    if not clock or not device.sm_count:
        return []
    return [(f"issue at {clock} MHz", SCHEDULERS * device.sm_count * clock / 1e3)]


def _dot(kind: _Kind, run: int, result: Result) -> _Dot | None:
    x, work = kind.x(result), kind.work(result)
    time = result.true_time
    seconds = time.median_s if time else result.limits[0].time_s if result.limits else None
    if not x or not work or not seconds:
        return None
    return _Dot(result, run, x, work / seconds / 1e9, time is None)


def _chart(
    title: str,
    kind: _Kind,
    dots: Sequence[_Dot],
    device: DeviceInfo | None,
    labels: Sequence[str],
    priced: Mapping[str, Any],
) -> Chart:
    """Return the chart; priced: the roofs of the card that the simulator's counts were priced with."""
    results = [dot.result for dot in dots]
    slopes: list[tuple[str, float]] = []
    ceilings: list[tuple[str, float]] = []
    if device is not None:
        if device.peak_gbps:
            slopes.append((f"peak {units.digits(device.peak_gbps)} GB/s", kind.slope(device.peak_gbps)))
        copies = [result.copy_gbps for result in results if result.copy_gbps]
        if copies:
            copy = statistics.median(copies)
            slopes.append((f"copy {units.digits(copy)} GB/s", kind.slope(copy)))
        ceilings = kind.ceilings(device, results)
    else:
        memory, top = priced.get("memory_gbps"), priced.get(kind.priced)
        if _positive(memory):
            slopes.append((f"memory {units.digits(memory)} GB/s", kind.slope(memory)))
        if _positive(top) and (kind.priced != "float32_gflops" or all(r.dtype == "float32" for r in results)):
            ceilings = [("float32" if kind.priced == "float32_gflops" else "issue", top)]
    xs = [dot.x for dot in dots]
    if slopes and ceilings:
        ridge = ceilings[0][1] / slopes[0][1]
        if ridge < 300 * max(xs):
            xs.append(ridge * 2)
    ys = [dot.y for dot in dots] + [value for _, value in ceilings if value < 1e4 * max(dot.y for dot in dots)]
    ys += [slope * min(dot.x for dot in dots) for _, slope in slopes]
    x_low, x_high = _range(xs)
    y_low, y_high = _range(ys)

    def across(value: float) -> float:
        return LEFT + (RIGHT - LEFT) * math.log(value / x_low) / math.log(x_high / x_low)

    def up(value: float) -> float:
        return BOTTOM - (BOTTOM - TOP) * math.log(value / y_low) / math.log(y_high / y_low)

    roof = max((value for _, value in ceilings), default=math.inf)
    roofs = []
    for number, (name, slope) in enumerate(slopes):
        start = max(x_low, y_low / slope)
        end = min(x_high, min(y_high, roof) / slope)
        if start < end:
            roofs.append(_line(across, up, (start, slope * start), (end, slope * end), name, below=number > 0))
    for name, value in ceilings:
        start = max(x_low, value / max((slope for _, slope in slopes), default=math.inf))
        if y_low <= value <= y_high and start < x_high:
            roofs.append(_line(across, up, (start, value), (x_high, value), name))
    points = _placed(kind, dots, across, up, labels, roofs)
    newest = max(dot.run for dot in dots)
    arrows = [
        Line(a.x, a.y, b.x, b.y)
        for a, b in pairwise(points)
        if a.run == b.run == newest and math.hypot(a.x - b.x, a.y - b.y) > 2
    ]
    return Chart(
        title, kind.across, kind.up, _ticks(x_low, x_high, across), _ticks(y_low, y_high, up), tuple(roofs),
        tuple(points), tuple(arrows),
    )  # fmt: skip


def _positive(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and math.isfinite(value) and value > 0


def _line(
    across: Callable[[float], float],
    up: Callable[[float], float],
    start: tuple[float, float],
    end: tuple[float, float],
    name: str,
    *,
    below: bool = False,
) -> Line:
    return Line(across(start[0]), up(start[1]), across(end[0]), up(end[1]), name, below)


def _range(values: Sequence[float]) -> tuple[float, float]:
    """Return the ends of a logarithmic axis: a factor of 10 at least, with room at either end."""
    low, high = min(values), max(values)
    low, high = low / 1.6, high * 1.6
    if high / low < 10:
        middle = math.sqrt(low * high)
        low, high = middle / math.sqrt(10), middle * math.sqrt(10)
    return low, high


def _ticks(low: float, high: float, place: Callable[[float], float]) -> tuple[Tick, ...]:
    steps = (1, 2, 5) if high / low < 200 else (1,)
    values = [
        step * 10.0**power
        for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        for step in steps
    ]
    return tuple(Tick(place(value), f"{value:g}") for value in values if low <= value <= high)


def _placed(
    kind: _Kind,
    dots: Sequence[_Dot],
    across: Callable[[float], float],
    up: Callable[[float], float],
    labels: Sequence[str],
    roofs: Sequence[Line],
) -> list[Point]:
    """Return the points with labels that do not lie on each other: each as near to its point as there is room."""
    newest = max(dot.run for dot in dots)
    named = [at for at, dot in enumerate(dots) if dot.run == newest]
    named = named if len(named) <= MOST_LABELS else []
    # What a label must not lie on, as (left, right, middle): points, the names of roofs, then the labels before it.
    taken = [(across(dot.x) - 1.5, across(dot.x) + 1.5, up(dot.y)) for dot in dots]
    for roof in roofs:
        wide = LETTER * len(roof.name)
        left = roof.name_x if roof.below else roof.name_x - wide
        taken.append((left, left + wide, roof.name_y + (2.5 if roof.below else -2.5)))
    places: dict[int, tuple[float, bool]] = {}
    for at in sorted(named, key=lambda at: up(dots[at].y)):
        x, y = across(dots[at].x), up(dots[at].y)
        width = AWAY + LETTER * min(len(dots[at].result.kernel), MOST_LETTERS)
        height, left, first, last = _free(x, y, width, taken)
        places[at] = (height, left)
        taken.append((first, last, height))
    points = []
    for at, dot in enumerate(dots):
        which = f" ({labels[dot.run]})" if len(labels) > 1 else ""
        at_most = "at most " if dot.bound else ""
        points.append(
            Point(
                x=across(dot.x),
                y=up(dot.y),
                label_y=places[at][0] if at in places else up(dot.y),
                left=at in places and places[at][1],
                name=dot.result.kernel,
                labelled=at in places,
                said=f"{dot.result.kernel}{which}: {at_most}{_short(dot.y)} {kind.unit} at "
                f"{_short(dot.x)} {kind.across}",
                run=dot.run,
                bound=dot.bound,
            )
        )
    return points


def _free(
    x: float, y: float, width: float, taken: Sequence[tuple[float, float, float]]
) -> tuple[float, bool, float, float]:
    """Return the nearest free place of a point's label, as (height, to the left, left edge, right edge)."""
    outward = x > 55
    for step in range(40):
        height = y + LABEL / 2 * ((step + 1) // 2) * (1 if step % 2 else -1)
        for left in (outward, not outward):
            first, last = (x - width, x - 1.6) if left else (x + 1.6, x + width)
            clear = all(
                abs(height - middle) >= LABEL * 0.8 or last < start or first > end for start, end, middle in taken
            )
            if clear and first >= 0 and last <= 100 and TOP / 2 <= height <= BOTTOM:
                return height, left, first, last
    return y, outward, x - width, x + width


def _short(value: float) -> str:
    return units.digits(value, 3) if value >= 1 else f"{value:.3g}"
