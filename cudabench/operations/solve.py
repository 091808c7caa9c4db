"""Linear system: A x = b for an N x N matrix, by Gauss-Jordan elimination or LU, with partial pivoting.

A kernel of this ladder consists of many launches: a few for each column, or for each panel (some adjacent columns).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from cudabench.errors import CudabenchError
from cudabench.occupancy import MAX_GRID, MAX_THREADS_PER_BLOCK
from cudabench.operations import blas
from cudabench.operations.shared import Arrays, in_registers, itemsize, needs_warps, number, unit
from cudabench.records.launch import WARP, Dim, Launch, cdiv
from cudabench.records.plan import Baseline, Buffer, Geometry, Kernel, Operation, Option, Peer, Problem, Tolerance

MOST_COLUMNS = 16  # the scratch arrays have space for a panel of this many columns
# The scratch arrays have space for this many columns between two updates of the whole matrix.
MOST_OUTER = 128
# The most blocks of solve_fused along y. Each of these blocks writes a candidate for the next pivot.
MAX_CANDIDATES = 1 << 16
# This many blocks run at once on an H200. Each block compares all candidates for the pivot, so more blocks would do
# this work more often.
FUSED_BLOCKS = 8 * 132

KINDS = ("permuted", "uniform", "singular")


# Geometry ------------------------------------------------------------------------------------------------------------


def over_matrix(g: Geometry) -> Dim:
    """Return the grid with one element of the augmented matrix (A with b as last column) per thread.

    Launches for later columns have smaller grids.
    """
    n = g.size["n"]
    return (cdiv(n + 1, g.block[0]), min(cdiv(n, g.block[1]), MAX_GRID[1]), 1)


def over_fused(g: Geometry) -> Dim:
    """Return the grid of `over_matrix` with fewer blocks along y, so that about FUSED_BLOCKS blocks share the
    matrix."""
    x, y, z = over_matrix(g)
    return (x, max(1, min(cdiv(y, g["ROWS"]), FUSED_BLOCKS // x)), z)


def over_tiles(g: Geometry) -> Dim:
    """Return the grid of the first update of `blocked`; later updates have fewer columns."""
    n = g.size["n"]
    return (cdiv(n + 1, g["TILE_X"]), cdiv(n, g["TILE_Y"]), 1)


def aligned_pitch(problem: Problem) -> int:
    """Return how many elements a row of the augmented matrix starts after the previous row, if each row starts at a
    multiple of 128 bytes."""
    line = 128 // itemsize(problem)
    return cdiv(problem.size["n"] + 1, line) * line


# Launches ------------------------------------------------------------------------------------------------------------


def _ints(*values: int) -> tuple[Any, ...]:
    return tuple(map(np.int32, values))


def _augment(g: Geometry, pitch: int) -> Launch:
    n = g.size["n"]
    grid = (cdiv(pitch, g.block[0]), min(cdiv(n, g.block[1]), MAX_GRID[1]), 1)
    return Launch("solve_augment", grid, g.block, ("a", "b", "ab", "order", "pivot", "place", *_ints(n, pitch)))


def _flat(count: int, g: Geometry) -> Dim:
    return (cdiv(count, g.threads), 1, 1)


def by_column(g: Geometry, grid: Dim, aligned: bool = False) -> Sequence[Launch]:
    """Return the launches of `gauss-jordan` and `aligned`: four for each column.

    The four launches find the largest element of the column in each block of rows, find the largest of these (the
    pivot), swap two rows, and eliminate the column. `aligned`: whether rows start at multiples of 128 bytes; otherwise
    a row starts N + 1 elements after the previous row.
    """
    n, block = g.size["n"], g.block
    pitch = aligned_pitch(g.problem) if aligned else n + 1
    eliminate = "solve_eliminate_aligned" if aligned else "solve_eliminate"
    launches = [_augment(g, pitch)]
    for col in range(n):
        candidates, at = _flat(n - col, g), _ints(n, pitch, col)
        launches += [
            Launch("solve_pivot_block", candidates, block, ("ab", "peak", "peak_row", *at)),
            Launch("solve_pivot", (1, 1, 1), block, ("peak", "peak_row", "pivot", *_ints(candidates[0], col))),
            Launch("solve_swap", _flat(n - col + 1, g), block, ("ab", "pivot", *at)),
            Launch(eliminate, _narrowed(g, grid, col), block, ("ab", *at)),
        ]
    return [*launches, Launch("solve_divide", _flat(n, g), block, ("ab", "x", *_ints(n, pitch)))]


def _narrowed(g: Geometry, grid: Dim, col: int) -> Dim:
    """Return the grid without the blocks whose columns are all finished. Finished columns are those to the left of the
    cache line that contains column `col + 1`."""
    first_col = (col + 1) // g["LINE"] * g["LINE"]
    return (min(grid[0], cdiv(g.size["n"] + 1 - first_col, g.block[0])), *grid[1:])


def fused(g: Geometry, grid: Dim) -> Sequence[Launch]:
    """Return the launches of `fused`: one for each column, with about the same number of blocks in all of them.

    There are two pairs of lists: each pair has the candidates' values and their rows. A launch reads the candidates for
    its pivot from one pair, and writes the candidates for the next launch's pivot into the other pair.
    """
    n, pitch, block = g.size["n"], aligned_pitch(g.problem), g.block
    lists = (("peak", "peak_row"), ("next_peak", "next_row"))
    count = min(_flat(n, g)[0], FUSED_BLOCKS)
    launches = [
        _augment(g, pitch),
        Launch("solve_pivot_block", (count, 1, 1), block, ("ab", *lists[0], *_ints(n, pitch, 0))),
    ]
    for col in range(n):
        current, following = lists[col % 2], lists[1 - col % 2]
        x = _narrowed(g, grid, col)[0]
        y = max(1, min(cdiv(n, block[1] * g["ROWS"]), grid[0] * grid[1] // x, MAX_CANDIDATES))
        arguments = ("ab", *current, *following, "order", "pivot", *_ints(n, pitch, col, count))
        launches.append(Launch("solve_fused", (x, y, 1), block, arguments))
        count = y
    launches.append(Launch("solve_gather", _flat(n, g), block, ("ab", "pivot", "x", *_ints(n, pitch))))
    return launches


def panel(g: Geometry, rows_left: int, cluster: bool) -> tuple[int, int, int]:
    """Return three numbers for the next panel, when `rows_left` rows remain: how many columns the panel has, how many
    rows each thread holds in registers (0 if they do not fit), and how many blocks process the panel.

    With `cluster`, a cluster always processes the first panel, so that the simulator's tests with small matrices
    execute the cluster's code too.
    """
    rows_held = next((rows for rows in (2, 4, 8, 16) if rows_left <= rows * g["PANEL"]), 0)
    if cluster and (rows_left == g.size["n"] or not 0 < rows_held <= g["ALONE"]):
        rows_per_thread = next((rows for rows in (1, 2, 4, 8, 16) if rows_left <= rows * g["MEMBERS"]), 0)
        if rows_per_thread:
            return g.call("COLUMNS", rows_per_thread), rows_per_thread, g["CLUSTER"]
    return g.call("COLUMNS", rows_held) if rows_held else 1, rows_held, 1


def panels(g: Geometry, outer: int, cluster: bool = False) -> Iterator[tuple[int, int, int, int]]:
    """Yield the panels of the OUTER columns from `outer` on, each as four numbers: its first column, and then the three
    numbers that `panel` returns."""
    end = min(outer + g["OUTER"], g.size["n"])
    while outer < end:
        cols, rows_held, blocks = panel(g, g.size["n"] - outer, cluster)
        cols = min(cols, end - outer)
        yield outer, cols, rows_held, blocks
        outer += cols


def by_panels(g: Geometry, grid: Dim, all_rows: bool = False, cluster: bool = False) -> Sequence[Launch]:
    """Return the launches of the kernels that work by panels.

    The matrix is processed OUTER columns at a time. Each panel in these columns is eliminated, and its effect is
    applied to the other OUTER columns (spread); then all columns to the right of them are updated at once. `all_rows`:
    whether every panel changes all rows, as in Gauss-Jordan elimination. Otherwise rows that were pivots of earlier
    OUTER columns do not change any more, and x is computed at the end, from its last element to its first. `cluster`:
    whether panels of many rows are processed by a cluster of blocks, and not by one block.
    """
    n, pitch, block = g.size["n"], aligned_pitch(g.problem), g.block
    width, rows, threads = g["OUTER"], g["SPREAD_ROWS"], g["SPREAD"]
    shared = g["STAGES"] * g["STAGE"] * g.itemsize
    suffix, order_name = ("", "place") if all_rows else ("_left", "pivot")
    launches = [_augment(g, pitch)]
    for outer in range(0, n, width):
        outer_cols = min(width, n - outer)
        fixed = 0 if all_rows else outer  # the number of rows that no longer change

        def spread(
            col: int, cols: int, next_cols: int, fixed: int = fixed, outer: int = outer, outer_cols: int = outer_cols
        ) -> Launch:
            sizes = _ints(n, pitch, col, cols, outer, outer_cols, next_cols)
            arguments = ("ab", "strip", "upper", "inverse", order_name, *sizes)
            return Launch("solve_spread" + suffix, (cdiv(n - fixed, rows), 1, 1), (threads, 1, 1), arguments)

        order = list(panels(g, outer, cluster))
        launches.append(spread(outer, 0, order[0][1]))
        for i, (col, cols, rows_held, blocks) in enumerate(order):
            sizes = _ints(n, pitch, col, cols, outer, outer_cols, rows_held)
            arguments = ("ab", "strip", "upper", "inverse", "place", "pivot", *sizes)
            eliminate = "solve_panel" if blocks == 1 else "solve_panel_cluster"
            launches.append(Launch(eliminate, (blocks, 1, 1), (g["PANEL"], 1, 1), arguments))
            launches.append(spread(col, cols, order[i + 1][1] if i + 1 < len(order) else 0))
        first_col = (outer + outer_cols) // g["VEC"] * g["VEC"]
        lift = (_flat(pitch - first_col, g)[0], outer_cols, 1)
        launches.append(Launch("solve_lift", lift, block, ("ab", "pivot", "lifted", *_ints(pitch, outer, first_col))))
        arguments = ("ab", "lifted", order_name, *_ints(n, pitch, outer, outer_cols))
        update = (cdiv(n + 1 - first_col, g["TILE_X"]), grid[1] - fixed // g["TILE_Y"], 1)
        launches.append(Launch("solve_update" + suffix, update, block, arguments, shared))
    if all_rows:
        return [*launches, Launch("solve_collect", _flat(n, g), block, ("ab", "pivot", "x", *_ints(n, pitch)))]
    for outer in reversed(range(0, n, width)):
        outer_cols = min(width, n - outer)
        arguments = ("ab", "pivot", "x", *_ints(n, pitch, outer, outer_cols))
        launches.append(Launch("solve_back", (outer_cols, 1, 1), block, arguments))
    return launches


# Rules of the constants of `blocked` ---------------------------------------------------------------------------------


def panel_threads_fit(g: Geometry) -> str | None:
    """Check that the block that processes a panel has a thread for each element of the panel's pivot rows."""
    least = g["WIDEST"] ** 2
    return None if g["PANEL"] >= least else f"{least} or more: a thread for each of WIDEST x WIDEST elements"


