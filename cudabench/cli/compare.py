"""`cudabench compare BASE.json NEW.json`: what got faster, slower or cannot be told, for people and for exit codes."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cudabench import operations
from cudabench.cli.help import Headed
from cudabench.errors import CudabenchError, UsageError
from cudabench.text import json as json_text

if TYPE_CHECKING:
    from cudabench.cli.output import Output
    from cudabench.records.file import ResultsFile
    from cudabench.results.compare import Comparison, Failure


TARGETS = ("table", "markdown", "junit", "github")


class Percentage(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """A percentage: 5%, or 5. The value is the fraction, 0.05."""

    name = "percentage"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the fraction, or fail with what is no percentage."""
        if isinstance(value, float):
            return value
        match = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(%?)\s*", str(value), re.ASCII)
        if not match:
            self.fail(f"'{value}' is no percentage: write it like 5%.", param, ctx)
        number = float(match[1])
        if not match[2] and 0 < number < 1:  # a gate must not guess
            self.fail(
                f"'{value}' may be a percentage or a fraction: write {match[1]}% or {number * 100:.6g}%.", param, ctx
            )
        return number / 100


@click.command("compare", cls=Headed, short_help="Compare results files; fail on a regression.")
@click.argument("files", nargs=-1, type=click.Path(), metavar="BASE.json NEW.json [MORE.json ...]")
@click.option(
    "--fail-on-regression",
    "threshold",
    type=Percentage(),
    metavar="PERCENT",
    help="Exit 4 if a kernel is slower by more than PERCENT, such as 5%, and its interval says so; in the simulator, "
    "if a count grew by more.",
)
@click.option("--strict", is_flag=True, help="Exit 4 also if a verdict is unclear or a kernel is missing.")
@click.option(
    "--noise",
    type=Percentage(),
    default="1.5%",
    show_default=True,
    metavar="PERCENT",
    help="Difference of two runs of the same kernel on this machine, besides 0.25 µs.",
)
@click.option("--same-model", is_flag=True, help="Treat two cards of the same name as the same GPU.")
@click.option("--require-base", is_flag=True, help="Exit 1 if BASE.json does not exist. Default: pass, as a first run.")
@click.option(
    "--json",
    "json_path",
    type=click.Path(),
    metavar="PATH",
    help="Write the comparison as JSON; '-' is standard output.",
)
@click.option(
    "--to",
    "target",
    type=click.Choice(TARGETS),
    help="Default: table. junit: a regression is a failed test. github: annotations, and tables into "
    "$GITHUB_STEP_SUMMARY.",
)
@click.option("--markdown", is_flag=True, help="The same as --to markdown.")
@click.option(
    "-o", "--output", "target_file", type=click.Path(), metavar="FILE", help="Write what --to says to FILE instead."
)
@click.option("-q", "--quiet", is_flag=True, help="Print no tables; failures are still named.")
def command(
    files: tuple[str, ...],
    threshold: float | None,
    strict: bool,
    noise: float,
    same_model: bool,
    require_base: bool,
    json_path: str | None,
    target: str | None,
    markdown: bool,
    target_file: str | None,
    quiet: bool,
) -> int:
    """Say for each kernel whether it got faster, slower, stayed the same, or cannot be told.

    \b
    Results match by operation, kernel, size, type, block and kind of device.
    The same GPU   a verdict each, from the samples and --noise
    Other GPUs     a table of both, no verdict
    Simulator      sectors, wavefronts, instructions and hazards
    Ceilings       of two cards: each, and the geometric mean of a group; h100 h200 are cards that the tool knows
    Several files  a table of all, each against the first

    A kernel that was right and is wrong exits 3, always; one that fails now exits 1. Where BASE.json does not exist
    yet, this is a first run: it passes and says so.
    """
    from cudabench.cli import cards
    from cudabench.cli.output import Output
    from cudabench.records import file as results
    from cudabench.results import ceilings, compare
    from cudabench.system import outputs

    _check_files(files)
    target = _target(target, markdown)
    output = Output.of(json_path, quiet)
    file = None if target_file in (None, "-") else Path(str(target_file))
    if file:
        outputs.check_target(file, "--output")
    elif target == "junit" and output.to_stdout:
        raise UsageError("--to junit and --json - both write to standard output: name a file with --output.")
    first = not Path(files[0]).exists() and results.known_card(files[0]) is None
    if first and require_base:
        results.load(files[0])  # says what is missing
    base = results.ResultsFile({}, {}, {}) if first else results.load_named(files[0]).measured(files[0])
    others = [_measured(name) for name in files[1:]]
    if ceilings.all_ceilings(others if first else [base, *others], files[1:] if first else files):
        asked = cards.Asked(files, threshold, strict, target, file, output, json_path is not None)
        return cards.compare([base, *others], first, asked)
    made = [
        compare.compare(base, other, threshold=threshold, run_to_run=noise, same_model=same_model) for other in others
    ]
    found = [failure for comparison in made for failure in compare.failures(comparison, threshold, strict)]
    document = ""
    if json_path:
        document = json_text(json.dumps(compare.document(files, made, found), indent=2)) + "\n"
    place = output.path or output.stream
    if place:
        outputs.write_whole(place, document.encode())
    elif output.to_stdout:
        click.echo(document, nl=False)
    _show(_Shown(files, made, found, noise, first), target, file, output)
    _failures(found, made, threshold)
    return compare.exit_code(found)


