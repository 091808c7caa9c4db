"""Progress output of a command: a moving line on a terminal, log lines in a pipe."""

from __future__ import annotations

import contextlib
import io
import re
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cudabench import cli
from cudabench.cli import sweep
from cudabench.compile import limits
from cudabench.errors import CompilerError
from cudabench.measure import revisions
from cudabench.userkernel import plan
from cudabench.views import console
from cudabench.views import progress as render_progress
from cudabench.views.progress import CornerMessage, Progress, Waiting
from tests.conftest import Ran


class Told(io.StringIO):
    """Standard error that sets an event when a line is complete."""

    def __init__(self) -> None:
        super().__init__()
        self.line = threading.Event()

    def write(self, text: str) -> int:
        """Write text."""
        written = super().write(text)
        if text.endswith("\n"):
            self.line.set()
        return written


def piped(monkeypatch: pytest.MonkeyPatch) -> Told:
    """Replace standard error by a pipe."""
    stream = Told()
    monkeypatch.setattr(sys, "stderr", stream)
    return stream


def test_a_pipe_gets_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a pipe, a long run writes its progress at intervals, also without news, and nothing after its end."""
    told = piped(monkeypatch)
    with Progress(13, shown=True, every=0.01) as progress:
        assert told.line.wait(30)
        for _ in range(3):
            progress.finished("")
        progress.show_progress("smem", "simulating", 0.42)
        told.line.clear()
        assert told.line.wait(30)
        told.line.clear()
        assert told.line.wait(30)
    lines = told.getvalue().splitlines()
    assert lines[0].endswith(" s: starting")
    assert " s: 3 of 13 done, smem: simulating 42%" in lines[-1]
    told.line.clear()
    assert not told.line.wait(0.05)


def test_a_name_in_a_log_is_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel's name in the log has no CI command, control code or line break."""
    told = piped(monkeypatch)
    with Progress(2, shown=True, every=0.01) as progress:
        progress.finished("")
        progress.show_progress("\n::error::x\x1b[31m", "compiling", 0)
        told.line.clear()
        assert told.line.wait(30)
        told.line.clear()
        assert told.line.wait(30)
    last = told.getvalue().splitlines()[-1]
    assert last.endswith(r"1 of 2 done, \n::error::x\x1b[31m: compiling")
    assert not any(line.startswith("::") for line in told.getvalue().splitlines())


def test_words_beside_a_program_leave_the_cursor_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside a program's output, the message is at the right edge of the terminal, restores the cursor, and is erased
    at the end; in a pipe there is no message."""
    told = piped(monkeypatch)
    monkeypatch.setattr(render_progress, "CORNER_INTERVAL_S", 0.01)
    asked = threading.Event()

    def words() -> str:
        asked.set()
        return "3 launches, add\x1b[31m"

    with CornerMessage(words, shown=True):
        assert not asked.wait(0.05)
    assert told.getvalue() == ""
    monkeypatch.setattr(told, "isatty", lambda: True)
    with CornerMessage(words, shown=True):
        assert asked.wait(30)
    first, *_, last = re.findall(r"\x1b7\x1b\[(\d+)G\x1b\[2m(.*?)\x1b\[0m\x1b8", told.getvalue())
    assert re.fullmatch(r" \d+ s, 3 launches, add\S+ ", first[1])
    assert "\x1b" not in first[1]
    assert last[1].strip() == ""


def test_quiet_and_short_runs_say_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """With -q, or in a short run, no progress line is written."""
    told = piped(monkeypatch)
    with Progress(1, shown=False, every=0.01) as progress:
        progress.show_progress("smem", "timing", 0.5)
        assert not told.line.wait(0.05)
    with Progress(1, shown=True) as progress:
        progress.show_progress("smem", "timing", 0.5)
    assert told.getvalue() == ""


def test_no_thread_to_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the process cannot start another thread, a run works without log lines."""
    told = piped(monkeypatch)

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with Progress(1, shown=True, every=0.01) as progress:
        progress.show_progress("smem", "simulating", 0)
    assert told.getvalue() == ""


