"""A sweep in the terminal: block X across, block Y down, the shade says how good; bars for blocks of one dimension."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from cudabench.explain import verdict
from cudabench.explain.accesses import SECTOR_CYCLES, WAVEFRONT_CYCLES
from cudabench.measure import sweep
from cudabench.plan.space import Axis, Refusal
from cudabench.records.launch import Dim, dim_text
from cudabench.records.planned import Operation, Settings
from cudabench.records.results import DeviceInfo, Result
from cudabench.results import columns, compare, stats, units
from cudabench.views.headlines import at_least, held_by, waste
from cudabench.views.table import device_line, priced_on, problem_line

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

NOTHING = "."
BAD = {"wrong": "WRONG", "failed": "failed", "skipped": "skipped"}
SHADES = (236, 238, 240, 243, 246, 249, 252, 255)  # of the 256 colours: grey, dark is slow
BAR = 30
ORDER = (
    f"Ordered by the busiest unit, with {SECTOR_CYCLES:g} cycles a sector, {WAVEFRONT_CYCLES:g} a "
    f"wavefront, {sweep.INSTRUCTION_CYCLES:g} an instruction; latency and occupancy are not in it."
)
PRICED = (
    "Ordered by the bound on the card, which is no time, then by sectors and wavefronts over the ideal; of two bounds "
    "within 10% it does not say which kernel is faster."
)
ARITHMETIC = 10  # operations a byte, under which memory bounds a kernel on every current card


@dataclass(frozen=True)
class Metric:
    """What a map shows: its name, a result's value, its text, and whether more is better."""

    name: str
    value: Callable[[Result], float | None]
    text: Callable[[float], str]
    more: bool


@dataclass(frozen=True)
class Swept:
    """A sweep as it is reported: what ran, what was refused, what the second pass found."""

    operation: Operation
    device: DeviceInfo
    settings: Settings
    results: tuple[Result, ...]
    refused: tuple[Refusal, ...]
    finals: Sequence[sweep.Final]
    complete: bool = True  # an interrupted sweep has no best
    repeat: Callable[[Result], str] | None = None  # the command that repeats a result
    axes: tuple[Axis, ...] = ()
    planned: int | None = None  # points; None where they are searched
    file: str | None = None  # where the results are kept
    announced: bool = False  # whether the device is said already

    @property
    def priced(self) -> bool:
        """Whether points are ordered by their bound on a card."""
        return self.device.kind == "sim" and bool(priced_on(self.results))

    @property
    def best(self) -> list[Dim]:
        """The best block; several of the simulator's where their counts are equal, none of an interrupted sweep."""
        if not self.complete:
            return []
        if self.finals:
            return [self.finals[0].result.block] if self.finals[0].result.status == "ok" else []
        return [result.block for result in sweep.best(self.results)]


def report(out: Console, swept: Swept) -> None:
    """Print where it ran, the map, the best blocks, and which blocks could not be taken."""
    from rich.text import Text

    if not swept.results:
        return
    first = swept.results[0]
    if not swept.announced:
        out.print(Text(device_line(swept.device, priced_on(swept.results)), style="bold"))
    out.print(
        f"{first.kernel}, {problem_line(swept.operation, swept.results, swept.settings, swept.device)}", soft_wrap=True
    )
    show(out, swept.results, [refusal.block for refusal in swept.refused], swept.best)
    out.print()
    for line in best_lines(swept):
        out.print(Text(line), soft_wrap=True)
    if swept.device.kind == "sim":
        out.print(Text(PRICED if swept.priced else ORDER, style="dim"))
    for line in trouble_lines(swept):
        out.print(Text(line, style="dim"))


