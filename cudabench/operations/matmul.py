"""Matrix product: C = A B, with A of M x K, B of K x N and C of M x N elements, row-major."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Any

import numpy as np

from cudabench.model import MAX_GRID, WARP, Baseline, Buffer, Dim, Kernel, Operation, Problem, Tolerance, cdiv
from cudabench.operations import blas
from cudabench.operations.inputs import random_array
from cudabench.operations.warps import needs_warps

Arrays = dict[str, np.ndarray]

SUMS = 8  # TM and TN of the chapter: rows and columns of C a thread of the register tiles
STEP = 8  # TK: columns of A in a step
STATIC_SHARED = 48 * 1024


# Geometry ------------------------------------------------------------------------------------------------------------


def over_result(per_thread: int = 1) -> Callable[[Problem, Dim], Dim]:
    """Return the rule of a grid over C, `per_thread` rows and columns to a thread; kernels stride beyond its limits."""
    return lambda problem, block: (
        cdiv(problem.size["n"], block[0] * per_thread),
        min(cdiv(problem.size["m"], block[1] * per_thread), MAX_GRID[1]),
        1,
    )


def warp_grid(block: Dim) -> tuple[int, int]:
    """Return how many warps of a block share its tile's rows and columns: WARPS_M and WARPS_N of the chapter."""
    warps = block[0] * block[1] // WARP
    across = 4 if warps % 8 == 0 else 2 if warps % 2 == 0 else 1
    return warps // across, across


def over_warp_tiles(problem: Problem, block: Dim) -> Dim:
    """Return the one-dimensional grid of warp-tile: 64 x 64 (float64: 32 x 64) elements of C to a warp."""
    return over_warps(problem, *warp_grid(block))


def over_warps(problem: Problem, down: int, across: int) -> Dim:
    """Return the one-dimensional grid of blocks of so many warps along the rows and along the columns of C."""
    rows = down * 256 // np.dtype(problem.dtype).itemsize
    return (cdiv(problem.size["m"], rows) * cdiv(problem.size["n"], across * 64), 1, 1)


