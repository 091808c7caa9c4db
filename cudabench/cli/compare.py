"""`cudabench compare BASE.json NEW.json`: shows in tables, and by the exit code, which kernels became faster or slower.

It compares results files of kernels, or files of ceilings: two cards side by side, or one card at two times.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click

from cudabench import operations
from cudabench.cards.load import NAMES, known_card, load_file_or_card
from cudabench.cli.arguments import percentage
from cudabench.cli.help import headed
from cudabench.cli.options import PLACE, option
from cudabench.cli.output import Destination, Output, add_summary, print_notice
from cudabench.errors import EXIT_OK, EXIT_THRESHOLD, CudabenchError, UsageError, most_serious, refuse
from cudabench.records.file import ResultsFile, load
from cudabench.results import ceilings
from cudabench.text import json as json_text
from cudabench.views import ceilings as view
from cudabench.views import console

TARGETS = ("table", "markdown", "junit", "github")


@headed(
    "compare",
    click.Argument(["files"], nargs=-1, type=PLACE, metavar="BASE.json NEW.json [MORE.json ...]"),
    option(
        "--fail-on-regression PERCENT",
        "Exit 4 if a kernel is slower by more than PERCENT, such as 5%, and its interval says so; in the simulator, "
        "if a count grew by more.",
        "threshold",
        type=percentage,
    ),
    option("--strict", "Exit 4 also if a verdict is unclear or a kernel is missing."),
    option(
        "--noise PERCENT",
        "Difference of two runs of the same kernel on this machine, in addition to 0.25 µs.",
        type=percentage,
        default="1.5%",
        show_default=True,
    ),
    option("--same-model", "Treat two cards with the same name as the same GPU."),
    option("--require-base", "Exit 1 if BASE.json does not exist. Default: pass, as a first run."),
    option("--json PATH", "Write the comparison as JSON; '-' is standard output.", "json_path", type=PLACE),
    option(
        "--to",
        "Default: table. junit: a regression is a failed test. github: annotations, and tables into "
        "$GITHUB_STEP_SUMMARY.",
        "target",
        type=click.Choice(TARGETS),
    ),
    option("--markdown", "The same as --to markdown."),
    option("-o, --output FILE", "Write the form of --to to FILE.", "target_file", type=PLACE),
    option("-q, --quiet", "Print no tables; failures are still named."),
)
def command(
    files: tuple[str, ...], require_base: bool, json_path: str | None, target: str | None, markdown: bool,
    target_file: str | None, quiet: bool, **given: Any,
) -> int:  # fmt: skip
    """Say for each kernel whether it got faster, got slower, stayed the same, or is unclear.

    \b
    Results match by operation, kernel, size, type, block and kind of device.
    The same GPU   a verdict for each kernel, from the samples and --noise
    Other GPUs     a table of both, no verdict
    Simulator      sectors of global and of local memory, wavefronts, PTX instructions and hazards
    Ceilings       each, and the geometric mean of each group; h100 and h200 name the tool's own files
    Several files  one table: each file against the first

    A kernel that became wrong always exits 3; a kernel that fails now exits 1. If BASE.json does not exist yet, this is
    a first run: it passes and says so.
    """
    _check_files(files)
    if markdown and target not in (None, "markdown"):
        raise UsageError(f"--markdown is --to markdown, and --to {target} is given: keep one.")
    target = "markdown" if markdown else target or "table"
    output, place = Output.of(json_path, quiet), Destination.of(target_file)
    if target == "junit" and output.to_stdout and place.path is None:
        raise UsageError("--to junit and --json - both write to standard output: name a file with --output.")
    first = not Path(files[0]).exists() and known_card(files[0]) is None
    if first and require_base:
        load(files[0])  # `load` raises the error that names the missing file
    base = ResultsFile({}, {}, {}) if first else load_file_or_card(files[0]).measured(files[0])
    new_files = [_measured(name) for name in files[1:]]
    of_ceilings = ceilings.all_ceilings(new_files if first else [base, *new_files], files[1:] if first else files)
    compare = _ceilings if of_ceilings else _results
    return compare(_Request(files, [base, *new_files], first, target, place, output), **given)


def _measured(name: str) -> ResultsFile:
    file = load_file_or_card(name).measured(name)
    if not file.results and not file.ceilings:
        raise CudabenchError(f"{name} holds no results: its run ended before the first kernel did; measure again.")
    return file


def _check_files(files: tuple[str, ...]) -> None:
    """Raise UsageError if the words are not two results files or cards. The message has a correct command line."""
    first = files[0] if files else ""
    kernels = "".join(f" -k {name}" for name in files[1:])
    example = next(name for name in NAMES if name != first)
    refuse(
        (
            any(name.lower().endswith((".cu", ".cuh")) for name in files),
            "compare takes results files; for sources write cudabench diff OLD.cu NEW.cu (machine code) or cudabench "
            "ab OLD.cu NEW.cu (time).",
        ),
        (first in operations.SUMMARIES, f"compare takes results files; for kernels write cudabench {first}{kernels}."),
        (
            len(files) == 1 and first in NAMES,
            f"compare takes two cards or more: write cudabench compare {first} {example}.",
        ),
        (
            len(files) == 1,
            f"compare takes two results files: measure again with --json NEW.json, then write cudabench compare "
            f"{first} NEW.json; cudabench report {first} -o report.html shows a file.",
        ),
        (len(files) < 2, "compare takes two results files or more: cudabench compare BASE.json NEW.json."),
    )


@dataclass(frozen=True)
class _Request:
    """The words of the command line, after parsing.

    `names`: the files' names; `files`: the files; `first`: BASE.json does not exist yet; `target`: the form of the
    output; `place`: where it is written.
    """

    names: tuple[str, ...]
    files: Sequence[ResultsFile]
    first: bool
    target: str
    place: Destination
    output: Output

    def write_json(self, document: Callable[[], Mapping[str, Any]]) -> None:
        """Write the comparison, which `document()` returns, as JSON to the path of --json."""
        if self.output.json:
            self.output.json.write(json_text(json.dumps(document(), indent=2)) + "\n")

    def show(self, show: Callable[[Any], None], markdown: Callable[[], str]) -> None:
        """Show the tables in the form of --to, in the file of --output or on standard output.

        `show` prints them on a console; `markdown()` returns them as Markdown.
        """
        if self.place.path is not None:
            self.place.write(markdown() if self.target == "markdown" else console.captured(show))
        elif self.target == "markdown" and not self.output.quiet:
            self.place.write(markdown(), beside=self.output.to_stdout)
        elif not self.output.quiet:
            show(console.table_console(self.output.to_stdout))


def _results(order: _Request, *, threshold: float | None, strict: bool, noise: float, same_model: bool) -> int:
    """Compare the first file's results with each other file's, show it, and return the exit code."""
    from cudabench.results import compare
    from cudabench.views import annotations, comparison

    base, *new_files = order.files
    comparisons = [
        compare.compare(base, new_file, threshold=threshold, run_to_run=noise, same_model=same_model)
        for new_file in new_files
    ]
    failures = [failure for compared in comparisons for failure in compare.failures(compared, threshold, strict)]
    order.write_json(lambda: compare.document(order.names, comparisons, failures))

    def show(out: Any, markdown: bool = False) -> None:
        view = comparison.View(order.names, comparisons, noise, markdown)
        (view.first_run if order.first else view.show)(out)

    def in_markdown() -> str:
        return console.captured(partial(show, markdown=True))

    lines = [f"{line}\n" for compared in comparisons for line in annotations.of_comparison(compared, failures)]
    if order.target == "junit":
        from cudabench.views.export.comparison import junit

        order.place.write(junit(order.names, comparisons, failures))
    elif order.target == "github":
        add_summary(in_markdown)
        if order.place.path is None:
            order.show(show, in_markdown)
        order.place.write("".join(lines), beside=order.output.to_stdout)
    else:
        order.show(show, in_markdown)
    comparison.show_failures(console.err(), failures, comparisons, threshold)
    return most_serious(failure.code for failure in failures)


def _ceilings(order: _Request, *, threshold: float | None, strict: bool, **_: Any) -> int:
    """Compare the first file's ceilings with each other file's, show it, and return the exit code: 4 if a ceiling
    is worse by more than the threshold or, with --strict, lost its value.

    Raises UsageError for a form that cannot hold ceilings, and for files that share no ceiling.
    """
    if order.target not in ("table", "markdown"):
        raise UsageError(f"--to {order.target} cannot show ceilings: use --to table or --to markdown.")
    if order.first:
        print_notice(f"{order.names[0]} does not exist yet: this is a first run, and passes.")
        return EXIT_OK
    comparisons = [ceilings.compare(order.files[0], new_file) for new_file in order.files[1:]]
    failures = [sentence for compared in comparisons for sentence in ceilings.failures(compared, threshold, strict)]
    order.write_json(lambda: {**ceilings.document(order.names, comparisons), "failures": failures})
    pairs = [(compared, (order.names[0], name)) for compared, name in zip(comparisons, order.names[1:], strict=True)]

    def show(out: Any) -> None:
        for compared, labels in pairs:
            view.show_pair(out, compared, labels)

    order.show(show, lambda: "".join(view.pair_markdown(compared, labels) for compared, labels in pairs))
    for sentence in failures:
        print_notice(sentence)
    return EXIT_THRESHOLD if failures else EXIT_OK
