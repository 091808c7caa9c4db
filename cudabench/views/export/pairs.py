"""Exports the verdict of `cudabench ab` as Markdown, for a pull request."""

from __future__ import annotations

from collections.abc import Sequence

from cudabench.records.launch import dim_text
from cudabench.records.revisions import Ab
from cudabench.results import units
from cudabench.results.ab import code_lines, sentence
from cudabench.text import markdown as cell
from cudabench.views.export.run import Run


def markdown(runs: Sequence[Run]) -> str:
    """Return a table and sentences for each pair of kernels in the runs."""
    return "\n".join(_pair(run, record) for run in runs for record in run.file.ab)


def _pair(run: Run, record: Ab) -> str:
    times = (
        units.seconds(result.time.median_s) if result.time else result.status for result in (record.old, record.new)
    )
    sides = (("old", record.old_label, record.old), ("new", record.new_label, record.new))
    rows = [
        f"| {name} | {cell(label)} | {cell(result.kernel)} | {dim_text(result.block)} | {time} |"
        for (name, label, result), time in zip(sides, times, strict=True)
    ]
    device = cell(run.file.device.name) if run.file.device else ""
    sentences = [sentence(record), *code_lines(record)]
    lines = [f"**{cell(sentences[0])}**", "", *map(cell, sentences[1:]), *([""] if sentences[1:] else [])]
    table = ["| | side | kernel | block | time |", "| :-- | :-- | :-- | :-- | --: |", *rows]
    return "\n".join([*lines, *table, *(["", device] if device else [])]) + "\n"
