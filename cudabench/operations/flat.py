"""What operations share: the grids that cover their sizes, and a CPU baseline cut up for threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from math import prod

from cudabench.records.launch import Dim, cdiv
from cudabench.records.planned import Geometry

# The threads of a kernel that strides: four times what 132 SMs hold at once, so that the last blocks to end leave few
# SMs idle, whatever the GPU. --grid sets another number.
STRIDING_THREADS = 4 * 132 * 2048


def over(x: str, y: str = "", across: str = "", down: str = "") -> Callable[[Geometry], Dim]:
    """Return the rule of a grid over one size or two; constants say how much of each a thread has."""

    def blocks(g: Geometry, axis: int, size: str, each: str) -> int:
        return cdiv(g.size[size], g.block[axis] * (g[each] if each else 1))

    return lambda g: (blocks(g, 0, x, across), blocks(g, 1, y, down) if y else 1, 1)


def tiles(**sides: str) -> Callable[[Geometry], Dim]:
    """Return the rule of a one-dimensional grid of a block a tile; constants give its side along each size."""
    return lambda g: (prod(cdiv(g.size[size], g[side]) for size, side in sides.items()), 1, 1)


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
