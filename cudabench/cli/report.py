"""`cudabench report RESULTS.json... -o report.html`: results as one page that needs nothing else."""

from __future__ import annotations

from pathlib import Path

import click

from cudabench.cli.help import Headed
from cudabench.errors import UsageError


@click.command("report", cls=Headed, short_help="Write results files as one HTML page to look at.")
@click.argument("files", nargs=-1, type=click.Path(), metavar="RESULTS.json ...")
@click.option("-o", "--output", required=True, type=click.Path(), metavar="FILE.html", help="The page.")
def command(files: tuple[str, ...], output: str) -> int:
    """Write a page of results files: ladder, limits, roofline, source with its counts, samples, hazards, origin.

    \b
    cudabench report results.json -o report.html
    cudabench report before.json after.json -o report.html

    The page is one file that fetches nothing. It holds the results, and compare, export, plot and report read it like
    the JSON file. Two files stand side by side, before and after. --report FILE.html of the commands that measure or
    simulate writes the same page and records the pictures besides.
    """
    from cudabench.cli.output import check_page, write_page
    from cudabench.records import file as results

    if not files:
        raise UsageError("report takes a results file or more: cudabench report RESULTS.json -o report.html.")
    if output == "-":
        raise UsageError("--output - names no file: write -o report.html.")
    target = Path(output)
    check_page(target, "--output")
    found = [(name, each) for name in files for each in results.load_all(name)]
    names = [name for name, _ in found]
    write_page([each for _, each in found], names, target)
    return 0
