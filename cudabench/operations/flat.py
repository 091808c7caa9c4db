"""What operations over flat arrays share: grids of a one-dimensional block, and a CPU baseline cut up for threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from math import prod

from cudabench.records.launch import Dim, cdiv
from cudabench.records.planned import Geometry

# The threads of a kernel that strides: four times what 132 SMs hold at once, so that the last blocks to end leave few
# SMs idle, whatever the GPU. --grid sets another number.
STRIDING_THREADS = 4 * 132 * 2048


def one_each(per_thread: str = "") -> Callable[[Geometry], Dim]:
    """Return the rule of a grid that covers N elements; the constant `per_thread` says how many a thread has."""
    return lambda g: (cdiv(g.size["n"], g.block[0] * (g[per_thread] if per_thread else 1)), 1, 1)


def striding(*per_thread: str, most_threads: int = STRIDING_THREADS) -> Callable[[Geometry], Dim]:
    """Return the rule of a grid whose threads stride: no more than `most_threads`, and none without work.

    A thread takes as many elements at a time as the product of the constants `per_thread`.
    """

    def rule(g: Geometry) -> Dim:
        each = prod(g[name] for name in per_thread)
        return (min(cdiv(g.size["n"], g.block[0] * each), cdiv(most_threads, g.block[0])), 1, 1)

    return rule


def in_strips(length: int, threads: int, work: Callable[[slice], object]) -> None:
    """Do `work` on the parts of range(length), one to a thread."""
    if threads == 1:
        work(slice(0, length))
        return
    step = cdiv(length, threads)
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, pieces(slice(0, length), step)))


def pieces(strip: slice, length: int) -> Iterator[slice]:
    """Yield the pieces of a strip, of a length that stays in the cache."""
    return (slice(at, min(at + length, strip.stop)) for at in range(strip.start, strip.stop, length))
