"""Results as pictures: a ladder against copy and peak, time over size, the map of a sweep.

A card has its colour, a kernel its marker and dashes. Hatches and the names in the legend say the same as the colours,
which differ in lightness, so that a page printed in black or a reader who sees no colours loses nothing. matplotlib is
imported when something is drawn, and never its window toolkit.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from statistics import median
from typing import TYPE_CHECKING, Any

from cudabench.cards.load import like
from cudabench.errors import CudabenchError, UsageError
from cudabench.explain.accesses import Cost, total, unit
from cudabench.explain.limits import roofs
from cudabench.records.file import ResultsFile, under_another_roof
from cudabench.records.launch import dim_text
from cudabench.records.results import Result
from cudabench.results import ceilings, units
from cudabench.text import line
from cudabench.views import ceilings_plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH_IN = 7.2
DPI = 150
COLOURS = ("#0b4f8a", "#e8943a", "#1f8a70", "#c9c3e6")  # of cards or files, apart for every kind of colour vision
HATCHES = ("", "///", "...", "xxx")
MARKERS = "osD^vP*X<>"
DASHES: tuple[Any, ...] = ("-", (0, (4, 1.5)), (0, (1, 1)), (0, (5, 1, 1, 1)))


@dataclass(frozen=True)
class Quantity:
    """What is drawn: its name with the unit, a result's value, how a value is written, what would do (or None)."""

    name: str
    value: Callable[[Result], float | None]
    text: Callable[[float], str]
    ideal: Callable[[Result], float | None] = lambda result: None
    more: bool = True


def bandwidth() -> Quantity:
    """Return the effective bandwidth."""
    return Quantity("bandwidth in GB/s", lambda r: r.bandwidth_gbps, units.digits)


def time_taken() -> Quantity:
    """Return the median time."""
    return Quantity("time in µs", lambda r: r.time.median_s * 1e6 if r.time else None, units.digits, more=False)


def count_of(space: str) -> Quantity:
    """Return what the simulator counted of accesses to a space, with what would do."""

    def spent(result: Result) -> Cost | None:
        found = total(result.access or (), space)
        return found if found.requests else None

    return Quantity(
        f"{space} {unit(space)}",
        lambda r: float(cost.actual) if (cost := spent(r)) else None,
        lambda value: units.count(round(value)),
        lambda r: float(cost.ideal) if (cost := spent(r)) else None,
        more=False,
    )


def quantities(results: Sequence[Result]) -> list[Quantity]:
    """Return what a set of results has to show. Raises CudabenchError where there is nothing."""
    right = [r for r in results if r.status == "ok"]
    if any(r.time for r in right):
        if all(r.gflops is not None and (r.bytes is None or (r.flops or 0) >= 10 * r.bytes) for r in right):
            return [Quantity("GFLOP/s", lambda r: r.gflops, units.digits)]
        if any(r.bandwidth_gbps is not None for r in right):
            return [bandwidth()]
        return [time_taken()]
    counted = [count_of("global"), count_of("shared")]
    found = [q for q in counted if any(q.value(r) is not None for r in right)]
    if not found:
        raise CudabenchError("There is nothing to draw: no right result has a time or a count.")
    return found


# What to draw --------------------------------------------------------------------------------------------------------


def kind_of(files: Sequence[ResultsFile]) -> str:
    """Return what files show by themselves: a sweep of blocks, a curve over sizes, or a ladder."""
    results = [result for file in files for result in file.results]
    kernels = {result.kernel for result in results}
    blocks = {result.block for result in results if result.status == "ok"}
    sizes = {tuple(result.size.items()) for result in results}
    one = len({units.variant(result) for result in results}) == 1
    if one and len(kernels) == 1 and len(blocks) > 2 and len(sizes) == 1 and len(files) == 1:
        return "sweep"
    return "size" if len(sizes) > 1 else "ladder"


