"""Exports results as GitHub's Markdown for a pull request or a job summary, with a table for each problem."""

from __future__ import annotations

from collections.abc import Sequence

from cudabench.records.file import ResultsFile
from cudabench.records.launch import dim_text
from cudabench.records.results import Result
from cudabench.results import units
from cudabench.results.columns import NOTHING, Column, count, markdown_table, number, percent, verified
from cudabench.results.groups import grouped
from cudabench.text import markdown as escaped
from cudabench.views.export.run import Run, hazards, labels_of, missed, title, total


def text(runs: Sequence[Run]) -> str:
    """Return a table for each problem under the name of its device, then why results are not correct.

    With several runs, each run has a heading.
    """
    lines = []
    for run, label in zip(runs, labels_of(runs), strict=True):
        lines += [f"### {escaped(label)}", ""] if len(runs) > 1 else []
        for part in run.file.by_device():
            lines += _one_device(part, len(run.file.devices) > 1)
    return "\n".join(lines)


def _one_device(file: ResultsFile, numbered: bool) -> list[str]:
    """Return the lines for one device. `numbered`: the name begins with the device's number, such as cuda:1."""
    lines = []
    if file.device:
        shown = f"cuda:{file.device.index} " if numbered else ""
        peak = f", peak {file.device.peak_gbps:.0f} GB/s" if file.device.peak_gbps else ""
        driver = f", driver {file.device.driver}" if file.device.driver else ""
        lines += [escaped(f"{shown}{file.device.name}{peak}{driver}"), ""]
    for heading, rows in grouped((title(result), result) for result in file.results).items():
        columns = _timed_columns(rows) if any(r.time for r in rows) else _simulated_columns()
        lines += [f"**{escaped(heading)}**", "", *markdown_table(columns, rows), ""]
    notes = [
        f"{result.kernel} {result.status}: {result.reason}" if result.status != "ok" else f"{missed(result, file)}"
        for result in file.results
        if result.status != "ok" or missed(result, file)
    ]
    return [*lines, *(f"- {escaped(note)}" for note in notes), *([""] if notes else [])]


def _start() -> list[Column[Result]]:
    return [
        Column("kernel", lambda r: r.kernel, right=False),
        Column("block", lambda r: dim_text(r.block, 2) if r.block[0] else NOTHING, right=False),
    ]


def _timed_columns(rows: Sequence[Result]) -> list[Column[Result]]:
    columns = [
        *_start(),
        Column("time", lambda r: units.seconds(r.time.median_s) if r.time else NOTHING),
        Column("GB/s", lambda r: number(r.bandwidth_gbps)),
        Column("of copy", lambda r: percent(r.copy_fraction)),
        Column("of peak", lambda r: percent(r.peak_fraction)),
        Column("x CPU", lambda r: number(r.speedup_vs_cpu, 3)),
        Column("verified", verified, right=False),
    ]
    if any(r.gflops is not None for r in rows):
        columns.insert(3, Column("GFLOP/s", lambda r: number(r.gflops)))
    return columns


def _simulated_columns() -> list[Column[Result]]:
    def actual(result: Result, space: str, op: str | None = None) -> str:
        cost = total(result, space, op)
        return count(cost.actual if cost else None)

    def ideal(result: Result, space: str) -> str:
        cost = total(result, space)
        return count(cost.ideal if cost else None)

    return [
        *_start(),
        Column("load sectors", lambda r: actual(r, "global", "load")),
        Column("store sectors", lambda r: actual(r, "global", "store")),
        Column("ideal", lambda r: ideal(r, "global")),
        Column("shared wavefronts", lambda r: actual(r, "shared")),
        Column("ideal", lambda r: ideal(r, "shared")),
        Column("PTX instructions", lambda r: count(r.instructions)),
        Column("hazards", lambda r: count(hazards(r))),
        Column("verified", verified, right=False),
    ]
