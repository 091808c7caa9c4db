"""Ceilings as tables: of one card by group, and of two cards side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cudabench.cards import Ceiling
from cudabench.records.results import DeviceInfo
from cudabench.results import ceilings as results
from cudabench.results.ceilings import Comparison, Row
from cudabench.results.columns import NOTHING, Column, markdown_table

if TYPE_CHECKING:
    from rich.console import Console

OF_THAT = "of it: of what units allow at the clock that the driver names; of that: at the clock that it ran at."
STYLES = {"ok": "", "wrong": "red", "failed": "red", "skipped": "dim"}


def columns(ceilings: Sequence[Ceiling], device: DeviceInfo | None) -> list[Column[Ceiling]]:
    """Return the columns of one card's table; of a run without values whether each was right, and what was timed."""
    named = device.clocks.get("sm_mhz") if device else None
    name = Column[Ceiling]("ceiling", lambda one: one.name, right=False)
    if any(one.value is not None for one in ceilings):
        return [
            name,
            Column(results.heading(ceilings), _value),
            Column("spread", _spread, expendable=2),
            Column("theoretical", lambda one: results.value(one.theoretical, one.unit), expendable=1),
            Column("of it", lambda one: results.part(one.fraction)),
            *(results.clock_columns(named) if any(one.clock_mhz for one in ceilings) else []),
        ]
    return [
        name,
        Column("verified", lambda one: results.WORDS[one.status] or "yes", right=False),
        Column("machine code of the loop", lambda one: one.code or NOTHING, right=False),
    ]


def _value(one: Ceiling) -> str:
    return results.WORDS[one.status] or results.value(one.value, one.unit)


def _spread(one: Ceiling) -> str:
    if one.low is None or one.high is None or not one.value or one.samples in (None, 1):
        return NOTHING
    return f"±{(one.high - one.low) / 2 / one.value * 100:.1f}%"


def show(out: Console, device: DeviceInfo | None, ceilings: Sequence[Ceiling]) -> None:
    """Print the table of one card, a block a group; under it why something has no value or is less than it seems."""
    from rich.table import Table
    from rich.text import Text

    if device:
        clock = f", {device.clocks['sm_mhz']} MHz" if device.clocks.get("sm_mhz") else ""
        sms = f", {device.sm_count} SMs" if device.sm_count else ""
        out.print(Text(f"{device.name}{sms}{clock}"))
        out.print()
    if not ceilings:
        return
    kept = _fitting(columns(ceilings, device), ceilings, out.width)
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for column in kept:
        table.add_column(column.heading, justify="right" if column.right else "left", no_wrap=True)
    for at, (group, members) in enumerate(results.groups(ceilings).items()):
        if at:
            table.add_row()
        table.add_row(Text(group, style="bold"))
        for one in members:
            texts = [column.text(one) for column in kept]
            table.add_row(f"  {texts[0]}", *texts[1:], style=STYLES[one.status])
    out.print(table)
    notes = results.notes_of(ceilings, device)
    if any(column.heading == "of that" for column in kept):
        notes.insert(0, OF_THAT)
    if notes:
        out.print()
    for note in notes:
        out.print(Text(note), soft_wrap=out.width >= 200)


def _fitting(every: Sequence[Column[Ceiling]], ceilings: Sequence[Ceiling], width: int) -> Sequence[Column[Ceiling]]:
    kept = list(every)
    for rank in (1, 2, 3):
        needed = sum(2 + max(len(c.heading), *(len(c.text(one)) for one in ceilings)) for c in kept) + 2
        if needed > width:
            kept = [column for column in kept if column.expendable != rank]
    return kept


# Two cards -----------------------------------------------------------------------------------------------------------


def _side(one: Ceiling | None) -> str:
    if one is None:
        return NOTHING
    return results.WORDS[one.status] or results.value(one.value, one.unit)


def pair_columns(comparison: Comparison, labels: Sequence[str]) -> list[Column[Row]]:
    """Return the columns of two cards' table; of a measured card beside a datasheet what its units allow is compared,
    and what was measured stands last."""
    base, new = results.names_of(comparison, labels)
    if not comparison.by_units:
        return [
            Column("ceiling", lambda row: row.name, right=False),
            Column(base, lambda row: _side(row.base)),
            Column(new, lambda row: _side(row.new)),
            Column("better", _better),
        ]

    def measured(row: Row) -> str:
        sides = [one for one in (row.base, row.new) if row.by_units and one and one.source == "measured"]
        return _side(sides[0]) if sides else ""

    def compared(row: Row, one: Ceiling | None) -> str:
        return _side(results.units_of(one) if row.by_units else one)

    of = [f"{name}: {_source(file.ceilings)}" for name, file in ((base, comparison.base), (new, comparison.new))]
    return [
        Column("ceiling", lambda row: row.name, right=False),
        Column(of[0], lambda row: compared(row, row.base)),
        Column(of[1], lambda row: compared(row, row.new)),
        Column("better", _better),
        Column("measured", measured),
    ]


def _better(row: Row) -> str:
    return NOTHING if row.better is None else results.times(row.better)


def _source(ceilings: Sequence[Ceiling]) -> str:
    return "datasheet" if all(one.source == "datasheet" for one in ceilings) else "its units"


def shown_rows(comparison: Comparison) -> list[Row]:
    """Return the rows that are shown: beside a datasheet those alone that both cards have."""
    return [row for row in comparison.rows if row.better is not None or not comparison.by_units]


def show_pair(out: Console, comparison: Comparison, labels: Sequence[str]) -> None:
    """Print two cards side by side, each group with its geometric mean, and who is ahead where."""
    from rich.table import Table
    from rich.text import Text

    every = pair_columns(comparison, labels)
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for column in every:
        table.add_column(Text(column.heading), justify="right" if column.right else "left", no_wrap=not column.right)
    rows = shown_rows(comparison)
    for at, group in enumerate(dict.fromkeys(row.group for row in rows)):
        if at:
            table.add_row()
        mean = comparison.means.get(group)
        table.add_row(Text(group, style="bold"), "", "", Text(results.times(mean) if mean else NOTHING, style="bold"))
        for row in rows:
            if row.group == group:
                texts = [column.text(row) for column in every]
                table.add_row(f"  {texts[0]}", *texts[1:])
    out.print(table)
    out.print()
    out.print(Text(f"{results.verdict(comparison, labels)} {EXPLAINED}"), soft_wrap=out.width >= 200)
    if comparison.by_units:
        out.print(Text(beside_a_datasheet(comparison), style="yellow"), soft_wrap=out.width >= 200)


EXPLAINED = "Beside a group stands the geometric mean; over 1x the second column is better, whichever way is better."


def beside_a_datasheet(comparison: Comparison) -> str:
    """Return what is compared where one card is measured and the other a datasheet."""
    left = sum(row.better is None for row in comparison.rows)
    out = f" Left out: {left} of which one of them has no figure." if left else ""
    return f"A datasheet is not a measurement: of both cards what their clocks and units allow is compared.{out}"


def pair_markdown(comparison: Comparison, labels: Sequence[str]) -> str:
    """Return the same as GitHub's Markdown."""
    from cudabench.text import markdown

    lines = [markdown(results.verdict(comparison, labels)), ""]
    lines += ["| group | geometric mean |", "| :-- | --: |"]
    lines += [f"| {markdown(group)} | {results.times(mean)} |" for group, mean in comparison.means.items()]
    lines += ["", *markdown_table(pair_columns(comparison, labels), shown_rows(comparison))]
    lines += ["", markdown(beside_a_datasheet(comparison))] if comparison.by_units else []
    return "\n".join(lines) + "\n"
