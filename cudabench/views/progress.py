"""What is being done, on standard error: a line that moves on a terminal, elsewhere a line of a log now and then."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING

from cudabench import text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as RichProgress

AFTER_S = 0.5  # what is over sooner shows nothing
EVERY_S = 10.0  # between lines of a log
PARTS = ("simulating", "launching again", "counting", "timing")  # phases of which a fraction is known


class Progress:
    """Shows kernel, phase and a bar while a run lasts; in a pipe one line every so many seconds, so that a log
    tells a long run from one that hangs. Nothing is shown, and rich not imported, where no one looks."""

    def __init__(self, total: int, *, shown: bool, every: float | None = None) -> None:
        self._total, self._done = total, 0
        self._shown = shown and sys.stderr.isatty()
        self._log = _Log(total, every or EVERY_S) if shown and not self._shown else None

    def __enter__(self) -> Progress:
        if self._shown:
            from cudabench.views import console

            self._console = console.err()
            self._bar = _bar(self._console)
            self._bar.start()
            self._task = self._bar.add_task("starting", total=self._total)
        if self._log:
            self._log.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown:
            self._bar.stop()
        if self._log:
            self._log.stop()

    def working(self, kernel: str, phase: str, fraction: float) -> None:
        """Show that a kernel is in a phase, of which a fraction is done."""
        if self._shown:
            said = f"{self._done + 1}/{self._total} {kernel}: {phase}"
            completed = self._done + 0.95 * fraction * (phase == "timing")
            self._bar.update(self._task, completed=completed, description=said)
        elif self._log:
            self._log.now = self._done, kernel, phase, fraction

    def finished(self, printed: str) -> None:
        """Count a kernel as done, and print what it printed, on standard error, undisturbed by the line.

        Its last line ends, too: what is printed next must not make a command of both to a CI runner.
        """
        self._done += 1
        if not printed:
            return
        printed += "" if printed.endswith("\n") else "\n"
        if self._shown:
            self._console.print(printed, end="")
        else:
            sys.stderr.write(text.log(printed))


class Waiting:
    """Shows on a terminal what is waited for, of which no part is known, once that has lasted a moment."""

    def __init__(self, what: str, *, shown: bool, after: float | None = None) -> None:
        self._what = what
        self._lock = threading.Lock()  # to begin and to end do not meet
        self._bar: RichProgress | None = None
        self._over = False
        self._timer = None
        if shown and sys.stderr.isatty():
            self._timer = threading.Timer(AFTER_S if after is None else after, self._show)
            self._timer.daemon = True

    def __enter__(self) -> Waiting:
        if self._timer:
            with contextlib.suppress(RuntimeError):  # the process may have no more threads
                self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer:
            self._timer.cancel()
        with self._lock:
            self._over = True
            if self._bar:
                self._bar.stop()

    def _show(self) -> None:
        from cudabench.views import console

        with self._lock, contextlib.suppress(OSError, ValueError):  # nobody reads any more
            if not self._over:
                self._bar = _bar(console.err())
                self._bar.add_task(self._what, total=None)
                self._bar.start()


def _bar(console: Console) -> RichProgress:
    """Return a line with what is done, how much of it, and since when."""
    from rich import progress as rich_progress

    return rich_progress.Progress(
        rich_progress.SpinnerColumn(),
        rich_progress.TextColumn("{task.description}", markup=False),
        rich_progress.BarColumn(bar_width=24),
        rich_progress.TimeElapsedColumn(),
        console=console,
        transient=True,
    )


class _Log:
    """Writes what is being done every so many seconds, from a thread: a compiler says nothing for a minute."""

    def __init__(self, total: int, every: float) -> None:
        self.now: tuple[int, str, str, float] | None = None
        self._total, self._every = total, every
        self._begun = time.monotonic()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._tell, daemon=True)

    def start(self) -> None:
        """Begin; silently do without where the process may have no more threads."""
        with contextlib.suppress(RuntimeError):
            self._thread.start()

    def stop(self) -> None:
        """Write no line any more."""
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _tell(self) -> None:
        while not self._over.wait(self._every):
            try:
                sys.stderr.write(self._line())
                sys.stderr.flush()
            except (OSError, ValueError):  # nobody reads any more
                return

    def _line(self) -> str:
        seconds = time.monotonic() - self._begun
        if self.now is None:
            return f"{seconds:.0f} s: starting\n"
        done, kernel, phase, fraction = self.now
        part = f" {fraction:.0%}" if phase in PARTS and 0 < fraction < 1 else ""
        return text.log(
            f"{seconds:.0f} s: {min(done, self._total)} of {self._total} done, {text.line(kernel)}: {phase}{part}\n"
        )