def panel_bits(g: Geometry) -> str | None:
    """Check that HELD registers hold 16 rows, each of a whole number of 16-byte vectors."""
    unit = 16 * g["VEC"]
    return None if g["HELD"] % unit == 0 else f"a multiple of {unit}: 16 rows of whole 16-byte vectors"


def spread_fits(g: Geometry) -> str | None:
    """Check that a block of solve_spread has a thread for each element of the inverse, and at most as many threads as a
    block may have."""
    least, most = g["WIDEST"], MAX_THREADS_PER_BLOCK // g["WIDEST"]
    fits = least <= g["SPREAD_ROWS"] <= most
    return None if fits else f"WIDEST, {least}, to {most}: blocks of SPREAD_ROWS x WIDEST threads"


BLOCKED = {
    "PANEL": number(WARP, MAX_THREADS_PER_BLOCK, panel_threads_fit, multiple=WARP),
    "HELD": number(1, 255, in_registers("HELD"), panel_bits),
    "WIDEST": number(1, MOST_COLUMNS, panel_threads_fit, spread_fits, multiple="VEC"),
    "OUTER": number(1, MOST_OUTER),
    "SPREAD_ROWS": number(1, MAX_THREADS_PER_BLOCK, spread_fits),
    "SUMS_Y": number(4, 32, in_registers("SUMS_Y", "SUMS_X"), multiple=4),
    "SUMS_X": number(1, 32, in_registers("SUMS_Y", "SUMS_X"), multiple="VEC"),
    "STEP": number(1, 128),
    "STAGES": number(2, 16),
}


