"""Matrix times vector: y = A x, with A of ROWS x COLS elements. Each row starts at a multiple of 16 bytes; the distance
from one row's start to the next row's start is the pitch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cudabench.operations.shared import (
    Arrays,
    grid_over,
    in_strips,
    itemsize,
    number,
    pieces,
    random_array,
    rungs,
    unit,
)
from cudabench.records.launch import WARP, Dim, Launch, cdiv
from cudabench.records.plan import Baseline, Buffer, Geometry, Operation, Peer, Problem, Tolerance

ALIGNMENT = 16  # every row starts at a multiple of this many bytes
# In the last kernels a warp or a block processes at most this many rows at once; the scratch array has no space for
# more.
MOST_ROWS = 16
# `split` uses about this many blocks: four times as many as 132 SMs hold at once.
SPLIT_BLOCKS = 4 * 132 * 8
SPLIT_STEPS = 4  # each thread of `split` gets at least this many 16-byte vectors of a row
CHUNK = 1 << 22  # the reference converts this many elements at a time


def vector(problem: Problem) -> int:
    """Return the number of elements in 16 bytes."""
    return ALIGNMENT // itemsize(problem)


def pitch(problem: Problem) -> int:
    """Return the distance from the start of a row to the start of the next, in elements."""
    return cdiv(problem.size["cols"], vector(problem)) * vector(problem)


# Geometry ------------------------------------------------------------------------------------------------------------


def needs_warp(g: Geometry) -> str | None:
    """Return the reason why a kernel that works by warps cannot use the block, or None."""
    return None if g["WARPS"] else f"it adds up rows by warps, so a block needs at least {WARP} threads"


def over_rows(g: Geometry, per_warp: int) -> Dim:
    """Return the grid in which each warp processes `per_warp` rows."""
    return (cdiv(g.size["rows"], g["WARPS"] * per_warp), 1, 1)


SEVERAL_ROWS = {"constants": {"ROWS": number(1, MOST_ROWS)}, "refuses": needs_warp}


def lanes(problem: Problem) -> int:
    """Return how many lanes share a row in the kernels for short rows: the row's number of 16-byte vectors, rounded up
    to a power of two, at most 32."""
    return min(WARP, 1 << (cdiv(problem.size["cols"], vector(problem)) - 1).bit_length())


def cut(problem: Problem, rows: int, least: int) -> tuple[int, int]:
    """Return the number of pieces into which `split` cuts a row, and the columns of a piece.

    `rows`: the rows that a block processes at once; `least`: the fewest columns of a piece.
    """
    cols, unit = problem.size["cols"], vector(problem)
    count = cdiv(SPLIT_BLOCKS, cdiv(problem.size["rows"], rows))
    columns = cdiv(cdiv(cols, min(count, cdiv(cols, least))), unit) * unit
    return cdiv(cols, columns), columns


def split_pieces(g: Geometry) -> tuple[int, int]:
    """Return the two numbers that `cut` returns, with so many columns in a piece that each thread of the block has
    work."""
    return cut(g.problem, g["ROWS"], SPLIT_STEPS * g["WARPS"] * WARP * vector(g.problem))


def split(g: Geometry, grid: Dim) -> Sequence[Launch]:
    """Return the launches of `split`: one and, if rows are cut into pieces, a second one that adds the sums of the
    pieces."""
    rows = np.int32(g.size["rows"])
    count, columns = split_pieces(g)
    target = "y" if count == 1 else "partial"
    shape = arguments(g.problem)[3:]
    launches = [Launch("matvec_split", grid, g.block, ("A", "x", target, *shape, np.int32(count), np.int32(columns)))]
    if count > 1:
        launches.append(Launch("matvec_join", over_rows(g, 1), g.block, ("partial", "y", rows, np.int32(count))))
    return launches


# The operation -------------------------------------------------------------------------------------------------------


def inputs(problem: Problem) -> Arrays:
    """Return the matrix and the vector, in [-1, 1). The padding between rows is NaN, so a kernel that uses the padding
    gets a wrong result."""
    rng = np.random.default_rng(problem.seed)
    rows, cols = problem.size["rows"], problem.size["cols"]
    arrays = {
        "A": random_array(rng, (rows, pitch(problem)), problem.dtype),
        "x": random_array(rng, (cols,), problem.dtype),
    }
    for array in arrays.values():
        array *= 2
        array -= 1
    arrays["A"][:, cols:] = np.nan
    return arrays


def reference(problem: Problem, arrays: Arrays) -> Arrays:
    """Return the product in float64."""
    cols = problem.size["cols"]
    x, strips = arrays["x"].astype(np.float64), pieces(slice(0, problem.size["rows"]), max(1, CHUNK // cols))
    return {"y": np.concatenate([arrays["A"][strip, :cols].astype(np.float64) @ x for strip in strips])}


def on_cpu(arrays: Arrays, outputs: Arrays, threads: int) -> None:
    """Multiply on several threads, each with a strip of rows. NumPy's loops are used and not BLAS, which would start
    further threads."""
    x, y = arrays["x"], outputs["y"]
    matrix = arrays["A"][:, : len(x)]
    in_strips(len(y), threads, lambda strip: np.einsum("ij,j->i", matrix[strip], x, out=y[strip]))


def tolerance(problem: Problem) -> Tolerance:
    """Return the tolerance: an upper bound of the sum's rounding error."""
    return Tolerance(
        4 * unit(problem),
        4 * problem.size["cols"] * unit(problem),
        "partial sums of c products in (-1, 1) are about sqrt(c) / 3, and each addition rounds by up to half a unit in "
        "their last place: about c / 7 units together where one thread adds a row, four c in the rarest of 10^9 rows",
    )


