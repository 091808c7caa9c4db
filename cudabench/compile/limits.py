"""What a compiler may take, and the errors of one that takes more or crashes."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextvars import ContextVar
from types import FrameType

from cudabench.errors import CompilerError, UsageError

# CUDA's own libraries with every header take 10 s and 1 GB; the rest is for slow machines.
COMPILE_S = 60.0
COMPILE_BYTES = 4 << 30
VARIABLE = "CUDABENCH_COMPILE_TIMEOUT"


_ends: ContextVar[float | None] = ContextVar("ends", default=None)
LEAST_S = 0.05  # what a compile gets that begins too late


@contextlib.contextmanager
def within(seconds: float) -> Iterator[None]:
    """Let all compiles in this context, and the reading of what they made, together take no longer."""
    token = _ends.set(time.monotonic() + seconds)
    try:
        yield
    finally:
        _ends.reset(token)


class _Late(BaseException):
    """Reading reached its limit; no error of its own, which reading might take for one of a header."""


@contextlib.contextmanager
def reading(filename: str, sources: int = 1) -> Iterator[None]:
    """Let the reading of so many sources, the first called so, take no longer than as many compiles may.

    Raises CompilerStopped. Where there are no signals, as in a thread or on Windows, it may take longer.
    """
    seconds = longest_seconds() * sources
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise _Late

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    except _Late:
        raise CompilerStopped(
            f"{filename}: reading it and what it includes took over {seconds:g} s and was stopped; "
            f"{VARIABLE}=SECONDS gives it longer."
        ) from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def left() -> float | None:
    """Return the seconds that are left of `within`, None outside of it."""
    ends = _ends.get()
    return None if ends is None else max(ends - time.monotonic(), LEAST_S)


def compile_seconds() -> float:
    """Return how long a compile may take now: `longest_seconds`, or what is left where that is less."""
    return min(longest_seconds(), left() or math.inf)


def longest_seconds() -> float:
    """Return how long any compile may take: CUDABENCH_COMPILE_TIMEOUT in seconds, or 60. Raises UsageError."""
    text = os.environ.get(VARIABLE, "")
    if not text:
        return COMPILE_S
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e6:
        raise UsageError(f"{VARIABLE}={text} is no time: give seconds, such as 60.")
    return seconds


class CompilerStopped(CompilerError):
    """A compile reached a limit: another attempt would, too."""


def timed_out(what: str) -> CompilerStopped:
    """Return the error for work that `within` has ended."""
    return CompilerStopped(f"--timeout was over while {what}: give it longer.")


def too_long(filename: str, compiler: str, seconds: float) -> CompilerStopped:
    """Return the error for a compile that was stopped, which had so many seconds."""
    if seconds < longest_seconds():
        return timed_out(f"{compiler} compiled {filename}")
    return CompilerStopped(
        f"{filename}: {compiler} took over {seconds:g} s and was stopped; {VARIABLE}=SECONDS gives it longer."
    )


def too_much(filename: str, compiler: str) -> CompilerStopped:
    """Return the error for a compile that asked for more memory than it may have."""
    return CompilerStopped(
        f"{filename}: {compiler} ran out of memory, of which it may have {COMPILE_BYTES >> 30} GiB: what it includes, "
        "or makes of macros and templates, is too large."
    )


def crashed(compiler: str, status: int) -> str:
    """Return the words for a compiler that ended by itself, with Popen's status."""
    signals = {one.value: one.name for one in signal.Signals}
    how = f"signal {signals.get(-status, -status)}" if status < 0 else f"exit status {status}"
    return f"{compiler} crashed ({how}) on this text, which is the compiler's fault: write what is unusual another way"