def draw(files: Sequence[ResultsFile], names: Sequence[str], kind: str | None = None) -> Figure:
    """Return a figure of the files; `kind` is one of the command's, or None for what they show by themselves.

    Raises CudabenchError where matplotlib is not installed or there is nothing to draw, and UsageError where the files
    do not fit the kind.
    """
    try:
        from matplotlib.figure import Figure as NewFigure
    except ImportError:
        raise CudabenchError("Plots need matplotlib, which is not here: pip install 'cudabench[plot]'.") from None
    files, names = [_shown_file(file) for file in files], [_shown(name) for name in names]
    if ceilings.all_ceilings(files, names):
        if kind:
            raise UsageError(f"--kind {kind} is of kernels, and the files hold ceilings: leave it out.")
        figure = NewFigure(figsize=(WIDTH_IN, 3), dpi=DPI, layout="constrained")
        ceilings_plot.draw(figure, files, labels_of(names, files))
        return figure
    results = [result for file in files for result in file.results]
    if not results:
        raise CudabenchError("There is nothing to draw: the files hold no results.")
    operations = sorted({result.operation for result in results})
    if len(operations) > 1:
        raise UsageError(f"A plot is of one operation; the files hold {', '.join(operations)}: plot them one by one.")
    figure = NewFigure(figsize=(WIDTH_IN, 3), dpi=DPI, layout="constrained")
    names = [label for file, name in zip(files, names, strict=True) for label in _names_by_device(file, name)]
    files = [part for file in files for part in file.by_device()]
    drawn = {"ladder": _ladder, "size": _sizes, "sweep": _sweep, "roofline": _roofline}
    drawn[kind or kind_of(files)](figure, files, names)
    return figure


def _shown(name: str) -> str:
    """Return text as matplotlib shows it as it is: between dollars it would set a formula."""
    return line(name).replace("$", r"\$")


def _shown_file(file: ResultsFile) -> ResultsFile:
    """Return a file with the names that figures show made harmless."""
    results = [
        replace(
            result,
            operation=_shown(result.operation),
            kernel=_shown(result.kernel),
            dtype=_shown(result.dtype),
            size={_shown(name): value for name, value in result.size.items()},
            parameters={_shown(name): _shown(value) for name, value in result.parameters.items()},
        )
        for result in file.results
    ]
    return replace(file, devices=[replace(each, name=_shown(each.name)) for each in file.devices], results=results)


def render(figure: Figure, suffix: str) -> bytes:
    """Return a figure as svg, png or pdf; the same figure gives the same bytes."""
    import matplotlib

    stream = io.BytesIO()
    metadata: dict[str, Any] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(suffix, {})
    with matplotlib.rc_context({"svg.hashsalt": "cudabench"}):
        figure.savefig(stream, format=suffix, metadata=metadata)
    return stream.getvalue()


def heading(files: Sequence[ResultsFile]) -> str:
    """Return what all files have in common: the problem and the device."""
    results = [result for file in files for result in file.results]
    first = results[0]
    sizes = {tuple(result.size.values()) for result in results}
    dtypes = {result.dtype for result in results}
    devices = list(dict.fromkeys(file.device.name for file in files if file.device))
    parts = [
        line(PurePath(first.source).name).replace("$", r"\$") if first.operation == "run" else first.operation,
        units.size(first) if len(sizes) == 1 else "",
        first.dtype if len(dtypes) == 1 else "",
    ]
    caches = {result.time.cache for result in results if result.time}
    state = f", {caches.pop()} L2" if len(caches) == 1 else ""
    return " ".join(part for part in parts if part) + (f" on {', '.join(devices)}" if devices else "") + state


def labels_of(names: Sequence[str], files: Sequence[ResultsFile]) -> list[str]:
    """Return how to tell files apart: by device where each has its own, else by name."""
    devices = [file.device.name if file.device else "" for file in files]
    if len(set(devices)) == len(files) > 1:
        return devices
    return [name.rpartition("/")[2].removesuffix(".json") for name in names]


def _names_by_device(file: ResultsFile, name: str) -> list[str]:
    if len(file.devices) < 2:
        return [name]
    return [f"{name.removesuffix('.json')} {device.label}" for device in file.devices]


def cards_of(files: Sequence[ResultsFile]) -> list[str]:
    """Return the card of each file by name, with its number where others are called the same."""
    devices = [file.device for file in files]
    cards: dict[str, set[Any]] = {}
    for device in devices:
        if device:
            cards.setdefault(device.name, set()).add(device.uuid or device.index)
    return [
        "" if device is None else device.name + (f" ({device.label})" if len(cards[device.name]) > 1 else "")
        for device in devices
    ]


