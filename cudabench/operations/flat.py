"""What operations over flat arrays share: grids of a one-dimensional block, and a CPU baseline cut up for threads."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from cudabench.model import Dim, Problem, cdiv

# The threads of a kernel that strides: four times what 132 SMs hold at once, so that the last blocks to end leave few
# SMs idle, whatever the GPU. --grid sets another number.
STRIDING_THREADS = 4 * 132 * 2048


def one_each(per_thread: int = 1, dimension: str = "n") -> Callable[[Problem, Dim], Dim]:
    """Return the rule of a grid that gives `per_thread` elements to a thread."""
    return lambda problem, block: (cdiv(problem.size[dimension], block[0] * per_thread), 1, 1)


def striding(per_thread: int = 1, most_threads: int = STRIDING_THREADS) -> Callable[[Problem, Dim], Dim]:
    """Return the rule of a grid whose threads stride: no more than `most_threads`, and none without work."""
    return lambda problem, block: (
        min(cdiv(problem.size["n"], block[0] * per_thread), cdiv(most_threads, block[0])),
        1,
        1,
    )


def in_strips(length: int, threads: int, work: Callable[[slice], None]) -> None:
    """Do `work` on the parts of range(length), one to a thread."""
    if threads == 1:
        work(slice(0, length))
        return
    step = cdiv(length, threads)
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda start: work(slice(start, start + step)), range(0, length, step)))
