"""`cudabench export RESULTS.json ... --to FORMAT`: results for spreadsheets, pull requests and CI servers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cudabench.cli.help import Headed
from cudabench.errors import UsageError
from cudabench.views.export import FORMATS

METRIC = "github-benchmark"  # the format that --metric is of
ENDINGS = {".csv": "csv", ".md": "markdown", ".xml": "junit", ".sarif": "sarif"}  # what --output may tell
BASE = "sarif"  # and --base

HELP = "Convert results files for other tools.\n\n\b\n" + "\n".join(
    f"{each.name:<17} {each.summary}" for each in FORMATS.values()
)


@click.command("export", cls=Headed, help=HELP, short_help="Convert results files for other tools.")
@click.argument("files", nargs=-1, type=click.Path(), metavar="RESULTS.json ...")
@click.option("--to", "target_format", type=click.Choice(list(FORMATS)), help="The format. Default: FILE's ending.")
@click.option(
    "-o",
    "--output",
    type=click.Path(),
    metavar="FILE",
    help="Write to FILE. Default: standard output.",
)
@click.option(
    "--metric",
    type=click.Choice(["time", "bandwidth"]),
    help=f"Of {METRIC}: time in µs and counts (default; the action's tool is customSmallerIsBetter), or bandwidth in "
    "GB/s (customBiggerIsBetter).",
)
@click.option(
    "--base", type=click.Path(), metavar="BASE.json", help=f"Of {BASE}: show also what is worse than in BASE.json."
)
def command(
    files: tuple[str, ...], target_format: str | None, output: str | None, metric: str | None, base: str | None
) -> int:
    """Write results files in a format; see HELP."""
    from cudabench.system import outputs
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
    target = None if output in (None, "-") else Path(str(output))
    if target:
        outputs.check_target(target, "--output")
    options: dict[str, Any] = {}
    if metric:
        options["metric"] = metric
    if base:
        options["base"] = Run.load(base)
    written = export(target_format, [Run.load(name) for name in files], **options)
    if target:
        outputs.write_whole(target, written.encode())
    else:
        click.echo(written, nl=False)
    return 0
