"""Ceilings as CSV, a row each with numbers as the results file has them, and as GitHub's Markdown, a table a card."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields

from cudabench.cards import Ceiling
from cudabench.results import ceilings
from cudabench.results.columns import Column, markdown_table
from cudabench.text import cell
from cudabench.text import markdown as escaped
from cudabench.views.export.run import Run, labels_of

COLUMNS = tuple(field.name for field in fields(Ceiling))


def as_csv(runs: Sequence[Run]) -> str:
    """Return one row a ceiling with its card; of several runs the last column is the file."""
    several = len(runs) > 1
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(["device_name", *COLUMNS, *(["file"] if several else [])])
    for run in runs:
        device = run.file.device.name if run.file.device else None
        for one in run.file.ceilings:
            row = [device, *asdict(one).values(), *([run.name] if several else [])]
            writer.writerow([cell(value) if isinstance(value, str) else value for value in row])
    return stream.getvalue()


def as_markdown(runs: Sequence[Run]) -> str:
    """Return a table a group under each card; reasons of what has no value follow."""
    lines = []
    for run, label in zip(runs, labels_of(runs), strict=True):
        lines += [f"### {escaped(label)}", ""] if len(runs) > 1 else []
        lines += [escaped(run.file.device.name), ""] if run.file.device else []
        for group, members in ceilings.groups(run.file.ceilings).items():
            named = run.file.device.clocks.get("sm_mhz") if run.file.device else None
            lines += [f"**{escaped(group)}**", "", *markdown_table(_columns(members, named), members), ""]
        notes = ceilings.notes_of(run.file.ceilings, run.file.device)
        lines += [f"- {escaped(note)}" for note in notes] + ([""] if notes else [])
    return "\n".join(lines)


def _columns(members: Sequence[Ceiling], named_mhz: float | None) -> list[Column[Ceiling]]:
    value = Column[Ceiling](
        ceilings.heading(members),
        lambda one: ceilings.value(one.value, one.unit) if one.status == "ok" else one.status,
    )
    return [
        Column("ceiling", lambda one: one.name, right=False),
        value,
        Column("theoretical", lambda one: ceilings.value(one.theoretical, one.unit)),
        Column("of it", lambda one: ceilings.part(one.fraction)),
        *(ceilings.clock_columns(named_mhz) if any(one.clock_mhz for one in members) else []),
    ]


WRITERS: dict[str, Callable[[Sequence[Run]], str]] = {"csv": as_csv, "markdown": as_markdown}
