"""Exports ceilings as CSV, in the units of the results file, and as GitHub's Markdown, with a table for each card."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, fields
from typing import Any

from cudabench.cards import Ceiling
from cudabench.records.file import ResultsFile
from cudabench.results import ceilings
from cudabench.results.columns import Column, markdown_table
from cudabench.text import markdown as escaped
from cudabench.views.export import csv
from cudabench.views.export.run import Run, labels_of


def as_csv(runs: Sequence[Run]) -> str:
    """Return CSV with a row for each ceiling of each card."""

    def rows(file: ResultsFile) -> Iterator[list[Any]]:
        return ([file.device and file.device.name, *asdict(ceiling).values()] for ceiling in file.ceilings)

    return csv.table(["device_name", *(field.name for field in fields(Ceiling))], runs, rows)


def as_markdown(runs: Sequence[Run]) -> str:
    """Return Markdown with a table for each card and group, and the reasons for missing values."""
    lines = []
    for run, label in zip(runs, labels_of(runs), strict=True):
        lines += [f"### {escaped(label)}", ""] if len(runs) > 1 else []
        device = run.file.device
        lines += [escaped(device.name), ""] if device else []
        for group, members in ceilings.groups(run.file.ceilings).items():
            columns = _columns(members, device.clocks.get("sm_mhz") if device else None)
            lines += [f"**{escaped(group)}**", "", *markdown_table(columns, members), ""]
        notes = ceilings.notes_of(run.file.ceilings, device)
        lines += [*(f"- {escaped(note)}" for note in notes), *([""] if notes else [])]
    return "\n".join(lines)


def _columns(members: Sequence[Ceiling], named_mhz: float | None) -> list[Column[Ceiling]]:
    def value(ceiling: Ceiling) -> str:
        return ceilings.value(ceiling.value, ceiling.unit) if ceiling.status == "ok" else ceiling.status

    return [
        Column("ceiling", lambda ceiling: ceiling.name, right=False),
        Column(ceilings.heading(members), value),
        Column("theoretical", lambda ceiling: ceilings.value(ceiling.theoretical, ceiling.unit)),
        Column("of it", lambda ceiling: ceilings.percent_text(ceiling.fraction)),
        *(ceilings.clock_columns(named_mhz) if any(member.clock_mhz for member in members) else []),
    ]


WRITERS: dict[str, Callable[[Sequence[Run]], str]] = {"csv": as_csv, "markdown": as_markdown}