BY_PANELS: dict[str, Any] = {"constants": BLOCKED, "refuses": needs_warps, "chapter": "solve_panels.cu"}


# The operation -------------------------------------------------------------------------------------------------------


def inputs(problem: Problem) -> Arrays:
    """Return A and b; the option `matrix` chooses one of three kinds of A.

    permuted: random elements in [-1, 1); at one random position in each row and column 4 sqrt(N) is added. The norm of
    the random part is about 1.2 sqrt(N), so the condition number is about 2, and every step must find its pivot. Then
    the columns are multiplied by 8, 4, 2, 1, 8, ...: this is exact, and scales the elements of x. It reveals a kernel
    that uses an old candidate for the pivot, because a candidate of the previous column is mostly larger than the
    candidates of this column. uniform: only random elements in [-1, 1); the condition number is about N, rarely far
    more. singular: as uniform, but the last column is the sum of the first two.
    """
    n, kind = problem.size["n"], problem.options.get("matrix", KINDS[0])
    rng = np.random.default_rng(problem.seed)
    dtype = np.dtype(problem.dtype)
    a = 2 * rng.random((n, n), dtype=dtype.type) - 1
    if kind == "permuted":
        a[np.arange(n), rng.permutation(n)] += 4 * np.sqrt(n, dtype=dtype)
        a *= 2.0 ** (3 - np.arange(n, dtype=dtype) % 4)
    if kind == "singular":
        a[:, -1] = a[:, : min(2, n - 1)].sum(axis=1)
    return {"a": a, "b": 2 * rng.random(n, dtype=dtype.type) - 1}


