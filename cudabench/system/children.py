"""Python processes that find modules where this one does, and none in the folder that they are started in.

`python -m` and `python -c` look into the current folder first, and that is the user's or somebody else's: a file
`random.py` there would run in the place of Python's own.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

Task = TypeVar("Task")
Made = TypeVar("Made")

# Whether processes of `multiprocessing` can be kept from the current folder: before Python 3.11 nothing does.
POOLS = sys.version_info >= (3, 11)
MOST_THREADS = 8  # more win little where memory is the limit, and each takes some


def code(text: str) -> list[str]:
    """Return the command that runs a program's text; words that are put behind it are its `sys.argv[1:]`."""
    path = [folder for folder in sys.path if isinstance(folder, str)]
    return [sys.executable, "-c", f"import sys; sys.path[:] = {path!r}\n{text}"]


def module(name: str) -> list[str]:
    """Return the command that runs a module as `python -m` does; words that are put behind it are its arguments."""
    return code(f"import runpy\nrunpy.run_module({name!r}, run_name='__main__', alter_sys=True)")


@contextmanager
def starting_pools() -> Iterator[None]:
    """While this lasts, processes that `multiprocessing` spawns do not look into the current folder either."""
    before = os.environ.get("PYTHONSAFEPATH")
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONSAFEPATH"]
        else:
            os.environ["PYTHONSAFEPATH"] = before


def processors() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def on_threads(work: Callable[[Task], Made], tasks: Sequence[Task], threads: int | None = None) -> list[Made]:
    """Return what a function, most of it in libraries that let other threads run, makes of each task; threads: how many
    do, by the processors unless told."""
    if len(tasks) < 2:
        return [work(task) for task in tasks]
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(threads or min(processors(), len(tasks), MOST_THREADS)) as pool:
        return list(pool.map(work, tasks))


@contextmanager
def spread(function: Callable[[Task], Made], tasks: Sequence[Task], processes: int) -> Iterator[Iterator[Made]]:
    """Give what a function makes of each task, in their order, by so many processes, or by this one where they could
    not be kept from the current folder."""
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    from cudabench.system import interrupts

    if processes < 2 or not POOLS:
        yield map(function, tasks)
        return
    with starting_pools():
        pool = ProcessPoolExecutor(processes, get_context("spawn"), interrupts.ready)
    try:
        with starting_pools(), interrupts.deferred():  # Ctrl-C is for this process, from the first moment
            made = pool.map(function, tasks)
        yield made
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
