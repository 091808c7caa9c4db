"""Tables that compare cards: the lower bound of a kernel or a ladder on each card, what limits it, the ratio to the
best."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import floor, inf, log10
from typing import TYPE_CHECKING

from cudabench.cards.load import Card
from cudabench.explain import verdict
from cudabench.explain.bound_texts import NAMES
from cudabench.records.plan import Operation, Settings
from cudabench.records.results import CpuTime, Limit, Result
from cudabench.results import sweep_points, units
from cudabench.results.columns import NOTHING, Column
from cudabench.results.groups import grouped
from cudabench.text import line
from cudabench.views import tables
from cudabench.views.console import Console, say
from cudabench.views.table import cpu_line, problem_line, warning_lines

if TYPE_CHECKING:
    from cudabench.records.results import DeviceInfo

MOST_ROWS = 20  # at most this many kernels, or points of a sweep, are shown
SAME = 1.005  # two bounds with a smaller ratio than this are printed as the same number
# For each resource, the ceiling from which its limit is computed. If a card lacks the ceiling, all cards are compared
# without this resource; each card's own bound still has it.
NEEDS = {"start": "launch-alone", "launch": "launch-gap", "latency": "memory-latency", "blocks": "block-rate"}
SOURCES = {"measured": "measured", "datasheet": "datasheet"}
LAUNCH = "start"
MILLION = 1e6 / 3600  # the hours that a million launches take if one launch takes one second
BOUND = "At least: a bound from counts, not a time"
SHEET = "; a datasheet's bound is lower still, since no card reaches its figures"


@dataclass(frozen=True)
class Row:
    """A card and its best result.

    `best`: the result with the lowest bound, or None; `compared`: its longest limit among the resources that all cards
    have; `tied`: how many other results have the same bound; `status`: why there is no result.
    """

    card: Card
    best: Result | None
    compared: Limit | None = None
    tied: int = 0
    status: str = ""

    @property
    def bound(self) -> Limit | None:
        """The limit that gives the lower bound of the result; None without a result or a limit."""
        return self.best.limits[0] if self.best and self.best.limits else None

    @property
    def cost(self) -> float | None:
        """The least cost of a million launches, in the currency of --price; None without a bound or a price."""
        if self.compared is None or self.card.per_hour is None:
            return None
        return self.compared.time_s * MILLION * self.card.per_hour


def show_by_card(
    out: Console,
    err: Console,
    operation: Operation,
    devices: Sequence[DeviceInfo],
    cards: Sequence[Card],
    results: Sequence[Result],
    cpus: Sequence[CpuTime],
    settings: Settings,
) -> None:
    """Print a table of cards for each size, the CPU baseline and the warnings.

    After each table, print why results are missing in this table.
    """
    _heading(out, cards)
    rows: list[Row] = []
    for group in grouped((tuple(result.size.items()), result) for result in results).values():
        out.print(problem_line(operation, group, settings, devices[0]))
        rows += table(out, cards, group)
    print_legend(out, rows)
    if cpus:
        out.print()
        out.print(cpu_line(cpus))
    for warning in warning_lines(results):
        say(err, warning, "yellow")


def show_sweep_by_card(
    out: Console,
    cards: Sequence[Card],
    groups: Sequence[tuple[str, Sequence[Result]]],
    label: Callable[[Result], str],
    repeat: Callable[[Result], str],
) -> None:
    """Print for each problem the best point of each card, and the command that repeats the best card's point."""
    _heading(out, cards)
    all_rows: list[Row] = []
    for title, results in groups:
        say(out, title, soft_wrap=True)
        rows = table(out, cards, results, label, "point", ranked=True)
        if rows[0].best is not None:
            say(out, f"Repeat: {repeat(rows[0].best)}", soft_wrap=True)
            out.print()
        all_rows += rows
    print_legend(out, all_rows)


def _heading(out: Console, cards: Sequence[Card]) -> None:
    codes = dict.fromkeys(card.architecture for card in cards)
    subject = f"{line(cards[0].key)}, by the counts of its"
    if len(cards) > 1:
        subject = f"{len(cards)} cards, by the counts of their"
    say(out, f"{subject} own code ({', '.join(codes)}): nothing is timed", "bold")


