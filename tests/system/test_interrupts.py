"""No signal is lost, whatever moment it comes in."""

from __future__ import annotations

import os
import random
import signal
import threading
import time

import pytest

from cudabench.system import limited_process

pytestmark = pytest.mark.skipif(not limited_process.FORKS, reason="needs os.fork")

TIMES = 40
LONGEST_S = 20.0


class Came(BaseException):
    """What the signal's handler raises."""


def _signalled(number: signal.Signals, delay: float) -> None:
    """Fork on and on; after a delay another thread sends this process a signal."""
    sender = threading.Timer(delay, os.kill, (os.getpid(), number))
    try:
        sender.start()
        end = time.monotonic() + LONGEST_S
        while time.monotonic() < end:
            limited_process.call(int, seconds=LONGEST_S, memory=1 << 28)
    finally:
        sender.join()


@pytest.mark.slow
@pytest.mark.sampled(3)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGALRM])
def test_a_signal_around_a_fork_is_heard(number: signal.Signals) -> None:
    """A handler's exception comes through a call in a forked process, though Python drops what its own hooks for a fork
    raise; another thread may be the one that the system gives the signal."""

    def stop(number: int, frame: object) -> None:
        raise Came

    before = signal.signal(number, stop)
    draw = random.Random(1)
    try:
        for _ in range(TIMES):
            with pytest.raises(Came):
                _signalled(number, draw.uniform(0.0, 0.01))
    finally:
        signal.signal(number, before)