def best_lines(swept: Swept) -> list[str]:
    """Return the best block with its figures and spread, what cannot be told from it, and where the default stands."""
    if not swept.complete:
        return [interrupted(swept)]
    chosen = [result for result in swept.results if result.block in swept.best]
    if not chosen:
        return ["No block gave a right result."]
    default = next((k.block for k in swept.operation.kernels if k.name == chosen[0].kernel), ())
    chosen.sort(key=lambda result: result.block[: len(default)] != default)
    best = chosen[0]
    lines = [f"Best: {dim_text(best.block)}, {figures(best)}"]
    if best.time and swept.finals:
        lines[0] += f"; {sweep.ROUNDS} rounds, whose medians differ by {swept.finals[0].moved:.2%}"
        tied = [dim_text(final.result.block) for final in sweep.ties(swept.finals)]
        if tied:
            lines.append(f"As fast, within the spread: {', '.join(tied)}")
    elif len(chosen) > 1:
        same = "The same bound, and no more waste" if swept.priced else "The same counts"
        lines.append(f"{same}: {', '.join(dim_text(result.block) for result in chosen[1:])}")
    measured = next((r for r in swept.results if default and r.block[: len(default)] == default), None)
    if measured and measured.block == best.block:
        lines[0] = lines[0].replace("Best: ", "Best, and the default: ", 1)
    elif measured and measured.status == "ok":
        line = f"The default block {dim_text(measured.block)}: {figures(measured)}"
        if measured.time and best.time:
            line += f", {measured.time.median_s / best.time.median_s - 1:.1%} slower"
        lines.append(line)
    if swept.repeat:
        lines.append(f"Repeat: {swept.repeat(best)}")
    return lines


def interrupted(swept: Swept) -> str:
    """Return what is said of a sweep that did not come to its end."""
    measured = f"{len(swept.results)} of {swept.planned} points" if swept.planned else f"{len(swept.results)} points"
    more = f"; --resume {swept.file} goes on" if swept.file and swept.file != "-" else ""
    return f"Interrupted after {measured}: no best is announced{more}."


def figures(result: Result) -> str:
    """Return what a block reached: time with its spread and bandwidth, or counts."""
    if result.time is None:
        counted = [f"{units.count(value)} {name}" for name, value in compare.counts(result).items() if value]
        if result.limits:
            wasted = f", {waste(result)}" if waste(result) != columns.NOTHING else ""
            return f"at least {at_least(result)}, held by {held_by(result)}{wasted}"
        return ", ".join(counted + ([f"occupancy {result.occupancy.fraction:.0%}"] if result.occupancy else []))
    parts = [f"{units.seconds(result.time.median_s)} {units.spread(stats.dispersion(result.time) / 2)}"]
    if result.gflops is not None and is_arithmetic(result):
        return f"{parts[0]}, {units.digits(result.gflops)} GFLOP/s"
    if result.bandwidth_gbps is not None:
        parts.append(f"{units.digits(result.bandwidth_gbps)} GB/s")
    if result.copy_fraction is not None:
        parts.append(f"{units.percent(result.copy_fraction)} of copy")
    return ", ".join(parts)


def trouble_lines(swept: Swept) -> list[str]:
    """Return which blocks were refused, and which ran and were not right, by reason."""
    reasons: dict[str, list[str]] = {}
    for refusal in swept.refused:
        reason = refusal.reason.partition(": ")[2] or refusal.reason
        reasons.setdefault(f"Refused: {{}}: {reason}", []).append(dim_text(refusal.block))
    for result in swept.results:
        if result.status != "ok":
            reasons.setdefault(f"{result.status.capitalize()}: {{}}: {result.reason}", []).append(
                dim_text(result.block)
            )
    return [line.replace("{}", ", ".join(blocks), 1) for line, blocks in reasons.items()]


def metrics_of(results: Sequence[Result]) -> list[Metric]:
    """Return what tells the blocks apart: bandwidth, operations or time; in the simulator every count that varies."""
    right = [r for r in results if r.status == "ok"]
    if any(r.time for r in right):
        if all(r.gflops is not None and is_arithmetic(r) for r in right):
            return [Metric("GFLOP/s", lambda r: r.gflops, units.digits, more=True)]
        if all(r.bandwidth_gbps is not None for r in right):
            return [Metric("GB/s", lambda r: r.bandwidth_gbps, units.digits, more=True)]
        scale, unit = scale_of([r.time.median_s for r in right if r.time])
        return [
            Metric(unit, lambda r: r.time.median_s if r.time else None, lambda v: units.digits(v / scale), more=False)
        ]
    bounds = [bound for r in right if (bound := verdict.bound(r)) < inf]
    priced: list[Metric] = []
    if len(set(bounds)) > 1:
        scale, unit = scale_of(bounds)
        priced = [Metric(f"at least, {unit}", _bound, lambda v: units.digits(v / scale, 3), more=False)]
    names = ("global sectors", "local sectors", "shared wavefronts", "instructions")
    varying = [name for name in names if len({compare.counts(r).get(name) for r in right}) > 1]
    counted = varying or ([] if priced else ["instructions"])
    return priced + [Metric(name, partial(_counted, name), short_count, more=False) for name in counted]


