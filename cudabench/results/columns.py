"""Defines tables as columns, each with a function that returns the text of a row, and texts that several tables use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from cudabench import text
from cudabench.records.results import Result
from cudabench.results import units

Row = TypeVar("Row")

NOTHING = "-"


@dataclass(frozen=True)
class Column(Generic[Row]):
    """A column of a table.

    `text`: a function that returns the text of a row; `right`: whether to align to the right; `expendable`: on a narrow
    terminal, columns with 1 are left out first, then columns with 2 and so on, but never columns with 0; `dim`: a
    function that returns whether a row's text is unimportant and shown dim.
    """

    heading: str
    text: Callable[[Row], str]
    right: bool = True
    expendable: int = 0
    dim: Callable[[Row], bool] = lambda row: False


def number(value: float | None, count: int = 4) -> str:
    """Return a number with `count` significant digits, or "-" for None."""
    return NOTHING if value is None else units.digits(value, count)


def percent(value: float | None) -> str:
    """Return a fraction as a percentage, or "-" for None."""
    return NOTHING if value is None else units.percent(value)


def count(value: int | None) -> str:
    """Return a count, or "-" for None."""
    return NOTHING if value is None else units.count(value)


def verified(result: Result) -> str:
    """Return a word for the verification of a result: yes, unverified, WRONG, failed or skipped."""
    if result.status == "ok" and result.verification is None:
        return "unverified"
    return {"ok": "yes", "wrong": "WRONG", "failed": "failed", "skipped": "skipped"}[result.status]


def markdown_table(columns: Sequence[Column[Row]], rows: Sequence[Row]) -> list[str]:
    """Return the lines of a table in GitHub's Markdown."""

    def line(texts: Sequence[str]) -> str:
        return "| " + " | ".join(map(text.markdown, texts)) + " |"

    return [
        line([column.heading for column in columns]),
        "| " + " | ".join("--:" if column.right else ":--" for column in columns) + " |",
        *(line([column.text(row) for column in columns]) for row in rows),
    ]
