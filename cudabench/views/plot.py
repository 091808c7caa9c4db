"""Draws results: a ladder with the speed of a copy and the peak, times over sizes, the map of a sweep, a roofline.

Each card has a colour; each kernel has a marker and a dash pattern. Hatches and legends repeat the meaning of the
colours, and the colours differ in lightness, so that the picture can be read without colours. matplotlib is imported
only when something is drawn, and without its window toolkits.
"""

from __future__ import annotations

import io
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath
from statistics import median
from typing import Any

from cudabench.errors import CudabenchError, UsageError
from cudabench.records.file import ResultsFile
from cudabench.records.launch import dim_text
from cudabench.records.results import Result
from cudabench.results import ceilings, units
from cudabench.results.groups import grouped
from cudabench.views import ceilings_plot, roofline
from cudabench.views.export.run import short_names
from cudabench.views.figures import COLOURS, HATCHES, MARKERS, WIDTH_IN, Axes, Figure, escaped, new_figure
from cudabench.views.quantities import AT_LEAST, BANDWIDTH, TIME, Quantity, copy_of, least_time, quantities

DASHES: tuple[Any, ...] = ("-", (0, (4, 1.5)), (0, (1, 1)), (0, (5, 1, 1, 1)))


# What to draw --------------------------------------------------------------------------------------------------------


def kind_of(files: Sequence[ResultsFile]) -> str:
    """Return the kind of picture that suits the files: 'sweep', 'size' or 'ladder'."""
    results = [result for file in files for result in file.results]
    kernels = {result.kernel for result in results}
    blocks = {result.block for result in results if result.status == "ok"}
    sizes = {tuple(result.size.items()) for result in results}
    one_variant = len({units.variant(result) for result in results}) == 1
    if one_variant and len(kernels) == 1 and len(blocks) > 2 and len(sizes) == 1 and len(files) == 1:
        return "sweep"
    return "size" if len(sizes) > 1 else "ladder"


def draw(files: Sequence[ResultsFile], names: Sequence[str], kind: str | None = None) -> Figure:
    """Return a figure of the files. `kind`: the value of --kind, or None for the kind that suits the files.

    Raises CudabenchError if matplotlib is not installed or there is nothing to draw, and UsageError if the files do not
    fit the kind.
    """
    figure = new_figure(3)
    files, names = [_shown_file(file) for file in files], [escaped(name) for name in names]
    if ceilings.all_ceilings(files, names):
        if kind:
            raise UsageError(f"--kind {kind} is for kernels, but the files hold ceilings: leave it out.")
        ceilings_plot.draw(figure, files, labels_of(names, files))
        return figure
    results = [result for file in files for result in file.results]
    if not results:
        raise CudabenchError("There is nothing to draw: the files lack results.")
    operations = sorted({result.operation for result in results})
    if len(operations) > 1:
        raise UsageError(
            f"A plot shows one operation, but the files hold {', '.join(operations)}: plot them one by one."
        )
    names = [label for file, name in zip(files, names, strict=True) for label in _names_by_device(file, name)]
    files = [part for file in files for part in file.by_device()]
    drawn = {"ladder": _ladder, "size": _sizes, "sweep": _sweep, "roofline": _roofline}
    drawn[kind or kind_of(files)](figure, files, names)
    return figure


def _shown_file(file: ResultsFile) -> ResultsFile:
    """Return a copy of a file in which all names are escaped for matplotlib."""
    results = [
        replace(
            result,
            operation=escaped(result.operation),
            kernel=escaped(result.kernel),
            dtype=escaped(result.dtype),
            size={escaped(name): value for name, value in result.size.items()},
            parameters={escaped(name): escaped(value) for name, value in result.parameters.items()},
        )
        for result in file.results
    ]
    return replace(
        file, devices=[replace(device, name=escaped(device.name)) for device in file.devices], results=results
    )


def render(figure: Figure, suffix: str) -> bytes:
    """Return a figure as the bytes of an svg, png or pdf file. The same figure always gives the same bytes."""
    import matplotlib

    stream = io.BytesIO()
    metadata: dict[str, Any] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(suffix, {})
    with matplotlib.rc_context({"svg.hashsalt": "cudabench"}):
        figure.savefig(stream, format=suffix, metadata=metadata)
    return stream.getvalue()