def is_arithmetic(result: Result) -> bool:
    """Tell whether a result is better said in operations than in bytes: ten of them or more a byte."""
    return result.flops is not None and (not result.bytes or result.flops >= ARITHMETIC * result.bytes)


def _bound(result: Result) -> float | None:
    return verdict.bound(result) if result.limits else None


def _counted(name: str, result: Result) -> float | None:
    return compare.counts(result).get(name)


def scale_of(values: Sequence[float]) -> tuple[float, str]:
    """Return one unit of time for all values."""
    return next(((f, u) for f, u in units.TIME_UNITS if min(values) >= f), units.TIME_UNITS[-1])


def short_count(value: float) -> str:
    """Return a count in at most five characters: 960, 65.5k, 1.05M."""
    for factor, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{units.digits(value / factor, 3)}{unit}"
    return f"{value:g}"


def show(out: Console, results: Sequence[Result], refused: Sequence[Dim], best: Sequence[Dim]) -> None:
    """Print the maps of a sweep, one a metric; a star marks the best blocks."""
    from rich.text import Text

    two = any(block[1] > 1 for block in [*(r.block for r in results), *refused])
    axes = "block X across, Y down; " if two else ""
    for metric in metrics_of(results):
        better = "more" if metric.more else "less"
        out.print()
        out.print(Text(f"{metric.name}, {better} is better ({axes}* the best)", style="bold"))
        (_map if two else _bars)(out, metric, results, refused, best)
    if two and refused:
        out.print("x: the kernel cannot take this block", style="dim")


def _map(out: Console, metric: Metric, results: Sequence[Result], refused: Sequence[Dim], best: Sequence[Dim]) -> None:
    from rich.table import Table

    at = {(r.block[0], r.block[1]): r for r in results}
    no = {(block[0], block[1]) for block in refused}
    xs = sorted({x for x, _ in [*at, *no]})
    ys = sorted({y for _, y in [*at, *no]})
    starred = {(block[0], block[1]) for block in best}
    shade = shader(metric, results)
    table = Table(box=None, padding=(0, 0), pad_edge=False, header_style="bold")
    table.add_column("", justify="right", style="bold")
    for x in xs:
        table.add_column(f"{x} ", justify="right", no_wrap=True, min_width=8)
    for y in ys:
        cells = [_cell(metric, at.get((x, y)), (x, y) in no, (x, y) in starred, shade) for x in xs]
        table.add_row(str(y), *cells)
    out.print(table)


def _cell(metric: Metric, result: Result | None, refused: bool, starred: bool, shade: Callable[[float], str]) -> Text:
    from rich.text import Text

    if result is None:
        return Text(("x" if refused else NOTHING) + " ", style="dim")
    value = metric.value(result) if result.status == "ok" else None
    if value is None:
        return Text(BAD.get(result.status, NOTHING) + " ", style="red")
    mark = "*" if starred else " "
    return Text(f" {metric.text(value):>6}{mark}", style=shade(value))


def shader(metric: Metric, results: Sequence[Result]) -> Callable[[float], str]:
    """Return what gives a value its shade, from the worst, dark, to the best, light."""
    values = [v for r in results if r.status == "ok" and (v := metric.value(r)) is not None]
    low, high = min(values, default=0.0), max(values, default=1.0)

    def shade(value: float) -> str:
        good = (value - low) / (high - low) if high > low else 1.0
        good = good if metric.more else 1 - good
        grey = SHADES[min(int(good * len(SHADES)), len(SHADES) - 1)]
        return f"color({'16' if grey > 242 else '255'}) on color({grey})"

    return shade


def _bars(out: Console, metric: Metric, results: Sequence[Result], refused: Sequence[Dim], best: Sequence[Dim]) -> None:
    from rich.table import Table

    values = {r.block: metric.value(r) for r in results if r.status == "ok"}
    most = max((value for value in values.values() if value is not None), default=1.0) or 1.0
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    table.add_column("block", justify="right", no_wrap=True)
    table.add_column(metric.name, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for result in sorted(results, key=lambda r: r.block):
        value = values.get(result.block)
        mark = "*" if result.block in best else " "
        text = BAD.get(result.status, NOTHING) if value is None else metric.text(value)
        bar = "" if value is None else "█" * max(1, round(BAR * value / most))
        table.add_row(dim_text(result.block), f"{text}{mark}", bar)
    for block in sorted(refused):
        table.add_row(dim_text(block), "x ", "")
    out.print(table)
