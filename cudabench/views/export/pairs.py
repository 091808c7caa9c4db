"""The verdict of `cudabench ab` as Markdown, for a pull request."""

from __future__ import annotations

from collections.abc import Sequence

from cudabench.records.launch import dim_text
from cudabench.records.revisions import Ab
from cudabench.results import units
from cudabench.results.ab import code_lines, sentence
from cudabench.text import markdown as cell
from cudabench.views.export.run import Run


def markdown(runs: Sequence[Run]) -> str:
    """Return a table and a sentence for each pair of kernels in the runs."""
    return "\n".join(_pair(run, record) for run in runs for record in run.file.ab)


def _pair(run: Run, record: Ab) -> str:
    times = (units.seconds(one.time.median_s) if one.time else one.status for one in (record.old, record.new))
    sides = (("old", record.old_label, record.old), ("new", record.new_label, record.new))
    rows = [
        f"| {name} | {cell(label)} | {cell(one.kernel)} | {dim_text(one.block)} | {time} |"
        for (name, label, one), time in zip(sides, times, strict=True)
    ]
    device = cell(run.file.device.name) if run.file.device else ""
    said = [sentence(record), *code_lines(record)]
    lines = [f"**{cell(said[0])}**", "", *map(cell, said[1:]), *([""] if said[1:] else [])]
    table = ["| | side | kernel | block | time |", "| :-- | :-- | :-- | :-- | --: |", *rows]
    return "\n".join([*lines, *table, *(["", device] if device else [])]) + "\n"
