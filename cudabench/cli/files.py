"""`cudabench export|plot|report|schema`: converts results files to other forms, and prints their schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from cudabench.cards.load import load_file_or_card
from cudabench.cli.help import headed
from cudabench.cli.options import PLACE, option
from cudabench.cli.output import Destination, check_page
from cudabench.errors import UsageError, did_you_mean, refuse
from cudabench.records.file import load_all
from cudabench.results import schema as schemas
from cudabench.system.outputs import check_target, is_file, write_whole
from cudabench.views import export as exporting
from cudabench.views.export.run import Run
from cudabench.views.report import page

METRIC = "github-benchmark"  # the format that takes --metric
# The format that is used if --output's file has this ending.
ENDINGS = {".csv": "csv", ".md": "markdown", ".xml": "junit", ".sarif": "sarif"}
BASE = "sarif"  # the format that takes --base

EXPORT_HELP = "Convert results files for other tools.\n\n\b\n" + "\n".join(
    f"{name:<17} {summary}" for name, summary in exporting.FORMATS.items()
)


@headed(
    "export",
    click.Argument(["files"], nargs=-1, type=PLACE, metavar="RESULTS.json ..."),
    option("--to", "The format. Default: FILE's ending.", "target_format", type=click.Choice(list(exporting.FORMATS))),
    option("-o, --output FILE", "Write to FILE. Default: standard output.", type=PLACE),
    option(
        "--metric",
        f"For {METRIC}: time in µs and counts (default; the action's tool is customSmallerIsBetter), or bandwidth in "
        "GB/s (customBiggerIsBetter).",
        type=click.Choice(["time", "bandwidth"]),
    ),
    option("--base BASE.json", f"For {BASE}: also show the figures that are worse than in BASE.json.", type=PLACE),
    help=EXPORT_HELP,
)
def export(
    files: tuple[str, ...], target_format: str | None, output: str | None, metric: str | None, base: str | None
) -> int:
    """Write results files in another format; EXPORT_HELP is the help text."""
    ending, first = Path(output or "").suffix.lower(), files[0] if files else "RESULTS.json"
    formats = ", ".join(exporting.FORMATS)
    kind = target_format or ENDINGS.get(ending, "")
    refuse(
        (
            not kind and ending in (".html", ".htm") and files,
            f"export does not write pages: write cudabench report {first} -o {output}.",
        ),
        (not kind, f"export needs a format: write cudabench export {first} --to csv; or {formats}."),
        (not files, f"export takes at least one results file: cudabench export RESULTS.json --to {kind}."),
        (metric and kind != METRIC, f"--metric is for --to {METRIC}, not for {kind}: leave it out."),
        (base and kind != BASE, f"--base is for --to {BASE}; {kind} shows one run at a time: use cudabench compare."),
    )
    target = Destination.of(output)
    options: dict[str, Any] = {"metric": metric} if metric else {}
    if base:
        options["base"] = Run.load(base)
    target.write(exporting.export(kind, [Run.load(name) for name in files], **options))
    return 0


SUFFIXES = ("svg", "png", "pdf")
KINDS = ("ladder", "size", "sweep", "roofline")


@headed(
    "plot",
    click.Argument(["files"], nargs=-1, type=PLACE, metavar="RESULTS.json ..."),
    option("-o, --output FILE", "The picture: .svg, .png or .pdf.", required=True, type=PLACE),
    option("--kind", "What to draw. Default: by the content of the files.", type=click.Choice(KINDS)),
)
def plot(files: tuple[str, ...], output: str, kind: str | None) -> int:
    """Draw results files in black and white.

    \b
    ladder  a bar for each kernel, against its run's copy and the card's peak; several files side by side
    size    time over size, both logarithmic, of --sizes or of several files
    sweep   the map of a sweep's blocks
    roofline  GFLOP/s over operations per byte, below the card's roofs; bounds for results of the simulator with --on

    Files of 'cudabench ceilings' are bars, relative to the first card or, for one card, to its theoretical values.
    """
    from cudabench.views.plot import draw, render

    if not files:
        raise UsageError("plot takes at least one results file: cudabench plot RESULTS.json -o out.svg.")
    target = Path(output)
    suffix = picture_format(target, "--output")
    loaded = [load_file_or_card(name).measured(name) for name in files]
    write_whole(target, render(draw(loaded, files, kind), suffix))
    return 0


def picture_format(target: Path, option: str) -> str:
    """Return the format of a picture from its name, before anything runs; png for a device or a pipe without an ending.

    Raises UsageError for another ending, and CudabenchError if the picture cannot be written there.
    """
    suffix = target.suffix.removeprefix(".").lower()
    if not suffix and not is_file(target):
        suffix = "png"
    near = did_you_mean(suffix, SUFFIXES)
    refuse(
        (
            suffix in ("html", "htm"),
            f"{option} {target} is a page, not a picture: write cudabench report RESULTS.json -o {target}.",
        ),
        (
            suffix not in SUFFIXES,
            f"{option} {target} needs the ending of a picture: use .{', .'.join(SUFFIXES)}.{near}",
        ),
    )
    check_target(target, option)
    return suffix


@headed(
    "report",
    click.Argument(["files"], nargs=-1, type=PLACE, metavar="RESULTS.json ..."),
    option("-o, --output FILE.html", "The page.", required=True, type=PLACE),
)
def report(files: tuple[str, ...], output: str) -> int:
    """Write a page of results files: ladder, limits, roofline, source with its counts, samples, hazards, origin.

    \b
    cudabench report results.json -o report.html
    cudabench report before.json after.json -o report.html

    The page is one file without external parts. It holds the results, and compare, export, plot and report read it like
    the JSON file. Two files are shown side by side, before and after. --report FILE.html of the commands that measure
    or simulate writes the same page with more pictures.
    """
    refuse(
        (not files, "report takes at least one results file: cudabench report RESULTS.json -o report.html."),
        (output == "-", "--output - is not a file: write -o report.html."),
    )
    target = Path(output)
    check_page(target, "--output")
    loaded = [(name, file) for name in files for file in load_all(name)]
    write_whole(target, page([file for _, file in loaded], [name for name, _ in loaded]).encode())
    return 0


@headed(
    "schema",
    option("--markdown", "Print the keys with types, units and meaning as a Markdown page."),
    option("-o, --output FILE", "Write to FILE. Default: standard output.", type=PLACE),
)
def schema(markdown: bool, output: str | None) -> int:
    """Print the JSON Schema (2020-12) that every results file of --json follows."""
    target = Destination.of(output)
    target.write(schemas.reference() if markdown else json.dumps(schemas.schema(), indent=2) + "\n")
    return 0


commands = {command.name: command for command in (export, plot, report, schema)}
