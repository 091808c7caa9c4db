"""`cudabench compare BASE.json NEW.json`: what got faster, slower or cannot be told, for people and for exit codes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cudabench.errors import CudabenchError, UsageError
from cudabench.text import json as json_text

if TYPE_CHECKING:
    from cudabench.cli.output import Output
    from cudabench.results.compare import Comparison, Failure
    from cudabench.results.file import ResultsFile


class Percentage(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """A percentage, written with its sign: 5%. The value is the fraction, 0.05."""

    name = "percentage"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the fraction, or fail with what is no percentage."""
        if isinstance(value, float):
            return value
        match = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*%\s*", str(value), re.ASCII)
        if not match:
            # A bare 5 could be 5 or 500 percent; a gate must not guess.
            hint = f"{value}%" if re.fullmatch(r"\d+(\.\d*)?", str(value)) else "5%"
            self.fail(f"'{value}' is no percentage: write it like {hint}.", param, ctx)
        return float(match[1]) / 100


@click.command("compare", short_help="Compare results files; fail on a regression.")
@click.argument("files", nargs=-1, type=click.Path(), metavar="BASE.json NEW.json [MORE.json ...]")
@click.option(
    "--fail-on-regression",
    "threshold",
    type=Percentage(),
    metavar="PERCENT",
    help="Exit 4 where a kernel is slower by more than PERCENT, as in 5%, and its interval says slower; "
    "in the simulator, where any count grew.",
)
@click.option("--strict", is_flag=True, help="Exit 4 also where a verdict is unclear or a kernel is missing.")
@click.option(
    "--noise",
    type=Percentage(),
    default="1.5%",
    show_default=True,
    metavar="PERCENT",
    help="How far two runs of one unchanged kernel lie apart on this machine, besides 0.25 µs.",
)
@click.option("--same-model", is_flag=True, help="Take two cards of the same name for the same GPU.")
@click.option("--require-base", is_flag=True, help="Exit 1 where BASE.json does not exist, instead of a first run.")
@click.option(
    "--json",
    "json_path",
    type=click.Path(),
    metavar="PATH",
    help="Write the comparison as JSON; '-' = standard output.",
)
@click.option("--markdown", is_flag=True, help="Print the tables as GitHub-flavoured Markdown.")
@click.option("-q", "--quiet", is_flag=True, help="No tables; failures are still named.")
def command(
    files: tuple[str, ...],
    threshold: float | None,
    strict: bool,
    noise: float,
    same_model: bool,
    require_base: bool,
    json_path: str | None,
    markdown: bool,
    quiet: bool,
) -> int:
    """Say for each kernel whether it got faster, slower, stayed the same, or cannot be told.

    \b
    Results match by operation, kernel, size, type, block and kind of device.
    The same GPU   a verdict each, from the samples and --noise
    Other GPUs     a table of both, no verdict
    Simulator      sectors, wavefronts, instructions and hazards
    Several files  a table of all, each against the first

    A kernel that was right and is wrong exits 3, always; one that fails now exits 1. Where BASE.json does not exist
    yet, this is a first run: it passes and says so.
    """
    from cudabench import outputs
    from cudabench.cli.output import Output
    from cudabench.results import compare
    from cudabench.results import file as results

    if len(files) < 2:
        raise UsageError("compare takes two results files or more: cudabench compare BASE.json NEW.json.")
    output = Output.of(json_path, quiet)
    first = not Path(files[0]).exists()
    if first and require_base:
        results.load(files[0])  # says what is missing
    base = results.ResultsFile({}, {}, {}) if first else results.load(files[0])
    others = [_measured(name) for name in files[1:]]
    made = [
        compare.compare(base, other, threshold=threshold, run_to_run=noise, same_model=same_model) for other in others
    ]
    found = [failure for comparison in made for failure in compare.failures(comparison, threshold, strict)]
    document = ""
    if json_path:
        document = json_text(json.dumps(compare.document(files, made, found), indent=2)) + "\n"
    target = output.path or output.stream
    if target:
        outputs.write_whole(target, document.encode())
    elif output.to_stdout:
        click.echo(document, nl=False)
    _show(files, made, found, threshold, noise, first, markdown, output)
    return compare.exit_code(found)


def _measured(name: str) -> ResultsFile:
    from cudabench.results import file as results

    file = results.load(name)
    if not file.results:
        raise CudabenchError(f"{name} holds no results: its run ended before the first kernel did; measure again.")
    return file


def _show(
    names: tuple[str, ...],
    made: list[Comparison],
    found: list[Failure],
    threshold: float | None,
    noise: float,
    first: bool,
    markdown: bool,
    output: Output,
) -> None:
    """Print the tables to standard output, or beside it where the JSON goes there, and the failures to the other."""
    from cudabench.render import comparison, console

    if not output.quiet:
        out = console.tables(output.to_stdout)
        view = comparison.View(names, made, noise, markdown)
        if first:
            view.first_run(out)
        else:
            view.show(out)
    comparison.show_failures(console.err(), found, made, threshold)
