"""Signals, and output streams that are closed, full, or lack characters."""

from __future__ import annotations

import codecs
import os
import signal
import sys
import time
from types import FrameType

REPEAT_S = 1.0  # `timeout` and process managers send a signal to the process and at the same moment to its group

# ASCII in place of typography, for streams whose encoding lacks it.
_ASCII = {"×": "x", "µ": "u", "±": "+-", "…": "...", "–": "-", "—": "-", "≥": ">=", "≤": "<=", "²": "^2", "³": "^3"}


class Terminated(BaseException):
    """SIGTERM was received; handled like Ctrl-C. Not a KeyboardInterrupt, because click turns that into its Abort."""


def heed_termination() -> None:
    """Make SIGTERM raise Terminated, unless the process was started with SIGTERM ignored."""
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
    """Make standard output and error accept every text: characters that the encoding lacks become ASCII.

    A stream that is closed (`>&-`) discards everything.
    """
    codecs.register_error("cudabench-likeness", _likeness)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 (lives as long as the process)
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="cudabench-likeness")


def _likeness(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_ASCII.get(char, "?") for char in error.object[error.start : error.end]), error.end


def output_fault() -> OSError | None:
    """Return why standard output cannot be written, or None. Drops a bad stream, so that Python's exit is silent."""
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return error
    return None
