"""A fleet as text: a line for each shard, the live table of a submission, and the tables of a report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from cudabench import text
from cudabench.records.fleet import Card, Cause, Damaged, Fleet, Group, Measurement, SlowCard, Slowing
from cudabench.results import units
from cudabench.results.ceilings import value as ceiling_value
from cudabench.results.columns import NOTHING, Column, markdown_table
from cudabench.results.groups import grouped
from cudabench.views import tables
from cudabench.views.console import Console, say

if TYPE_CHECKING:
    from pathlib import Path

    from cudabench.fleet.shard import WrittenShard
    from cudabench.fleet.submit import Entry

Row = TypeVar("Row")

MOST_ROWS = 30  # a longer table is cut to this many rows; the file written with --json has all rows
MOST_NAME = 40  # a name in a table is cut to this many characters
UUID_SHOWN = 12  # how many characters of a UUID are shown, if these are enough to identify the card
WORDS: dict[Cause, str] = {
    "clock": "its clock is low",
    "partly clock": "its clock is low, and it is slow beyond that",
    "not clock": "slow at equal clock",
    "unknown": "its clock was not read",
}
STYLES = {"wrong": "bold red", "failed": "red", "unverified": "yellow", "missing": "cyan"}


def shard_line(written: WrittenShard) -> str:
    """Return a line about the run on a card whose shard was written."""
    card = written.card
    kernels = f" {written.kernels} kernel{'' if written.kernels == 1 else 's'}," if written.kernels else ""
    reason = f" ({card.reason})" if card.reason else ""
    return text.line(f"{card.id} on {card.host}:{kernels} {card.status}{reason} -> {written.path}")


# A submission --------------------------------------------------------------------------------------------------------


class Live:
    """Shows the state of a submission: a live table on a terminal, else a line for each change."""

    def __init__(self, out: Console, *, shown: bool) -> None:
        self._out, self._shown = out, shown
        self._last: dict[str, object] = {}
        self._live: Any = None

    def __enter__(self) -> Live:
        if self._shown and self._out.is_terminal:
            from rich.live import Live as RichLive

            self._live = RichLive(console=self._out, auto_refresh=False)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop updating the table; it stays on the screen."""
        if self._live:
            self._live.stop()
            self._live = None

    def update(self, entries: Sequence[Entry], slow: int | None) -> None:
        """Show the states of the tasks if they changed.

        `slow`: the number of slow cards, or None if it is not known yet.
        """
        states = Counter(entry.state for entry in entries)
        again = sum(max(entry.attempts - 1, 0) for entry in entries)
        rare = {"failed": states["failed"], "given twice": states["repeated"], "submitted again": again}
        cells: dict[str, object] = {name: states[name] for name in ("pending", "running", "done")}
        cells |= {"slow so far": NOTHING if slow is None else slow, **{name: n for name, n in rare.items() if n}}
        if not self._shown or cells == self._last:
            return
        self._last = cells
        if self._live is None:
            self._out.print(", ".join(f"{value} {name}" for name, value in cells.items()), soft_wrap=True)
        else:
            heads = [tables.Head(name, right=True) for name in cells]
            self._live.update(tables.grid(heads, [[*map(str, cells.values())]]), refresh=True)


def ended(entries: Sequence[Entry], folder: Path, logs: Path) -> list[str]:
    """Return the lines to print at the end of a submission: failures, and the next commands."""
    lines = [f"Task {e.number} failed: {e.reason}." for e in entries if e.state == "failed"]
    if len(lines) > MOST_ROWS:
        lines = [*lines[:MOST_ROWS], f"... and {len(lines) - MOST_ROWS} more tasks failed; their logs are in {logs}."]
    repeated = sum(entry.state == "repeated" for entry in entries)
    if repeated:
        was = "1 task was given a card" if repeated == 1 else f"{repeated} tasks were given cards"
        lines.append(f"{was} that another task had measured; other cards may have been busy.")
    if repeated or lines:
        lines.append(f"To try these again: cudabench fleet resume {folder}")
    return [text.line(line) for line in (*lines, f"To see the results: cudabench fleet report {folder}")]


def cancelled(continuing: Sequence[str], folder: Path) -> str:
    """Return the message after Ctrl-C. `continuing`: the ids of jobs that continue to run."""
    note = ""
    if continuing:
        jobs = f"{len(continuing)} job{' goes' if len(continuing) == 1 else 's go'} on and will write"
        note = f" {jobs}; 'scancel {' '.join(continuing[:8])}{' ...' if len(continuing) > 8 else ''}' ends them."
    return text.line(f"Waiting jobs are cancelled.{note} To continue: cudabench fleet resume {folder}")


