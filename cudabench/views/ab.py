"""Prints the result of `cudabench ab`: a row for each of the two kernels, how their code differs, and the verdict."""

from __future__ import annotations

from cudabench.records.launch import dim_text
from cudabench.records.plan import Operation, Settings
from cudabench.records.results import DeviceInfo, Result
from cudabench.records.revisions import Ab
from cudabench.results import stats, units
from cudabench.results.ab import code_lines, sentence
from cudabench.results.columns import Column
from cudabench.results.ratio import CONFIDENCE
from cudabench.views.console import Console, say
from cudabench.views.table import device_line, problem_line, warning_lines
from cudabench.views.tables import table

STYLES = {"faster": "bold green", "slower": "bold red", "wrong": "bold red", "failed": "bold red", "unclear": "yellow"}
LEGEND = (
    "The ratio is of pairs: a sample of each kernel, one after the other at the same place in memory, in random order. "
    "Its interval is {confidence:.0%} and includes a noise of {noise:.2g}%."
)

Side = tuple[str, str, Result]  # (old or new, label, result)
COLUMNS: tuple[Column[Side], ...] = (
    Column("", lambda side: side[0], right=False),
    Column("side", lambda side: side[1], right=False),
    Column("kernel", lambda side: side[2].kernel if side[2].kernel != side[1] else "", right=False),
    Column("block", lambda side: dim_text(side[2].block)),
    Column("registers", lambda side: "" if side[2].registers is None else str(side[2].registers)),
    Column("shared", lambda side: units.nbytes(side[2].shared_bytes) if side[2].shared_bytes else ""),
    Column("time", lambda side: units.seconds(side[2].time.median_s) if side[2].time else side[2].status),
    Column("spread", lambda side: units.spread(stats.dispersion(side[2].time) / 2) if side[2].time else ""),
    Column("GB/s", lambda side: "" if side[2].bandwidth_gbps is None else units.digits(side[2].bandwidth_gbps)),
    Column("GFLOP/s", lambda side: "" if side[2].gflops is None else units.digits(side[2].gflops)),
)


def show_verdict(
    out: Console, err: Console, operation: Operation, device: DeviceInfo, record: Ab, settings: Settings
) -> None:
    """Print a verdict of `cudabench ab`: the device, the table, the sentences. Warnings go to `err`."""
    results = (record.old, record.new)
    say(out, device_line(device), "bold")
    out.print(problem_line(operation, results, settings, device), soft_wrap=True)
    out.print()
    sides: list[Side] = [("old", record.old_label, record.old), ("new", record.new_label, record.new)]
    out.print(table([column for column in COLUMNS if any(map(column.text, sides))], sides, wrap=True))
    out.print()
    say(out, sentence(record), STYLES.get(record.verdict, "bold"), soft_wrap=True)
    for line in code_lines(record):
        say(out, line, soft_wrap=True)
    if record.ratio is not None:
        say(out, LEGEND.format(confidence=CONFIDENCE, noise=100 * record.noise), "dim", soft_wrap=True)
    for line in dict.fromkeys(warning_lines(results)):
        say(err, line, "yellow", soft_wrap=True)