def table(
    out: Console,
    cards: Sequence[Card],
    results: Sequence[Result],
    label: Callable[[Result], str] = lambda result: result.kernel,
    heading: str = "kernel",
    ranked: bool = False,
) -> list[Row]:
    """Print a table of cards, the best first, then a table of all results if there are several, then notes.

    Return the rows of the first table. `ranked`: sort the second table by the bound on the best card.
    """
    lacking = resources_not_of_all(cards)
    views = {card.key: results_on_card(card, results) for card in cards}
    several = len({label(result) for result in results}) > 1
    rows = [_row(card, views[card.key], results, lacking) for card in cards]
    rows.sort(key=lambda row: row.compared.time_s if row.compared else inf)
    out.print()
    columns, _ = tables.fitting(_columns(rows, label if several else None, heading), rows, out.width)
    if tables.needed(columns, rows) > out.width:  # if the table is still too wide, the headings take two lines
        columns = [replace(column, heading=re.sub(r"(times|million) ", r"\1\n", column.heading)) for column in columns]
    out.print(tables.table(columns, rows, lambda row: tables.BAD.get(row.status, ""), wrap=False))
    if several:
        out.print()
        views |= {rows[0].card.key: sorted(views[rows[0].card.key], key=sweep_points.cost)} if ranked else {}
        _print_all(out, rows, views, label, heading)
    out.print()
    notes = [*_cheapest(rows), *_reasons(cards, results, label, several)]
    for status, note in notes:
        say(out, note, {"ok": "", "skipped": "dim"}.get(status, "red"))
    if notes:
        out.print()
    return rows


def resources_not_of_all(cards: Sequence[Card]) -> set[str]:
    """Return the resources for which at least one card lacks the ceiling."""
    return {resource for resource, name in NEEDS.items() if not all(card.value(name) for card in cards)}


def results_on_card(card: Card, results: Iterable[Result]) -> list[Result]:
    """Return the correct results for a card's architecture, with the limits on this card."""
    correct = []
    for result in results:
        limits = next(
            (card_limits for card_limits in result.limits_by_card or () if card_limits.card == card.key), None
        )
        if limits is not None and result.status == "ok":
            correct.append(replace(result, limits=limits.limits, limits_on=limits.on, limits_by_card=(limits,)))
    return correct


def _longest_of_all(result: Result, lacking: set[str]) -> Limit | None:
    """Return the longest limit of a result on a card without the resources in `lacking`, or None."""
    (card_limits,) = result.limits_by_card or ()
    launch = card_limits.launch_s or 0.0 if LAUNCH in lacking else 0.0
    kept = [limit for limit in card_limits.limits if limit.resource not in lacking]
    return replace(kept[0], time_s=kept[0].time_s - launch) if kept else None


def _row(card: Card, views: Sequence[Result], results: Sequence[Result], lacking: set[str]) -> Row:
    if not views:
        states = [result.status for result in results if result.device == f"sim:{card.architecture}"]
        return Row(card, None, status=max(states, key=("skipped", "failed", "wrong", "ok").index, default="skipped"))
    best = sweep_points.best(views)[0]
    least = sweep_points.cost(best)[0]
    return Row(
        card,
        best,
        _longest_of_all(best, lacking),
        sum(sweep_points.cost(view)[0] <= least * SAME for view in views) - 1,
    )


def _columns(rows: Sequence[Row], label: Callable[[Result], str] | None, heading: str) -> list[Column[Row]]:
    least = rows[0].compared.time_s if rows[0].compared else 0.0

    def named(row: Row) -> str:
        assert label is not None
        return NOTHING if row.best is None else label(row.best) + (f" +{row.tied}" if row.tied else "")

    def times(row: Row) -> str:
        return f"{units.digits(row.compared.time_s / least, 3)}x" if row.compared and least else ""

    columns: list[Column[Row]] = [
        Column("card", lambda row: line(row.card.key), right=False),
        Column("name", lambda row: line(row.card.device.name).removeprefix("NVIDIA "), right=False, expendable=1),
        Column("figures", lambda row: SOURCES.get(row.card.source, "partly measured"), right=False),
        *([Column(heading, named, right=False)] if label else []),
        Column("at least", lambda row: units.seconds(row.bound.time_s) if row.bound else _state(row.status)),
        Column("held by", lambda row: verdict.name(row.bound) if row.bound else "", right=False),
    ]
    if _left_out(rows):
        columns.append(Column("compared", lambda row: units.seconds(row.compared.time_s) if row.compared else NOTHING))
    columns.append(Column("times the best", times))
    if any(row.card.per_hour is not None for row in rows):
        hour, cost = (lambda row: _money(row.card.per_hour)), (lambda row: _money(row.cost))
        columns += [Column("an hour", hour, expendable=2), Column("a million launches", cost)]
    return columns


