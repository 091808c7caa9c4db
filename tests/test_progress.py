"""What a run says of itself while it lasts, where standard error is no terminal."""

from __future__ import annotations

import io
import sys
import threading

import pytest

from cudabench.render.progress import Progress


class Told(io.StringIO):
    """Standard error that notes when a line is complete."""

    def __init__(self) -> None:
        super().__init__()
        self.line = threading.Event()

    def write(self, text: str) -> int:
        """Take text."""
        written = super().write(text)
        if text.endswith("\n"):
            self.line.set()
        return written


def piped(monkeypatch: pytest.MonkeyPatch) -> Told:
    """Put a pipe in the place of standard error."""
    stream = Told()
    monkeypatch.setattr(sys, "stderr", stream)
    return stream


def test_a_pipe_gets_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long run says in a log what is done and what runs, also while that is silent, and no line after its end."""
    told = piped(monkeypatch)
    with Progress(13, shown=True, every=0.01) as progress:
        assert told.line.wait(30)
        progress.update(3, "smem", "simulating", 0.42)
        told.line.clear()
        assert told.line.wait(30)
        told.line.clear()
        assert told.line.wait(30)
    lines = told.getvalue().splitlines()
    assert lines[0].endswith(" s: starting")
    assert lines[-1].endswith(" s: 3 of 13 done, smem: simulating 42%")
    told.line.clear()
    assert not told.line.wait(0.05)


def test_a_name_in_a_log_is_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel's name brings no command for a CI runner, no control code and no second line into the log."""
    told = piped(monkeypatch)
    with Progress(2, shown=True, every=0.01) as progress:
        progress.update(1, "\n::error::x\x1b[31m", "compiling", 0)
        told.line.clear()
        assert told.line.wait(30)
        told.line.clear()
        assert told.line.wait(30)
    last = told.getvalue().splitlines()[-1]
    assert last.endswith(r"1 of 2 done, \n::error::x\x1b[31m: compiling")
    assert not any(line.startswith("::") for line in told.getvalue().splitlines())


def test_quiet_and_short_runs_say_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """With -q no line is written, nor in a run that ends before one is due."""
    told = piped(monkeypatch)
    with Progress(1, shown=False, every=0.01) as progress:
        progress.update(0, "smem", "timing", 0.5)
        assert not told.line.wait(0.05)
    with Progress(1, shown=True) as progress:
        progress.update(0, "smem", "timing", 0.5)
    assert told.getvalue() == ""


def test_no_thread_to_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the process may start no more threads, as under `ulimit -v`, a run does without the log's lines."""
    told = piped(monkeypatch)

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with Progress(1, shown=True, every=0.01) as progress:
        progress.update(0, "smem", "simulating", 0)
    assert told.getvalue() == ""
