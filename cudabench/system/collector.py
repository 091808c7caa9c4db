"""Switches Python's garbage collector off while many objects are made."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused() -> Iterator[None]:
    """Within this context, no garbage is collected.

    The collector runs again and again while a large structure grows, and then visits all of its objects, which takes
    longer than to make them.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
