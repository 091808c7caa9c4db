"""The limits of time and memory for a compile, and the errors for a compiler that exceeds them or crashes."""

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

# Compiling the headers of CUDA's own libraries takes up to 10 s and 1 GB. The limits are higher because some machines
# are slower.
COMPILE_S = 60.0
COMPILE_BYTES = 4 << 30
VARIABLE = "CUDABENCH_COMPILE_TIMEOUT"


_ends: ContextVar[float | None] = ContextVar("ends", default=None)
LEAST_S = 0.05  # the time limit of a compile that begins after the end of `shared_deadline`


@contextlib.contextmanager
def shared_deadline(seconds: float) -> Iterator[None]:
    """Limit the total time of all compiles, and of disassembling their results, in this `with` block."""
    token = _ends.set(time.monotonic() + seconds)
    try:
        yield
    finally:
        _ends.reset(token)


class _ReadingTimeout(BaseException):
    """Reading a source took too long. It is a BaseException, so that code which catches any Exception does not stop
    it."""


@contextlib.contextmanager
def limited_reading(filename: str, sources: int = 1) -> Iterator[None]:
    """Limit the time for reading source files in this `with` block: `sources` times the limit of a compile.

    `filename`: the first source, for the message. Raises CompilerStopped when the time is over. The limit needs a
    signal, so in a thread and on Windows there is no limit.
    """
    seconds = longest_seconds() * sources
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise _ReadingTimeout

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    except _ReadingTimeout:
        raise CompilerStopped(
            f"{filename}: reading it and what it includes took over {seconds:g} s and was stopped; "
            f"{VARIABLE}=SECONDS sets a longer limit."
        ) from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def seconds_left() -> float | None:
    """Return the seconds until the end of `shared_deadline`; None if no deadline is set."""
    ends = _ends.get()
    return None if ends is None else max(ends - time.monotonic(), LEAST_S)


def compile_seconds() -> float:
    """Return the time limit of a compile that starts now: `longest_seconds`, or less if a deadline ends earlier."""
    return min(longest_seconds(), seconds_left() or math.inf)


def longest_seconds() -> float:
    """Return CUDABENCH_COMPILE_TIMEOUT, the time limit of a compile in seconds, or 60. Raises UsageError."""
    text = os.environ.get(VARIABLE, "")
    if not text:
        return COMPILE_S
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e6:
        raise UsageError(f"{VARIABLE}={text} is not a time: give seconds, such as 60.")
    return seconds


class CompilerStopped(CompilerError):
    """Raised if a compile reached a limit of time or memory; a second attempt would reach the limit too."""


def timed_out(what: str) -> CompilerStopped:
    """Return the error for work that `shared_deadline` stopped."""
    return CompilerStopped(f"--timeout ended while {what}: set a longer --timeout.")


def too_long(filename: str, compiler: str, seconds: float) -> CompilerStopped:
    """Return the error for a compile that was stopped after `seconds`."""
    if seconds < longest_seconds():
        return timed_out(f"{compiler} compiled {filename}")
    return CompilerStopped(
        f"{filename}: {compiler} took over {seconds:g} s and was stopped; {VARIABLE}=SECONDS sets a longer limit."
    )


def too_much(filename: str, compiler: str) -> CompilerStopped:
    """Return the error for a compile that needed too much memory."""
    return CompilerStopped(
        f"{filename}: {compiler} ran out of its {COMPILE_BYTES >> 30} GiB of memory: its includes, macros or "
        "templates are too large."
    )


def crashed(compiler: str, status: int) -> str:
    """Return a message about a compiler's crash; `status`: the exit status as Popen reports it (-N for signal N)."""
    signals = {number.value: number.name for number in signal.Signals}
    how = f"signal {signals.get(-status, -status)}" if status < 0 else f"exit status {status}"
    return f"{compiler} crashed ({how}) on this text, which is a fault of the compiler: rewrite unusual parts"