# The report ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Table:
    """A table of a report. `style`: the colour of its rows."""

    title: str
    columns: Sequence[Column[Any]]
    rows: Sequence[Any]
    style: str = ""

    def cut(self) -> list[Column[Any]]:
        """Return the columns with each cell's text on one line and cut to MOST_NAME characters."""
        return [Column(c.heading, _cut(c), c.right, c.expendable) for c in self.columns]


@dataclass(frozen=True)
class View:
    """Shows a report.

    `found`: the findings; `simulated`: how many of the cards are simulators; `markdown`: print Markdown.
    """

    found: Fleet
    simulated: int = 0
    markdown: bool = False

    def show(self, out: Console) -> None:
        """Print the summary, then each table that has rows: first cards with faults, then all kernels and groups."""
        for line in head(self.found, self.simulated):
            self._line(out, line)
        for table in (*self.troubles(), *self.models(), *self.groups(), *self.damaged()):
            self._table(out, table)
        if self.found.measurements and self.found.rule:
            self._line(out, "")
            self._line(out, rule_text(self.found), "dim")

    # Tables

    def troubles(self) -> list[Table]:
        """Return the tables of slow cards, of cards that become slower, and of cards without a correct result."""
        fleet = self.found
        several = len({row.model for row in fleet.measurements}) > 1
        faulty = sorted((card for card in fleet.cards if card.status != "ok"), key=lambda card: card.status)
        who: list[Column[Any]] = [
            Column("card", lambda row: self._short(row.id), right=False),
            Column("host", lambda row: self.cards[row.id].host or NOTHING, right=False),
        ]
        slow: list[Column[SlowCard]] = [
            Column("model", lambda row: self.cards[row.id].model or NOTHING, False, 2),
            Column("kernels", lambda row: f"{len(row.kernels)} of {row.of}"),
            Column("worst", lambda row: slower(row.kernels[0].ratio)),
            Column("in", lambda row: row.kernels[0].kernel, right=False, expendable=1),
            Column("why", why, right=False),
        ]
        slowing: list[Column[Slowing]] = [
            Column("kernel", lambda row: row.kernel, right=False),
            Column("change", lambda row: slower(row.change)),
            Column(
                "against its model, folder by folder",
                lambda row: " ".join(NOTHING if ratio is None else slower(ratio) for ratio in row.ratios[-8:]),
                right=False,
            ),
        ]
        bad: list[Column[Card]] = [
            Column("status", lambda row: row.status, right=False),
            Column("why", lambda row: row.reason or NOTHING, right=False),
        ]
        return [
            Table("Slow cards", [*who, *(slow if several else slow[1:])], fleet.slow, "red"),
            Table("Cards that get slower", [*who, *slowing], fleet.slowing, "red"),
            Table("Cards without a right result", [*who, *bad], faulty, "yellow"),
        ]

    def models(self) -> list[Table]:
        """Return a table of kernels for each model."""
        columns: list[Column[Measurement]] = [
            Column("kernel", lambda row: row.kernel, right=False),
            Column("problem", lambda row: f"{row.operation} {row.problem}".strip(), False, 1),
            Column("cards", lambda row: units.count(row.cards)),
            Column("median", lambda row: ceiling_value(row.median, row.unit)),
            Column("MAD", lambda row: units.percent(row.mad)),
            Column("slow", lambda row: str(row.slow) if row.limit is not None else NOTHING),
            Column("slowest", lambda row: slower(row.worst)),
            Column("which", lambda row: self._short(row.worst_card), right=False, expendable=2),
        ]
        tables = []
        for model, rows in grouped((measurement.model, measurement) for measurement in self.found.measurements).items():
            problems = {f"{row.operation} {row.problem}".strip() for row in rows}
            if len(problems) == 1 and (common := problems.pop()):
                tables.append(Table(f"{model}: {common}", [columns[0], *columns[2:]], rows))
            else:
                tables.append(Table(model, columns, rows))
        return tables

    def groups(self) -> list[Table]:
        """Return a table of racks and a table of hosts, each only if there are several, the worst group first."""
        worst_first = sorted(self.found.groups, key=lambda group: (-group.slow, -group.faulty, -(group.ratio or 0)))
        by_kind = {kind: [group for group in worst_first if group.kind == kind] for kind in ("rack", "host")}
        columns: list[Column[Group]] = [
            Column("cards", lambda row: units.count(row.cards + row.faulty)),
            Column("slow", lambda row: str(row.slow)),
            Column("not right", lambda row: str(row.faulty)),
            Column("typical", lambda row: NOTHING if row.ratio is None else slower(row.ratio)),
        ]
        return [
            Table(f"By {kind}", [Column[Group](kind, lambda row: row.name, right=False), *columns], groups_of_kind)
            for kind, groups_of_kind in by_kind.items()
            if len(groups_of_kind) > 1
        ]

    def damaged(self) -> list[Table]:
        """Return the table of files that are not shards."""
        columns: list[Column[Damaged]] = [
            Column("file", lambda row: row.file, right=False),
            Column("why", lambda row: row.reason, right=False),
        ]
        return [Table("Files that are not shards", columns, self.found.damaged, "yellow")]

    # Text

    @cached_property
    def cards(self) -> dict[str, Card]:
        """The cards by id."""
        return {card.id: card for card in self.found.cards}

    @cached_property
    def _starts(self) -> Counter[str]:
        return Counter(card[:UUID_SHOWN] for card in self.cards)

    def _short(self, card: str) -> str:
        """Return the first part of a card's UUID if it identifies the card, else the whole id."""
        unique = card.startswith(("GPU-", "MIG-")) and self._starts[card[:UUID_SHOWN]] < 2
        return card[:UUID_SHOWN] if unique else card

    def _line(self, out: Console, line: str, style: str = "") -> None:
        if self.markdown:
            line = f"**{text.markdown(line)}**\n" if style == "bold" else text.markdown(line) + "\n"
        say(out, line, style, soft_wrap=True)

    def _table(self, out: Console, table: Table) -> None:
        """Print a table under its title if it has rows. Columns for which the terminal is too narrow are left out."""
        if not table.rows:
            return
        self._line(out, "")
        self._line(out, table.title, "bold")
        shown, cut, hidden = table.rows[:MOST_ROWS], table.cut(), len(table.rows) - MOST_ROWS
        if self.markdown:
            for line in (*markdown_table(cut, shown), ""):
                out.print(line, soft_wrap=True)
        else:
            kept, _ = tables.fitting(cut, shown, out.width)
            out.print(tables.table(kept, shown, lambda row: table.style, wrap=True))
        if hidden > 0:
            self._line(out, f"... and {units.count(hidden)} more, all of them in the file of --json.")


