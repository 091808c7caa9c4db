"""Draws ceilings as bars: of several cards relative to the first, or of one card relative to its theoretical values."""

from __future__ import annotations

from collections.abc import Sequence

from cudabench.cards import Ceiling
from cudabench.errors import CudabenchError
from cudabench.records.file import ResultsFile
from cudabench.results import ceilings
from cudabench.views.figures import COLOURS, HATCHES, Figure, escaped

ROW_IN = 0.2
OVER = " *"
OVER_SAID = f"{OVER.strip()} over what units allow at the driver's clock; the table says why"
# A number has a white background, so that no line crosses the number.
BOX = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}


def draw(figure: Figure, files: Sequence[ResultsFile], labels: Sequence[str]) -> None:
    """Draw the ceilings of files.

    `labels`: the names of the files. These names and the names of the cards must be escaped for matplotlib.

    Raises CudabenchError if there is no bar to draw.
    """
    first = {ceiling.name: ceiling for ceiling in files[0].ceilings}
    alone = len(files) == 1

    def relative(ceiling: Ceiling) -> float | None:
        if alone:
            return ceiling.fraction if ceiling.status == "ok" and ceiling.value is not None else None
        return ceilings.better(first.get(ceiling.name), ceiling)

    cards = files if alone else files[1:]
    names = list(
        dict.fromkeys(ceiling.name for file in cards for ceiling in file.ceilings if relative(ceiling) is not None)
    )
    if not names:
        lack = "a comparable one in the first file: a measured figure is not compared with a datasheet's."
        lack = "a theoretical value." if alone else lack
        raise CudabenchError(f"There is nothing to draw: no ceiling has both a value and {lack}")
    figure.set_size_inches(figure.get_size_inches()[0], 1.4 + ROW_IN * len(names) * max(1, len(cards)))
    axes = figure.subplots()
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    height = 0.8 / len(cards)
    most = max(value for file in cards for ceiling in file.ceilings if (value := relative(ceiling)) is not None)
    for at, file in enumerate(cards):
        # the index is chosen so that a card has the same colour here as in the other plots
        colour = COLOURS[(at if alone else at + 1) % 4]
        by_name = {
            ceiling.name: (ceiling, value) for ceiling in file.ceilings if (value := relative(ceiling)) is not None
        }
        offset = (at - (len(cards) - 1) / 2) * height
        label = labels[at if alone else at + 1]
        for y, (drawn, value) in ((y, by_name[name]) for y, name in enumerate(names) if name in by_name):
            axes.barh(
                y + offset, value, height * 0.92, color=colour, hatch=HATCHES[at % 4], edgecolor="k",
                linewidth=0.5, label=label if y == 0 else "_nolegend_",
            )  # fmt: skip
            text = ceilings.value(drawn.value, drawn.unit) + (OVER if alone and ceilings.is_over(drawn) else "")
            axes.text(value + most * 0.01, y + offset, text, va="center", fontsize=8, bbox=BOX)
    axes.axvline(1, color="k", linewidth=0.9, zorder=0)
    axes.set_yticks(range(len(names)), [escaped(name) for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlim(0, max(most, 1) * 1.2)
    if len(cards) > 1:
        figure.legend(loc="outside lower center", ncols=min(4, len(cards)), frameon=False, fontsize=8)
    device = files[0].device
    if alone:
        over = any(ceilings.is_over(ceiling) for ceiling in files[0].ceilings)
        axes.set_xlabel(f"part of the theoretical value{f'{chr(10)}{OVER_SAID}' if over else ''}")
        title = f"Ceilings of {device.name if device else labels[0]}"
    else:
        axes.set_xlabel(f"times as good as {labels[0]}")
        title = f"Ceilings of {', '.join(labels[1:])} beside {labels[0]}"
    figure.suptitle(title, fontsize=10)
