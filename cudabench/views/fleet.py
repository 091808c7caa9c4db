"""A fleet in text: a line a shard, the live table of a submission, and the tables of a report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from cudabench import text
from cudabench.records.fleet import Card, Cause, Damaged, Fleet, Group, Measurement, SlowCard, Slowing
from cudabench.results import units
from cudabench.results.columns import NOTHING, Column, markdown_table
from cudabench.views import tables
from cudabench.views.console import say

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from cudabench.fleet.shard import Written
    from cudabench.fleet.submit import Entry

Row = TypeVar("Row")

MOST_ROWS = 30  # of a table; --json has them all
MOST_NAME = 40  # characters of a name in a table
UUID_SHOWN = 12  # characters of a UUID, where they tell the cards apart
WORDS: dict[Cause, str] = {
    "clock": "its clock is low",
    "partly clock": "its clock is low, and it is slow besides",
    "not clock": "slow at equal clock",
    "unknown": "no clock was seen",
}
STYLES = {"wrong": "bold red", "failed": "red", "unverified": "yellow", "missing": "cyan"}


def shard_line(written: Written) -> str:
    """Return what a card did, in a line."""
    card = written.card
    kernels = f" {written.kernels} kernel{'' if written.kernels == 1 else 's'}," if written.kernels else ""
    reason = f" ({card.reason})" if card.reason else ""
    return text.line(f"{card.id} on {card.host}:{kernels} {card.status}{reason} -> {written.path}")


# A submission --------------------------------------------------------------------------------------------------------


class Live:
    """Shows how a submission stands: a table that changes on a terminal, a line a change elsewhere."""

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
        """Leave the table as it is."""
        if self._live:
            self._live.stop()
            self._live = None

    def update(self, entries: Sequence[Entry], slow: int | None) -> None:
        """Show how the tasks stand, if that has changed; slow: how many cards are, None before that can be said."""
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
            return
        from rich.table import Table

        table = Table(box=None, padding=(0, 3, 0, 0), pad_edge=False, header_style="bold")
        for name in cells:
            table.add_column(name, justify="right")
        table.add_row(*map(str, cells.values()))
        self._live.update(table, refresh=True)


def ended(entries: Sequence[Entry], folder: Path, logs: Path) -> list[str]:
    """Return what is to be said at the end of a submission: what failed, and what to do next."""
    lines = [f"Task {e.number} failed: {e.reason}." for e in entries if e.state == "failed"]
    if len(lines) > MOST_ROWS:
        lines = [*lines[:MOST_ROWS], f"... and {len(lines) - MOST_ROWS} more tasks failed; their logs are in {logs}."]
    repeated = sum(entry.state == "repeated" for entry in entries)
    if repeated:
        was = "1 task was given a card" if repeated == 1 else f"{repeated} tasks were given cards"
        lines.append(f"{was} that another had measured; others may have been busy.")
    if repeated or lines:
        lines.append(f"To try these again: cudabench fleet resume {folder}")
    return [text.line(each) for each in (*lines, f"What was found: cudabench fleet report {folder}")]


def cancelled(left: Sequence[str], folder: Path) -> str:
    """Return what is to be said after an interrupt."""
    goes_on = ""
    if left:
        many = f"{len(left)} job{' goes' if len(left) == 1 else 's go'} on and will write"
        goes_on = f" {many}; 'scancel {' '.join(left[:8])}{' ...' if len(left) > 8 else ''}' ends what runs."
    return text.line(f"What waited is cancelled.{goes_on} To go on: cudabench fleet resume {folder}")


# The report ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Table:
    """A table of a report: its title, its columns and rows, and how its rows are coloured."""

    title: str
    columns: Sequence[Column[Any]]
    rows: Sequence[Any]
    style: str = ""

    def cut(self) -> list[Column[Any]]:
        """Return the columns with texts of one line that is not too long."""
        return [Column(c.heading, _cut(c), c.right, c.expendable) for c in self.columns]


@dataclass(frozen=True)
class View:
    """What is shown of a report; `simulated` is how many of its cards are the simulator."""

    found: Fleet
    simulated: int = 0
    markdown: bool = False

    def show(self, out: Console) -> None:
        """Print the head, then each table that has rows: first what is wrong, then all kernels and groups."""
        for line in head(self.found, self.simulated):
            self._line(out, line)
        for table in (*self.troubles(), *self.models(), *self.groups(), *self.damaged()):
            self._table(out, table)
        if self.found.measurements and self.found.rule:
            self._line(out, "")
            self._line(out, rule_text(self.found), "dim")

    # Tables

    def troubles(self) -> list[Table]:
        """Return the tables of slow cards, of those that get slower and of those without a right result."""
        found = self.found
        several = len({row.model for row in found.measurements}) > 1
        faulty = sorted((card for card in found.cards if card.status != "ok"), key=lambda card: card.status)
        return [
            Table("Slow cards", self._slow(several), found.slow, "red"),
            Table("Cards that get slower", self._slowing(), found.slowing, "red"),
            Table("Cards without a right result", self._faulty(), faulty, "yellow"),
        ]

    def models(self) -> list[Table]:
        """Return the tables of kernels, one a model."""
        by_model: dict[str, list[Measurement]] = {}
        for each in self.found.measurements:
            by_model.setdefault(each.model, []).append(each)
        tables = []
        for model, rows in by_model.items():
            problems = {(row.operation, row.problem) for row in rows}
            common = " ".join(problems.pop()).strip() if len(problems) == 1 else ""
            tables.append(Table(f"{model}{': ' if common else ''}{common}", self._measured(bool(common)), rows))
        return tables

    def groups(self) -> list[Table]:
        """Return the tables of racks and of hosts, where there are several."""
        tables = []
        for kind in ("rack", "host"):
            groups = [group for group in self.found.groups if group.kind == kind]
            if len(groups) > 1:
                tables.append(Table(f"By {kind}", self._grouped(kind), sorted(groups, key=_worst_first)))
        return tables

    def damaged(self) -> list[Table]:
        """Return the table of files that are no shards."""
        columns = [
            Column[Damaged]("file", lambda row: row.file, right=False),
            Column[Damaged]("why", lambda row: row.reason, right=False),
        ]
        return [Table("Files that are no shards", columns, self.found.damaged, "yellow")]

    # Columns

    def _measured(self, common: bool) -> list[Column[Measurement]]:
        problem = [Column[Measurement]("problem", lambda row: f"{row.operation} {row.problem}".strip(), False, 1)]
        return [
            Column("kernel", lambda row: row.kernel, right=False),
            *([] if common else problem),
            Column("cards", lambda row: units.count(row.cards)),
            Column("median", lambda row: value_text(row.median, row.unit)),
            Column("MAD", lambda row: units.percent(row.mad)),
            Column("slow", lambda row: str(row.slow) if row.limit is not None else NOTHING),
            Column("slowest", lambda row: slower(row.worst)),
            Column("which", lambda row: self._short(row.worst_card), right=False, expendable=2),
        ]

    def _slow(self, several: bool) -> list[Column[SlowCard]]:
        model = [Column[SlowCard]("model", lambda row: self.cards[row.id].model or NOTHING, False, 2)]
        return [
            Column("card", lambda row: self._short(row.id), right=False),
            Column("host", lambda row: self.cards[row.id].host or NOTHING, right=False),
            *(model if several else []),
            Column("kernels", lambda row: f"{len(row.kernels)} of {row.of}"),
            Column("worst", lambda row: slower(row.kernels[0].ratio)),
            Column("in", lambda row: row.kernels[0].kernel, right=False, expendable=1),
            Column("why", why, right=False),
        ]

    def _slowing(self) -> list[Column[Slowing]]:
        return [
            Column("card", lambda row: self._short(row.id), right=False),
            Column("host", lambda row: self.cards[row.id].host or NOTHING, right=False),
            Column("kernel", lambda row: row.kernel, right=False),
            Column("change", lambda row: slower(row.change)),
            Column(
                "against its model, folder by folder",
                lambda row: " ".join(NOTHING if ratio is None else slower(ratio) for ratio in row.ratios[-8:]),
                right=False,
            ),
        ]

    def _faulty(self) -> list[Column[Card]]:
        return [
            Column("card", lambda row: self._short(row.id), right=False),
            Column("host", lambda row: row.host or NOTHING, right=False),
            Column("status", lambda row: row.status, right=False),
            Column("why", lambda row: row.reason or NOTHING, right=False),
        ]

    def _grouped(self, kind: str) -> list[Column[Group]]:
        return [
            Column(kind, lambda row: row.name, right=False),
            Column("cards", lambda row: units.count(row.cards + row.faulty)),
            Column("slow", lambda row: str(row.slow)),
            Column("not right", lambda row: str(row.faulty)),
            Column("typical", lambda row: NOTHING if row.ratio is None else slower(row.ratio)),
        ]

    # Text

    @cached_property
    def cards(self) -> dict[str, Card]:
        """The cards by their ids."""
        return {card.id: card for card in self.found.cards}

    @cached_property
    def _starts(self) -> Counter[str]:
        return Counter(card[:UUID_SHOWN] for card in self.cards)

    def _short(self, card: str) -> str:
        """Return a UUID's first part where no other card has the same."""
        alone = card.startswith(("GPU-", "MIG-")) and self._starts[card[:UUID_SHOWN]] < 2
        return card[:UUID_SHOWN] if alone else card

    def _line(self, out: Console, line: str, style: str = "") -> None:

        if self.markdown:
            line = f"**{text.markdown(line)}**\n" if style == "bold" else text.markdown(line) + "\n"
        say(out, line, style, soft_wrap=True)

    def _table(self, out: Console, made: Table) -> None:
        """Print a table under its title, if it has rows; columns that the width has no room for are left out."""
        rows, style = made.rows, made.style
        if not rows:
            return
        self._line(out, "")
        self._line(out, made.title, "bold")
        shown, cut = rows[:MOST_ROWS], made.cut()
        if self.markdown:
            for line in markdown_table(cut, shown):
                out.print(line, soft_wrap=True)
            out.print("")
        else:
            kept, _ = tables.fitting(cut, shown, out.width)
            out.print(tables.table(kept, shown, lambda row: style, wrap=True))
        if len(rows) > len(shown):
            self._line(out, f"... and {units.count(len(rows) - len(shown))} more, all of them in the file of --json.")