def _check_files(files: tuple[str, ...]) -> None:
    """Raise UsageError, with the line to type, where the words are not two results files or cards."""
    from cudabench.cards.load import NAMES

    if any(name.lower().endswith((".cu", ".cuh")) for name in files):
        raise UsageError(
            "compare takes results files; for sources write cudabench diff OLD.cu NEW.cu (machine code) or cudabench "
            "ab OLD.cu NEW.cu (time)."
        )
    if files and files[0] in operations.SUMMARIES:
        kernels = "".join(f" -k {name}" for name in files[1:])
        raise UsageError(f"compare takes results files; for kernels write cudabench {files[0]}{kernels}.")
    if len(files) == 1 and files[0] in NAMES:
        other = next(name for name in NAMES if name != files[0])
        raise UsageError(f"compare takes two cards or more: write cudabench compare {files[0]} {other}.")
    if len(files) == 1:
        raise UsageError(
            f"compare takes two results files: measure again with --json NEW.json, then write cudabench compare "
            f"{files[0]} NEW.json; cudabench report {files[0]} -o report.html shows one."
        )
    if len(files) < 2:
        raise UsageError("compare takes two results files or more: cudabench compare BASE.json NEW.json.")


def _target(target: str | None, markdown: bool) -> str:
    """Return what --to and --markdown mean together."""
    if markdown and target not in (None, "markdown"):
        raise UsageError(f"--markdown is --to markdown, and --to {target} is given: keep one.")
    return "markdown" if markdown else target or "table"


def _measured(name: str) -> ResultsFile:
    from cudabench.records import file as results

    file = results.load_named(name).measured(name)
    if not file.results and not file.ceilings:
        raise CudabenchError(f"{name} holds no results: its run ended before the first kernel did; measure again.")
    return file


@dataclass(frozen=True)
class _Shown:
    """What is to be shown: the files' names, the comparisons of the first with each other, and why they fail."""

    names: tuple[str, ...]
    made: list[Comparison]
    found: list[Failure]
    noise: float
    first: bool

    def text(self, markdown: bool) -> str:
        """Return the tables."""
        from cudabench.views import comparison, console

        view = comparison.View(self.names, self.made, self.noise, markdown)
        return console.captured(view.first_run if self.first else view.show)

    def annotations(self) -> list[str]:
        """Return GitHub's commands."""
        from cudabench.views import annotations

        return [line for one in self.made for line in annotations.of_comparison(one, self.found)]


def _show(shown: _Shown, target: str, file: Path | None, output: Output) -> None:
    """Write what --to says to a file, to standard output, or beside it where the JSON goes there."""
    from cudabench.system import outputs
    from cudabench.views import comparison, console

    if target == "junit":
        from cudabench.views.export.comparison import junit

        report = junit(shown.names, shown.made, shown.found)
        if file is None:
            click.echo(report, nl=False)
        else:
            outputs.write_whole(file, report.encode())
        return
    if target == "github":
        summary = os.environ.get("GITHUB_STEP_SUMMARY")
        if summary:
            with open(summary, "a", encoding="utf-8") as stream:
                stream.write(shown.text(markdown=True) + "\n")
    if file is not None:
        lines = "".join(f"{line}\n" for line in shown.annotations())
        outputs.write_whole(file, (lines if target == "github" else shown.text(target == "markdown")).encode())
        return
    if not output.quiet:
        view = comparison.View(shown.names, shown.made, shown.noise, target == "markdown")
        out = console.tables(output.to_stdout)
        if shown.first:
            view.first_run(out)
        else:
            view.show(out)
    if target == "github":
        for line in shown.annotations():
            click.echo(line, err=output.to_stdout)


def _failures(found: list[Failure], made: list[Comparison], threshold: float | None) -> None:
    from cudabench.views import comparison, console

    comparison.show_failures(console.err(), found, made, threshold)