def warp_shared(block: Dim, itemsize: int) -> int:
    """Return the shared memory of warp-tile: STAGES steps of WTK columns of A and rows of B."""
    rows, columns = warp_grid(block)
    stages = 3 if itemsize == 4 else 2
    return stages * 16 * (rows * 256 // itemsize + 4 + columns * 64) * itemsize


def over_tensor_tiles(problem: Problem, block: Dim) -> Dim:
    """Return the one-dimensional grid of tensor, whose warps stand as those of warp-tile turned by 90 degrees."""
    across, down = warp_grid(block)
    return over_warps(problem, down, across)


def tensor_shared(block: Dim, itemsize: int) -> int:
    """Return the shared memory of tensor: XSTAGES steps of 128 bytes of the rows of A and as many rows of B."""
    across, down = warp_grid(block)
    depth = 128 // itemsize
    return 3 * (down * 256 * depth + depth * (across * 64 * itemsize + 16))


def needs_tiles(block: Dim, itemsize: int) -> str | None:
    """Refuse a block whose two pairs of tiles exceed the static shared memory."""
    vector = 16 // itemsize
    needed = 2 * STEP * (SUMS * (block[0] + block[1]) + vector) * itemsize
    if needed <= STATIC_SHARED:
        return None
    return (
        f"its threads, {SUMS} x {SUMS} elements each, make tiles of {needed / 1024:.0f} KiB, and a block has 48 KiB of "
        "shared memory; a block nearer to a square, such as 16 x 16, has smaller ones"
    )


# The tensor cores ----------------------------------------------------------------------------------------------------


def tf32(array: np.ndarray) -> np.ndarray:
    """Return float32 numbers without the lower 13 bits of their mantissa, as the tensor cores read them."""
    upper: np.ndarray = (array.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    return upper


def of_tensor(problem: Problem, arrays: Arrays) -> Arrays:
    """Return the product, in float64, of the matrices as the tensor cores read them: float32 as TF32."""
    read = arrays if problem.dtype == "float64" else {name: tf32(array) for name, array in arrays.items()}
    return reference(problem, read)


def tensor_tolerance(problem: Problem) -> Tolerance:
    """Return what the tensor cores' float32 sums, which are cut off instead of rounded, may lose."""
    if problem.dtype == "float64":
        return tolerance(problem)
    lost = 2.0**-23 * (problem.size["k"] / 8 + 4)
    return Tolerance(lost, 0.0, "of inputs cut to TF32; the tensor cores cut each of K / 8 sums off to 24 bits")


# The operation -------------------------------------------------------------------------------------------------------


def inputs(problem: Problem) -> Arrays:
    """Return A and B, their elements in [0, 1): no sum cancels, so the relative error is bounded."""
    m, n, k = (problem.size[name] for name in "mnk")
    rng = np.random.default_rng(problem.seed)
    return {"a": random_array(rng, (m, k), problem.dtype), "b": random_array(rng, (k, n), problem.dtype)}


def reference(problem: Problem, arrays: Arrays) -> Arrays:
    """Return the product in float64."""
    return {"c": np.matmul(arrays["a"].astype(np.float64, copy=False), arrays["b"].astype(np.float64, copy=False))}


def on_cpu(arrays: Arrays, outputs: Arrays, threads: int) -> None:
    """Multiply with NumPy's BLAS."""
    with blas.limited(threads):
        np.matmul(arrays["a"], arrays["b"], out=outputs["c"])


def tolerance(problem: Problem) -> Tolerance:
    """Return what K roundings may add up to; float64's reference has as many of its own."""
    unit = float(np.finfo(problem.dtype).eps) / 2
    rtol = 4 * sqrt(problem.size["k"]) * unit * (2 if problem.dtype == "float64" else 1)
    return Tolerance(rtol, 0.0, "K roundings of random sign add up to sqrt(K) units; 4 times that leaves room")


def buffers(problem: Problem) -> tuple[Buffer, ...]:
    """Return A, B and C."""
    m, n, k = (problem.size[name] for name in "mnk")
    dtype = problem.dtype
    return (Buffer("a", (m, k), dtype, "in"), Buffer("b", (k, n), dtype, "in"), Buffer("c", (m, n), dtype, "out"))


def arguments(problem: Problem) -> tuple[Any, ...]:
    """Return the arguments of every kernel: the matrices, M, K and N."""
    return ("a", "b", "c", *(np.int32(problem.size[name]) for name in "mkn"))


def moved(problem: Problem) -> int:
    """Return the bytes of the three matrices: each element moves at least once."""
    m, n, k = (problem.size[name] for name in "mnk")
    return (m * k + k * n + m * n) * np.dtype(problem.dtype).itemsize


OPERATION = Operation(
    name="matmul",
    summary="C = A B",
    source="matmul.cu",
    dimensions=("m", "k", "n"),
    default_size=(2048, 2048, 2048),
    simulated_size=(512, 512, 512),
    block_dimensions=2,
    dtypes={"float32": "float", "float64": "double"},
    kernels=(
        Kernel("naive", "matmul_naive", (16, 16), over_result(), any_grid=True),
        Kernel("tiled", "matmul_tiled", (16, 16), over_result(), any_grid=True),
        Kernel("registers", "matmul_registers", (16, 16), over_result(SUMS), any_grid=True, refuses=needs_tiles),
        Kernel("vector", "matmul_vector", (16, 16), over_result(SUMS), any_grid=True, refuses=needs_tiles),
        Kernel(
            "double-buffer", "matmul_double_buffer", (16, 16), over_result(SUMS), any_grid=True, refuses=needs_tiles
        ),
        Kernel(
            "warp-tile", "matmul_warp_tile", (32, 8), over_warp_tiles, refuses=needs_warps, shared_bytes=warp_shared
        ),
        Kernel(
            "tensor",
            "matmul_tensor",
            (32, 8),
            over_tensor_tiles,
            refuses=needs_warps,
            shared_bytes=tensor_shared,
            expected=of_tensor,
            tolerance=tensor_tolerance,
        ),
    ),
    buffers=buffers,
    arguments=arguments,
    inputs=inputs,
    reference=reference,
    baseline=Baseline(blas.named("numpy.matmul(a, b, out=c)"), on_cpu),
    tolerance=tolerance,
    bytes=moved,
    bytes_formula="(M * K + K * N + M * N) * sizeof(T)",
    flops=lambda problem: 2 * problem.size["m"] * problem.size["n"] * problem.size["k"],
    flops_formula="2 * M * N * K",
)
