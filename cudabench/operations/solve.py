"""Linear system: A x = b for an N x N matrix, by Gauss-Jordan elimination with partial pivoting.

A kernel here is many launches: a few for each column, or for each panel of columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from cudabench.errors import CudabenchError
from cudabench.model import (
    MAX_GRID,
    WARP,
    Baseline,
    Buffer,
    Dim,
    Kernel,
    Launch,
    Operation,
    Option,
    Problem,
    Tolerance,
    cdiv,
)
from cudabench.operations import blas
from cudabench.operations.warps import needs_warps

Arrays = dict[str, np.ndarray]

# As in the chapter.
LINE = 128  # bytes; rows of the aligned variants start at multiples
PANEL = 512  # threads that eliminate a panel
WIDEST = 16  # columns of a panel at most
OUTER = 64  # columns eliminated between updates of the rest
SPREAD_ROWS = 16  # rows of a block of solve_spread
STEP, STAGES = 16, 3  # of solve_update: pivot rows a step, steps in shared memory
MAX_CANDIDATES = 1 << 16  # blocks down the rows of solve_fused, each of which leaves a candidate
FUSED_ROWS = 4  # rows that a thread of solve_fused has under way at once
FUSED_BLOCKS = 8 * 132  # that many run at once on an H200; each compares all candidates, so more would only repeat it

KINDS = ("permuted", "uniform", "singular")


# Geometry ------------------------------------------------------------------------------------------------------------


def over_matrix(problem: Problem, block: Dim) -> Dim:
    """Return the grid of one element of the augmented matrix a thread; later columns need fewer."""
    n = problem.size["n"]
    return (cdiv(n + 1, block[0]), min(cdiv(n, block[1]), MAX_GRID[1]), 1)


def over_fused(problem: Problem, block: Dim) -> Dim:
    """Return the same with fewer blocks down the rows, so that about FUSED_BLOCKS share the matrix."""
    x, y, z = over_matrix(problem, block)
    return (x, max(1, min(cdiv(y, FUSED_ROWS), FUSED_BLOCKS // x)), z)


def warp_tiles(block: Dim, itemsize: int) -> tuple[int, int]:
    """Return the rows and columns that a block of solve_update changes."""
    warps = block[0] * block[1] // WARP
    across = 2 if warps % 2 == 0 else 1
    return max(warps // across, 1) * 256 // itemsize, across * 64


def over_tiles(problem: Problem, block: Dim) -> Dim:
    """Return the grid of the first update of `blocked`; later ones need fewer columns."""
    n = problem.size["n"]
    rows, columns = warp_tiles(block, np.dtype(problem.dtype).itemsize)
    return (cdiv(n + 1, columns), cdiv(n, rows), 1)


def aligned_pitch(problem: Problem) -> int:
    """Return the elements from row to row of the augmented matrix where each starts at a multiple of 128 bytes."""
    line = LINE // np.dtype(problem.dtype).itemsize
    return cdiv(problem.size["n"] + 1, line) * line


# Launches ------------------------------------------------------------------------------------------------------------


def _ints(*values: int) -> tuple[Any, ...]:
    return tuple(np.int32(value) for value in values)


def _augment(problem: Problem, block: Dim, pitch: int) -> Launch:
    n = problem.size["n"]
    grid = (cdiv(pitch, block[0]), min(cdiv(n, block[1]), MAX_GRID[1]), 1)
    return Launch("solve_augment", grid, block, ("a", "b", "ab", "order", "pivot", "place", *_ints(n, pitch)))


def _flat(count: int, block: Dim) -> Dim:
    return (cdiv(count, block[0] * block[1]), 1, 1)


def _by_column(problem: Problem, block: Dim, grid: Dim, pitch: int, eliminate: str) -> Iterator[Launch]:
    """Yield four launches a column: pivot of each block, pivot, swap, elimination."""
    n = problem.size["n"]
    yield _augment(problem, block, pitch)
    for col in range(n):
        candidates = _flat(n - col, block)
        yield Launch("solve_pivot_block", candidates, block, ("ab", "peak", "peak_row", *_ints(n, pitch, col)))
        yield Launch("solve_pivot", (1, 1, 1), block, ("peak", "peak_row", "pivot", *_ints(candidates[0], col)))
        yield Launch("solve_swap", _flat(n - col + 1, block), block, ("ab", "pivot", *_ints(n, pitch, col)))
        yield Launch(eliminate, _narrowed(problem, block, grid, col), block, ("ab", *_ints(n, pitch, col)))
    yield Launch("solve_divide", _flat(n, block), block, ("ab", "x", *_ints(n, pitch)))


def _narrowed(problem: Problem, block: Dim, grid: Dim, col: int) -> Dim:
    """Return a grid without the blocks that lie left of a column's cache line."""
    line = LINE // np.dtype(problem.dtype).itemsize
    first = (col + 1) // line * line
    return (min(grid[0], cdiv(problem.size["n"] + 1 - first, block[0])), *grid[1:])


