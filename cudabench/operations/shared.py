"""Functions that several operations use: grids, kernels, rules of constants, random inputs, threads of CPU baselines.

Many functions here return a rule: a function of a `Geometry` that is called later, for a given size and block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from cudabench.occupancy import MAX_REGISTERS, MAX_STATIC_SHARED
from cudabench.records.launch import WARP, Dim, Launch, cdiv
from cudabench.records.plan import Geometry, Kernel, Problem, Rule
from cudabench.system.children import on_threads

# The number of threads of a kernel whose threads loop over the data, unless --grid sets another number. It is four
# times the number of threads that 132 SMs hold at once. With so many threads, few SMs are idle at the end on any GPU.
STRIDING_THREADS = 4 * 132 * 2048
# The largest number of warps in a block of a warp-tiled kernel: each thread keeps 128 sums, so the registers of an SM
# are not enough for more threads.
MAX_WARPS = 8

PIECE = 1 << 20  # a thread generates this many elements of a random array at a time

Arrays = dict[str, np.ndarray]
Check = Callable[[Geometry], str | None]

# Grids ---------------------------------------------------------------------------------------------------------------


def grid_over(x: str, y: str = "", across: str = "", down: str = "") -> Callable[[Geometry], Dim]:
    """Return the rule of a grid over the sizes `x` and, if given, `y`. A thread processes as many elements along x as
    the constant named by `across` says, and along y as `down` says; '' means one."""

    def blocks(g: Geometry, axis: int, size: str, per_thread: str) -> int:
        return cdiv(g.size[size], g.block[axis] * (g[per_thread] if per_thread else 1))

    return lambda g: (blocks(g, 0, x, across), blocks(g, 1, y, down) if y else 1, 1)


def grid_of_tiles(**sides: str) -> Callable[[Geometry], Dim]:
    """Return the rule of a one-dimensional grid with a block for each tile. The value of the argument for a size names
    the constant that sets the tile's side along that size, as in `grid_of_tiles(m="HIGH", n="WIDE")`."""
    return lambda g: (prod(cdiv(g.size[size], g[side]) for size, side in sides.items()), 1, 1)


def striding_grid(*per_thread: str, most_threads: int = STRIDING_THREADS) -> Callable[[Geometry], Dim]:
    """Return the rule of a grid whose threads loop over the data: at most about `most_threads` threads, and no block
    without work.

    In each iteration a thread processes as many elements as the product of the constants `per_thread`.
    """

    def rule(g: Geometry) -> Dim:
        elements = prod(g[name] for name in per_thread)
        return (min(cdiv(g.size["n"], g.block[0] * elements), cdiv(most_threads, g.block[0])), 1, 1)

    return rule


# The CPU -------------------------------------------------------------------------------------------------------------


def in_strips(length: int, threads: int, work: Callable[[slice], object]) -> None:
    """Divide range(length) into strips, and call `work` with each strip on its own thread."""
    if threads == 1:
        work(slice(0, length))
    else:
        on_threads(work, [*pieces(slice(0, length), cdiv(length, threads))], threads)


def pieces(strip: slice, length: int) -> Iterator[slice]:
    """Return an iterator over consecutive slices of `strip`, each of at most `length` elements."""
    return (slice(at, min(at + length, strip.stop)) for at in range(strip.start, strip.stop, length))


# Inputs, the same on every machine for a seed ------------------------------------------------------------------------


