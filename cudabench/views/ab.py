"""Two interleaved kernels in the terminal: a row a side, what their code differs in, the verdict."""

from __future__ import annotations

from cudabench.records.launch import dim_text
from cudabench.records.planned import Operation, Settings
from cudabench.records.results import DeviceInfo, Result
from cudabench.records.revisions import Ab
from cudabench.results import stats, units
from cudabench.results.ab import code_lines, sentence
from cudabench.results.ratio import CONFIDENCE
from cudabench.views.console import Console, say
from cudabench.views.table import device_line, problem_line, warning_lines
from cudabench.views.tables import Head, grid

STYLES = {"faster": "bold green", "slower": "bold red", "wrong": "bold red", "failed": "bold red", "unclear": "yellow"}
LEGEND = (
    "The ratio is of pairs: a sample of each, one after the other at one place of the memory, in random order. Its "
    "interval holds {confidence:.0%} and a noise of {noise:.2g}%."
)


def show(out: Console, err: Console, operation: Operation, device: DeviceInfo, record: Ab, settings: Settings) -> None:
    """Print the record; warnings go to `err`."""
    sides = (record.old, record.new)
    say(out, device_line(device), "bold")
    out.print(problem_line(operation, sides, settings, device), soft_wrap=True)
    out.print()
    columns = ("", "side", "kernel", "block", "registers", "shared", "time", "spread", "GB/s", "GFLOP/s")
    rows = [_cells("old", record.old_label, record.old), _cells("new", record.new_label, record.new)]
    shown = [at for at in range(len(columns)) if any(row[at] for row in rows)]
    heads = [Head(columns[at], right=at >= 3, wrap=True) for at in shown]
    out.print(grid(heads, [[row[at] for at in shown] for row in rows]))
    out.print()
    say(out, sentence(record), STYLES.get(record.verdict, "bold"), soft_wrap=True)
    for line in code_lines(record):
        say(out, line, soft_wrap=True)
    if record.ratio is not None:
        say(out, LEGEND.format(confidence=CONFIDENCE, noise=100 * record.noise), "dim", soft_wrap=True)
    for line in dict.fromkeys(warning_lines(sides)):
        say(err, line, "yellow", soft_wrap=True)


def _cells(name: str, label: str, result: Result) -> tuple[str, ...]:
    time = result.time
    return (
        name,
        label,
        result.kernel if result.kernel != label else "",
        dim_text(result.block),
        "" if result.registers is None else str(result.registers),
        "" if not result.shared_bytes else units.nbytes(result.shared_bytes),
        units.seconds(time.median_s) if time else result.status,
        units.spread(stats.dispersion(time) / 2) if time else "",
        units.digits(result.bandwidth_gbps) if result.bandwidth_gbps is not None else "",
        units.digits(result.gflops) if result.gflops is not None else "",
    )