def unaligned(problem: Problem, block: Dim, grid: Dim) -> Sequence[Launch]:
    """Return the launches with rows of N + 1 elements."""
    return list(_by_column(problem, block, grid, problem.size["n"] + 1, "solve_eliminate"))


def aligned(problem: Problem, block: Dim, grid: Dim) -> Sequence[Launch]:
    """Return the launches with rows that start at multiples of 128 bytes."""
    return list(_by_column(problem, block, grid, aligned_pitch(problem), "solve_eliminate_aligned"))


def fused(problem: Problem, block: Dim, grid: Dim) -> Sequence[Launch]:
    """Return one launch a column; two pairs of candidate lists take turns. The number of blocks stays the same."""
    n, pitch = problem.size["n"], aligned_pitch(problem)
    lists = (("peak", "peak_row"), ("next_peak", "next_row"))
    count = min(_flat(n, block)[0], FUSED_BLOCKS)
    first = Launch("solve_pivot_block", (count, 1, 1), block, ("ab", *lists[0], *_ints(n, pitch, 0)))
    launches = [_augment(problem, block, pitch), first]
    for col in range(n):
        now, later = lists[col % 2], lists[1 - col % 2]
        x = _narrowed(problem, block, grid, col)[0]
        y = max(1, min(cdiv(n, block[1] * FUSED_ROWS), grid[0] * grid[1] // x, MAX_CANDIDATES))
        arguments = ("ab", *now, *later, "order", "pivot", *_ints(n, pitch, col, count))
        launches.append(Launch("solve_fused", (x, y, 1), block, arguments))
        count = y
    launches.append(Launch("solve_gather", _flat(n, block), block, ("ab", "pivot", "x", *_ints(n, pitch))))
    return launches


def panel(left: int, itemsize: int) -> tuple[int, int]:
    """Return the rows that each thread holds of a panel with this many rows, 0 for none, and the panel's columns."""
    rows = next((rows for rows in (2, 4, 8, 16) if left <= rows * PANEL), 0)
    return rows, min(256 // itemsize // rows, WIDEST) if rows else 1


def panels(n: int, outer: int, itemsize: int) -> Iterator[tuple[int, int, int]]:
    """Yield the first column, the columns and the rows a thread of each panel in the OUTER columns from `outer` on."""
    end = min(outer + OUTER, n)
    while outer < end:
        rows, cols = panel(n - outer, itemsize)
        cols = min(cols, end - outer)
        yield outer, cols, rows
        outer += cols


def blocked(problem: Problem, block: Dim, grid: Dim) -> Sequence[Launch]:
    """Return the launches by panels: eliminate, spread over OUTER columns, then update the rest."""
    n, pitch = problem.size["n"], aligned_pitch(problem)
    itemsize = np.dtype(problem.dtype).itemsize
    vector = 16 // itemsize
    rows, columns = warp_tiles(block, itemsize)
    shared = STAGES * STEP * (rows + 4 + columns) * itemsize
    launches = [_augment(problem, block, pitch)]
    for outer in range(0, n, OUTER):
        outer_cols = min(OUTER, n - outer)

        def spread(col: int, cols: int, next_cols: int, outer: int = outer, outer_cols: int = outer_cols) -> Launch:
            sizes = _ints(n, pitch, col, cols, outer, outer_cols, next_cols)
            arguments = ("ab", "strip", "upper", "inverse", "place", *sizes)
            return Launch("solve_spread", (cdiv(n, SPREAD_ROWS), 1, 1), (SPREAD_ROWS * WIDEST, 1, 1), arguments)

        order = list(panels(n, outer, itemsize))
        launches.append(spread(outer, 0, order[0][1]))
        for i, (col, cols, holds) in enumerate(order):
            sizes = _ints(n, pitch, col, cols, outer, outer_cols, holds)
            arguments = ("ab", "strip", "upper", "inverse", "place", "pivot", *sizes)
            launches.append(Launch("solve_panel", (1, 1, 1), (PANEL, 1, 1), arguments))
            launches.append(spread(col, cols, order[i + 1][1] if i + 1 < len(order) else 0))
        first = (outer + outer_cols) // vector * vector
        lift = (_flat(pitch - first, block)[0], outer_cols, 1)
        launches.append(Launch("solve_lift", lift, block, ("ab", "pivot", "lifted", *_ints(pitch, outer, first))))
        arguments = ("ab", "lifted", "place", *_ints(n, pitch, outer, outer_cols))
        launches.append(Launch("solve_update", (cdiv(n + 1 - first, columns), grid[1], 1), block, arguments, shared))
    launches.append(Launch("solve_collect", _flat(n, block), block, ("ab", "pivot", "x", *_ints(n, pitch))))
    return launches


# The operation -------------------------------------------------------------------------------------------------------


def inputs(problem: Problem) -> Arrays:
    """Return A and b by the option `matrix`.

    permuted: entries of [-1, 1) with 4 sqrt(N) added at one place of each row and column, rows in random order. The
    random part has a norm of about 1.2 sqrt(N), so the condition number is about 2 and every step must find its pivot.
    uniform: entries of [-1, 1) alone; condition numbers are about N, rarely far more.
    singular: the same with one column that is the sum of two others.
    """
    n, kind = problem.size["n"], problem.options.get("matrix", KINDS[0])
    rng = np.random.default_rng(problem.seed)
    dtype = np.dtype(problem.dtype)
    a = 2 * rng.random((n, n), dtype=dtype.type) - 1
    if kind == "permuted":
        a[np.arange(n), rng.permutation(n)] += 4 * np.sqrt(n, dtype=dtype)
    if kind == "singular":
        a[:, -1] = a[:, : min(2, n - 1)].sum(axis=1)
    return {"a": a, "b": 2 * rng.random(n, dtype=dtype.type) - 1}


def solution(a: np.ndarray, b: np.ndarray, dtype: str) -> np.ndarray:
    """Return the solution by LAPACK. Raises CudabenchError where A is singular to the working precision of `dtype`.

    The growth |A| |x| / |b| never exceeds the condition number and is close to it for a random b.
    """
    unit = float(np.finfo(dtype).eps)
    try:
        x = np.linalg.solve(a, b)
    except np.linalg.LinAlgError:
        x = np.full_like(b, np.nan)
    growth = float(np.linalg.norm(a)) * float(np.linalg.norm(x)) / max(float(np.linalg.norm(b)), 1e-300)
    if not growth < 0.01 / unit:
        raise CudabenchError(
            f"The {len(b)} x {len(b)} matrix is singular to the precision of {dtype}: it has no solution x; use "
            "another --matrix or --seed, or --dtype float64 for one that is only ill-conditioned."
        )
    return x


def reference(problem: Problem, arrays: Arrays) -> Arrays:
    """Return the solution in float64."""
    wide = {name: arrays[name].astype(np.float64, copy=False) for name in ("a", "b")}
    return {"x": solution(wide["a"], wide["b"], problem.dtype)}


def on_cpu(arrays: Arrays, outputs: Arrays, threads: int) -> None:
    """Solve with NumPy's LAPACK (gesv)."""
    with blas.limited(threads):
        outputs["x"][...] = solution(arrays["a"], arrays["b"], arrays["a"].dtype.name)


def tolerance(problem: Problem) -> Tolerance:
    """Return the error bound: condition number times roundings of N steps, over the size of x's elements."""
    n, kind = problem.size["n"], problem.options.get("matrix", KINDS[0])
    unit = float(np.finfo(problem.dtype).eps) / 2
    if kind == "permuted":
        # |x| is about |b| / (4 sqrt(N)) by element; every element of x carries the error of all.
        return Tolerance(
            32 * np.sqrt(n) * unit,
            8 * unit,
            "condition number 2; N roundings of random sign add up to sqrt(N) units, 16 times that leaves room",
        )
    return Tolerance(
        64 * n * unit, 64 * n * unit, "condition number up to some N; N roundings of random sign in each element"
    )


def figures(problem: Problem, arrays: Arrays, outputs: Arrays) -> dict[str, float]:
    """Return the residual |Ax - b| / |b|, computed in float64."""
    a, b, x = arrays["a"], arrays["b"].astype(np.float64), outputs["x"].astype(np.float64)
    rows = max(1, 2**22 // max(len(b), 1))  # strips: a float64 copy of the whole matrix can be large
    left = [a[i : i + rows].astype(np.float64, copy=False) @ x for i in range(0, len(b), rows)]
    return {"residual |Ax - b| / |b|": float(np.linalg.norm(np.concatenate(left) - b) / np.linalg.norm(b))}


def buffers(problem: Problem) -> tuple[Buffer, ...]:
    """Return A, b, x and the scratch memory: the augmented matrix, candidates, lists of rows, pivot rows set aside."""
    n, dtype, pitch = problem.size["n"], problem.dtype, aligned_pitch(problem)
    candidates = max(n, MAX_CANDIDATES)
    return (
        Buffer("a", (n, n), dtype, "in"),
        Buffer("b", (n,), dtype, "in"),
        Buffer("x", (n,), dtype, "out"),
        Buffer("ab", (n, pitch), dtype, "scratch"),
        Buffer("peak", (candidates,), dtype, "scratch"),
        Buffer("peak_row", (candidates,), "int32", "scratch"),
        Buffer("next_peak", (candidates,), dtype, "scratch"),
        Buffer("next_row", (candidates,), "int32", "scratch"),
        Buffer("order", (n,), "int32", "scratch"),
        Buffer("pivot", (n,), "int32", "scratch"),
        Buffer("place", (n,), "int32", "scratch"),
        Buffer("strip", (WIDEST, n), dtype, "scratch"),
        Buffer("upper", (WIDEST, OUTER), dtype, "scratch"),
        Buffer("inverse", (WIDEST, WIDEST), dtype, "scratch"),
        Buffer("lifted", (OUTER, pitch), dtype, "scratch"),
    )


OPERATION = Operation(
    name="solve",
    summary="A x = b",
    source="solve.cu",
    dimensions=("n",),
    default_size=(1024,),
    simulated_size=(64,),
    block_dimensions=2,
    dtypes={"float32": "float", "float64": "double"},
    kernels=(
        Kernel("gauss-jordan", "solve_eliminate", (32, 8), over_matrix, any_grid=True, launches=unaligned),
        Kernel("aligned", "solve_eliminate_aligned", (32, 8), over_matrix, any_grid=True, launches=aligned),
        Kernel("fused", "solve_fused", (32, 8), over_fused, any_grid=True, launches=fused),
        Kernel("blocked", "solve_update", (32, 4), over_tiles, refuses=needs_warps, launches=blocked),
    ),
    buffers=buffers,
    arguments=lambda problem: ("a", "b", "x", np.int32(problem.size["n"])),
    inputs=inputs,
    reference=reference,
    baseline=Baseline(blas.named("numpy.linalg.solve(a, b)"), on_cpu),
    tolerance=tolerance,
    bytes=lambda problem: (problem.size["n"] ** 2 + 2 * problem.size["n"]) * np.dtype(problem.dtype).itemsize,
    bytes_formula="(N^2 + 2 N) * sizeof(T)",
    flops=lambda problem: 2 * problem.size["n"] ** 3 // 3 + 2 * problem.size["n"] ** 2,
    flops_formula="2/3 N^3 + 2 N^2",
    options=(
        Option(
            "matrix",
            str,
            KINDS[0],
            "KIND",
            "permuted (well-conditioned, pivots all over), uniform (random) or singular.",
            choices=KINDS,
        ),
    ),
    figures=figures,
)
