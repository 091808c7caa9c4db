"""Two revisions' machine code: a table of the kernels, what changed first, the lines that changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from cudabench.records.revisions import CodeDifference
from cudabench.results.columns import Column
from cudabench.results.diff import Failure
from cudabench.views.export.difference import MOST_LINES, columns, detailed, groups, line_columns, notes, summary

if TYPE_CHECKING:
    from rich.console import Console

Row = TypeVar("Row")

STYLES = {"failed": "bold red", "changed": "yellow", "added": "cyan", "removed": "cyan", "mended": "green"}


def show(out: Console, names: tuple[str, str], found: Sequence[CodeDifference]) -> None:
    """Print both names, the table, a summary, and under it what is to be said of each row that changed."""
    from rich.text import Text

    rows = groups(found)
    out.print(Text(f"{names[0]} -> {names[1]}"), soft_wrap=True)
    out.print()
    _table(out, columns(rows), rows, [STYLES.get(row.difference.verdict, "") for row in rows])
    out.print()
    out.print(Text(summary(found)), soft_wrap=True)
    said = [note for row in rows for note in notes(row)]
    if said:
        out.print()
    for note in said:
        out.print(Text(note), soft_wrap=True)
    for row in detailed(rows):
        changed = row.difference.lines
        shown = changed[:MOST_LINES]
        out.print()
        out.print(Text(f"{row.difference.kernel} on {row.difference.arch}", style="bold"))
        _table(out, line_columns(shown), shown, [""] * len(shown))
        if len(changed) > MOST_LINES:
            lines = "line" if len(changed) == MOST_LINES + 1 else "lines"
            out.print(Text(f"... and {len(changed) - MOST_LINES} more {lines}, in --json", style="dim"))


def show_failures(err: Console, failed: Sequence[Failure]) -> None:
    """Print why the comparison fails."""
    from rich.text import Text

    for failure in failed:
        err.print(Text(f"{failure.message}.", style="red"), soft_wrap=True)


def _table(out: Console, columns: Sequence[Column[Row]], rows: Sequence[Row], styles: Sequence[str]) -> None:
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column.heading, justify="right" if column.right else "left", overflow="fold")
    for row, style in zip(rows, styles, strict=True):
        table.add_row(*(column.text(row) for column in columns), style=style)
    out.print(table)