def _cut(column: Column[Row]) -> Callable[[Row], str]:
    most = 10 * MOST_NAME if column.heading == "why" else MOST_NAME

    def shortened(row: Row) -> str:
        value = text.line(column.text(row))
        return value if len(value) <= most else f"{value[: most - 3]}..."

    return shortened if column.heading != "against its model, folder by folder" else column.text


def head(found: Fleet, simulated: int) -> list[str]:
    """Return what was read and what was found, in a line or two."""
    there = [card for card in found.cards if card.status != "missing"]
    models, hosts = ({getattr(card, kind) for card in there} - {None} for kind in ("model", "host"))
    many = f"{plural(len(there), 'card')} of {plural(len(models), 'model')} on {plural(len(hosts), 'host')}"
    statuses = Counter(card.status for card in found.cards if card.status != "ok")
    counts = [f"{len(found.slow)} slow", f"{len(found.slowing)} getting slower"] if found.measurements else []
    counts += [f"{units.count(n)} {status}" for status, n in sorted(statuses.items())]
    counts += [f"{plural(len(found.damaged), 'file')} unreadable"] if found.damaged else []
    counts = [each for each in counts if not each.startswith("0 ")] or (
        ["none slow, all right"] if found.measurements else ["all right"]
    )
    lines = [f"{many} in {found.folders[-1]}: {', '.join(counts)}."]
    if simulated:
        who = "All of them are" if simulated == len(there) > 1 else "It is" if len(there) == 1 else f"{simulated} are"
        lines.append(f"{who} the simulator, which verifies but times nothing.")
    if len(found.folders) > 1:
        lines.append(f"Oldest first: {', '.join(found.folders[-8:])}.")
    return lines


