"""Prints tables of ceilings (limits such as the highest memory bandwidth) of one card, or of two cards side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cudabench.cards import Ceiling
from cudabench.records.file import ResultsFile
from cudabench.records.results import DeviceInfo
from cudabench.results import ceilings as results
from cudabench.results.ceilings import Comparison, Row
from cudabench.results.columns import NOTHING, Column, markdown_table
from cudabench.results.groups import grouped
from cudabench.views.console import Console, say
from cudabench.views.tables import BAD, Head, fitting, grid

if TYPE_CHECKING:
    from rich.table import Table

OF_THAT = "of it: fraction of what units allow at the driver's clock; of that: at the clock of the measurement."


def columns(ceilings: Sequence[Ceiling], device: DeviceInfo | None) -> list[Column[Ceiling]]:
    """Return the columns of one card's table.

    If no ceiling has a value, the columns show whether each ceiling's kernel is correct, and its machine code.
    """
    named = device.clocks.get("sm_mhz") if device else None
    name = Column[Ceiling]("ceiling", lambda ceiling: ceiling.name, right=False)
    if any(ceiling.value is not None for ceiling in ceilings):
        return [
            name,
            Column(results.heading(ceilings), _value),
            Column("spread", _spread, expendable=2),
            Column("theoretical", lambda ceiling: results.value(ceiling.theoretical, ceiling.unit), expendable=1),
            Column("of it", lambda ceiling: results.percent_text(ceiling.fraction)),
            *(results.clock_columns(named) if any(ceiling.clock_mhz for ceiling in ceilings) else []),
        ]
    return [
        name,
        Column("verified", lambda ceiling: results.WORDS[ceiling.status] or "yes", right=False),
        Column("machine code of the loop", lambda ceiling: ceiling.code or NOTHING, right=False),
    ]


def _value(ceiling: Ceiling | None) -> str:
    return NOTHING if ceiling is None else results.WORDS[ceiling.status] or results.value(ceiling.value, ceiling.unit)


def _spread(ceiling: Ceiling) -> str:
    if ceiling.low is None or ceiling.high is None or not ceiling.value or ceiling.samples in (None, 1):
        return NOTHING
    return f"±{(ceiling.high - ceiling.low) / 2 / ceiling.value * 100:.1f}%"


def show_ceilings(out: Console, device: DeviceInfo | None, ceilings: Sequence[Ceiling]) -> None:
    """Print a table of one card's ceilings in groups, then the reasons why values are missing or less certain."""
    if device:
        clock = f", {device.clocks['sm_mhz']} MHz" if device.clocks.get("sm_mhz") else ""
        sms = f", {device.sm_count} SMs" if device.sm_count else ""
        say(out, f"{device.name}{sms}{clock}")
        out.print()
    if not ceilings:
        return
    # the names of ceilings are indented by 4 columns under the name of their group
    shown, _ = fitting(columns(ceilings, device), ceilings, out.width - 4)
    out.print(_grouped(shown, results.groups(ceilings), wrap=False, style=lambda ceiling: BAD.get(ceiling.status, "")))
    legend = [OF_THAT] if any(column.heading == "of that" for column in shown) else []
    notes = [*legend, *results.notes_of(ceilings, device)]
    for note in ["", *notes] if notes else []:
        say(out, note, soft_wrap=out.width >= 200)


def _grouped(
    columns: Sequence[Column[Any]],
    groups: Mapping[str, Sequence[Any]],
    style: Callable[[Any], str] = lambda row: "",
    heads: Mapping[str, Sequence[str]] | None = None,
    *,
    wrap: bool,
) -> Table:
    """Return a table of groups, each under its name.

    `heads`: for each group, the texts in the row of the group's name, without the column of the name.
    """
    from rich.text import Text

    rows: list[list[str | Text]] = []
    styles: list[str] = []
    for group, members in groups.items():
        rows += [[], [Text(text, style="bold") for text in (group, *(heads[group] if heads else ()))]]
        texts = [[column.text(member) for column in columns] for member in members]
        rows += [[f"  {cells[0]}", *cells[1:]] for cells in texts]
        styles += ["", "", *map(style, members)]
    return grid([Head(c.heading, c.right, wrap and c.right) for c in columns], rows[1:], styles[1:])


def pair_columns(comparison: Comparison, labels: Sequence[str]) -> list[Column[Row]]:
    """Return the columns of the table of two cards.

    If one side is a datasheet, both sides show theoretical values, and a last column shows the measured value.
    """

    def measured(row: Row) -> str:
        sides = [
            ceiling for ceiling in (row.base, row.new) if row.by_units and ceiling and ceiling.source == "measured"
        ]
        return _value(sides[0]) if sides else ""

    def compared(row: Row, ceiling: Ceiling | None) -> str:
        return _value(results.units_of(ceiling) if row.by_units else ceiling)

    def source(file: ResultsFile) -> str:
        if not comparison.by_units:
            return ""
        return ": datasheet" if all(ceiling.source == "datasheet" for ceiling in file.ceilings) else ": its units"

    base, new = results.names_of(comparison, labels)
    return [
        Column("ceiling", lambda row: row.name, right=False),
        Column(base + source(comparison.base), lambda row: compared(row, row.base)),
        Column(new + source(comparison.new), lambda row: compared(row, row.new)),
        Column("better", lambda row: NOTHING if row.better is None else results.times(row.better)),
        *([Column("measured", measured)] if comparison.by_units else []),
    ]


def shown_rows(comparison: Comparison) -> list[Row]:
    """Return the rows to show; if one side is a datasheet, only the rows that can be compared."""
    return [row for row in comparison.rows if row.better is not None or not comparison.by_units]


def show_pair(out: Console, comparison: Comparison, labels: Sequence[str]) -> None:
    """Print two cards side by side: each group with its geometric mean, then in which groups each card is better."""
    rows = shown_rows(comparison)
    means = comparison.means
    groups = grouped((row.group, row) for row in rows)
    heads = {name: ("", "", results.times(means[name]) if means.get(name) else NOTHING) for name in groups}
    out.print(_grouped(pair_columns(comparison, labels), groups, heads=heads, wrap=True))
    out.print()
    say(out, f"{results.verdict(comparison, labels)} {EXPLAINED}", soft_wrap=out.width >= 200)
    if comparison.by_units:
        say(out, beside_a_datasheet(comparison), "yellow", soft_wrap=out.width >= 200)


EXPLAINED = "Each group has its geometric mean; over 1x the second column is better, whether more or less is better."


def beside_a_datasheet(comparison: Comparison) -> str:
    """Return the note for a comparison of a measured card with a datasheet."""
    missing = sum(row.better is None for row in comparison.rows)
    left_out = f" Left out: {missing} that one of them lacks." if missing else ""
    return f"A datasheet is not a measurement: what clocks and units of both cards allow is compared.{left_out}"


def pair_markdown(comparison: Comparison, labels: Sequence[str]) -> str:
    """Return, as GitHub's Markdown, the tables and sentences that `show_pair` prints."""
    from cudabench.text import markdown

    lines = [markdown(results.verdict(comparison, labels)), ""]
    lines += ["| group | geometric mean |", "| :-- | --: |"]
    lines += [f"| {markdown(group)} | {results.times(mean)} |" for group, mean in comparison.means.items()]
    lines += ["", *markdown_table(pair_columns(comparison, labels), shown_rows(comparison))]
    lines += ["", markdown(beside_a_datasheet(comparison))] if comparison.by_units else []
    return "\n".join(lines) + "\n"