def heading(files: Sequence[ResultsFile]) -> str:
    """Return the title of a picture: what all files share, such as problem, device and cache state."""
    results = [result for file in files for result in file.results]
    first = results[0]
    devices = list(dict.fromkeys(file.device.name for file in files if file.device))
    caches = {result.time.cache for result in results if result.time}
    parts = (
        escaped(PurePath(first.source).name) if first.operation == "run" else first.operation,
        units.size(first) if len({tuple(result.size.values()) for result in results}) == 1 else "",
        first.dtype if len({result.dtype for result in results}) == 1 else "",
        f"on {', '.join(devices)}" if devices else "",
    )
    return " ".join(filter(None, parts)) + (f", {caches.pop()} L2" if len(caches) == 1 else "")


def labels_of(names: Sequence[str], files: Sequence[ResultsFile]) -> list[str]:
    """Return distinct labels of files: the devices' names if all differ, else short file names."""
    devices = [file.device.name if file.device else "" for file in files]
    if len(set(devices)) == len(files) > 1:
        return devices
    return short_names(names)


def _names_by_device(file: ResultsFile, name: str) -> list[str]:
    if len(file.devices) < 2:
        return [name]
    return [f"{name.removesuffix('.json')} {device.label}" for device in file.devices]


def cards_of(files: Sequence[ResultsFile]) -> list[str]:
    """Return the name of each file's card, with its label if several cards have this name; '' without a device."""
    devices = [file.device for file in files]
    cards = grouped({(device.name, device.uuid or device.index) for device in devices if device})
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
    """Return the name of a kernel's row, with block, type or parameters if other results of the file have this name."""
    same = [other for other in results if other.kernel == result.kernel]
    flat = all(other.block[1] <= 1 for other in results)
    block = f" {dim_text(result.block, 1 if flat else 2)}" if len({other.block for other in same}) > 1 else ""
    dtype = f" {result.dtype}" if len({other.dtype for other in results}) > 1 else ""
    variant = f" {units.variant(result)}" if units.variant(result) else ""
    return f"{result.kernel}{block}{dtype}{variant}"