class Steps:
    """Progress without output, with a clock that the test sets."""

    def __init__(self, total: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(render_progress.time, "monotonic", lambda: self.now)
        self.shown = Progress(total, shown=False)

    def after(self, seconds: float, phase: str, fraction: float = 0.0, kernel: str = "k") -> str:
        """Report a phase, advance the clock, and return the text about the remaining time."""
        self.shown.show_progress(kernel, phase, fraction)
        self.now += seconds
        return self.shown.remaining_text()


def test_what_is_not_known_to_be_left_is_not_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before a kernel is finished, the text gives only the rest of its phase, if that follows from its fraction or
    limit."""
    steps = Steps(4, monkeypatch)
    assert steps.shown.remaining_text() == ""
    assert steps.after(60, "compiling") == steps.after(60, "verifying") == steps.after(2, "timing", 0.5) == ""
    steps.shown.bound(10.0, None)
    assert steps.after(1, "timing", 0.9) == "7 s more at most"
    assert steps.after(7, "timing", 1.0) == ""
    assert steps.after(10, "simulating") == ""
    assert steps.after(10, "simulating", 0.25) == "about 60 s more"
    assert steps.after(3600, "counting", 0.1, "other") == "about 540 min more"


def test_what_kernels_took_says_what_others_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time per finished kernel, without one-time work, estimates the rest; a kernel that takes longer removes the
    estimate."""
    steps = Steps(4, monkeypatch)
    steps.now += 50
    for phase, seconds in (("making inputs", 20), ("compiling", 3), ("timing the CPU", 9), ("timing", 2)):
        steps.after(seconds, phase)
    steps.shown.finished("")
    assert steps.after(1, "compiling") == "about 14 s left"
    assert steps.after(30, "computing the reference") == "about 14 s left"
    assert steps.after(600, "timing") == ""
    steps.shown.finished("")
    assert steps.after(6, "timing") == "about 10 min left"
    steps.shown.finished("")
    assert steps.after(2, "timing") == "about 3 min left"
    steps.shown.finished("")
    assert steps.after(0, "timing") == ""


def test_no_more_is_left_than_the_run_may_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of --budget limits the estimate."""
    steps = Steps(3, monkeypatch)
    steps.shown.bound(10.0, steps.now + 30)
    assert steps.after(5, "compiling") == "25 s left at most"
    assert steps.after(5, "timing") == "5 s more at most"
    steps.shown.finished("")
    assert steps.after(15, "compiling") == "about 5 s left"
    assert steps.after(5, "compiling") == ""


@pytest.mark.driver
def test_a_ladder_on_a_gpu_says_what_it_does(cudabench: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch) -> None:
    """The log names each phase, the rest of the first kernel's sampling, and the remaining time."""
    monkeypatch.setattr(render_progress, "LOG_INTERVAL_S", 0.002)
    names = ("-k", "naive-row", "-k", "copy-row")
    ran = cudabench("transpose", *names, "--size", 512, 512, "--min-time", 1, "--max-time", 1, "--device", "cuda")
    assert ran.code == 0, ran.err
    for said in ("starting", "compiling", "timing the CPU baseline", "running", "verifying", "warming up", "sampling"):
        assert said in ran.err
    assert "0 of 2 done, naive-row: sampling; 1 s more at most\n" in ran.err
    assert re.search(r"1 of 2 done, copy-row: \w+; about \d+ s left\n", ran.err)


class Terminal(Told):
    """Standard error that is a terminal."""

    def isatty(self) -> bool:
        """Return True."""
        return True

    def until(self, text: str) -> None:
        """Wait until the terminal shows a text."""
        for _ in range(3000):
            if text in self.getvalue():
                return
            time.sleep(0.01)
        raise AssertionError(f"nothing shows {text!r}")


def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Replace standard error by a terminal."""
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    console.err.cache_clear()
    monkeypatch.setenv("TERM", "xterm")
    return stream


def test_a_terminal_shows_what_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long wait shows a message on a terminal and erases it; a short wait, or one in a pipe, shows nothing."""
    shown = terminal(monkeypatch)
    with Waiting("reading k.cu", shown=True, after=0.0):
        shown.until("reading k.cu")
    length = len(shown.getvalue())
    with Waiting("reading k.cu", shown=True, after=60.0), Waiting("reading k.cu", shown=False, after=0.0):
        pass
    assert len(shown.getvalue()) == length
    told = piped(monkeypatch)
    with Waiting("reading k.cu", shown=True, after=0.0):
        assert not told.line.wait(0.05)
    console.err.cache_clear()


@pytest.mark.slow
def test_a_terminal_shows_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Next to the bar, the terminal shows the remaining time of the phase or run, and updates it without news."""
    shown = terminal(monkeypatch)
    with Progress(2, shown=True) as progress:
        progress.bound(100.0, None)
        progress.show_progress("smem", "timing", 0.5)
        shown.until("1/2 smem: sampling")
        shown.until("s more at most")
        time.sleep(1.0)
        progress.finished("")
        progress.show_progress("vector", "compiling", 0.0)
        shown.until("about 1 s left")
    console.err.cache_clear()


def test_interrupted_reading_ends_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Ctrl-C while a source is read gives exit code 130 and erases the progress line."""
    (tmp_path / "k.cu").write_text("__global__ void k(float *x) { x[0] = 1; }\n")
    shown = terminal(monkeypatch)
    monkeypatch.setattr(render_progress, "DELAY_S", 0.0)

    def series(*_: object) -> None:
        shown.until("reading k.cu")
        raise KeyboardInterrupt

    monkeypatch.setattr(plan, "series", series)
    assert cli.invoke(["run", str(tmp_path / "k.cu")]) == 130
    assert "interrupted." in shown.getvalue().splitlines()[-1]
    console.err.cache_clear()


def test_reading_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading a source for longer than the compile limit is refused, even if the reader ignores exceptions."""
    monkeypatch.setenv(limits.VARIABLE, "0.05")
    before = signal.getsignal(signal.SIGALRM)

    def read() -> None:
        with limits.limited_reading("k.cu", 2):
            for _ in range(3000):
                with contextlib.suppress(Exception):
                    time.sleep(0.01)

    with pytest.raises(CompilerError, match=r"^k\.cu: reading it and what it includes took over 0\.1 s and was stop"):
        read()
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0


@pytest.mark.parametrize(
    ("line", "reader"),
    [
        (("sweep", "k.cu", "-D", "N=1,2"), (sweep, "_planned")),
        (("diff", "k.cu", "k.cu"), (revisions, "side")),
        (("run", "k.cu"), (plan, "series")),
    ],
    ids=["sweep", "diff", "run"],
)
def test_commands_bound_reading(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    line: tuple[str, ...],
    reader: tuple[object, str],
) -> None:
    """Every command that reads a user's source ends with exit code 1 if reading takes too long."""
    monkeypatch.chdir(tmp_path)
    Path("k.cu").write_text("__global__ void k(float *x) { x[0] = N; }\n")
    monkeypatch.setenv(limits.VARIABLE, "0.05")
    monkeypatch.setattr(*reader, lambda *of: time.sleep(60))
    assert cli.invoke(list(line)) == 1
    assert "k.cu: reading it and what it includes took over" in " ".join(capsys.readouterr().err.split())
