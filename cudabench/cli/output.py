"""The destinations of a run's results, and the output during the run and at its end."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cudabench import text
from cudabench.cli.process import Terminated
from cudabench.compile import limits
from cudabench.errors import EXIT_FAILED, EXIT_OK, DeviceUnusable, UsageError, refuse
from cudabench.records import values
from cudabench.system.outputs import check_target, is_file, is_stdout, write_whole
from cudabench.views import console, report
from cudabench.views.progress import Progress, Waiting

if TYPE_CHECKING:
    from cudabench.cards.load import Card
    from cudabench.devices import Choice
    from cudabench.measure.run import Outcome, Run
    from cudabench.plan.series import Series
    from cudabench.records.file import ResultsFile
    from cudabench.records.plan import Settings


@dataclass(frozen=True)
class Destination:
    """The destination of a text: `path` is a file, a pipe or a device; None is standard output."""

    path: Path | None

    @classmethod
    def of(cls, word: str | None, option: str = "--output") -> Destination:
        """Return the destination that an option names.

        Raises CudabenchError, before anything runs, if it is not writable.
        """
        path = None if word in (None, "-") else Path(str(word))
        if path is not None:
            check_target(path, option)
        return cls(path)

    def write(self, content: str, *, beside: bool = False) -> None:
        """Write a text.

        With `beside`, the text goes to standard error instead of standard output, to which other content is written.
        """
        if self.path is not None:
            write_whole(self.path, content.encode())
        else:
            click.echo(content, nl=False, err=beside)


@dataclass(frozen=True)
class Output:
    """Where the results are written, and what is shown.

    `json`: the destination of --json; `quiet`: print no tables; `key`: the key of the only value to print, from
    --print; `report`: the path of --report's page.
    """

    json: Destination | None
    quiet: bool
    key: str | None = None
    report: Path | None = None

    @classmethod
    def of(cls, json_path: str | None, quiet: bool, key: str | None = None, report_path: str | None = None) -> Output:
        """Return the output that --json, --quiet, --print and --report describe.

        Raises CudabenchError, before anything runs, for a path that cannot be written and for an unknown key.
        """
        if key is not None:
            values.check_key(key)
        json = None if json_path is None else Destination.of(json_path, "--json")
        report = None if report_path is None else Path(report_path)
        if report is not None:
            same_file = json and json.path and report.absolute() == json.path.absolute()
            refuse(
                (report_path == "-", "--report - is not a file: write --report page.html."),
                (same_file, f"--report {report_path} and --json {json_path} name the same file: give two files."),
            )
            check_page(report, "--report")
        if json and json.path and is_stdout(json.path):
            json = Destination(None)
        if key is not None and json and not json.path:
            raise UsageError(f"--print {key} and --json {json_path} both write to standard output: name a file.")
        return cls(json, quiet or key is not None, key, report)

    @property
    def path(self) -> Path | None:
        """The file that is written again after every kernel.

        None for a pipe or a device, which gets the results once, at the end.
        """
        return self.json.path if self.json and self.json.path and is_file(self.json.path) else None

    @property
    def to_stdout(self) -> bool:
        """Whether the results file goes to standard output."""
        return self.json is not None and self.json.path is None

    def run(
        self, series: Sequence[Series], choices: Sequence[Choice], settings: Settings, request: Mapping[str, Any],
        **more: Any,
    ) -> Run:  # fmt: skip
        """Return a run that writes its results to `path` and shows its progress."""
        from cudabench.measure.run import Run

        return Run(
            series, choices, settings, request,
            path=self.path, listener=self.screen, record=bool(self.report), **more,
        )  # fmt: skip

    def screen(self, kernels: int) -> Progress:
        """Return the progress display of a run with this many kernels; with --quiet it shows nothing."""
        return Progress(kernels, shown=not self.quiet)

    def deliver(self, file: ResultsFile) -> None:
        """Print the results file if it goes to standard output, a pipe or a device; write the page of --report."""
        if self.json and self.path is None:
            self.json.write(file.text())
        if self.report and (file.results or file.diff):
            write_whole(self.report, report.page([file], [self.report.stem]).encode())

    def missing_value_code(self, run: Run) -> int:
        """Return the exit code of --print: EXIT_FAILED if a result lacks the value."""
        missing = self.key is not None and any(values.value(result, self.key) is None for result in run.file.results)
        return EXIT_FAILED if missing else EXIT_OK

    def refuse_several(self, kernels: Sequence[str], choices: Sequence[Choice]) -> None:
        """Raise UsageError if --print would have several results; DeviceUnusable if the simulator lacks the value."""
        if self.key is None:
            return

        if len(kernels) * len(choices) > 1:
            several = f"{len(kernels)} results, of {kernels[0]}, {kernels[1]}" if len(kernels) > 1 else "several cards"
            ellipsis = ", ..." if len(kernels) > 2 else ""
            card = "one card with --on" if choices[0].kind == "sim" else "one with --device cuda:0"
            repair = "one kernel with --kernel, and one size" if len(kernels) > 1 else card
            raise UsageError(f"--print {self.key} prints one result, not {several}{ellipsis}: name {repair}.")
        if choices[0].kind == "sim" and self.key.partition(".")[0] in values.MEASURED:
            raise DeviceUnusable(
                f"--print {self.key} needs a GPU: the simulator does not time; use --device cuda, or another key."
            )


def add_summary(markdown: Callable[[], str]) -> None:
    """Append tables to the summary page of a GitHub job, if this process runs in one."""
    if path := os.environ.get("GITHUB_STEP_SUMMARY"):
        with open(path, "a", encoding="utf-8") as stream:
            stream.write(markdown() + "\n")


@contextlib.contextmanager
def show_reading(file: str, given: Mapping[str, Any], sources: int) -> Iterator[None]:
    """Show on a terminal that a file is read, unless --quiet is given, and limit the time that this takes.

    The limit is the time limit of a compilation times `sources`, the number of sources to read. Raises CompilerError
    after the limit.
    """
    shown = Waiting(f"reading {text.line(Path(file).name)}", shown=not given["quiet"])
    with shown, limits.limited_reading(file, sources):
        yield


def run_and_show(run: Run, output: Output, work: Callable[[], None], show: Callable[[], None]) -> None:
    """Do the work of a run, then show its results. An interrupted run shows the results that it has."""
    announce(run.devices, output, run.cards[0] if len(run.cards) == 1 else None)
    stopped = interruption_of(work)
    output.deliver(run.file)
    show()
    if stopped:
        raise stopped


def interruption_of(work: Callable[[], object]) -> BaseException | None:
    """Call `work`. If Ctrl-C or SIGTERM ends it, return the exception, so that finished results can be shown first."""
    try:
        work()
    except (KeyboardInterrupt, Terminated) as interrupt:
        return interrupt
    return None


def announce(devices: Sequence[Choice], output: Output, card: Card | None = None) -> None:
    """Print the device as the first line of the output, with the card of the lower bounds in the simulator.

    With --quiet, only the device is printed, on standard error.
    """
    note = devices[0].note
    if note and output.quiet:
        print_notice(note)
    elif note:
        if card is not None:
            hint = "" if card.chosen_by_user else "; --on chooses another card"
            note = f"{note.rstrip('.')}; bounds are of the {card.title}{hint}."
        console.table_console(output.to_stdout).print(note)


def check_page(target: Path, option: str) -> None:
    """Check the path of an HTML page before anything runs.

    Raises UsageError for an ending other than .html or .htm, and CudabenchError if the path cannot be written.
    """
    check_target(target, option)
    if target.suffix.lower() not in ("", ".html", ".htm") and is_file(target):
        raise UsageError(
            f"{option} {target}: the page is HTML, and a browser prints it; write {option} "
            f"{target.with_suffix('.html')}."
        )


def show_tables(run: Run, output: Output, more: Callable[[str], str] | None = None) -> None:
    """Print a table for each series with results, or the value of --print. `more`: see `table.show_run`."""
    if output.key is not None:
        _print_value(run, output.key)
    if output.quiet or run.file.device is None:
        return
    from cudabench.views import cards, table

    out, err = console.table_console(output.to_stdout), console.err()
    for outcomes in _by_table(run.outcomes):
        results = [result for outcome in outcomes for result in outcome.results]
        if results:
            first, cpus = outcomes[0], [outcome.cpu for outcome in outcomes if outcome.cpu]
            if run.by_card:
                cards.show_by_card(
                    out, err, first.operation, run.file.devices, run.cards, results, cpus, first.settings
                )
                continue
            table.show_run(
                out, err, first.operation, run.file.devices, results, cpus, first.settings,
                announced=bool(run.devices[0].note), more=more,
            )  # fmt: skip


def _by_table(outcomes: Sequence[Outcome]) -> list[list[Outcome]]:
    """Return lists of outcomes, one list for each table. The same kernels at several sizes share a table."""
    groups: dict[object, list[Outcome]] = {}
    for outcome in outcomes:
        kernels = tuple(case.kernel for case in outcome.series.cases)
        groups.setdefault((outcome.operation.name, outcome.operation.source, kernels), []).append(outcome)
    return list(groups.values())


def _print_value(run: Run, key: str) -> None:
    """Print the value of --print, or the reason why it is missing on standard error."""
    for result in run.file.results:
        value = values.value(result, key)
        if value is None:
            reason = result.reason or f"{result.device} gives none"
            print_notice(f"{key} of {result.kernel} is missing: {reason}.")
        else:
            print(values.written(value), flush=True)


def print_notice(message: str) -> None:
    """Print a sentence on standard error."""
    console.err().print(message)
