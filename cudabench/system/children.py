"""Python processes that find the same modules as this one, and that ignore their current folder.

`python -m` and `python -c` search the current folder first, which may belong to anybody: a file `random.py` there
would run instead of Python's own.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

Task = TypeVar("Task")
Made = TypeVar("Made")

# Whether processes of `multiprocessing` can ignore the current folder: from Python 3.11 on.
POOLS = sys.version_info >= (3, 11)
MOST_THREADS = 8  # more threads gain little if memory is the limit, and each needs memory


def code_command(text: str) -> list[str]:
    """Return the command that runs a program's text; words after it are its `sys.argv[1:]`."""
    path = [folder for folder in sys.path if isinstance(folder, str)]
    return [sys.executable, "-c", f"import sys; sys.path[:] = {path!r}\n{text}"]


def module_command(name: str) -> list[str]:
    """Return the command that runs a module as `python -m` does; words after it are its arguments."""
    return code_command(f"import runpy\nrunpy.run_module({name!r}, run_name='__main__', alter_sys=True)")


@contextmanager
def starting_pools() -> Iterator[None]:
    """In this context, processes that `multiprocessing` spawns ignore the current folder too."""
    old_value = os.environ.get("PYTHONSAFEPATH")
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield
    finally:
        if old_value is None:
            del os.environ["PYTHONSAFEPATH"]
        else:
            os.environ["PYTHONSAFEPATH"] = old_value


def processors() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def on_threads(work: Callable[[Task], Made], tasks: Sequence[Task], threads: int | None = None) -> list[Made]:
    """Return a function's value for each task, computed on threads. The function should spend its time in libraries
    that release the GIL. threads: their number; by default as many as processors."""
    if len(tasks) < 2:
        return [work(task) for task in tasks]
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(threads or min(processors(), len(tasks), MOST_THREADS)) as pool:
        return list(pool.map(work, tasks))


@contextmanager
def on_processes(function: Callable[[Task], Made], tasks: Sequence[Task], processes: int) -> Iterator[Iterator[Made]]:
    """Yield a function's values for the tasks, in order, from this many processes, or from this process if children
    could not ignore the current folder."""
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    from cudabench.system import interrupts

    if processes < 2 or not POOLS:
        yield map(function, tasks)
        return
    with starting_pools():
        pool = ProcessPoolExecutor(processes, get_context("spawn"), interrupts.unblock_signals)
    try:
        with starting_pools(), interrupts.deferred():  # Ctrl-C is for this process, from the first moment
            results = pool.map(function, tasks)
        yield results
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