def _state(status: str) -> str:
    return {"skipped": "cannot run", "wrong": "WRONG"}.get(status, status) or NOTHING


def _money(amount: float | None) -> str:
    if amount is None:
        return NOTHING
    if amount >= 1 or not amount:
        return units.digits(amount, 3)
    return f"{amount:.{2 - floor(log10(amount))}f}".rstrip("0")


def _print_all(
    out: Console, rows: Sequence[Row], views: dict[str, list[Result]], label: Callable[[Result], str], heading: str
) -> None:
    """Print the lower bound of each kernel or point on each card, for as many cards as the terminal's width allows."""
    by_label = {row.card.key: {label(result): result for result in views[row.card.key]} for row in rows}
    labels = list(dict.fromkeys(name for results in by_label.values() for name in results))
    names = labels[:MOST_ROWS]
    limits = {
        key: {name: result.limits[0] for name, result in limits_of.items() if result.limits}
        for key, limits_of in by_label.items()
    }
    cells = {
        key: [
            f"{units.seconds(limits_of[n].time_s)} {verdict.name(limits_of[n])}" if n in limits_of else NOTHING
            for n in names
        ]
        for key, limits_of in limits.items()
        if by_label[key]
    }
    columns: list[Column[int]] = [Column(heading, lambda row: names[row], right=False)]
    columns += [
        Column(line(key), texts.__getitem__, expendable=len(cells) - number if number else 0)
        for number, (key, texts) in enumerate(cells.items())
    ]
    shown, dropped = tables.fitting(columns, range(len(names)), out.width)
    out.print(tables.table(shown, range(len(names)), wrap=False))
    if len(labels) > len(names):
        say(out, f"... and {len(labels) - len(names)} more, in --json", "dim")
    if dropped:
        hidden = ", ".join(column.heading for column in dropped)
        say(out, f"Too narrow for: {hidden}; a wider terminal or a pipe shows all.", "dim")


def print_legend(out: Console, rows: Sequence[Row]) -> None:
    """Print the meaning of the columns, in at most three sentences."""
    cards = list({row.card.key: row.card for row in rows}.values())
    sheet = any("datasheet" in card.source for card in cards)
    sentences = [f"{BOUND}{SHEET if sheet else ''}."]
    if names := _left_out(rows):
        sentences.append(f"Compared: without {', '.join(names)}, whose figures some of these cards lack.")
    if any(row.tied for row in rows):
        sentences.append("+N: N more results have the same bound.")
    say(out, " ".join(sentences), "dim", soft_wrap=out.width >= 200)
    if meanings := verdict.legend(row.bound.resource for row in rows if row.bound):
        say(out, meanings, "dim", soft_wrap=out.width >= 200)


def _left_out(rows: Sequence[Row]) -> list[str]:
    """Return the names of the resources that only some of the cards have, without the gap between launches, because
    these tables compare single launches."""
    cards = [row.card for row in rows]
    lacking = sorted(resources_not_of_all(cards) - {"launch"}, key=[*NEEDS].index)
    return [NAMES[resource] for resource in lacking if any(card.value(NEEDS[resource]) for card in cards)]


def _cheapest(rows: Sequence[Row]) -> list[tuple[str, str]]:
    priced = [(row.cost, row) for row in rows if row.cost is not None]
    if len(priced) < 2:
        return []
    cost, row = min(priced, key=lambda pair: pair[0])
    return [("ok", f"Cheapest: {line(row.card.key)}, {_money(cost)} a million launches at least.")]


def _reasons(
    cards: Sequence[Card], results: Sequence[Result], label: Callable[[Result], str], several: bool
) -> list[tuple[str, str]]:
    """Return why kernels have no bound on some cards, as (status, sentence).

    A reason that kernels share is listed once.
    """
    shared = grouped(((result.status, result.reason or ""), result) for result in results if result.status != "ok")
    reasons: list[tuple[str, str]] = []
    for (status, reason), group in shared.items():
        names = f"{', '.join(dict.fromkeys(map(label, group)))} on " if several else ""
        on = (line(card.key) for result in group for card in cards if result.device == f"sim:{card.architecture}")
        reasons.append((status, f"{names}{', '.join(dict.fromkeys(on))}: {_state(status)}: {reason}"))
    return reasons
