"""A fleet's report as one HTML page that works offline: tables, a dot for each card, the kernels of each slow card.

A dot's position shows how slow a card is. The scale is linear near the median and logarithmic far from it (an inverse
hyperbolic sine, whose unit is `Rule.over`), so that one card at a third of the usual speed does not push all others
together.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cudabench import __version__, text
from cudabench.fleet.findings import Report
from cudabench.fleet.reading import Label
from cudabench.fleet.sums import Table
from cudabench.records.fleet import Card, Fleet, Measurement, SlowCard
from cudabench.results.columns import NOTHING, Column
from cudabench.views import fleet as tables
from cudabench.views import report as pages

MOST_ROWS = 500  # a table has at most this many rows
MOST_SHEETS = 100  # the kernels of at most this many slow cards are listed
MOST_NAMED = 200  # at most this many slow dots of a row have the name of their card
# Normal dots lie on a grid with this many columns and rows, so that dots at the same point are drawn only once.
ACROSS, HIGH = 1000, 26
TICKS = (0, 1, 3, 10, 30, 100, 300, 1000, 3000, 10000)  # in percent
LEAST_TICK_DISTANCE = 0.07  # the smallest distance between two ticks, as a fraction of the axis' width


def page(report: Report, fleet: Fleet) -> str:
    """Return the text of the HTML page."""
    view = tables.View(fleet, report.simulated)
    style = pages.part("style.css") + "\n" + _part("fleet_page.css")
    bad = bool(fleet.slow or fleet.slowing or any(card.status != "ok" for card in fleet.cards))
    head = tables.head(fleet, report.simulated)
    return pages.compiled(_part("fleet_page.html.jinja")).render(
        style=style,
        policy=pages.policy(style),
        version=__version__,
        title=fleet.folders[-1] if fleet.folders else "a fleet",
        verdict=head[0],
        notes=head[1:],
        good="bad" if bad else "good" if fleet.measurements else "",
        troubles=[_plain(table) for table in view.troubles() if table.rows],
        sheets=[_sheet(card, view) for card in fleet.slow[:MOST_SHEETS]],
        sheets_left_out=max(0, len(fleet.slow) - MOST_SHEETS),
        models=_models(report, fleet, view),
        rule=tables.rule_text(fleet) if fleet.measurements and fleet.rule else "",
        groups=[_plain(table) for table in view.groups()],
        cards=_plain(tables.Table("Cards", CARDS, fleet.cards)),
        damaged=[_plain(table) for table in view.damaged() if table.rows],
        high=HIGH,
    )


def _part(name: str) -> str:
    return resources.files("cudabench.views").joinpath(name).read_text(encoding="utf-8").strip()


def _plain(table: tables.Table) -> SimpleNamespace:
    """Return a table as plain texts.

    `headings`: (text, whether its cells are aligned right); `rows`: lists of cells; `left_out`: the number of rows that
    are not shown.
    """
    columns, rows = table.cut(), table.rows[:MOST_ROWS]
    return SimpleNamespace(
        title=table.title,
        headings=[(column.heading, column.right) for column in columns],
        rows=[[column.text(row) for column in columns] for row in rows],
        left_out=len(table.rows) - len(rows),
    )


def _text_or_empty(value: Any, form: str = "{}") -> str:
    return NOTHING if value is None else form.format(value)


CARDS: list[Column[Card]] = [
    Column("card", lambda card: card.id, right=False),
    Column("host", lambda card: card.host or NOTHING, right=False),
    Column("rack", lambda card: card.rack or NOTHING, right=False),
    Column("PCI address", lambda card: card.pci_address or NOTHING, right=False),
    Column("serial", lambda card: card.serial or NOTHING, right=False),
    Column("model", lambda card: card.model or NOTHING, right=False),
    Column("status", lambda card: card.status, right=False),
    Column("SM MHz", lambda card: _text_or_empty(card.load and card.load.sm_mhz, "{:.0f}")),
    Column("W", lambda card: _text_or_empty(card.load and card.load.power_w, "{:.0f}")),
    Column("°C", lambda card: _text_or_empty(card.load and card.load.temperature_c, "{:.0f}")),
    Column("throttled", lambda card: ", ".join(card.load.throttle) if card.load else "", right=False),
    Column("ECC uncorrected", lambda card: _text_or_empty(card.health and card.health.ecc_uncorrected_ever)),
    Column("remapped rows", lambda card: _text_or_empty(card.health and card.health.remapped_rows)),
    Column("NVLinks down", lambda card: _text_or_empty(card.health and card.health.nvlinks_down)),
]


def _sheet(slow: SlowCard, view: tables.View) -> SimpleNamespace:
    """Return the page's section on a slow card: its name, why it is slow, facts about it, and its slow kernels."""
    card = view.cards[slow.id]
    facts = [
        (column.heading, value)
        for column in CARDS
        if (value := column.text(card)) not in ("", NOTHING) and column.heading != "status"
    ]
    columns: list[Column[Any]] = [
        Column("kernel", lambda row: f"{row.operation} {row.kernel}", right=False),
        Column("problem", lambda row: row.problem, right=False),
        Column("against its model", lambda row: tables.slower(row.ratio)),
        Column("scaled MADs", lambda row: _text_or_empty(row.mads, "{:.1f}")),
        Column(
            "at equal clock", lambda row: NOTHING if row.at_equal_clock is None else tables.slower(row.at_equal_clock)
        ),
    ]
    title = f"slow in {len(slow.kernels)} of {tables.plural(slow.of, 'kernel')}"
    kernels = _plain(tables.Table(title, columns, slow.kernels))
    return SimpleNamespace(name=slow.id, why=tables.why(slow), facts=facts, kernels=kernels)