def _plain_axes(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(length=3)
    axes.set_axisbelow(True)


# A ladder ------------------------------------------------------------------------------------------------------------


def row_name(result: Result, results: Sequence[Result]) -> str:
    """Return a kernel's name, with what else tells it from the others of a file."""
    same = [other for other in results if other.kernel == result.kernel]
    flat = all(other.block[1] <= 1 for other in results)
    block = f" {dim_text(result.block, 1 if flat else 2)}" if len({other.block for other in same}) > 1 else ""
    dtype = f" {result.dtype}" if len({other.dtype for other in results}) > 1 else ""
    variant = f" {units.variant(result)}" if units.variant(result) else ""
    return f"{result.kernel}{block}{dtype}{variant}"


def _ladder(figure: Figure, files: Sequence[ResultsFile], names: Sequence[str]) -> None:
    results = [r for file in files for r in file.results if r.status != "skipped"]
    shown = quantities(results)
    rows = list(dict.fromkeys(row_name(r, file.results) for file in files for r in file.results if r in results))
    figure.set_size_inches(WIDTH_IN, 1.3 + max(0.32, 0.2 * len(files) + 0.1) * len(rows) * 1.0)
    panels = figure.subplots(1, len(shown), sharey=True, squeeze=False)[0]
    labels = labels_of(names, files)
    one_card = len({(file.device.name, file.device.peak_gbps) if file.device else None for file in files}) == 1
    for axes, quantity in zip(panels, shown, strict=True):
        _plain_axes(axes)
        axes.spines["left"].set_visible(False)
        axes.tick_params(axis="y", length=0)
        most = max((v for r in results if (v := quantity.value(r)) is not None), default=1.0)
        height = 0.8 / len(files)
        for at, file in enumerate(files):
            by_row = {row_name(r, file.results): r for r in file.results}
            offset = (at - (len(files) - 1) / 2) * height
            for y, row in enumerate(rows):
                _bar(axes, quantity, by_row.get(row), y + offset, height * 0.92, at, most)
            if quantity.name == bandwidth().name and one_card:
                if at == 0:
                    _scale(axes, file)
            elif quantity.name == bandwidth().name:
                _own_scale(
                    axes, file, labels[at], at, [rows.index(row) + offset for row in by_row if row in rows], height
                )
        if shown[0].ideal(results[0]) is not None:
            axes.plot([], [], "k|", markersize=9, markeredgewidth=2, label="the least that would do")
        axes.set_yticks(range(len(rows)), rows)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_xlim(0, max(most * 1.16, axes.get_xlim()[1] * 1.02))
        axes.set_xlabel(quantity.name + ("" if quantity.more else ", less is better"))
        if not quantity.more:
            from matplotlib.ticker import MaxNLocator

            axes.xaxis.set_major_locator(MaxNLocator(4))
    if len(files) > 1:
        from matplotlib.patches import Patch

        handles: list[Any] = [
            Patch(facecolor=COLOURS[i % 4], hatch=HATCHES[i % 4], edgecolor="k", linewidth=0.5, label=label)
            for i, label in enumerate(labels)
        ]
        handles += panels[0].get_legend_handles_labels()[0]
        widest = max(len(str(handle.get_label())) for handle in handles)
        figure.legend(
            handles=handles, loc="outside lower center", ncols=min(len(handles), max(1, 100 // (widest + 8))),
            frameon=False, fontsize=8,
        )  # fmt: skip
    elif shown[0].ideal(results[0]) is not None:
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", frameon=False)
    figure.suptitle(heading(files), fontsize=10)


def _bar(axes: Axes, quantity: Quantity, result: Result | None, y: float, height: float, at: int, most: float) -> None:
    """Draw one bar with its value behind it, or the word for what has none."""
    if result is None:
        return
    value = quantity.value(result) if result.status == "ok" else None
    if value is None:
        word = result.status if result.status != "ok" else "none"
        axes.text(most * 0.01, y, word, va="center", fontsize=8, style="italic")
        return
    axes.barh(y, value, height, color=COLOURS[at % 4], hatch=HATCHES[at % 4], edgecolor="k", linewidth=0.5)
    ideal = quantity.ideal(result)
    if ideal is not None:
        axes.plot([ideal], [y], "k|", markersize=14 * height + 4, markeredgewidth=2)
    # White behind the figure, so that the lines of copy and peak do not cross it.
    box = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}
    end = max(value, ideal or 0)
    axes.text(end + most * 0.012, y, quantity.text(value), va="center", fontsize=8, bbox=box, zorder=4)


def _copy(file: ResultsFile) -> float | None:
    copies = [r.copy_gbps for r in file.results if r.copy_gbps]
    return median(copies) if copies else None


def _scale(axes: Axes, file: ResultsFile) -> None:
    """Draw the copy of the run and the card's peak as lines."""
    for name, value, style in (("copy", _copy(file), "--"), ("peak", _peak(file), "-")):
        if value is None:
            continue
        axes.axvline(value, color="k", linestyle=style, linewidth=0.9, zorder=1)
        axes.text(
            value, 1.0, f"{name}\n{units.digits(value)}", transform=axes.get_xaxis_transform(), ha="center",
            va="bottom", fontsize=8, linespacing=1.0,
        )  # fmt: skip
        axes.set_xlim(0, max(axes.get_xlim()[1], value * 1.02))


def _own_scale(axes: Axes, file: ResultsFile, card: str, at: int, middles: Sequence[float], height: float) -> None:
    """Draw copy and peak beside each bar of one card among several: each card has its own."""
    for name, value, style in (("copy", _copy(file), ":"), ("peak", _peak(file), "-")):
        if value is None:
            continue
        low, high = [y - height / 2 for y in middles], [y + height / 2 for y in middles]
        axes.vlines(
            [value] * len(middles), low, high, color=COLOURS[at % 4], linestyle=style, linewidth=1.8, zorder=2,
            label=f"{name} of {card}, {units.digits(value)}",
        )  # fmt: skip
        axes.set_xlim(0, max(axes.get_xlim()[1], value * 1.02))


def _peak(file: ResultsFile) -> float | None:
    return file.device.peak_gbps if file.device else None


# Over sizes ----------------------------------------------------------------------------------------------------------


def _sizes(figure: Figure, files: Sequence[ResultsFile], names: Sequence[str]) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    results = [r for file in files for r in file.results if r.status == "ok"]
    shown = [time_taken()] if any(r.time for r in results) else quantities(results)
    if not any(r.time for r in results) and any(least_time(r) is not None for r in results):
        shown.append(at_least())
    cards = cards_of(files)
    together: dict[str, ResultsFile] = {}  # a card's files are often of one size each
    for file, card in zip(files, cards if len(set(cards)) > 1 else [""] * len(files), strict=True):
        known = together.get(card)
        together[card] = replace(known, results=[*known.results, *file.results]) if known else file
    files, cards = list(together.values()), list(together)
    colours = {card: COLOURS[at % 4] for at, card in enumerate(dict.fromkeys(cards))}
    kernels = list(dict.fromkeys(row_name(r, file.results) for file in files for r in file.results if r in results))
    sizes: dict[tuple[str, str], set[float]] = {}
    for file, card in zip(files, cards, strict=True):
        for r in file.results:
            if r.status == "ok":
                sizes.setdefault((card, row_name(r, file.results)), set()).add(elements(r))
    if max(map(len, sizes.values()), default=0) < 2:
        raise UsageError("A plot over sizes takes one kernel at two sizes or more: give the files of several --size.")
    figure.set_size_inches(WIDTH_IN * (1 if len(shown) == 1 else 1.25), 4.4)
    handles: dict[str, Any] = {
        kernel: Line2D([], [], color="0.2", **_style(at, len(kernels)), label=kernel)
        for at, kernel in enumerate(kernels)
    }
    for card, colour in colours.items():
        if card:
            handles[card] = Patch(color=colour, label=card)
    for axes, quantity in zip(figure.subplots(1, len(shown), squeeze=False)[0], shown, strict=True):
        _plain_axes(axes)
        for file, card in zip(files, cards, strict=True):
            _curves(axes, file, kernels, quantity, colours[card], f", {card}" if card else "")
            if quantity.name == time_taken().name:
                for label, line2d in _scales(axes, file, colours[card]).items():
                    handles.setdefault(f"{label} of {card}" if card else label, line2d)
            elif any(quantity.ideal(r) is not None for r in file.results if r.status == "ok"):
                handles.setdefault("the least that would do", _ideals(axes, file, quantity))
        _log_log(axes, quantity, results)
    for label, handle in handles.items():
        handle.set_label(label)
    columns = min(len(handles), max(1, 110 // (max(map(len, handles)) + 8)))
    figure.set_size_inches(figure.get_size_inches()[0], 4.2 + 0.17 * math.ceil(len(handles) / columns))
    figure.legend(
        handles=list(handles.values()), loc="outside lower center", frameon=False, fontsize=8, ncols=columns,
        handlelength=3.5,
    )  # fmt: skip
    figure.suptitle(heading(files), fontsize=10)


def at_least() -> Quantity:
    """Return the longest limit: what a time cannot be under."""
    return Quantity(
        "at least, in µs", lambda r: None if (least := least_time(r)) is None else least * 1e6, units.digits, more=False
    )


def _style(at: int, of: int) -> dict[str, Any]:
    """Return how a kernel's curve is drawn: where curves lie on one another, the earlier ones show around the later."""
    return {
        "linestyle": DASHES[at % 4],
        "marker": MARKERS[at % len(MARKERS)],
        "markersize": 4 + 5 * (of - at) / of,
        "markerfacecolor": "w",
        "linewidth": 1.2,
    }


def _curves(axes: Axes, file: ResultsFile, kernels: Sequence[str], quantity: Quantity, colour: str, on: str) -> None:
    """Draw the kernels of a file over their sizes."""
    for at, kernel in enumerate(kernels):
        mine = [r for r in file.results if r.status == "ok" and row_name(r, file.results) == kernel]
        found = {elements(r): value for r in mine if (value := quantity.value(r)) is not None}
        xs = sorted(found)
        axes.plot(xs, [found[x] for x in xs], color=colour, **_style(at, len(kernels)), label=f"{kernel}{on}", zorder=3)
        bounds = {elements(r): least * 1e6 for r in mine if r.time and (least := least_time(r)) is not None}
        xs = sorted(bounds)
        style = {**_style(at, len(kernels)), "linestyle": (0, (1, 2)), "linewidth": 0.9, "markersize": 3}
        if bounds:
            axes.plot(xs, [bounds[x] for x in xs], color=colour, **style, label=f"least of {kernel}{on}", zorder=2)


def _scales(axes: Axes, file: ResultsFile, colour: str) -> dict[str, Any]:
    """Draw the time of the same bytes at the speed of the copy and of the peak, and return the lines by name; with
    limits one of theirs too."""
    times: dict[str, dict[float, list[float]]] = {}
    peak = _peak(file)
    for result in file.results:
        if result.status != "ok" or not result.time or not result.bytes:
            continue
        for name, speed in (("copy", result.copy_gbps), ("peak", peak)):
            if speed:
                times.setdefault(name, {}).setdefault(elements(result), []).append(result.bytes / speed / 1e3)
    found: dict[str, Any] = {}
    for name, points in times.items():
        xs = sorted(points)
        style, width = ("--", 2.0) if name == "copy" else ("-", 0.8)
        (found[name],) = axes.plot(
            xs,
            [median(points[x]) for x in xs],
            color=colour,
            alpha=0.7,
            linestyle=style,
            linewidth=width,
            zorder=1,
            label=name,
        )
    if any(r.time and least_time(r) is not None for r in file.results):
        (found["a kernel's limit"],) = axes.plot([], [], color=colour, linestyle=(0, (1, 2)), linewidth=0.9)
    return found


def _ideals(axes: Axes, file: ResultsFile, quantity: Quantity) -> Any:
    """Draw what would do, the least of the kernels at each size, and return the line."""
    points: dict[float, float] = {}
    for result in file.results:
        ideal = quantity.ideal(result) if result.status == "ok" else None
        if ideal is not None:
            points[elements(result)] = min(ideal, points.get(elements(result), ideal))
    xs = sorted(points)
    (drawn,) = axes.plot(xs, [points[x] for x in xs], color="k", linestyle="--", linewidth=0.8, zorder=1)
    return drawn


def _log_log(axes: Axes, quantity: Quantity, results: Sequence[Result]) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator

    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))
    varying = {name for name in results[0].size if len({r.size.get(name) for r in results}) > 1}
    ticks = dict(sorted((elements(r), size_label(r, varying)) for r in results))
    many = len(ticks) > 5 or max(map(len, ticks.values())) > 9
    axes.set_xticks(list(ticks), list(ticks.values()), rotation=30 if many else 0, fontsize=8)
    axes.tick_params(axis="y", labelsize=8)
    axes.minorticks_off()
    axes.set_xlabel("size")
    axes.set_ylabel(quantity.name + ("" if quantity.more else ", less is better"))
    axes.grid(axis="y", color="0.88", linewidth=0.6)


def _short(value: float) -> str:
    """Return a tick's number in short: 0.5, 20, 50k, 2M."""
    for factor, unit_name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor * 10 or (value >= factor and factor > 1e3):
            return f"{value / factor:g}{unit_name}"
    return f"{value:g}"


def least_time(result: Result) -> float | None:
    """Return the longest of a result's limits in seconds, under which no run of it can be; None where none is known."""
    limits = getattr(result, "limits", None)
    return float(limits[0].time_s) if limits else None


def elements(result: Result) -> float:
    """Return the product of a size's numbers, which orders sizes."""
    return math.prod(map(float, result.size.values()))


def size_label(result: Result, varying: Collection[str] = ()) -> str:
    """Return a size in short: 4096 x 4096, or 2^25 for a long single number; of a kernel of the user's own the numbers
    that vary."""
    if result.operation == "run" and varying:
        result = replace(result, size={name: value for name, value in result.size.items() if name in varying})
    numbers = list(result.size.values())
    if len(numbers) == 1 and numbers[0] >= 2**17 and math.log2(numbers[0]).is_integer():
        return f"$2^{{{round(math.log2(numbers[0]))}}}$"
    return units.size(result)


# A sweep -------------------------------------------------------------------------------------------------------------


def _sweep(figure: Figure, files: Sequence[ResultsFile], names: Sequence[str]) -> None:
    results = [r for file in files for r in file.results]
    kernels = list(dict.fromkeys(r.kernel for r in results))
    if len(kernels) > 1:
        raise UsageError(f"The map of a sweep is of one kernel; the files hold {', '.join(kernels)}.")
    shown = quantities(results)
    # In the simulator a count that every block shares tells nothing.
    shown = [q for q in shown if len({q.value(r) for r in results if r.status == "ok"}) > 1] or shown[:1]
    two = any(r.block[1] > 1 for r in results)
    rows = len({r.block[1] for r in results}) if two else 6
    figure.set_size_inches(WIDTH_IN, len(shown) * (1.1 + 0.34 * rows))
    panels = figure.subplots(len(shown), 1, squeeze=False)[:, 0]
    for axes, quantity in zip(panels, shown, strict=True):
        (_map if two else _line)(figure, axes, quantity, results)
    figure.suptitle(f"{kernels[0]}, {heading(files)}", fontsize=10)


def _map(figure: Figure, axes: Axes, quantity: Quantity, results: Sequence[Result]) -> None:
    import numpy as np
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.patches import Rectangle

    xs = sorted({r.block[0] for r in results})
    ys = sorted({r.block[1] for r in results})
    grid = np.full((len(ys), len(xs)), np.nan)
    words = {}
    for result in results:
        at = ys.index(result.block[1]), xs.index(result.block[0])
        value = quantity.value(result) if result.status == "ok" else None
        if value is None:
            words[at] = result.status
        else:
            grid[at] = value
    # Neither black nor white: figures stay readable, and the best cell is not taken for an empty one.
    ends = ["0.15", "0.92"] if quantity.more else ["0.92", "0.15"]
    image = axes.imshow(grid, cmap=LinearSegmentedColormap.from_list("greys", ends), aspect="auto")
    low, high = image.get_clim()
    for y, x in np.argwhere(~np.isnan(grid)):
        axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, fill=False, edgecolor="w", linewidth=1))
        share = (grid[y, x] - low) / (high - low) if high > low else 1.0
        light = share > 0.45 if quantity.more else share < 0.55
        text = quantity.text(grid[y, x])
        axes.text(x, y, text, ha="center", va="center", fontsize=7.5, color="k" if light else "w")
    for (y, x), word in words.items():
        axes.text(x, y, word, ha="center", va="center", fontsize=7, style="italic")
    if not np.isnan(grid).all():
        best = np.nanmax(grid) if quantity.more else np.nanmin(grid)
        for y, x in np.argwhere(grid == best):
            axes.add_patch(Rectangle((x - 0.46, y - 0.44), 0.92, 0.88, fill=False, edgecolor="k", linewidth=2))
    axes.set_xticks(range(len(xs)), [str(x) for x in xs])
    axes.set_yticks(range(len(ys)), [str(y) for y in ys])
    axes.set_xlabel("block X")
    axes.set_ylabel("block Y")
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    bar = figure.colorbar(image, ax=axes, pad=0.02)
    bar.set_label(quantity.name + ("" if quantity.more else ",\nless is better"), fontsize=8)


