"""What is being done, on standard error: a line that moves on a terminal, elsewhere a line of a log now and then."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from cudabench import text
from cudabench.views import console

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

AFTER_S = 0.5  # what is over sooner shows nothing
EVERY_S = 10.0  # between lines of a log
SAMPLING = "timing"  # goes on for so long a time at most, until then as long as it needs
COMPILING = "compiling all kernels"
PARTS = ("simulating", "launching again", "counting", "fuzzing", COMPILING)  # phases of which a fraction is known
ONCE = ("", "making inputs", "computing the reference", "timing the CPU", COMPILING)  # for all kernels of a problem
SAID = {SAMPLING: "sampling", "timing the CPU": "timing the CPU baseline"}
LEAST_S = 0.5  # less is not said to be left


class Pace:
    """How long a run takes still: what kernels took so far on average, for those that are left; of the first one how
    much of its phase is done, or the longest time that it may sample. What nothing is known of is not said."""

    def __init__(self, total: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.total, self.done = total, 0
        self.sampling = self.end = float("inf")  # the most seconds of a kernel's samples; when the run's time is over
        self._clock = clock
        self._heard, self._phase, self._worked, self._mean, self._ended = clock(), "", 0.0, 0.0, 0.0
        self._phases: dict[str, tuple[str, float]] = {}  # by kernel, since when

    def working(self, kernel: str, phase: str) -> None:
        """Note that a kernel is in a phase."""
        self._worked, self._heard, self._phase = self._work(), self._clock(), phase
        if self._phases.get(kernel, ("", 0.0))[0] != phase:
            self._phases[kernel] = phase, self._heard

    def finished(self) -> None:
        """Note that a kernel is done."""
        self.done += 1
        self._ended = self._work()
        self._mean = self._ended / self.done

    def left(self, kernel: str, phase: str, fraction: float) -> str:
        """Return how long the run, or else the phase of a kernel, takes still; '' where that is not known."""
        now = self._clock()
        budget = self.end - now
        rest = min(self._mean * (self.total - self.done) - (self._work() - self._ended), budget)
        if rest > LEAST_S:
            return f"about {_short(rest)} left"
        lasted = now - self._phases.get(kernel, ("", now))[1]
        if phase in PARTS and 0.02 < fraction < 1 and LEAST_S < (more := lasted / fraction * (1 - fraction)) < budget:
            return f"about {_short(more)} more"
        if phase == SAMPLING and LEAST_S < (more := self.sampling - lasted) < budget:
            return f"{_short(more)} more at most"
        return f"{_short(budget)} left at most" if LEAST_S < budget < float("inf") else ""

    def _work(self) -> float:
        """Return the seconds so far, without what is done once for all kernels."""
        return self._worked + (0.0 if self._phase in ONCE else self._clock() - self._heard)


def _short(seconds: float) -> str:
    """Return a time in words: 45 s, 12 min, 3 h."""
    value, unit = next(((seconds / f, u) for f, u in ((3600, "h"), (60, "min")) if seconds >= 2 * f), (seconds, "s"))
    return f"{value:.0f} {unit}"


class Progress:
    """Shows kernel, phase, a bar and how long is left while a run lasts; in a pipe one line every so many seconds, from
    a thread, so that a log tells a long run from one that hangs. Nothing is shown, and rich not imported, where no one
    looks."""

    def __init__(self, total: int, *, shown: bool, every: float | None = None) -> None:
        self._total, self._every = total, every or EVERY_S
        self._begun, self._pace = time.monotonic(), Pace(total)
        self._now: tuple[int, str, str, float] | None = None
        self._over = threading.Event()
        moves = shown and sys.stderr.isatty()
        self._bar = _bar(self._left) if moves else None
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

    def bound(self, sampling: float, end: float | None) -> None:
        """Know the longest time that a kernel samples, and when the run's time is over, of time.monotonic()."""
        self._pace.sampling, self._pace.end = sampling, float("inf") if end is None else end

    def working(self, kernel: str, phase: str, fraction: float) -> None:
        """Show that a kernel is in a phase, of which a fraction is done."""
        self._pace.working(kernel, phase)
        done = self._pace.done
        self._now = done, kernel, phase, fraction
        if self._bar:
            said = f"{done + 1}/{self._total} {kernel}: {SAID.get(phase, phase)}"
            part = 0.95 * fraction * (phase == SAMPLING or phase in PARTS)
            self._bar.update(self._task, completed=done + part, description=said)

    def finished(self, printed: str) -> None:
        """Count a kernel as done, and print what it printed, on standard error, undisturbed by the line.

        Its last line ends, too: what is printed next must not make a command of both to a CI runner.
        """
        self._pace.finished()
        if not printed:
            return
        printed += "" if printed.endswith("\n") else "\n"
        if self._bar:
            console.err().print(printed, end="")
        else:
            sys.stderr.write(text.log(printed))

    def _left(self) -> str:
        return self._pace.left(*self._now[1:]) if self._now else ""

    def _tell(self) -> None:
        while not self._over.wait(self._every):
            seconds = time.monotonic() - self._begun
            line = f"{seconds:.0f} s: starting\n"
            if self._now is not None:
                done, kernel, phase, fraction = self._now
                part = f" {fraction:.0%}" if phase in (*PARTS, SAMPLING) and 0 < fraction < 1 else ""
                left = f"; {said}" if (said := self._left()) else ""
                what = f"{text.line(kernel)}: {SAID.get(phase, phase)}{part}{left}"
                line = f"{seconds:.0f} s: {min(done, self._total)} of {self._total} done, {what}\n"
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


def _bar(left: Callable[[], str] = str) -> RichProgress:
    """Return a line with what is done, how much of it, since when, and how long is left."""
    from rich import progress
    from rich.text import Text

    class Left(progress.ProgressColumn):
        def render(self, task: progress.Task) -> Text:
            return Text(left())

    return progress.Progress(
        progress.SpinnerColumn(),
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(bar_width=24),
        progress.TimeElapsedColumn(),
        Left(),
        console=console.err(),
        transient=True,
    )
