"""Two revisions' machine code: a table of the kernels, the first change, the changed lines."""

from __future__ import annotations

from collections.abc import Sequence

from cudabench.records.revisions import CodeDifference
from cudabench.views.console import Console, say
from cudabench.views.export.difference import MOST_LINES, columns, detailed, groups, line_columns, notes, summary
from cudabench.views.tables import table

STYLES = {"failed": "bold red", "changed": "yellow", "added": "cyan", "removed": "cyan", "mended": "green"}


def show(out: Console, names: tuple[str, str], found: Sequence[CodeDifference]) -> None:
    """Print both names, the table, a summary, and notes on each changed row."""
    rows = groups(found)
    say(out, f"{names[0]} -> {names[1]}", soft_wrap=True)
    out.print()
    out.print(table(columns(rows), rows, lambda row: STYLES.get(row.difference.verdict, ""), wrap=True))
    out.print()
    say(out, summary(found), soft_wrap=True)
    said = [note for row in rows for note in notes(row)]
    for note in ["", *said] if said else []:
        say(out, note, soft_wrap=True)
    for row in detailed(rows):
        shown, left = row.difference.lines[:MOST_LINES], len(row.difference.lines) - MOST_LINES
        out.print()
        say(out, f"{row.difference.kernel} on {row.difference.arch}", "bold")
        out.print(table(line_columns(shown), shown, wrap=True))
        if left > 0:
            say(out, f"... and {left} more line{'' if left == 1 else 's'}, in --json", "dim")
