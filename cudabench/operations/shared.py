"""What operations share: grids, rungs and the rules of their constants, inputs, a CPU baseline cut up for threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from cudabench.occupancy import MAX_REGISTERS, MAX_STATIC_SHARED
from cudabench.records.launch import WARP, Dim, Launch, cdiv
from cudabench.records.planned import Geometry, Kernel, Problem, Rule
from cudabench.system.children import on_threads

# The threads of a kernel that strides: four times what 132 SMs hold at once, so that the last blocks to end leave few
# SMs idle, whatever the GPU. --grid sets another number.
STRIDING_THREADS = 4 * 132 * 2048
MAX_WARPS = 8  # of a warp-tiled block: 128 sums a thread leave registers for no more

PIECE = 1 << 20  # elements of a random array that one thread draws

Arrays = dict[str, np.ndarray]
Check = Callable[[Geometry], str | None]

# Grids ---------------------------------------------------------------------------------------------------------------


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


# The CPU -------------------------------------------------------------------------------------------------------------


def in_strips(length: int, threads: int, work: Callable[[slice], object]) -> None:
    """Do `work` on the parts of range(length), one to a thread."""
    if threads == 1:
        work(slice(0, length))
    else:
        on_threads(work, [*pieces(slice(0, length), cdiv(length, threads))], threads)


def pieces(strip: slice, length: int) -> Iterator[slice]:
    """Yield the pieces of a strip, of a length that stays in the cache."""
    return (slice(at, min(at + length, strip.stop)) for at in range(strip.start, strip.stop, length))


# Inputs, the same on every machine for a seed ------------------------------------------------------------------------


def random_array(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Return random elements: floats in [0, 1), integers over their whole range.

    Random, because constant data is compressed by some devices' memory and draws less power.
    """
    kind = np.dtype(dtype)
    if kind.kind == "f":
        made = np.empty(shape, np.float64 if kind.itemsize == 8 else np.float32)
        _fill(rng, made.reshape(-1), lambda own, part: own.random(dtype=made.dtype.type, out=part))
        return made.astype(kind, copy=False)
    limits, made = np.iinfo(kind), np.empty(shape, kind)

    def integers(own: np.random.Generator, part: np.ndarray) -> None:
        part[:] = own.integers(limits.min, limits.max, part.shape, dtype=kind.type, endpoint=True)

    _fill(rng, made.reshape(-1), integers)
    return made


def _fill(
    rng: np.random.Generator, made: np.ndarray, draw: Callable[[np.random.Generator, np.ndarray], object]
) -> None:
    """Fill a flat array with what one generator draws in order, its pieces on all processors: every element takes as
    many bits of the sequence as it has, so where each piece begins in it is known."""
    bits: Any = rng.bit_generator
    start = bits.state
    whole = 0 if start["has_uint32"] or not isinstance(bits, np.random.PCG64) else made.size // PIECE
    words = PIECE * made.itemsize // 8

    def piece(at: int) -> None:
        own = np.random.PCG64()
        own.state = start
        draw(np.random.Generator(own.advance(at * words)), made[at * PIECE : (at + 1) * PIECE])

    if whole > 1:
        on_threads(piece, range(whole))
        bits.advance(whole * words)
        made = made[whole * PIECE :]
    draw(rng, made)


def itemsize(problem: Problem) -> int:
    """Return the bytes of an element."""
    return np.dtype(problem.dtype).itemsize


def unit(problem: Problem) -> float:
    """Return by what part of itself a float of the problem's type rounds at most."""
    return float(np.finfo(problem.dtype).eps) / 2


# Rungs, and what values their constants may have, in words that complete 'warp-tile takes ...' -----------------------


def rungs(operation: str, *usual: int) -> Callable[..., Kernel]:
    """Return what makes an operation's rungs: a name, which the function has too, a grid and other rules of a Kernel.

    usual: the block of those that say none. passed: the arguments, where they are not the operation's.
    """

    def rung(
        name: str,
        grid: Callable[[Geometry], Dim],
        block: tuple[int, ...] = usual,
        passed: Callable[[Geometry], tuple[Any, ...]] | None = None,
        **rules: Any,
    ) -> Kernel:
        made = Kernel(name, f"{operation}_{name.replace('-', '_')}", block, grid, **rules)
        if passed is None:
            return made

        def launches(g: Geometry, grid: Dim) -> tuple[Launch, ...]:
            return (Launch(made.function, grid, g.block, passed(g), made.shared_bytes(g)),)

        return replace(made, launches=launches)

    return rung


def number(least: int, most: int, *checks: Check, multiple: int | str = 1, power: bool = False) -> Rule:
    """Return the rule of a whole number from `least` to `most` that passes all `checks`.

    `multiple` is what it is a multiple of, a number or a constant of the chapter; with `power` it is a power of two.
    """

    def rule(value: int, geometry: Geometry) -> str | None:
        unit = geometry[multiple] if isinstance(multiple, str) else multiple
        if not least <= value <= most or value % unit or (power and value & (value - 1)):
            kind = "a power of two from " if power else f"a multiple of {unit} from " if unit > 1 else ""
            return f"{kind}{least} to {most}"
        return next((reason for check in checks if (reason := check(geometry))), None)

    return rule


def in_registers(*factors: str) -> Check:
    """Return the check that as many elements as the product of constants fit a thread's registers."""

    def check(geometry: Geometry) -> str | None:
        needed = prod(geometry[factor] for factor in factors) * max(geometry.itemsize // 4, 1)
        if needed <= MAX_REGISTERS:
            return None
        product = " x ".join(factors)
        return f"fewer: {product} elements would need {needed} registers a thread, and there are {MAX_REGISTERS}"

    return check


def in_static_shared(elements: Callable[[Geometry], int]) -> Check:
    """Return the check that an array of as many elements fits the static shared memory of a block."""

    def check(geometry: Geometry) -> str | None:
        needed = elements(geometry) * geometry.itemsize
        if needed <= MAX_STATIC_SHARED:
            return None
        return (
            f"less: its tile would take {needed / 1024:.0f} KiB of shared memory, and a block has "
            f"{MAX_STATIC_SHARED // 1024} KiB for such arrays"
        )

    return check


def needs_warps(geometry: Geometry) -> str | None:
    """Refuse a block that is not one to eight whole warps, for the warp-tiled kernels of matmul and solve."""
    threads = geometry.threads
    if threads % WARP:
        return f"whole warps share the work, and {threads} threads are no multiple of {WARP}"
    if threads > MAX_WARPS * WARP:
        return f"the sums take over half of 255 registers a thread, which leaves room for {MAX_WARPS * WARP} threads"
    return None