def _models(report: Report, fleet: Fleet, view: tables.View) -> list[SimpleNamespace]:
    """Return the page's section on each model: a row for each kernel, with its cells and its dots."""
    models: list[SimpleNamespace] = []
    if not fleet.measurements:
        return models
    dots = report.ratios()
    slow = {report.ids.numbers[card.id] for card in fleet.slow}
    for table in view.models():
        rows: Sequence[Measurement] = table.rows[:MOST_ROWS]
        first, *figures = table.cut()
        model_dots = dots[dots.model == report.models.numbers[rows[0].model]]
        scale = Scale(
            model_dots.ratio, [row.limit for row in rows if row.limit], fleet.rule.over if fleet.rule else 0.0
        )
        models.append(
            SimpleNamespace(
                title=table.title,
                headings=[column.heading for column in (first, *figures)],
                rows=[
                    (
                        first.text(row),
                        [column.text(row) for column in figures],
                        _strip(report, row, model_dots, scale, slow),
                    )
                    for row in rows
                ],
                zero=scale.at(1.0),
                ticks=scale.ticks(),
                left_out=len(table.rows) - len(rows),
            )
        )
    return models


class Scale:
    """The scale of a model's dots: positions of ratios, in percent of the width."""

    def __init__(self, ratios: NDArray[np.float64], limits: Sequence[float], unit: float) -> None:
        self._unit = max(unit, 1e-3)
        ends = self._bent(np.array([ratios.min(), ratios.max(), 1 - self._unit / 2, 1 + self._unit, *limits]))
        room = 0.02 * float(ends.max() - ends.min())
        self._low, self._high = float(ends.min()) - room, float(ends.max()) + room

    def _bent(self, ratios: NDArray[np.float64]) -> NDArray[np.float64]:
        bent: NDArray[np.float64] = np.arcsinh((ratios - 1) / self._unit)
        return bent

    def of(self, ratios: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the positions of several ratios."""
        return (self._bent(ratios) - self._low) / (self._high - self._low) * 100

    def at(self, ratio: float) -> float:
        """Return the position of one ratio."""
        return float(self.of(np.array([ratio]))[0])

    def ticks(self) -> list[SimpleNamespace]:
        """Return ticks that do not overlap, each with position and text: the median, then the nearest on both sides."""
        ticks: list[SimpleNamespace] = []
        for percent in (sign * percentage for percentage in TICKS for sign in (1, -1) if percentage or sign > 0):
            at = self.at(1 + percent / 100) if percent > -100 else -1.0
            if 2 <= at <= 98 and all(abs(at - tick.at) >= LEAST_TICK_DISTANCE * 100 for tick in ticks):
                ticks.append(SimpleNamespace(at=at, text=f"{percent:+d}%" if percent else "median"))
        return sorted(ticks, key=lambda tick: tick.at)


def _strip(report: Report, row: Measurement, dots: Table, scale: Scale, slow: set[int]) -> SimpleNamespace:
    """Return the dots of one kernel.

    `path`: the SVG path of all dots; `slow`: for each slow dot, its x in percent of the width, its y in pixels, and a
    text that names its card; `limit`: the position from which a card is slow, or None.
    """
    label = report.labels.numbers[Label(row.operation, row.kernel, row.problem, row.unit, row.less_is_better)]
    of_kernel = dots.label == label
    cards, ratios = dots.card[of_kernel], dots.ratio[of_kernel]
    x = scale.of(ratios)
    # The y position of each dot is random, so that the dots of a row do not cover each other. The seed is fixed, so
    # that equal data give an equal page.
    y = np.random.default_rng(label).integers(3, HIGH - 3, len(x))
    red = np.isin(cards, [*slow]) & (ratios > (row.limit or np.inf))
    points = np.unique(np.rint(x * ACROSS / 100).astype(np.int64) * HIGH + y)
    path = "".join(f"M{point // HIGH} {point % HIGH}h0" for point in points.tolist())
    named = []
    for at in np.flatnonzero(red)[np.argsort(-ratios[red], kind="stable")][:MOST_NAMED]:
        name = str(report.ids.names[cards[at]])
        card = report.folders[-1].cards[name]
        dot_text = f"{name} on {card.host or 'an unknown host'}: {tables.slower(float(ratios[at]))}"
        named.append((float(x[at]), int(y[at]), text.line(dot_text)))
    return SimpleNamespace(path=path, slow=named, limit=scale.at(row.limit) if row.limit else None)