def arguments(problem: Problem) -> tuple[object, ...]:
    """Return the arguments that all kernels take; some kernels have more."""
    rows, cols = problem.size["rows"], problem.size["cols"]
    return ("A", "x", "y", np.int32(rows), np.int32(cols), np.int32(pitch(problem)))


rung = rungs("matvec", 256)
OPERATION = Operation(
    name="matvec",
    summary="y = A x",
    source="matvec.cu",
    dimensions=("rows", "cols"),
    default_size=(8192, 8192),
    block_dimensions=1,
    dtypes={"float32": "float", "float64": "double"},
    kernels=(
        rung("naive", grid_over("rows")),
        rung("block", lambda g: (g.size["rows"], 1, 1)),
        rung("warp", lambda g: over_rows(g, 1), refuses=needs_warp),
        rung("vector", lambda g: over_rows(g, g["ROWS"]), **SEVERAL_ROWS),
        rung(
            "split",
            lambda g: (cdiv(g.size["rows"], g["ROWS"]) * split_pieces(g)[0], 1, 1),
            **SEVERAL_ROWS,
            launches=split,
        ),
        rung(
            "short",
            lambda g: over_rows(g, WARP // lanes(g.problem) * g["ROWS"]),
            block=(128,),
            **SEVERAL_ROWS,
            passed=lambda g: (*arguments(g.problem), np.int32(lanes(g.problem))),
        ),
        rung(
            "fold",
            lambda g: over_rows(g, WARP),
            refuses=needs_warp,
            # ROWS, the rows that a lane processes, is the number of lanes that process a row.
            defines=lambda g: {"ROWS": str(min(lanes(g.problem), MOST_ROWS))},
        ),
    ),
    buffers=lambda problem: (
        Buffer("A", (problem.size["rows"], pitch(problem)), problem.dtype, "in"),
        Buffer("x", (problem.size["cols"],), problem.dtype, "in"),
        Buffer("y", (problem.size["rows"],), problem.dtype, "out"),
        # The sums of the pieces of each row. The array is large enough for every block and every value of ROWS.
        Buffer(
            "partial",
            (problem.size["rows"], max(cut(problem, rows, vector(problem))[0] for rows in range(1, MOST_ROWS + 1))),
            problem.dtype,
            "scratch",
        ),
    ),
    arguments=arguments,
    inputs=inputs,
    reference=reference,
    baseline=Baseline("numpy.einsum('ij,j->i', A, x), without BLAS", on_cpu),
    tolerance=tolerance,
    bytes=lambda problem: ((problem.size["rows"] + 1) * (problem.size["cols"] + 1) - 1) * itemsize(problem),
    bytes_formula="(ROWS * COLS + ROWS + COLS) * sizeof(T)",
    flops=lambda problem: 2 * problem.size["rows"] * problem.size["cols"],
    flops_formula="2 * ROWS * COLS",
    peers=(
        Peer("cublas", "cublas", "cublas<t>gemv", ("float32", "float64")),
        Peer("torch", "torch", "torch.mv(A, x, out=y)", ("float32", "float64")),
    ),
)