def _line(figure: Figure, axes: Axes, quantity: Quantity, results: Sequence[Result]) -> None:
    points = {r.block[0]: v for r in results if r.status == "ok" and (v := quantity.value(r)) is not None}
    xs = sorted(points)
    _plain_axes(axes)
    axes.plot(xs, [points[x] for x in xs], "ko-", markersize=4, linewidth=1)
    if xs:
        best = (max if quantity.more else min)(xs, key=lambda x: points[x])
        axes.annotate(
            f"{best}: {quantity.text(points[best])}", (best, points[best]), (0, 7), textcoords="offset points",
            ha="center", fontsize=8,
        )  # fmt: skip
        axes.plot([best], [points[best]], "ko", markersize=8, fillstyle="none")
    axes.set_ylim(bottom=0, top=max(points.values(), default=1) * 1.12)
    axes.set_xlabel("threads per block")
    axes.set_ylabel(quantity.name)
    axes.grid(axis="y", color="0.88", linewidth=0.6)


# A roofline ----------------------------------------------------------------------------------------------------------

TENSOR = {"tf32": "tf32", "bfloat16": "bf16", "float16": "fp16", "float64": "fp64"}  # number formats to roofs
MARGIN = 3.0  # that the axes reach beyond the points, as a factor
LINE_STEP = 1.35  # between labels, as a factor


