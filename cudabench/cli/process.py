"""Signals, and output streams that are closed, full, or cannot encode a character."""

from __future__ import annotations

import codecs
import os
import signal
import sys
import time
from types import FrameType

# `timeout` and process managers send a signal to the process and to its group, so the same signal arrives twice; a
# second signal within this number of seconds is ignored.
REPEAT_S = 1.0

# Replacements for characters that the encoding of the output may lack.
_ASCII = {"×": "x", "µ": "u", "±": "+-", "…": "...", "–": "-", "—": "-", "≥": ">=", "≤": "<=", "²": "^2", "³": "^3"}


class Terminated(BaseException):
    """The exception that is raised when SIGTERM arrives. It is handled like Ctrl-C.

    The class does not derive from KeyboardInterrupt, because click replaces a KeyboardInterrupt by its exception Abort.
    """


def handle_sigterm() -> None:
    """Make SIGTERM raise Terminated, unless the parent process made this process ignore SIGTERM."""
    last = 0.0

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal last
        now = time.monotonic()
        repeated = last and now - last < REPEAT_S
        last = now
        if not repeated:
            raise Terminated

    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, stop)


def prepare_streams() -> None:
    """Make standard output and standard error accept every text. Characters that the encoding lacks become ASCII.

    A stream that the caller closed (`>&-`) is replaced by one that discards everything.
    """
    codecs.register_error("cudabench-ascii", _ascii_replacement)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 (lives as long as the process)
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="cudabench-ascii")


def _ascii_replacement(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_ASCII.get(char, "?") for char in error.object[error.start : error.end]), error.end


def output_error() -> OSError | None:
    """Return the error of standard output, or None if it can be written.

    After an error the stream is directed to /dev/null, so that Python prints no second error at exit.
    """
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return error
    return None
