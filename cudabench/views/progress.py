"""Shows progress on standard error: as a moving line on a terminal, else by a new line every ten seconds."""

from __future__ import annotations

import contextlib
import shutil
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cudabench import text
from cudabench.views import console

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

DELAY_S = 0.5  # seconds; for a shorter wait no progress is shown
CORNER_INTERVAL_S = 1.0
LOG_INTERVAL_S = 10.0  # seconds between two lines if the output is a log instead of a terminal
LEAST_S = 0.5  # seconds; a remaining time that is shorter is not shown
SAMPLING, COMPILING = "timing", "compiling all kernels"
# phases whose progress is known as a fraction
FRACTION_PHASES = ("simulating", "launching again", "counting", "fuzzing", COMPILING)
# phases that run once for all kernels of a problem
SHARED_PHASES = ("", "making inputs", "computing the reference", "timing the CPU", COMPILING)
PHASE_NAMES = {SAMPLING: "sampling", "timing the CPU": "timing the CPU baseline"}


class _BackgroundThread:
    """Runs `show` in a thread until the context ends. If the process cannot start a thread, nothing is shown."""

    def __init__(self, show: Callable[[], None] | None) -> None:
        self._over = threading.Event()
        self._thread = threading.Thread(target=show, daemon=True) if show else None

    def __enter__(self) -> Any:
        if self._thread:
            with contextlib.suppress(RuntimeError):
                self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._thread and self._thread.ident is not None:
            self._thread.join()


class Progress(_BackgroundThread):
    """Shows kernel, phase, a bar and the time left during a run.

    In a pipe it writes a line every LOG_INTERVAL_S seconds, so that the log of a long run shows that it does not hang.
    If `shown` is False, it does not import rich, and prints only the kernels' own output in `finished`.
    """

    def __init__(self, total: int, *, shown: bool, every: float | None = None) -> None:
        self._total, self._done, self._every = total, 0, every or LOG_INTERVAL_S
        self._begun = self._heard = time.monotonic()
        # Seconds spent in the phases that are repeated for each kernel: in total, and up to the end of the last
        # finished kernel.
        self._worked = self._ended = 0.0
        self._sampling = self._end = float("inf")
        self._now: tuple[int, str, str, float] | None = None
        # for each kernel: the current phase, and the time when this phase began
        self._since: dict[str, tuple[str, float]] = {}
        self._bar = _bar(self.remaining_text) if shown and sys.stderr.isatty() else None
        self._task = self._bar.add_task("starting", total=total) if self._bar else None
        super().__init__((self._move if self._bar else self._log) if shown else None)

    def bound(self, sampling: float, end: float | None) -> None:
        """Set the longest sampling time of a kernel, in seconds, and the end of the budget by time.monotonic()."""
        self._sampling, self._end = sampling, float("inf") if end is None else end

    def show_progress(self, kernel: str, phase: str, fraction: float) -> None:
        """Show that a kernel is in a phase, and which fraction of the phase is done."""
        self._worked, self._heard = self._work(), time.monotonic()
        self._now = self._done, kernel, phase, fraction
        if phase == "warming up" and self._thread:
            from cudabench.views import cards, table  # noqa: F401 (imported now, while the GPU works)

            console.err()
        if self._since.get(kernel, ("",))[0] != phase:
            self._since[kernel] = phase, self._heard
        if self._bar and self._task is not None:
            description = f"{self._done + 1}/{self._total} {kernel}: {PHASE_NAMES.get(phase, phase)}"
            self._bar.update(
                self._task, completed=self._done + 0.95 * fraction * (phase == SAMPLING), description=description
            )

    def finished(self, printed: str) -> None:
        """Count a kernel as done, and print on standard error what the kernel itself printed.

        If the printed text does not end with a newline, one is added. Otherwise the last line, joined with the next
        output, could act as a command to the runner of a CI system.
        """
        self._done += 1
        self._ended = self._work()
        if not printed:
            return
        printed += "" if printed.endswith("\n") else "\n"
        if self._bar:
            console.err().print(printed, end="")
        else:
            sys.stderr.write(text.log(printed))

    def remaining_text(self) -> str:
        """Return the time left as text, or '' if nothing is known about it.

        The time is computed from the mean time of the finished kernels. Before the first kernel has finished, it is
        computed from the fraction of a phase that is done, or from an upper bound.
        """
        if self._now is None:
            return ""
        (_, kernel, phase, fraction), now = self._now, time.monotonic()
        lasted, budget = now - self._since[kernel][1], self._end - now
        mean = self._ended / max(self._done, 1)
        estimates = [(mean * (self._total - self._done) - (self._work() - self._ended), "about {} left")]
        if phase in FRACTION_PHASES and fraction > 0.02:
            estimates += [(lasted / fraction - lasted, "about {} more")]
        if phase == SAMPLING:
            estimates += [(self._sampling - lasted, "{} more at most")]
        estimates += [(budget, "{} left at most")]
        rest, form = next((estimate for estimate in estimates if LEAST_S < estimate[0] < float("inf")), (0.0, ""))
        rest = min(rest, budget)
        return form.format(f"{rest / 60:.0f} min" if rest > 100 else f"{rest:.0f} s") if rest > LEAST_S else ""

    def _work(self) -> float:
        return self._worked + (time.monotonic() - self._heard) * (
            (self._now[2] if self._now else "") not in SHARED_PHASES
        )

    def _move(self) -> None:
        assert self._bar
        with self._bar:
            self._over.wait()

    def _log(self) -> None:
        while not self._over.wait(self._every):
            seconds = time.monotonic() - self._begun
            line = f"{seconds:.0f} s: starting\n"
            if self._now is not None:
                done, kernel, phase, fraction = self._now
                part = f" {fraction:.0%}" if phase in (*FRACTION_PHASES, SAMPLING) and 0 < fraction < 1 else ""
                left = f"; {rest}" if (rest := self.remaining_text()) else ""
                what = f"{text.line(kernel)}: {PHASE_NAMES.get(phase, phase)}{part}{left}"
                line = f"{seconds:.0f} s: {min(done, self._total)} of {self._total} done, {what}\n"
            try:
                sys.stderr.write(text.log(line))
                sys.stderr.flush()
            except (OSError, ValueError):  # the stream was closed, so nobody reads the progress
                return


