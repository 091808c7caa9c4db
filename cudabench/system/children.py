"""Starts Python processes that find the same modules as this one, and do not import from the current folder.

`python -m` and `python -c` search the current folder first. Anyone may have written files there: a file `random.py` in
the current folder would run instead of Python's module `random`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")

# Whether processes that `multiprocessing` starts can be prevented from imports from the current folder (Python 3.11).
POOLS = sys.version_info >= (3, 11)
MOST_THREADS = 8  # more threads need more memory, but are hardly faster if the memory bandwidth is the limit


def code_command(text: str) -> list[str]:
    """Return the command that runs a Python program, given as text; words appended to it are its `sys.argv[1:]`."""
    path = [folder for folder in sys.path if isinstance(folder, str)]
    return [sys.executable, "-c", f"import sys; sys.path[:] = {path!r}\n{text}"]


def module_command(name: str) -> list[str]:
    """Return the command that runs a module as `python -m` does; words appended to it are its arguments."""
    return code_command(f"import runpy\nrunpy.run_module({name!r}, run_name='__main__', alter_sys=True)")


@contextmanager
def starting_pools() -> Iterator[None]:
    """While this context is open, the processes that `multiprocessing` spawns do not import from the current folder."""
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


def on_threads(work: Callable[[Task], Result], tasks: Sequence[Task], threads: int | None = None) -> list[Result]:
    """Call `work` for each task on threads, and return the list of its values.

    `work` should spend its time in libraries that release the GIL. `threads`: the number of threads, by default one for
    each processor, at most MOST_THREADS.
    """
    if len(tasks) < 2:
        return [work(task) for task in tasks]
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(threads or min(processors(), len(tasks), MOST_THREADS)) as pool:
        return list(pool.map(work, tasks))


@contextmanager
def on_processes(
    function: Callable[[Task], Result], tasks: Sequence[Task], processes: int
) -> Iterator[Iterator[Result]]:
    """Context manager that returns an iterator over `function(task)` for each task, in the order of the tasks, computed
    in child processes.

    If children would import from the current folder (before Python 3.11), this process computes the values.
    """
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    from cudabench.system import interrupts

    if processes < 2 or not POOLS:
        yield map(function, tasks)
        return
    with starting_pools():
        pool = ProcessPoolExecutor(processes, get_context("spawn"), interrupts.unblock_signals)
    try:
        # This process handles Ctrl-C; the child processes must not receive the signal, even while they start.
        with starting_pools(), interrupts.deferred():
            results = pool.map(function, tasks)
        yield results
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
