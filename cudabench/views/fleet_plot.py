"""A fleet as a picture: a row for each kernel, in which every card is a dot."""

from __future__ import annotations

import numpy as np

from cudabench.errors import CudabenchError
from cudabench.fleet.findings import Report
from cudabench.records.fleet import Fleet
from cudabench.text import line
from cudabench.views.figures import MARKERS, Figure, escaped, new_figure

MOST_TEXT = 40  # a name is cut to this many characters
NAMED = 12  # the names of at most this many slow cards are shown
VECTORS = 20_000  # up to this many dots are drawn as vectors; more dots become a bitmap


def draw(report: Report, fleet: Fleet) -> Figure:
    """Return the figure of a report's last folder. A dot shows how much slower a card is than the median of its model.

    Raises CudabenchError if matplotlib is not installed or nothing was timed.
    """
    dots = report.ratios()
    if not len(dots.ratio):
        raise CudabenchError("There is nothing to draw: no shard has a verified time.")
    labels, rows = np.unique(dots.label, return_inverse=True)
    models = np.unique(dots.model)
    # The y position of each dot is random, so that the dots of a row do not cover each other. The seed is fixed, so
    # that equal data give an equal picture.
    scatter = np.random.default_rng(0).uniform(-0.3, 0.3, len(rows))
    slower = (dots.ratio - 1) * 100
    figure = new_figure(1.4 + 0.36 * len(labels))
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    axes.axvline(0, color="0.6", linewidth=0.8, zorder=0)
    slow = {card.id for card in fleet.slow}
    red = np.array([report.ids.names[card] in slow for card in dots.card.tolist()])
    as_bitmap = len(rows) > VECTORS
    for at, model in enumerate(models):
        of_model = dots.model == model
        for chosen, colour, size in ((of_model & ~red, "0.45", 3.0), (of_model & red, "tab:red", 4.5)):
            axes.plot(
                slower[chosen], rows[chosen] + scatter[chosen], MARKERS[at % len(MARKERS)], color=colour,
                markersize=size, markeredgewidth=0, alpha=0.7, rasterized=as_bitmap,
                label=_shown(str(report.models.names[model])) if colour != "tab:red" else None,
            )  # fmt: skip
    for card in fleet.slow[:NAMED]:
        card_rows = np.flatnonzero(dots.card == report.ids.numbers[card.id])
        worst = card_rows[np.argmax(slower[card_rows])]
        axes.annotate(
            _shown(card.id[:12]), (slower[worst], rows[worst] + scatter[worst]), (4, 3), textcoords="offset points",
            fontsize=6.5, color="tab:red",
        )  # fmt: skip
    axes.set_yticks(range(len(labels)), [_shown(report.labels.names[label].kernel) for label in labels], fontsize=8)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.set_xlabel("slower than the median of the card's model, in %")
    counts = f"{len(np.unique(dots.card)):,} cards, {len(fleet.slow)} slow"
    axes.set_title(f"{counts}: {_shown(fleet.folders[-1])}", fontsize=9)
    if len(models) > 1:
        axes.legend(fontsize=7, frameon=False, loc="best")
    return figure


def _shown(name: str) -> str:
    return escaped(name if len(line(name)) <= MOST_TEXT else line(name)[: MOST_TEXT - 3] + "...")
