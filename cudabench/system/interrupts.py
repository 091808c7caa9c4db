"""Ctrl-C, SIGTERM and alarms around work that must not stop half-way."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

STOPS = (signal.SIGINT, signal.SIGTERM)
KEPT = (*STOPS, signal.SIGALRM) if hasattr(signal, "SIGALRM") else STOPS


def _handlers() -> dict[signal.Signals, Callable[[int, FrameType | None], Any]]:
    """Return Python's handlers of the signals; empty outside the main thread, where handlers do not run."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    handlers = {number: signal.getsignal(number) for number in KEPT}
    return {number: handler for number, handler in handlers.items() if callable(handler)}


@contextlib.contextmanager
def delayed() -> Iterator[None]:
    """Delay signals until the end, so that a process is either started and registered, or not started."""
    received: list[int] = []
    handlers = _handlers()
    for number in handlers:
        signal.signal(number, lambda number, _: received.append(number))
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if received:
            signal.raise_signal(received[0])


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """Delay signals until the end. Processes that are started meanwhile have both blocked: see `unblock_signals`."""
    with delayed():
        blocks = bool(_handlers()) and hasattr(signal, "pthread_sigmask")
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS) if blocks else None
        try:
            yield
        finally:
            if mask is not None:
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)  # a waiting signal is handled here


def unblock_signals() -> None:
    """Unblock the signals of a started process: SIGTERM ends it, and it ignores Ctrl-C, which its parent handles."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
