"""What is being done, on standard error: a line that moves on a terminal, elsewhere a line of a log now and then."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from typing import TYPE_CHECKING

from cudabench import text
from cudabench.views import console

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

AFTER_S = 0.5  # what is over sooner shows nothing
EVERY_S = 10.0  # between lines of a log
PARTS = ("simulating", "launching again", "counting", "timing")  # phases of which a fraction is known


class Progress:
    """Shows kernel, phase and a bar while a run lasts; in a pipe one line every so many seconds, from a thread, so that
    a log tells a long run from one that hangs. Nothing is shown, and rich not imported, where no one looks."""

    def __init__(self, total: int, *, shown: bool, every: float | None = None) -> None:
        self._total, self._done, self._every = total, 0, every or EVERY_S
        self._begun = time.monotonic()
        self._now: tuple[int, str, str, float] | None = None
        self._over = threading.Event()
        moves = shown and sys.stderr.isatty()
        self._bar = _bar() if moves else None
        self._log = threading.Thread(target=self._tell, daemon=True) if shown and not moves else None

    def __enter__(self) -> Progress:
        if self._bar:
            self._bar.start()
            self._task = self._bar.add_task("starting", total=self._total)
        if self._log:
            with contextlib.suppress(RuntimeError):  # the process may have no more threads
                self._log.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar:
            self._bar.stop()
        self._over.set()
        if self._log and self._log.ident is not None:
            self._log.join()

    def working(self, kernel: str, phase: str, fraction: float) -> None:
        """Show that a kernel is in a phase, of which a fraction is done."""
        self._now = self._done, kernel, phase, fraction
        if phase == "warming up" and (self._bar or self._log):
            from cudabench.views import cards, table  # noqa: F401 (while the GPU works)

            console.err()
        if self._bar:
            said = f"{self._done + 1}/{self._total} {kernel}: {phase}"
            self._bar.update(self._task, completed=self._done + 0.95 * fraction * (phase == "timing"), description=said)

    def finished(self, printed: str) -> None:
        """Count a kernel as done, and print what it printed, on standard error, undisturbed by the line.

        Its last line ends, too: what is printed next must not make a command of both to a CI runner.
        """
        self._done += 1
        if not printed:
            return
        printed += "" if printed.endswith("\n") else "\n"
        if self._bar:
            console.err().print(printed, end="")
        else:
            sys.stderr.write(text.log(printed))

    def _tell(self) -> None:
        while not self._over.wait(self._every):
            seconds = time.monotonic() - self._begun
            line = f"{seconds:.0f} s: starting\n"
            if self._now is not None:
                done, kernel, phase, fraction = self._now
                part = f" {fraction:.0%}" if phase in PARTS and 0 < fraction < 1 else ""
                done = min(done, self._total)
                line = f"{seconds:.0f} s: {done} of {self._total} done, {text.line(kernel)}: {phase}{part}\n"
            try:
                sys.stderr.write(text.log(line))
                sys.stderr.flush()
            except (OSError, ValueError):  # nobody reads any more
                return


class Waiting:
    """Shows on a terminal what is waited for, of which no part is known, once that has lasted a moment."""

    def __init__(self, what: str, *, shown: bool, after: float | None = None) -> None:
        self._what = what
        self._lock = threading.Lock()  # to begin and to end do not meet
        self._bar: RichProgress | None = None
        self._over = not (shown and sys.stderr.isatty())
        self._timer = threading.Timer(AFTER_S if after is None else after, self._show)
        self._timer.daemon = True

    def __enter__(self) -> None:
        if not self._over:
            with contextlib.suppress(RuntimeError):  # the process may have no more threads
                self._timer.start()

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        with self._lock:
            self._over = True
            if self._bar:
                self._bar.stop()

    def _show(self) -> None:
        with self._lock, contextlib.suppress(OSError, ValueError):  # nobody reads any more
            if not self._over:
                self._bar = _bar()
                self._bar.add_task(self._what, total=None)
                self._bar.start()


def _bar() -> RichProgress:
    """Return a line with what is done, how much of it, and since when."""
    from rich import progress

    return progress.Progress(
        progress.SpinnerColumn(),
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(bar_width=24),
        progress.TimeElapsedColumn(),
        console=console.err(),
        transient=True,
    )
