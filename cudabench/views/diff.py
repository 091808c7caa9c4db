"""Prints how the machine code of two revisions differs: a table of kernels, the first change, the changed lines."""

from __future__ import annotations

from collections.abc import Sequence

from cudabench.records.revisions import CodeDifference
from cudabench.views.console import Console, say
from cudabench.views.export.difference import MOST_LINES, columns, detailed, groups, line_columns, notes, summary
from cudabench.views.tables import table

STYLES = {"failed": "bold red", "changed": "yellow", "added": "cyan", "removed": "cyan", "mended": "green"}


def show_differences(out: Console, names: tuple[str, str], differences: Sequence[CodeDifference]) -> None:
    """Print the names of both revisions, the table, a summary, and notes on each changed row."""
    rows = groups(differences)
    say(out, f"{names[0]} -> {names[1]}", soft_wrap=True)
    out.print()
    out.print(table(columns(rows), rows, lambda row: STYLES.get(row.difference.verdict, ""), wrap=True))
    out.print()
    say(out, summary(differences), soft_wrap=True)
    all_notes = [note for row in rows for note in notes(row)]
    for note in ["", *all_notes] if all_notes else []:
        say(out, note, soft_wrap=True)
    for row in detailed(rows):
        shown, hidden = row.difference.lines[:MOST_LINES], len(row.difference.lines) - MOST_LINES
        out.print()
        say(out, f"{row.difference.kernel} on {row.difference.arch}", "bold")
        out.print(table(line_columns(shown), shown, wrap=True))
        if hidden > 0:
            say(out, f"... and {hidden} more line{'' if hidden == 1 else 's'}, in --json", "dim")