def random_array(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Return an array of random elements: floats in [0, 1), integers over their whole range.

    The data are random because some GPUs compress constant data, and because constant data need less power.
    """
    numpy_type = np.dtype(dtype)
    if numpy_type.kind == "f":
        array = np.empty(shape, np.float64 if numpy_type.itemsize == 8 else np.float32)
        _fill(rng, array.reshape(-1), lambda generator, piece: generator.random(dtype=array.dtype.type, out=piece))
        return array.astype(numpy_type, copy=False)
    limits, array = np.iinfo(numpy_type), np.empty(shape, numpy_type)

    def integers(generator: np.random.Generator, piece: np.ndarray) -> None:
        piece[:] = generator.integers(limits.min, limits.max, piece.shape, dtype=numpy_type.type, endpoint=True)

    _fill(rng, array.reshape(-1), integers)
    return array


def _fill(
    rng: np.random.Generator, array: np.ndarray, draw: Callable[[np.random.Generator, np.ndarray], object]
) -> None:
    """Fill a flat array with consecutive numbers of one random number generator, on all processors.

    Each element uses a fixed number of the generator's bits. So the generator's position at the start of a piece of the
    array is known, and the pieces can be filled independently.
    """
    bits: Any = rng.bit_generator
    start = bits.state
    whole_pieces = 0 if start["has_uint32"] or not isinstance(bits, np.random.PCG64) else array.size // PIECE
    words = PIECE * array.itemsize // 8

    def piece(at: int) -> None:
        bit_stream = np.random.PCG64()
        bit_stream.state = start
        draw(np.random.Generator(bit_stream.advance(at * words)), array[at * PIECE : (at + 1) * PIECE])

    if whole_pieces > 1:
        on_threads(piece, range(whole_pieces))
        bits.advance(whole_pieces * words)
        array = array[whole_pieces * PIECE :]
    draw(rng, array)


def itemsize(problem: Problem) -> int:
    """Return the size of an element in bytes."""
    return np.dtype(problem.dtype).itemsize


def unit(problem: Problem) -> float:
    """Return the largest relative rounding error of the problem's type."""
    return float(np.finfo(problem.dtype).eps) / 2


# Kernels, and the rules of their constants. A rule returns None, or text that completes 'warp-tile takes ...' ---------


def rungs(operation: str, *usual: int) -> Callable[..., Kernel]:
    """Return a function that makes the kernels of an operation, from a name, a grid rule and other fields of `Kernel`.

    The kernel 'smem-pad' of transpose has the C++ function transpose_smem_pad. `usual`: the default block. `passed` (an
    argument of the returned function): returns the arguments of the launch, if they differ from the operation's.
    """

    def rung(
        name: str,
        grid: Callable[[Geometry], Dim],
        block: tuple[int, ...] = usual,
        passed: Callable[[Geometry], tuple[Any, ...]] | None = None,
        **rules: Any,
    ) -> Kernel:
        kernel = Kernel(name, f"{operation}_{name.replace('-', '_')}", block, grid, **rules)
        if passed is None:
            return kernel

        def launches(g: Geometry, grid: Dim) -> tuple[Launch, ...]:
            return (Launch(kernel.function, grid, g.block, passed(g), kernel.shared_bytes(g)),)

        return replace(kernel, launches=launches)

    return rung


def number(least: int, most: int, *checks: Check, multiple: int | str = 1, power: bool = False) -> Rule:
    """Return the rule of a constant that is a whole number from `least` to `most` and passes all `checks`.

    It must also be a multiple of `multiple` (a number, or the name of a constant) and, with `power`, a power of two.
    """

    def rule(value: int, geometry: Geometry) -> str | None:
        unit = geometry[multiple] if isinstance(multiple, str) else multiple
        if not least <= value <= most or value % unit or (power and value & (value - 1)):
            form = "a power of two from " if power else f"a multiple of {unit} from " if unit > 1 else ""
            return f"{form}{least} to {most}"
        return next((reason for check in checks if (reason := check(geometry))), None)

    return rule


def in_registers(*factors: str) -> Check:
    """Return the check that as many elements as the product of the constants `factors` fit a thread's registers."""

    def check(geometry: Geometry) -> str | None:
        registers = prod(geometry[factor] for factor in factors) * max(geometry.itemsize // 4, 1)
        if registers <= MAX_REGISTERS:
            return None
        product = " x ".join(factors)
        return f"fewer: {product} elements would need {registers} registers per thread, but there are {MAX_REGISTERS}"

    return check


def in_static_shared(elements: Callable[[Geometry], int]) -> Check:
    """Return the check that an array of `elements(geometry)` elements fits the static shared memory of a block."""

    def check(geometry: Geometry) -> str | None:
        nbytes = elements(geometry) * geometry.itemsize
        if nbytes <= MAX_STATIC_SHARED:
            return None
        return (
            f"less: its tile would take {nbytes / 1024:.0f} KiB of shared memory, but a block has "
            f"{MAX_STATIC_SHARED // 1024} KiB for such arrays"
        )

    return check


def needs_warps(geometry: Geometry) -> str | None:
    """Return None if a block has one to eight whole warps, as the warp-tiled kernels of matmul and solve need; else the
    reason to refuse it."""
    threads = geometry.threads
    if threads % WARP:
        return f"whole warps share the work, but {threads} threads are not a multiple of {WARP}"
    if threads > MAX_WARPS * WARP:
        return f"the sums take over half of 255 registers per thread, so at most {MAX_WARPS * WARP} threads fit"
    return None
