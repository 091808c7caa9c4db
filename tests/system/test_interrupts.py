"""A signal is never lost, whatever the moment of its arrival."""

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
    """The exception that the signal handler raises."""


def _signalled(number: signal.Signals, delay: float) -> None:
    """Call forked processes in a loop, while another thread sends this process a signal after a delay."""
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
    """An exception in a signal handler reaches the caller during a forked call, although Python drops exceptions in
    fork hooks, and although the system may deliver the signal to another thread."""

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
