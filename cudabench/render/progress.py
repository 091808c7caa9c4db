"""One line on standard error that says what is being done, on a terminal only."""

from __future__ import annotations

import sys
from types import TracebackType

from cudabench.text import log


class Progress:
    """Shows kernel, phase and a bar while a run lasts. Nothing is shown, and rich not imported, where no one looks."""

    def __init__(self, total: int, *, shown: bool) -> None:
        self._total = total
        self._shown = shown and sys.stderr.isatty()

    def __enter__(self) -> Progress:
        if self._shown:
            from rich import progress as rich_progress

            from cudabench.render import console

            self._console = console.err()
            self._bar = rich_progress.Progress(
                rich_progress.SpinnerColumn(),
                rich_progress.TextColumn("{task.description}", markup=False),
                rich_progress.BarColumn(bar_width=24),
                rich_progress.TimeElapsedColumn(),
                console=self._console,
                transient=True,
            )
            self._bar.start()
            self._task = self._bar.add_task("starting", total=self._total)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown:
            self._bar.stop()

    def update(self, done: int, kernel: str, phase: str, fraction: float) -> None:
        """Show that a kernel, after `done` others, is in a phase."""
        if self._shown:
            text = f"{done + 1}/{self._total} {kernel}: {phase}"
            self._bar.update(self._task, completed=done + 0.95 * fraction * (phase == "timing"), description=text)

    def print(self, text: str) -> None:
        """Print what a kernel printed, on standard error, undisturbed by the line."""
        if self._shown:
            self._console.print(text, end="")
        else:
            sys.stderr.write(log(text))