def _ladder(figure: Figure, files: Sequence[ResultsFile], names: Sequence[str]) -> None:
    from matplotlib.patches import Patch
    from matplotlib.ticker import MaxNLocator

    results = [r for file in files for r in file.results if r.status != "skipped"]
    drawn = quantities(results)
    rows = list(dict.fromkeys(row_name(r, file.results) for file in files for r in file.results if r in results))
    figure.set_size_inches(WIDTH_IN, 1.3 + max(0.32, 0.2 * len(files) + 0.1) * len(rows) * 1.0)
    panels = figure.subplots(1, len(drawn), sharey=True, squeeze=False)[0]
    labels = labels_of(names, files)
    one_card = len({(file.device.name, file.device.peak_gbps) if file.device else None for file in files}) == 1
    for axes, quantity in zip(panels, drawn, strict=True):
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
            if quantity is BANDWIDTH and (at == 0 or not one_card):
                middles = [rows.index(row) + offset for row in by_row if row in rows]
                _scale(axes, file, None if one_card else labels[at], at, middles, height)
        if drawn[0].ideal(results[0]) is not None:
            axes.plot([], [], "k|", markersize=9, markeredgewidth=2, label="the least that would do")
        axes.set_yticks(range(len(rows)), rows)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_xlim(0, max(most * 1.16, axes.get_xlim()[1] * 1.02))
        axes.set_xlabel(quantity.name + ("" if quantity.more else ", less is better"))
        if not quantity.more:
            axes.xaxis.set_major_locator(MaxNLocator(4))
    handles: list[Any] = panels[0].get_legend_handles_labels()[0]
    if len(files) > 1:
        handles[:0] = [
            Patch(facecolor=COLOURS[i % 4], hatch=HATCHES[i % 4], edgecolor="k", linewidth=0.5, label=label)
            for i, label in enumerate(labels)
        ]
        widest = max(len(str(handle.get_label())) for handle in handles)
        _legend(figure, handles, min(len(handles), max(1, 100 // (widest + 8))))
    elif drawn[0].ideal(results[0]) is not None:
        figure.legend(handles=handles, loc="outside lower center", frameon=False)
    figure.suptitle(heading(files), fontsize=10)


def _bar(axes: Axes, quantity: Quantity, result: Result | None, y: float, height: float, at: int, most: float) -> None:
    """Draw one bar with its value beside it; if the value is missing, write the status."""
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
    # The number has a white background, so that the lines of the copy and the peak do not cross it.
    box = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}
    end = max(value, ideal or 0)
    axes.text(end + most * 0.012, y, quantity.text(value), va="center", fontsize=8, bbox=box, zorder=4)


def _scale(axes: Axes, file: ResultsFile, card: str | None, at: int, middles: Sequence[float], height: float) -> None:
    """Draw the speed of the run's copy and the card's peak bandwidth as lines.

    `card`: None if there is one card; the lines then go through the whole picture. With a card, the lines are short and
    go only through the bars of this card.
    """
    for name, value in (("copy", copy_of(file.results)), ("peak", _peak(file))):
        if value is None:
            continue
        if card is None:
            axes.axvline(value, color="k", linestyle="--" if name == "copy" else "-", linewidth=0.9, zorder=1)
            axes.text(
                value, 1.0, f"{name}\n{units.digits(value)}", transform=axes.get_xaxis_transform(), ha="center",
                va="bottom", fontsize=8, linespacing=1.0,
            )  # fmt: skip
        else:
            axes.vlines(
                [value] * len(middles), [y - height / 2 for y in middles], [y + height / 2 for y in middles],
                color=COLOURS[at % 4], linestyle=":" if name == "copy" else "-", linewidth=1.8, zorder=2,
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
    drawn = [TIME] if any(r.time for r in results) else quantities(results)
    if not any(r.time for r in results) and any(least_time(r) is not None for r in results):
        drawn.append(AT_LEAST)
    cards = cards_of(files)
    cards = cards if len(set(cards)) > 1 else [""] * len(files)
    together = {  # the files of one card, often one for each size, are drawn like a single file
        card: replace(group[0], results=[result for file in group for result in file.results])
        for card, group in grouped(zip(cards, files, strict=True)).items()
    }
    colours = {card: COLOURS[at % 4] for at, card in enumerate(together)}
    sizes = grouped(
        ((card, row_name(r, file.results)), elements(r))
        for card, file in together.items()
        for r in file.results
        if r.status == "ok"
    )
    kernels = list(dict.fromkeys(kernel for _, kernel in sizes))
    if all(len(set(group)) < 2 for group in sizes.values()):
        raise UsageError("A plot over sizes needs one kernel at two sizes or more: give the files of several --size.")
    figure.set_size_inches(WIDTH_IN * (1 if len(drawn) == 1 else 1.25), 4.4)
    handles: dict[str, Any] = {
        kernel: Line2D([], [], color="0.2", **_style(at, len(kernels)), label=kernel)
        for at, kernel in enumerate(kernels)
    }
    handles |= {card: Patch(color=colour, label=card) for card, colour in colours.items() if card}
    for axes, quantity in zip(figure.subplots(1, len(drawn), squeeze=False)[0], drawn, strict=True):
        _plain_axes(axes)
        for card, file in together.items():
            _curves(axes, file, kernels, quantity, colours[card], f", {card}" if card else "")
            if quantity is TIME:
                for label, line2d in _scales(axes, file, colours[card]).items():
                    handles.setdefault(f"{label} of {card}" if card else label, line2d)
            elif any(quantity.ideal(r) is not None for r in file.results if r.status == "ok"):
                handles.setdefault("the least that would do", _ideals(axes, file, quantity))
        _log_log(axes, quantity, results)
    for label, handle in handles.items():
        handle.set_label(label)
    columns = min(len(handles), max(1, 110 // (max(map(len, handles)) + 8)))
    figure.set_size_inches(figure.get_size_inches()[0], 4.2 + 0.17 * math.ceil(len(handles) / columns))
    _legend(figure, list(handles.values()), columns, handlelength=3.5)
    figure.suptitle(heading(list(together.values())), fontsize=10)


def _style(at: int, count: int) -> dict[str, Any]:
    """Return the style of a kernel's curve. Earlier curves have larger markers, which later curves do not hide."""
    return {
        "linestyle": DASHES[at % 4],
        "marker": MARKERS[at % len(MARKERS)],
        "markersize": 4 + 5 * (count - at) / count,
        "markerfacecolor": "w",
        "linewidth": 1.2,
    }


def _curve(axes: Axes, points: Mapping[float, float], **style: Any) -> Any:
    """Draw a curve through points, given as values by size, and return matplotlib's line."""
    (drawn,) = axes.plot(sorted(points), [points[x] for x in sorted(points)], **style)
    return drawn


def _curves(axes: Axes, file: ResultsFile, kernels: Sequence[str], quantity: Quantity, colour: str, end: str) -> None:
    """Draw a curve for each kernel of a file over the sizes, and a curve for its least possible time if known."""
    for at, kernel in enumerate(kernels):
        points = [r for r in file.results if r.status == "ok" and row_name(r, file.results) == kernel]
        values = {elements(r): value for r in points if (value := quantity.value(r)) is not None}
        style = _style(at, len(kernels))
        _curve(axes, values, color=colour, **style, label=f"{kernel}{end}", zorder=3)
        bounds = {elements(r): least * 1e6 for r in points if r.time and (least := least_time(r)) is not None}
        style |= {"linestyle": (0, (1, 2)), "linewidth": 0.9, "markersize": 3}
        if bounds:
            _curve(axes, bounds, color=colour, **style, label=f"least of {kernel}{end}", zorder=2)


def _scales(axes: Axes, file: ResultsFile, colour: str) -> dict[str, Any]:
    """Draw, at each size, the time that the kernel's bytes would take at the copy's speed and at the peak bandwidth.
    Return the lines by name."""
    times = grouped(
        ((name, elements(result)), result.bytes / speed / 1e3)
        for result in file.results
        if result.status == "ok" and result.time and result.bytes
        for name, speed in (("copy", result.copy_gbps), ("peak", _peak(file)))
        if speed
    )
    lines: dict[str, Any] = {}
    for name in dict.fromkeys(name for name, _ in times):
        style, width = ("--", 2.0) if name == "copy" else ("-", 0.8)
        middles = {x: median(seconds) for (what, x), seconds in times.items() if what == name}
        lines[name] = _curve(
            axes, middles, color=colour, alpha=0.7, linestyle=style, linewidth=width, zorder=1, label=name
        )
    if any(r.time and least_time(r) is not None for r in file.results):
        lines["a kernel's limit"] = _curve(axes, {}, color=colour, linestyle=(0, (1, 2)), linewidth=0.9)
    return lines


def _ideals(axes: Axes, file: ResultsFile, quantity: Quantity) -> Any:
    """Draw the ideal value at each size, which is the smallest ideal value of the kernels, and return the line."""
    correct = (result for result in file.results if result.status == "ok")
    ideals = grouped((elements(r), ideal) for r in correct if (ideal := quantity.ideal(r)) is not None)
    points = {x: min(values) for x, values in ideals.items()}
    return _curve(axes, points, color="k", linestyle="--", linewidth=0.8, zorder=1)


def _log_log(axes: Axes, quantity: Quantity, results: Sequence[Result]) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator

    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))
    varying = {name for name in results[0].size if len({r.size.get(name) for r in results}) > 1}
    ticks = dict(sorted((elements(r), size_label(r, varying)) for r in results))
    crowded = len(ticks) > 5 or max(map(len, ticks.values())) > 9
    axes.set_xticks(list(ticks), list(ticks.values()), rotation=30 if crowded else 0, fontsize=8)
    axes.tick_params(axis="y", labelsize=8)
    axes.minorticks_off()
    axes.set_xlabel("size")
    axes.set_ylabel(quantity.name + ("" if quantity.more else ", less is better"))
    axes.grid(axis="y", color="0.88", linewidth=0.6)


def _short(value: float) -> str:
    """Return a short number for the text of a tick: 0.5, 20, 50k, 2M."""
    for factor, unit_name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor * 10 or (value >= factor and factor > 1e3):
            return f"{value / factor:g}{unit_name}"
    return f"{value:g}"


def elements(result: Result) -> float:
    """Return the product of the numbers of a size. Sizes are ordered by this product."""
    return math.prod(map(float, result.size.values()))


def size_label(result: Result, varying: Collection[str] = ()) -> str:
    """Return a size as short text: '4096 x 4096', or 2^25 as a formula.

    Of a user's own kernel, only the numbers with names in `varying` are shown.
    """
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
        raise UsageError(f"The map of a sweep shows one kernel, but the files hold {', '.join(kernels)}.")
    drawn = quantities(results)
    # A count that is equal for all blocks is not drawn. If no other count is left, the first one is drawn.
    drawn = [q for q in drawn if len({q.value(r) for r in results if r.status == "ok"}) > 1] or drawn[:1]
    is_2d = any(r.block[1] > 1 for r in results)
    rows = len({r.block[1] for r in results}) if is_2d else 6
    figure.set_size_inches(WIDTH_IN, len(drawn) * (1.1 + 0.34 * rows))
    panels = figure.subplots(len(drawn), 1, squeeze=False)[:, 0]
    for axes, quantity in zip(panels, drawn, strict=True):
        (_map if is_2d else _line)(figure, axes, quantity, results)
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
    # The grey scale stops before black and white, so that the numbers stay readable and the best cell does not look
    # empty.
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


def _roofline(figure: Figure, files: Sequence[ResultsFile], names: Sequence[str]) -> None:
    """Draw the roofline of the page: a measured kernel is a filled point, a bound a hollow point."""
    from matplotlib.patches import Patch

    members = [
        roofline.Member(at, result, file, row_name(result, file.results))
        for at, file in enumerate(files)
        for result in file.results
    ]
    chart = roofline.chart("", members, names, still=True)
    if chart is None:
        raise CudabenchError(f"The roofline cannot be drawn. {roofline.missing([member.result for member in members])}")
    several = len(chart.cards) > 1
    colours = [COLOURS[at % 4] if several else "k" for at in range(len(chart.cards))]
    figure.set_size_inches(WIDTH_IN, 4.6 + 0.17 * several)
    axes = figure.subplots()
    _plain_axes(axes)
    axes.set(xlim=(0, 100), ylim=(100, 0), xlabel=chart.across, ylabel=chart.up)
    axes.set_xticks(*zip(*chart.x_ticks, strict=True))
    axes.set_yticks(*zip(*chart.y_ticks, strict=True))
    for roof in chart.roofs:
        colour = colours[roof.card]
        axes.plot(
            [roof.x1, roof.x2], [roof.y1, roof.y2], color=colour, linewidth=1.1, linestyle="--" * roof.below or "-"
        )
        axes.annotate(
            roof.name, (roof.name_x, roof.name_y), xytext=(8, -12) if roof.below else (-6, 4),
            textcoords="offset points", ha="left" if roof.below else "right", fontsize=8, color=colour,
        )  # fmt: skip
    for point in chart.points:
        colour, side = colours[point.card], -1 if point.left else 1
        face = "white" if point.bound else colour
        leader = {"arrowstyle": "-", "linewidth": 0.4, "relpos": (int(point.left), 0.5), "shrinkA": 0, "shrinkB": 0}
        axes.plot([point.x], [point.y], "o", markersize=5, markerfacecolor=face, markeredgecolor=colour)
        axes.annotate(
            f"{point.name} (at most)" if point.bound else point.name, (point.x, point.y),
            xytext=(point.x + 1.6 * side, point.label_y), textcoords="data", fontsize=7.5, va="center",
            ha="right" if point.left else "left",
            arrowprops=leader if point.far else None,
        )  # fmt: skip
    if several:
        handles = [Patch(color=colour, label=escaped(card)) for colour, card in zip(colours, chart.cards, strict=True)]
        _legend(figure, handles, len(handles))
    bounds = all(point.bound for point in chart.points)
    on = f"bounds on {escaped(chart.cards[0])}" if chart.cards[0] and not several else "bounds"
    figure.suptitle("\n".join([heading(files), *([on] if bounds else [])]), fontsize=10)


def _legend(figure: Figure, handles: Sequence[Any], columns: int, **more: Any) -> None:
    figure.legend(handles=handles, loc="outside lower center", frameon=False, fontsize=8, ncols=columns, **more)