@dataclass(frozen=True)
class Point:
    """A kernel in a roofline: operations a byte, GFLOP/s, and whether those were measured or are a bound."""

    name: str
    intensity: float
    gflops: float
    measured: bool


def points(files: Sequence[ResultsFile]) -> list[Point]:
    """Return where kernels stand: by the bytes and operations of their problem, measured where there is a time, else at
    most what the longest limit allows."""
    found = []
    for file in files:
        for result in file.results:
            if result.status != "ok" or not result.flops or not result.bytes or under_another_roof(file, result):
                continue
            time = result.true_time
            seconds = time.median_s if time else result.limits[0].time_s if result.limits else None
            if seconds:
                name = row_name(result, file.results)
                rate = result.flops / seconds / 1e9
                found.append(Point(name, result.flops / result.bytes, rate, time is not None))
    return found


def roofs_of(file: ResultsFile) -> dict[str, Any]:
    """Return the roofs of a file's card: those that its limits were priced with, else of the card that measured."""
    priced = file.settings.get("on")
    if isinstance(priced, dict):
        return priced
    if file.device is None or file.device.kind != "cuda" or not file.device.sm_count or not file.device.clocks:
        return {}
    return roofs(like(file.device))


def _roofline(figure: Figure, files: Sequence[ResultsFile], names: Sequence[str]) -> None:
    """Draw GFLOP/s over operations a byte: measured kernels as filled points, bounds as hollow ones."""
    from matplotlib.patches import Patch
    from matplotlib.ticker import FuncFormatter, NullFormatter

    shown = points(files)
    if not shown:
        raise CudabenchError(
            "There is no roofline to draw: no right result has bytes and floating-point operations (--flops for a "
            "kernel of your own) and a time, or limits (--on h200)."
        )
    by_card: dict[str, list[ResultsFile]] = {}
    for file in files:
        if points([file]):
            by_card.setdefault(str(roofs_of(file).get("card") or ""), []).append(file)
    figure.set_size_inches(WIDTH_IN, 4.6 + 0.17 * (len(by_card) > 1))
    axes = figure.subplots()
    _plain_axes(axes)
    axes.set_xscale("log")
    axes.set_yscale("log")
    left = min(point.intensity for point in shown) / MARGIN
    right = max(point.intensity for point in shown) * MARGIN
    drawn = []
    for mine in by_card.values():
        roof = roofs_of(mine[0])
        memory, tops = _figure(roof, "memory_gbps"), _tops(mine, roof)
        if memory and tops:  # the corners belong into the picture
            right = max(right, max(tops.values()) / memory * MARGIN)
            left = min(left, min(tops.values()) / memory / MARGIN**2)  # so much of memory's slope that it is seen
        drawn.append((memory, tops))
    for at, (memory, tops) in enumerate(drawn):
        _roofs(axes, memory, tops, left, right, COLOURS[at % 4] if len(drawn) > 1 else "k")
    colours = [
        COLOURS[at % 4] if len(drawn) > 1 else "k" for at, mine in enumerate(by_card.values()) for _ in points(mine)
    ]
    _points(axes, [point for mine in by_card.values() for point in points(mine)], colours)
    axes.set_xlim(left, right)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))
        axis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("floating-point operations a byte that must move")
    axes.set_ylabel("GFLOP/s")
    if len(by_card) > 1:
        handles = [Patch(color=COLOURS[at % 4], label=_shown(card)) for at, card in enumerate(by_card)]
        figure.legend(handles=handles, loc="outside lower center", frameon=False, fontsize=8, ncols=len(handles))
    card = next(iter(by_card), "")
    what = "bounds" if not any(point.measured for point in shown) else ""
    on = f"{what} on {_shown(card)}" if what and card and len(by_card) == 1 else what
    figure.suptitle("\n".join(part for part in (heading(files), on) if part), fontsize=10)


