"""`cudabench export RESULTS.json ... --to FORMAT`: results for spreadsheets, pull requests and CI servers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cudabench.cli.help import headed
from cudabench.cli.options import PLACE, option
from cudabench.errors import UsageError
from cudabench.views.export import FORMATS

METRIC = "github-benchmark"  # the format that --metric is of
ENDINGS = {".csv": "csv", ".md": "markdown", ".xml": "junit", ".sarif": "sarif"}  # what --output may tell
BASE = "sarif"  # and --base

HELP = "Convert results files for other tools.\n\n\b\n" + "\n".join(
    f"{name:<17} {summary}" for name, summary in FORMATS.items()
)


@headed(
    "export",
    click.Argument(["files"], nargs=-1, type=PLACE, metavar="RESULTS.json ..."),
    option("--to", "The format. Default: FILE's ending.", "target_format", type=click.Choice(list(FORMATS))),
    option("-o, --output FILE", "Write to FILE. Default: standard output.", type=PLACE),
    option(
        "--metric",
        f"Of {METRIC}: time in µs and counts (default; the action's tool is customSmallerIsBetter), or bandwidth in "
        "GB/s (customBiggerIsBetter).",
        type=click.Choice(["time", "bandwidth"]),
    ),
    option("--base BASE.json", f"Of {BASE}: show also what is worse than in BASE.json.", type=PLACE),
    help=HELP,
)
def command(
    files: tuple[str, ...], target_format: str | None, output: str | None, metric: str | None, base: str | None
) -> int:
    """Write results files in a format; see HELP."""
    from cudabench.cli.output import Destination
    from cudabench.views.export import export
    from cudabench.views.export.run import Run

    if target_format is None:
        ending = Path(output or "").suffix.lower()
        if ending in (".html", ".htm") and files:
            raise UsageError(f"export writes no page: write cudabench report {files[0]} -o {output}.")
        if ending not in ENDINGS:
            first = files[0] if files else "RESULTS.json"
            raise UsageError(
                f"export needs a format: write cudabench export {first} --to csv; or {', '.join(FORMATS)}."
            )
        target_format = ENDINGS[ending]
    if not files:
        raise UsageError(f"export takes a results file or more: cudabench export RESULTS.json --to {target_format}.")
    if metric and target_format != METRIC:
        raise UsageError(f"--metric is of --to {METRIC}; {target_format} has no choice of figures: leave it out.")
    if base and target_format != BASE:
        raise UsageError(f"--base is of --to {BASE}; {target_format} shows one run at a time: use cudabench compare.")
    target = Destination.of(output)
    of_one: dict[str, Any] = {"metric": metric} if metric else {}
    if base:
        of_one["base"] = Run.load(base)
    target.write(export(target_format, [Run.load(name) for name in files], **of_one))
    return 0
