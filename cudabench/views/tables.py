"""Makes tables for the terminal, and chooses the columns that fit the terminal's width."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from cudabench.results.columns import Column

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

Row = TypeVar("Row")
BAD = {"wrong": "red", "failed": "red", "skipped": "dim"}  # the styles of rows whose result is not correct


class Head(NamedTuple):
    """The head of a column. `right`: its cells are aligned right; `wrap`: a cell may take several lines."""

    text: str
    right: bool = False
    wrap: bool = False


def grid(heads: Iterable[Head], rows: Iterable[Sequence[str | Text]], styles: Iterable[str] = repeat("")) -> Table:
    """Return a table without lines between its cells. `styles`: the style of each row."""
    from rich.table import Table
    from rich.text import Text

    table_shown = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for head in heads:
        table_shown.add_column(
            head.text,
            justify="right" if head.right else "left",
            no_wrap=not head.wrap,
            overflow="fold" if head.wrap else "ellipsis",
        )
    for row, style in zip(rows, styles, strict=False):
        table_shown.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in row), style=style)
    return table_shown


def table(
    columns: Sequence[Column[Row]], rows: Sequence[Row], style: Callable[[Row], str] = lambda row: "", *, wrap: bool
) -> Table:
    """Return the table of rows.

    `style`: a function that returns a row's style; `wrap`: a cell may take several lines.
    """
    from rich.text import Text

    cells = ([Text(c.text(row), style="dim" if c.dim(row) else "") for c in columns] for row in rows)
    return grid([Head(column.heading, column.right, wrap) for column in columns], cells, map(style, rows))


def needed(columns: Sequence[Column[Row]], rows: Sequence[Row]) -> int:
    """Return the width in characters that a table needs to show every text uncut."""
    texts = ([column.heading, *map(column.text, rows)] for column in columns)
    return sum(2 + max(len(line) for text in texts for line in text.split("\n")) for texts in texts) - 2


def fitting(
    columns: Sequence[Column[Row]], rows: Sequence[Row], width: int
) -> tuple[list[Column[Row]], list[Column[Row]]]:
    """Return the columns that fit a terminal of this width, and the columns that do not fit."""
    kept = list(columns)
    for rank in range(1, max(c.expendable for c in columns) + 1):
        if needed(kept, rows) <= width:
            break
        kept = [column for column in kept if column.expendable != rank]
    return kept, [column for column in columns if all(column is not other for other in kept)]