def solution(a: np.ndarray, b: np.ndarray, dtype: str) -> np.ndarray:
    """Return the solution x, computed by LAPACK. Raises CudabenchError if A is singular in the precision of `dtype`.

    The check uses the ratio |A| |x| / |b|, which never exceeds the condition number and is close to it for a random b.
    """
    unit = float(np.finfo(dtype).eps)
    try:
        x = np.linalg.solve(a, b)
    except np.linalg.LinAlgError:
        x = np.full_like(b, np.nan)
    growth = float(np.linalg.norm(a)) * float(np.linalg.norm(x)) / max(float(np.linalg.norm(b)), 1e-300)
    if not growth < 0.01 / unit:
        raise CudabenchError(
            f"The {len(b)} x {len(b)} matrix is singular to the precision of {dtype}: a solution x does not exist; use "
            "another --matrix or --seed, or --dtype float64 if it is only ill-conditioned."
        )
    return x


def reference(problem: Problem, arrays: Arrays) -> Arrays:
    """Return the solution in float64."""
    a, b = (arrays[name].astype(np.float64, copy=False) for name in "ab")
    return {"x": solution(a, b, problem.dtype)}


def on_cpu(arrays: Arrays, outputs: Arrays, threads: int) -> None:
    """Solve with NumPy's LAPACK (gesv)."""
    with blas.limited(threads):
        outputs["x"][...] = solution(arrays["a"], arrays["b"], arrays["a"].dtype.name)


