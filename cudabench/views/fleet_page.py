"""A fleet's report as one HTML page that needs nothing else: the tables, every card a dot, each slow card's kernels.

The dots lie on a scale that is linear near the median and logarithmic far from it (an inverse hyperbolic sine, whose
unit is what the rule lets pass), so that one card at a third of its speed does not press the others into a line.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cudabench import __version__, text
from cudabench.fleet.findings import Report
from cudabench.fleet.reading import Label
from cudabench.fleet.sums import Dots
from cudabench.records.fleet import Card, Fleet, Measurement, SlowCard
from cudabench.results.columns import NOTHING, Column
from cudabench.views import fleet as tables
from cudabench.views import report as pages

MOST_ROWS = 500  # of a table
MOST_SHEETS = 100  # slow cards whose kernels are listed
MOST_NAMED = 200  # dots of a row that say whose they are
ACROSS, HIGH = 1000, 26  # the grid of a row's dots: those of the same point are drawn once
TICKS = (0, 1, 3, 10, 30, 100, 300, 1000, 3000, 10000)  # percent
APART = 0.07  # of the width, between two ticks


@dataclass(frozen=True)
class Tick:
    """A mark of the scale: where, in percent of the width, and what it says."""

    at: float
    text: str


@dataclass(frozen=True)
class Named:
    """A dot that says whose it is; `x` in percent of the width, `y` in pixels."""

    x: float
    y: int
    said: str


@dataclass(frozen=True)
class Strip:
    """The dots of a kernel: those of a path, those that are slow, and where slow begins, if anywhere."""

    path: str
    slow: tuple[Named, ...]
    limit: float | None


@dataclass(frozen=True)
class Model:
    """The cards of a model: a row a kernel, with its cells and its dots."""

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, tuple[str, ...], Strip], ...]
    zero: float
    ticks: tuple[Tick, ...]
    left_out: int


@dataclass(frozen=True)
class Plain:
    """A table of text: headings and cells, each with whether it stands right."""

    title: str
    headings: tuple[tuple[str, bool], ...]
    rows: tuple[tuple[str, ...], ...]
    left_out: int = 0


def page(report: Report, found: Fleet) -> str:
    """Return the text of the page."""
    view = tables.View(found, report.simulated)
    style = pages.part("style.css") + "\n" + _part("fleet_page.css")
    bad = bool(found.slow or found.slowing or any(card.status != "ok" for card in found.cards))
    head = tables.head(found, report.simulated)
    return pages.compiled(_part("fleet_page.html.jinja")).render(
        style=style,
        policy=pages.policy(style),
        version=__version__,
        title=found.folders[-1] if found.folders else "a fleet",
        verdict=head[0],
        notes=head[1:],
        good="bad" if bad else "good" if found.measurements else "",
        troubles=[_plain(table) for table in view.troubles() if table.rows],
        sheets=[_sheet(each, view) for each in found.slow[:MOST_SHEETS]],
        sheets_left_out=max(0, len(found.slow) - MOST_SHEETS),
        models=_models(report, found, view),
        rule=tables.rule_text(found) if found.measurements and found.rule else "",
        groups=[_plain(table) for table in view.groups()],
        cards=_plain(tables.Table("Cards", CARDS, found.cards)),
        damaged=[_plain(table) for table in view.damaged() if table.rows],
        high=HIGH,
    )


def _part(name: str) -> str:
    return resources.files("cudabench.views").joinpath(name).read_text(encoding="utf-8").strip()


def _plain(table: tables.Table) -> Plain:
    columns, rows = table.cut(), table.rows[:MOST_ROWS]
    headings = tuple((column.heading, column.right) for column in columns)
    return Plain(
        table.title, headings, tuple(tuple(column.text(row) for column in columns) for row in rows),
        len(table.rows) - len(rows),
    )  # fmt: skip


def _given(value: Any, form: str = "{}") -> str:
    return NOTHING if value is None else form.format(value)


def _load(card: Card, name: str, form: str) -> str:
    return _given(getattr(card.load, name, None), form)


def _health(card: Card, name: str) -> str:
    return _given(getattr(card.health, name, None))


CARDS: list[Column[Card]] = [
    Column("card", lambda card: card.id, right=False),
    Column("host", lambda card: card.host or NOTHING, right=False),
    Column("rack", lambda card: card.rack or NOTHING, right=False),
    Column("PCI address", lambda card: card.pci_address or NOTHING, right=False),
    Column("serial", lambda card: card.serial or NOTHING, right=False),
    Column("model", lambda card: card.model or NOTHING, right=False),
    Column("status", lambda card: card.status, right=False),
    Column("SM MHz", lambda card: _load(card, "sm_mhz", "{:.0f}")),
    Column("W", lambda card: _load(card, "power_w", "{:.0f}")),
    Column("°C", lambda card: _load(card, "temperature_c", "{:.0f}")),
    Column("throttled", lambda card: ", ".join(card.load.throttle) if card.load else "", right=False),
    Column("ECC uncorrected", lambda card: _health(card, "ecc_uncorrected_ever")),
    Column("remapped rows", lambda card: _health(card, "remapped_rows")),
    Column("NVLinks down", lambda card: _health(card, "nvlinks_down")),
]


# A slow card ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sheet:
    """A slow card: its name, who and where it is, why it is slow, and the kernels."""

    name: str
    why: str
    facts: tuple[tuple[str, str], ...]
    kernels: Plain


def _sheet(slow: SlowCard, view: tables.View) -> Sheet:
    card = view.card(slow.id)
    facts = [
        (column.heading, said)
        for column in CARDS
        if (said := column.text(card)) not in ("", NOTHING) and column.heading != "status"
    ]
    columns: list[Column[Any]] = [
        Column("kernel", lambda row: f"{row.operation} {row.kernel}", right=False),
        Column("problem", lambda row: row.problem, right=False),
        Column("against its model", lambda row: tables.slower(row.ratio)),
        Column("scaled MADs", lambda row: _given(row.mads, "{:.1f}")),
        Column(
            "at equal clock", lambda row: NOTHING if row.at_equal_clock is None else tables.slower(row.at_equal_clock)
        ),
    ]
    kernels = _plain(
        tables.Table(f"slow in {len(slow.kernels)} of {tables.plural(slow.of, 'kernel')}", columns, slow.kernels)
    )
    return Sheet(slow.id, tables.why(slow), tuple(facts), kernels)


# Dots ----------------------------------------------------------------------------------------------------------------


def _models(report: Report, found: Fleet, view: tables.View) -> list[Model]:
    dots = report.dots() if found.measurements else None
    made = []
    for table in view.models():
        assert dots is not None
        rows: Sequence[Measurement] = table.rows[:MOST_ROWS]
        columns = table.cut()
        model = report.models.numbers[rows[0].model]
        own = Dots(*(getattr(dots, name)[dots.model == model] for name in ("card", "model", "label", "ratio")))
        scale = Scale(own.ratio, [row.limit for row in rows if row.limit], found.rule.over if found.rule else 0.0)
        slow = {report.ids.numbers[each.id] for each in found.slow}
        strips = [_strip(report, row, own, scale, slow) for row in rows]
        cells = [tuple(column.text(row) for column in columns[1:]) for row in rows]
        made.append(
            Model(
                table.title, tuple(column.heading for column in columns),
                tuple(zip((columns[0].text(row) for row in rows), cells, strips, strict=True)),
                scale.at(1.0), scale.ticks(), len(table.rows) - len(rows),
            )
        )  # fmt: skip
    return made


class Scale:
    """Where a ratio lies, in percent of the width."""

    def __init__(self, ratios: NDArray[np.float64], limits: Sequence[float], unit: float) -> None:
        self._unit = max(unit, 1e-3)
        ends = self._bent(np.array([ratios.min(), ratios.max(), 1 - self._unit / 2, 1 + self._unit, *limits]))
        self._low, self._high = float(ends.min()), float(ends.max())
        self._low, self._high = (end + side * 0.02 * (self._high - self._low) for end, side in
                                 ((self._low, -1), (self._high, 1)))  # fmt: skip

    def _bent(self, ratios: NDArray[np.float64]) -> NDArray[np.float64]:
        bent: NDArray[np.float64] = np.arcsinh((ratios - 1) / self._unit)
        return bent

    def of(self, ratios: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return where ratios lie."""
        return (self._bent(ratios) - self._low) / (self._high - self._low) * 100

    def at(self, ratio: float) -> float:
        """Return where a ratio lies."""
        return float(self.of(np.array([ratio]))[0])

    def ticks(self) -> tuple[Tick, ...]:
        """Return marks that have room: the median's, then those that are nearest to it on both sides."""
        found: list[Tick] = []
        for percent in (sign * each for each in TICKS for sign in (1, -1) if each or sign > 0):
            at = self.at(1 + percent / 100) if percent > -100 else -1.0
            if 2 <= at <= 98 and all(abs(at - other.at) >= APART * 100 for other in found):
                found.append(Tick(at, f"{percent:+d}%" if percent else "median"))
        return tuple(sorted(found, key=lambda tick: tick.at))


def _strip(report: Report, row: Measurement, dots: Dots, scale: Scale, slow: set[int]) -> Strip:
    label = report.labels.numbers[Label(row.operation, row.kernel, row.problem, row.unit, row.less_is_better)]
    own = dots.label == label
    cards, ratios = dots.card[own], dots.ratio[own]
    x = scale.of(ratios)
    # Dots of one row lie apart by chance, the same chance every time.
    y = np.random.default_rng(label).integers(3, HIGH - 3, len(x))
    red = np.isin(cards, [*slow]) & (ratios > (row.limit or np.inf))
    points = np.unique(np.rint(x * ACROSS / 100).astype(np.int64) * HIGH + y)
    path = "".join(f"M{point // HIGH} {point % HIGH}h0" for point in points.tolist())
    named = []
    for at in np.flatnonzero(red)[np.argsort(-ratios[red], kind="stable")][:MOST_NAMED]:
        name = str(report.ids.names[cards[at]])
        card = report.folders[-1].cards[name]
        said = f"{name} on {card.host or 'an unknown host'}: {tables.slower(float(ratios[at]))}"
        named.append(Named(float(x[at]), int(y[at]), text.line(said)))
    return Strip(path, tuple(named), scale.at(row.limit) if row.limit else None)