class Waiting(_BackgroundThread):
    """Shows on a terminal what the command waits for, if the wait takes longer than `after` seconds."""

    def __init__(self, what: str, *, shown: bool, after: float | None = None) -> None:
        self._what, self._after = what, DELAY_S if after is None else after
        super().__init__(self._show if shown and sys.stderr.isatty() else None)

    def _show(self) -> None:
        if not self._over.wait(self._after):
            with contextlib.suppress(OSError, ValueError), _bar() as bar:  # the stream was closed
                bar.add_task(self._what, total=None)
                self._over.wait()


class CornerMessage(_BackgroundThread):
    """Shows a few words on a terminal to which a program also writes. The words are written at the right edge of the
    line every CORNER_INTERVAL_S seconds; the cursor then returns to its place."""

    def __init__(self, words: Callable[[], str], *, shown: bool) -> None:
        self._words, self._begun = words, time.monotonic()
        super().__init__(self._show if shown and sys.stderr.isatty() else None)

    def _show(self) -> None:
        written = ""
        while not self._over.wait(CORNER_INTERVAL_S):
            written = text.line(f" {time.monotonic() - self._begun:.0f} s, {self._words()} ")
            self._write(written)
        if written:
            self._write(" " * len(written))

    def _write(self, words: str) -> None:
        column = max(1, shutil.get_terminal_size().columns - len(words))
        with contextlib.suppress(OSError, ValueError):  # the stream was closed
            sys.stderr.write(f"\0337\033[{column}G\033[2m{words}\033[0m\0338")
            sys.stderr.flush()


def _bar(left: Callable[[], str] = str) -> RichProgress:
    """Return a progress line: description, bar, elapsed time and time left. `left` returns the time left as text."""
    from rich import progress
    from rich.text import Text

    class RemainingTimeColumn(progress.ProgressColumn):
        def render(self, task: progress.Task) -> Text:
            return Text(left())

    return progress.Progress(
        progress.SpinnerColumn(),
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(bar_width=24),
        progress.TimeElapsedColumn(),
        RemainingTimeColumn(),
        console=console.err(),
        transient=True,
    )