def tolerance(problem: Problem) -> Tolerance:
    """Return the tolerance: the condition number times the rounding error of N steps, relative to the elements of x."""
    n, rounding = problem.size["n"], unit(problem)
    if problem.options.get("matrix", KINDS[0]) == "permuted":
        # An element of x is about |b| / (4 sqrt(N)), divided by the factor of its column, and its error is divided by
        # the same factor. All elements have errors of similar size, so the tolerance must be absolute.
        return Tolerance(
            32 * np.sqrt(n) * rounding,
            8 * rounding,
            "condition number 2 but for the columns' factors; N roundings of random sign add up to sqrt(N) units, 16 "
            "times that is the tolerance",
        )
    reason = "condition number up to some N; N roundings of random sign in each element"
    return Tolerance(64 * n * rounding, 64 * n * rounding, reason)


def figures(problem: Problem, arrays: Arrays, outputs: Arrays) -> dict[str, float]:
    """Return one number, keyed by its name: the residual |Ax - b| / |b|, computed in float64."""
    a, b, x = arrays["a"], arrays["b"].astype(np.float64), outputs["x"].astype(np.float64)
    # Convert this many rows at a time, because a float64 copy of the whole matrix can be large.
    rows = max(1, 2**22 // max(len(b), 1))
    products = [a[i : i + rows].astype(np.float64, copy=False) @ x for i in range(0, len(b), rows)]
    return {"residual |Ax - b| / |b|": float(np.linalg.norm(np.concatenate(products) - b) / np.linalg.norm(b))}


def buffers(problem: Problem) -> tuple[Buffer, ...]:
    """Return the buffers: A, b, x, and scratch memory for the augmented matrix, candidates for pivots, lists of rows,
    and copies of pivot rows."""
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
        Buffer("strip", (MOST_COLUMNS, n), dtype, "scratch"),
        Buffer("upper", (MOST_COLUMNS, MOST_OUTER), dtype, "scratch"),
        Buffer("inverse", (MOST_COLUMNS, MOST_COLUMNS), dtype, "scratch"),
        Buffer("lifted", (MOST_OUTER, pitch), dtype, "scratch"),
    )


OPERATION = Operation(
    name="solve",
    summary="A x = b",
    source="solve.cu",
    dimensions=("n",),
    default_size=(1024,),
    simulated_size=(64,),
    block_dimensions=2,
    rotatable=False,  # a rotation would move the large elements away from the diagonal
    dtypes={"float32": "float", "float64": "double"},
    kernels=(
        Kernel("gauss-jordan", "solve_eliminate", (32, 8), over_matrix, any_grid=True, launches=by_column),
        Kernel(
            "aligned",
            "solve_eliminate_aligned",
            (32, 8),
            over_matrix,
            any_grid=True,
            launches=partial(by_column, aligned=True),
        ),
        Kernel(
            "fused",
            "solve_fused",
            (32, 8),
            over_fused,
            any_grid=True,
            constants={"ROWS": number(1, 32)},
            launches=fused,
        ),
        Kernel("blocked", "solve_update", (32, 4), over_tiles, **BY_PANELS, launches=partial(by_panels, all_rows=True)),
        Kernel("lower", "solve_update_left", (32, 4), over_tiles, **BY_PANELS, launches=by_panels),
        Kernel(
            "cluster",
            "solve_panel_cluster",
            (32, 4),
            over_tiles,
            constants=BLOCKED | {"ALONE": number(0, 16)},
            refuses=needs_warps,
            launches=partial(by_panels, cluster=True),
            architecture="sm_90",
            chapter="solve_cluster.cu",
        ),
    ),
    buffers=buffers,
    arguments=lambda problem: ("a", "b", "x", np.int32(problem.size["n"])),
    inputs=inputs,
    reference=reference,
    baseline=Baseline(blas.named("numpy.linalg.solve(a, b)"), on_cpu),
    tolerance=tolerance,
    bytes=lambda problem: (problem.size["n"] ** 2 + 2 * problem.size["n"]) * itemsize(problem),
    bytes_formula="(N^2 + 2 N) * sizeof(T)",
    flops=lambda problem: 2 * problem.size["n"] ** 3 // 3 + 2 * problem.size["n"] ** 2,
    flops_formula="2/3 N^3 + 2 N^2",
    peers=(
        Peer("cusolver", "cusolver", "cusolverDn<t>getrf, getrs", ("float32", "float64")),
        Peer("torch", "torch", "torch.linalg.solve(a, b, out=x)", ("float32", "float64")),
    ),
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
