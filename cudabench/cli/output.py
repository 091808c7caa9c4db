"""Where a run's results go, what a terminal shows meanwhile, and what is printed at the end."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cudabench.cli.process import Terminated
from cudabench.devices import Choice
from cudabench.measure.run import Listener, Run
from cudabench.outputs import check_target, is_file, is_stdout
from cudabench.render.progress import Progress


@dataclass(frozen=True)
class Output:
    """Where results go: into a file, to standard output, and a table unless all is to be quiet.

    `stream` is a place that is no file, which gets the whole once, at the end.
    """

    path: Path | None
    to_stdout: bool
    quiet: bool
    stream: Path | None = None

    @classmethod
    def of(cls, json_path: str | None, quiet: bool) -> Output:
        """Return what --json and --quiet mean. Raises CudabenchError, before anything runs, for no place to write."""
        if json_path is None or json_path == "-":
            return cls(None, json_path == "-", quiet)
        path = Path(json_path)
        check_target(path)
        if is_stdout(path):
            return cls(None, True, quiet)
        return cls(path, False, quiet) if is_file(path) else cls(None, False, quiet, path)


class Screen(Listener):
    """Shows what a run does, unless all is to be quiet."""

    def __init__(self, output: Output) -> None:
        self._quiet = output.quiet
        self._progress: Progress | None = None

    def begin(self, kernels: int) -> None:
        """Start the line of progress."""
        self._progress = Progress(kernels, shown=not self._quiet)
        self._progress.__enter__()

    def working(self, done: int, kernel: str, phase: str, fraction: float) -> None:
        """Show it."""
        if self._progress:
            self._progress.update(done, kernel, phase, fraction)

    def printed(self, text: str) -> None:
        """Pass on what a kernel printed."""
        if self._progress:
            self._progress.print(text)

    def end(self) -> None:
        """Take the line away."""
        if self._progress:
            self._progress.__exit__(None, None, None)
            self._progress = None


def carry_out(run: Run, output: Output, work: Callable[[], None], show: Callable[[Run, Output], None]) -> None:
    """Do the work of a run and show what came of it; one that is interrupted shows what was finished."""
    announce(run.devices, output)
    stopped: BaseException | None = None
    try:
        work()
    except (KeyboardInterrupt, Terminated) as interrupt:
        stopped = interrupt
    deliver(run, output)
    show(run, output)
    if stopped:
        raise stopped


def announce(devices: Sequence[Choice], output: Output) -> None:
    """Print what is to be known of the device, in the first line of the output; if quiet, on standard error."""
    note = devices[0].note
    if note and output.quiet:
        say(note)
    elif note:
        from cudabench.render import console

        console.tables(output.to_stdout).print(note)


def deliver(run: Run, output: Output) -> None:
    """Print the results file where it goes to standard output or another stream."""
    if output.stream:
        run.file.write(output.stream)
    if output.to_stdout:
        sys.stdout.write(run.file.text())
        sys.stdout.flush()


def tables(run: Run, output: Output) -> None:
    """Print a table for each series that has results."""
    if output.quiet or run.file.device is None:
        return
    from cudabench.render import console, table

    out, err = console.tables(output.to_stdout), console.err()
    for one in run.outcomes:
        if one.results:
            table.show(out, err, one.operation, run.file.devices, one.results, one.cpu, one.settings)


def say(message: str) -> None:
    """Print a sentence on standard error."""
    from cudabench.render import console

    console.err().print(message)