def _roofs(axes: Axes, memory: float | None, tops: Mapping[str, float], left: float, right: float, colour: str) -> None:
    """Draw what one card's memory and pipes allow."""
    if memory:
        most = max(tops.values(), default=memory * right)
        end = min(right, most / memory)
        axes.plot([left, end], [left * memory, end * memory], color=colour, linewidth=1.1)
        axes.annotate(
            f"memory {units.digits(memory)} GB/s", (left, left * memory), xytext=(16, -9), textcoords="offset points",
            fontsize=8, color=colour,
        )  # fmt: skip
    for (name, value), dash in zip(tops.items(), DASHES, strict=False):
        start = value / memory if memory else left
        axes.plot([max(start, left), right], [value, value], color=colour, linestyle=dash, linewidth=1.1)
        axes.annotate(
            f"{name} {_rate(value)}", (right, value), xytext=(0, 3), textcoords="offset points", fontsize=8, ha="right",
            color=colour,
        )  # fmt: skip


def _rate(gflops: float) -> str:
    return f"{units.digits(gflops / 1e3, 3)} TFLOP/s" if gflops >= 1e4 else f"{units.digits(gflops, 3)} GFLOP/s"


def _figure(roof: dict[str, Any], key: str) -> float | None:
    value = roof.get(key)
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) and value > 0 else None


