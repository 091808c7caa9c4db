"""`cudabench plot RESULTS.json... -o out.svg`: a ladder, a curve over sizes, or the map of a sweep."""

from __future__ import annotations

from pathlib import Path

import click

from cudabench.cli.help import Headed
from cudabench.errors import UsageError, did_you_mean

SUFFIXES = ("svg", "png", "pdf")
KINDS = ("ladder", "size", "sweep", "roofline")


@click.command("plot", cls=Headed, short_help="Draw results: a ladder, time over size, a sweep.")
@click.argument("files", nargs=-1, type=click.Path(), metavar="RESULTS.json ...")
@click.option(
    "-o", "--output", required=True, type=click.Path(), metavar="FILE", help="The picture: .svg, .png or .pdf."
)
@click.option("--kind", type=click.Choice(KINDS), help="What to draw. Default: what suits the files.")
def command(files: tuple[str, ...], output: str, kind: str | None) -> int:
    """Draw results files in black and white.

    \b
    ladder  a bar a kernel against the copy of its run and the card's peak; several files side by side
    size    time over size, both logarithmic, of --sizes or of several files
    sweep   the map of a sweep's blocks
    roofline  GFLOP/s over operations a byte, under what the card allows; of the simulator's results with --on, bounds

    Files of 'cudabench ceilings' are bars beside the first card, or beside what one card could do in theory.
    """
    from cudabench.records import file as results
    from cudabench.system import outputs
    from cudabench.views import plot

    if not files:
        raise UsageError("plot takes a results file or more: cudabench plot RESULTS.json -o out.svg.")
    target = Path(output)
    suffix = picture_format(target, "--output")
    loaded = [results.load_named(name).measured(name) for name in files]
    figure = plot.draw(loaded, files, kind)
    outputs.write_whole(target, plot.render(figure, suffix))
    return 0


def picture_format(target: Path, option: str) -> str:
    """Return the format of the picture that an option names, before anything runs: png for a device or a pipe.

    Raises UsageError for a name of another ending, CudabenchError for a place that cannot be written.
    """
    from cudabench.system import outputs

    suffix = target.suffix.removeprefix(".").lower()
    if not suffix and not outputs.is_file(target):
        suffix = "png"
    if suffix not in SUFFIXES:
        if suffix in ("html", "htm"):
            raise UsageError(
                f"{option} {target} is a page, not a picture: write cudabench report RESULTS.json -o {target}."
            )
        near = did_you_mean(suffix, SUFFIXES)
        raise UsageError(f"{option} {target} has no suffix of a picture: use .{', .'.join(SUFFIXES)}.{near}")
    outputs.check_target(target, option)
    return suffix