def _cut(column: Column[Row]) -> Callable[[Row], str]:
    most = 10 * MOST_NAME if column.heading == "why" else MOST_NAME

    def shortened(row: Row) -> str:
        value = text.line(column.text(row))
        return value if len(value) <= most else f"{value[: most - 3]}..."

    return shortened if column.heading != "against its model, folder by folder" else column.text


def head(fleet: Fleet, simulated: int) -> list[str]:
    """Return the summary of a report in a few lines: how many cards there are, and how many findings of each kind."""
    present = [card for card in fleet.cards if card.status != "missing"]
    models, hosts = ({getattr(card, kind) for card in present} - {None} for kind in ("model", "host"))
    cards = f"{plural(len(present), 'card')} of {plural(len(models), 'model')} on {plural(len(hosts), 'host')}"
    statuses = Counter(card.status for card in fleet.cards if card.status != "ok")
    counts = (
        f"{len(fleet.slow)} slow" if fleet.slow and fleet.measurements else "",
        f"{len(fleet.slowing)} getting slower" if fleet.slowing and fleet.measurements else "",
        *(f"{units.count(n)} {status}" for status, n in sorted(statuses.items())),
        f"{plural(len(fleet.damaged), 'file')} unreadable" if fleet.damaged else "",
    )
    summary = ", ".join(filter(None, counts)) or ("none slow, all right" if fleet.measurements else "all right")
    lines = [f"{cards} in {fleet.folders[-1]}: {summary}."]
    if simulated:
        who = "All cards are" if simulated == len(present) > 1 else "It is" if len(present) == 1 else f"{simulated} are"
        lines.append(f"{who} the simulator, which verifies but does not time.")
    if len(fleet.folders) > 1:
        lines.append(f"Oldest first: {', '.join(fleet.folders[-8:])}.")
    return lines


def why(row: SlowCard) -> str:
    """Return a text that says why a card is slow, as far as the reason is known."""
    words = WORDS[row.cause]
    if row.cause in ("clock", "partly clock") and row.sm_mhz and row.usual_sm_mhz:
        words += f": {row.sm_mhz:.0f} of {row.usual_sm_mhz:.0f} MHz"
    return words + (f" ({', '.join(row.throttle)})" if row.throttle else "")


def rule_text(fleet: Fleet) -> str:
    """Return a sentence that says which cards are called slow."""
    rule = fleet.rule
    assert rule is not None
    few = any(row.limit is None for row in fleet.measurements)
    return (
        f"Slow: over the median of its model by more than {rule.mads:g} scaled MADs (x 1.4826) and more than "
        f"{units.percent(rule.over)}.{' A model with under three cards gets no verdict.' if few else ''}"
    )


def slower(ratio: float) -> str:
    """Return a ratio of costs as a change: 1.05 as '+5.0%'."""
    return f"{round((ratio - 1) * 100, 1) + 0.0:+.1f}%"  # adding 0.0 turns -0.0 into 0.0


def plural(count: int, word: str) -> str:
    """Return a number with its noun: '1 card', '2 cards'."""
    return f"{units.count(count)} {word}{'' if count == 1 else 's'}"