def _tops(files: Sequence[ResultsFile], roof: dict[str, Any]) -> dict[str, float]:
    """Return the horizontal roofs by name: of the results' type, and of the tensor formats that their code uses."""
    results = [result for file in files for result in file.results if result.status == "ok"]
    wanted: dict[str, str] = {}
    for result in results:
        wide = "float64" if result.dtype == "float64" else "float32"
        wanted[wide] = f"{wide}_gflops"
        code = result.machine_code
        if code and code.arithmetic and (code.pipes is None or code.pipes.get("tensor")):
            for name in code.arithmetic:
                if name in TENSOR and (name != "float64" or (code.pipes or {}).get("tensor")):
                    wanted[f"tensor {name}"] = f"{TENSOR[name]}_gflops"
    found = {name: _figure(roof, key) for name, key in wanted.items()}
    return {name: value for name, value in found.items() if value is not None}


def _points(axes: Axes, shown: Sequence[Point], colours: Sequence[str]) -> None:
    """Draw the points, the labels of those that lie together one above the other."""
    last: tuple[float, float] | None = None
    for point, colour in sorted(zip(shown, colours, strict=True), key=lambda each: (each[0].intensity, each[0].gflops)):
        face = colour if point.measured else "white"
        axes.plot([point.intensity], [point.gflops], "o", markersize=5, markerfacecolor=face, markeredgecolor=colour)
        height = point.gflops
        if last is not None and point.intensity < last[0] * MARGIN and height < last[1] * LINE_STEP:
            height = last[1] * LINE_STEP
        last = (point.intensity, height)
        axes.annotate(
            point.name if point.measured else f"{point.name} (at most)", (point.intensity, point.gflops),
            xytext=(point.intensity * 1.12, height), textcoords="data", fontsize=7.5, va="center",
            arrowprops={"arrowstyle": "-", "linewidth": 0.4} if height != point.gflops else None,
        )  # fmt: skip
