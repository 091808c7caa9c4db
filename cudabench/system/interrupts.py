"""Delays Ctrl-C, SIGTERM and alarms during work that must not be interrupted."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
DELAYED_SIGNALS = (*STOP_SIGNALS, signal.SIGALRM) if hasattr(signal, "SIGALRM") else STOP_SIGNALS


def _handlers() -> dict[signal.Signals, Callable[[int, FrameType | None], Any]]:
    """Return the Python handler of each signal in KEPT; {} outside the main thread, where Python runs no handlers."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    handlers = {number: signal.getsignal(number) for number in DELAYED_SIGNALS}
    return {number: handler for number, handler in handlers.items() if callable(handler)}


@contextlib.contextmanager
def delayed() -> Iterator[None]:
    """Context that delays signals until its end. If a process is started inside the context, no signal can interrupt
    between the start and the moment when the caller knows the process."""
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
    """Context that delays signals until its end. Processes that are started in this context have SIGINT and SIGTERM
    blocked until they call `unblock_signals`."""
    with delayed():
        blocks = bool(_handlers()) and hasattr(signal, "pthread_sigmask")
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS) if blocks else None
        try:
            yield
        finally:
            if mask is not None:
                # A signal that arrived during the block is handled here.
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def unblock_signals() -> None:
    """Unblock the signals in a new child process. From then on SIGTERM ends the child, and the child ignores Ctrl-C,
    because its parent handles Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
