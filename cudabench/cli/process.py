"""What a process meets besides its arguments: signals, and streams that take no more or not every character."""

from __future__ import annotations

import codecs
import os
import signal
import sys
import time
from types import FrameType

REPEAT_S = 1.0  # `timeout` and process managers send a signal to the process and to its group, at the same moment

# Typography of tables and messages, for streams whose encoding lacks it.
_ASCII = {"×": "x", "µ": "u", "±": "+-", "…": "...", "–": "-", "—": "-", "≥": ">=", "≤": "<=", "²": "^2", "³": "^3"}


class Terminated(BaseException):
    """SIGTERM has come: handled like Ctrl-C. No KeyboardInterrupt, which click would turn into its own Abort."""


def heed_termination() -> None:
    """Let SIGTERM raise Terminated, unless whoever started the process has it ignored."""
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
    """Let every text reach standard output and error: by a likeness in ASCII where the encoding has no such character.

    A stream that is closed (`>&-`) takes everything and keeps nothing.
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
    """Return why standard output cannot be written, or None. Then it is dropped, so that Python's exit is silent."""
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return error
    return None