def why(row: SlowCard) -> str:
    """Return what is known of why a card is slow."""
    words = WORDS[row.cause]
    if row.cause in ("clock", "partly clock") and row.sm_mhz and row.usual_sm_mhz:
        words += f": {row.sm_mhz:.0f} of {row.usual_sm_mhz:.0f} MHz"
    return words + (f" ({', '.join(row.throttle)})" if row.throttle else "")


def rule_text(found: Fleet) -> str:
    """Return the rule in a sentence."""
    rule = found.rule
    assert rule is not None
    few = any(row.limit is None for row in found.measurements)
    return (
        f"Slow: over the median of its model by more than {rule.mads:g} scaled MADs (x 1.4826) and more than "
        f"{units.percent(rule.over)}.{' Under three cards of a model there is no verdict.' if few else ''}"
    )


def slower(ratio: float) -> str:
    """Return a ratio of costs as '+5.0%'."""
    return f"{round((ratio - 1) * 100, 1) + 0.0:+.1f}%"  # no -0.0


def value_text(value: float, unit: str) -> str:
    """Return a value with its unit: 33.2 µs, 3929 GB/s, 51.1 TFLOP/s."""
    if unit == "s":
        return units.seconds(value)
    if unit.startswith("J/"):
        return f"{value * 1e12:.4g} p{unit}"
    for factor, prefix in ((1e12, "T"), (1e9, "G")):
        if value >= factor:
            return f"{units.digits(value / factor)} {prefix}{unit}"
    return f"{units.digits(value)} {unit}"


def plural(count: int, word: str) -> str:
    """Return a number with its noun."""
    return f"{units.count(count)} {word}{'' if count == 1 else 's'}"


def _worst_first(group: Group) -> tuple[float, ...]:
    return (-group.slow, -group.faulty, -(group.ratio or 0))
