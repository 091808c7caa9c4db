"""The bars of a page: a ladder for each problem and quantity, and the limits of each kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from cudabench.records.file import ResultsFile
from cudabench.records.results import Result
from cudabench.results import compare, units
from cudabench.views.quantities import BANDWIDTH, Quantity, copy_of
from cudabench.views.report.entries import Entry, best_of, quantities_of, ratio_to_ideal


def ladders(
    title: str,
    entries: Sequence[Entry],
    files: Sequence[ResultsFile],
    anchors: Mapping[int, str],
    comparison: compare.Comparison | None,
) -> list[SimpleNamespace]:
    """Return the ladders of one problem, one for each quantity.

    `marks`: vertical lines, such as the copy; `headings`: the names of the figures beside the bars; `rungs`: the
    kernels, each with a bar for each run. Positions and lengths are in percent of the width.
    """
    results = [result for entry in entries for _, result in entry.results.values()]
    verdicts = {id(row.new): row for row in comparison.rows if row.new} if comparison else {}
    best = best_of(entries)
    drawn: list[SimpleNamespace] = []
    shown: list[Quantity | None] = [*quantities_of(results)]
    for quantity in shown or [None]:
        lines = _lines(results, files) if quantity is BANDWIDTH else []
        values = [value for r in results if quantity and (value := quantity.value(r)) is not None]
        scale = 100 / (max([*values, *(value for _, value, _ in lines)], default=0.0) or 1.0)
        figures = columns(results, quantity)
        rungs = []
        for entry in entries:
            bars = [*_bars(entry, quantity, scale)]
            if drawn and not bars:
                continue  # kernels without a value are shown only in the ladder of the first quantity
            row = None if drawn else verdicts.get(id(entry.last))
            cells = [text(entry.last) for _, text in figures]
            if figures and len(files) == 2:  # when two runs are compared, the first figure is shown as `old → new`
                both = (figures[0][1](result) for _, result in entry.runs)
                cells[0] = " → ".join(filter(None, dict.fromkeys(both)))
            rungs.append(
                SimpleNamespace(
                    name=entry.name,
                    link=anchors.get(id(entry)),
                    status=entry.status,
                    reason=entry.last.reason,
                    bars=bars,
                    cells=cells,
                    change=change_of(row) if row else "",
                    verdict=row.verdict if row else "",
                    best=entry is best and len(entries) > 1 and entry.last.time is not None,
                )
            )
        drawn.append(
            SimpleNamespace(
                title=title,
                quantity=quantity.name if quantity else "nothing to draw",
                better=f"{'more' if quantity.more else 'less'} is better" if quantity else "",
                marks=[
                    SimpleNamespace(at=value * scale, name=name, text=units.digits(value), kind=kind)
                    for name, value, kind in lines
                ],
                headings=tuple(heading for heading, _ in figures),
                rungs=rungs,
                changes=any(rung.change for rung in rungs),
                ideal=any(bar.ideal is not None for rung in rungs for bar in rung.bars),
            )
        )
    return drawn


def _lines(results: Sequence[Result], files: Sequence[ResultsFile]) -> list[tuple[str, float, str]]:
    """Return (name, GB/s, kind) for the copy and for the peak of each card that measured times."""
    copy = copy_of(results)
    devices = [file.device_of(result) for file in files for result in file.results if result.time]
    peaks = {device.peak_gbps: device.name for device in devices if device and device.peak_gbps}
    named = {f"peak of {name}" if len(peaks) > 1 else "peak": float(at or 0) for at, name in peaks.items()}
    return [*([("copy", copy, "copy")] if copy else []), *((name, at, "peak") for name, at in named.items())]


def _bars(entry: Entry, quantity: Quantity | None, scale: float) -> Iterator[SimpleNamespace]:
    """Yield a bar for each run: its length and the position of its ideal value, in percent, and the run's number."""
    for run, result in entry.runs:
        value = quantity.value(result) if quantity and result.status == "ok" else None
        if quantity and value is not None:
            ideal = quantity.ideal(result)
            yield SimpleNamespace(width=value * scale, ideal=None if ideal is None else ideal * scale, run=run)


def columns(results: Sequence[Result], quantity: Quantity | None) -> list[tuple[str, Any]]:
    """Return the figures beside the bars, as (heading, function that returns the text of a result).

    Figures that no result has are left out.
    """

    def optional(value: Any, text: Callable[[Any], str]) -> str:
        return "" if value is None else text(value)

    def times(value: float) -> str:
        return f"{units.digits(value, 3)}x"

    figures: list[tuple[str, Callable[[Result], str]]] = [
        *(
            (
                (quantity.unit, lambda r: optional(quantity.value(r) if r.status == "ok" else None, quantity.text)),
                ("over the least", lambda r: optional(ratio_to_ideal(quantity, r), times)),
            )
            if quantity
            else ()
        ),
        ("of copy", lambda r: optional(r.copy_fraction, units.percent)),
        ("of peak", lambda r: optional(r.peak_fraction, units.percent)),
        ("time", lambda r: units.seconds(r.time.median_s) if r.time else ""),
        ("±", lambda r: f"{r.time.relative_ci * 100:.1f}%" if r.time else ""),
        ("over CPU", lambda r: optional(r.speedup_vs_cpu, times)),
    ]
    return [(heading, text) for heading, text in figures if any(text(result) for result in results)]


def change_of(row: compare.Row) -> str:
    """Return how a kernel's time changed, such as '+6.0%', or the first two counts that changed."""
    if row.ratio is not None:
        return f"{row.ratio.change:+.1%}"
    moved = [c for c in row.counts if c.base != c.new]
    return "; ".join(f"{c.name} {units.count(c.base)} → {units.count(c.new)}" for c in moved[:2])


def limits(order: Sequence[Entry], labels: Sequence[str]) -> list[SimpleNamespace]:
    """Return the results that have lower bounds on their time. `scale`: the percentage of the width for one second."""
    rows = [(entry.name, run, result) for entry in order for run, result in entry.runs if result.limits]
    times = [result.limits[0].time_s for _, _, result in rows if result.limits]
    times += [result.true_time.median_s for _, _, result in rows if result.true_time]
    most = max(times, default=0.0)
    return [
        SimpleNamespace(
            kernel=name, run=labels[run] if len(labels) > 1 else "", at=run, result=result, scale=100 / most
        )
        for name, run, result in rows
        if most > 0
    ]
