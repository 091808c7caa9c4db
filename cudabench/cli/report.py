"""Follows a run: keeps the results file up to date, shows progress, prints the table at the end."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cudabench.devices import Choice, probe
from cudabench.measure import session
from cudabench.model import Case, CpuTime, Operation, Result, Settings
from cudabench.outputs import check_target
from cudabench.plan.cases import Request
from cudabench.render.progress import Progress
from cudabench.results.file import ResultsFile


@dataclass(frozen=True)
class Output:
    """Where results go: into a file, to standard output, and a table unless all is to be quiet."""

    path: Path | None
    to_stdout: bool
    quiet: bool

    @classmethod
    def of(cls, json_path: str | None, quiet: bool) -> Output:
        """Return what --json and --quiet mean. Raises CudabenchError, before anything runs, for no place to write."""
        if json_path is None or json_path == "-":
            return cls(None, json_path == "-", quiet)
        check_target(Path(json_path))
        return cls(Path(json_path), False, quiet)


class Report:
    """One run of an operation's kernels, as the user and the results file see it."""

    def __init__(
        self,
        operation: Operation,
        cases: Sequence[Case],
        choice: Choice,
        settings: Settings,
        request: Request | Mapping[str, Any],
        output: Output,
        *,
        trace: bool = False,
        more: Sequence[Choice] = (),
    ) -> None:
        self.more = more
        self.operation, self.cases, self.choice, self.settings = operation, cases, choice, settings
        self.output = output
        self.trace = trace
        self.cpu: CpuTime | None = None
        self.results: list[Result] = []
        wanted = request if isinstance(request, Mapping) else asdict(request)
        self.file = ResultsFile(
            settings={
                **asdict(settings),
                **wanted,
                "kernels": [case.kernel for case in cases],
                "device": "all" if more else choice.name,
            },
            tool=versions(choice),
            host=probe.host(),
        )

    def followed(self, operation: Operation, cases: Sequence[Case], settings: Settings) -> Report:
        """Return a report of further kernels on another problem, which goes into the same file."""
        other = copy(self)
        other.operation, other.cases, other.settings = operation, cases, settings
        other.results, other.cpu = [], None
        return other

    def collect(self, make: Callable[[], Operation]) -> None:
        """Run all cases on every device. Whatever ends it, the file holds what was finished."""
        if self.output.path:
            self.file.write(self.output.path)
        if self.choice.note and not self.output.quiet:
            self.say_result(self.choice.note)
        with Progress(len(self.cases) * (1 + len(self.more)), shown=not self.output.quiet) as progress:
            for choice in (self.choice, *self.more):
                self._collect(choice, make, progress)

    def _collect(self, choice: Choice, make: Callable[[], Operation], progress: Progress) -> None:
        def working(now: session.Working) -> None:
            kernel = f"{now.kernel} on {choice.name}" if self.more else now.kernel
            progress.update(len(self.results), kernel, now.phase, now.fraction)

        for event in session.run(
            choice, make, self.cases, self.settings, progress=working, trace=self.trace, cpu=self.cpu
        ):
            if isinstance(event, session.Started):
                if event.device not in self.file.devices:
                    self.file.devices.append(event.device)
            elif isinstance(event, session.Measured):
                self.cpu = event.cpu
            elif isinstance(event, session.Finished):
                self.results.append(event.result)
                self.file.results.append(event.result)
                if event.output:
                    progress.print(event.output)
                if self.output.path:
                    self.file.write(self.output.path)

    def deliver(self) -> None:
        """Print the results file where it goes to standard output."""
        if self.output.to_stdout:
            sys.stdout.write(self.file.text())
            sys.stdout.flush()

    def show(self) -> None:
        """Print the table of the results."""
        if self.output.quiet or self.file.device is None:
            return
        from cudabench.render import console, table

        out, err = console.tables(self.output.to_stdout), console.err()
        table.show(out, err, self.operation, self.file.devices, self.results, self.cpu, self.settings)

    def explain(self, *, threads: bool, banks: bool) -> None:
        """Print the explanation of each kernel instead of the table."""
        if self.output.quiet:
            return
        from cudabench.render import console, explanation

        out = console.tables(self.output.to_stdout)
        for result in self.results:
            explanation.show(out, result, threads=threads, banks=banks)

    def say(self, message: str) -> None:
        """Print a sentence on standard error."""
        from cudabench.render import console

        console.err().print(message)

    def say_result(self, message: str) -> None:
        """Print a sentence where the table goes."""
        from cudabench.render import console

        console.tables(self.output.to_stdout).print(message)


def versions(choice: Choice) -> dict[str, Any]:
    """Return the versions of what takes part in a run."""
    import numpy as np

    parts = [probe.pycuda(), probe.gpu_compiler()] if choice.kind == "cuda" else [probe.nvrtc()]
    return {"numpy": np.__version__, **{part.name.lower(): part.version for part in parts}}
