"""Matrix transpose: out[x][y] = in[y][x] for a ROWS x COLS matrix, row-major; the output is COLS x ROWS.

In the kernels nx is COLS and ny is ROWS.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from cudabench.model import EXACT, WARP, Baseline, Buffer, Dim, Kernel, Operation, Problem, cdiv
from cudabench.operations.inputs import random_array

Arrays = dict[str, np.ndarray]

TILE = 32  # edge of the square tiles of tile-rows and swizzle, as in the chapter


# Geometry: which grid covers the matrix ------------------------------------------------------------------------------


def over_input(per_thread: int = 1) -> Callable[[Problem, Dim], Dim]:
    """Return the rule of a grid over the input: x over its columns, `per_thread` to a thread, y over its rows."""
    return lambda problem, block: (
        cdiv(problem.size["cols"], block[0] * per_thread),
        cdiv(problem.size["rows"], block[1]),
        1,
    )


def over_output(per_thread: int = 1) -> Callable[[Problem, Dim], Dim]:
    """Return the rule of a grid over the output: x over its columns, which are the input's rows."""
    return lambda problem, block: (
        cdiv(problem.size["rows"], block[0] * per_thread),
        cdiv(problem.size["cols"], block[1]),
        1,
    )


def over_tiles(problem: Problem, block: Dim) -> Dim:
    """Return a grid of one block a 32 x 32 tile of the input."""
    return (cdiv(problem.size["cols"], TILE), cdiv(problem.size["rows"], TILE), 1)


def over_vector_tiles(problem: Problem, block: Dim) -> Dim:
    """Return the one-dimensional grid of the last rung: a block a tile, VTILE_X by VTILE_Y as in the chapter."""
    itemsize = np.dtype(problem.dtype).itemsize
    tile_columns, tile_rows = 256 // itemsize, 128 if itemsize < 4 or block[0] * block[1] > 256 else 64
    return (cdiv(problem.size["cols"], tile_columns) * cdiv(problem.size["rows"], tile_rows), 1, 1)


# Padding: how many elements after every row make a tile free of bank conflicts ---------------------------------------


def padding(block: Dim, itemsize: int) -> int:
    """Return the fewest elements of padding that give smem-pad the fewest wavefronts for a block.

    Thread t stores element t of the linear tile and loads element (t % by) * bx + t / by. IPAD unused elements follow
    every tile row, or every row of the 32 banks (128 bytes) where that is longer.
    """
    from cudabench.simulator.count.banks import wavefronts

    bx, by = block[0], block[1]
    threads = bx * by
    row = max(bx, 128 // itemsize)
    lanes = np.arange(cdiv(threads, WARP) * WARP).reshape(-1, WARP)
    active = lanes < threads
    element = np.minimum(lanes, threads - 1)
    turned = element % by * bx + element // by

    def cost(pad: int) -> int:
        return sum(
            int(wavefronts((i + i // row * pad) * itemsize, itemsize, active, load=load).sum())
            for i, load in ((element, False), (turned, True))
        )

    return min(range(128 // min(itemsize, 4) + 1), key=lambda pad: (cost(pad), pad))


def pad_define(block: Dim, itemsize: int) -> dict[str, str]:
    """Return the compiler define of the padding."""
    return {"IPAD": str(padding(block, itemsize))}


# The operation -------------------------------------------------------------------------------------------------------


def inputs(problem: Problem) -> Arrays:
    """Return the matrix, ROWS x COLS."""
    rng = np.random.default_rng(problem.seed)
    return {"in": random_array(rng, (problem.size["rows"], problem.size["cols"]), problem.dtype)}


def reference(problem: Problem, arrays: Arrays) -> Arrays:
    """Return the transposed matrix, COLS x ROWS."""
    return {"out": np.ascontiguousarray(arrays["in"].T)}


def copied(problem: Problem, arrays: Arrays) -> Arrays:
    """Return what a copy kernel must leave in the output: the input's bytes in the input's order."""
    return {"out": arrays["in"].reshape(problem.size["cols"], problem.size["rows"])}


def on_cpu(arrays: Arrays, outputs: Arrays, threads: int) -> None:
    """Transpose with NumPy, a strip of the output's rows to a thread."""
    matrix, out = arrays["in"], outputs["out"]
    if threads == 1:
        np.copyto(out, matrix.T)
        return
    strips = np.array_split(np.arange(out.shape[0]), threads)
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda s: np.copyto(out[s[0] : s[-1] + 1], matrix.T[s[0] : s[-1] + 1]), filter(len, strips)))


def buffers(problem: Problem) -> tuple[Buffer, ...]:
    """Return the input, ROWS x COLS, and the output, COLS x ROWS."""
    rows, cols = problem.size["rows"], problem.size["cols"]
    return (Buffer("in", (rows, cols), problem.dtype, "in"), Buffer("out", (cols, rows), problem.dtype, "out"))


OPERATION = Operation(
    name="transpose",
    summary="out[x][y] = in[y][x]",
    source="transpose.cu",
    dimensions=("rows", "cols"),
    default_size=(4096, 4096),
    block_dimensions=2,
    # float16 is moved, not computed, so any 2-byte type does and the chapter needs no header.
    dtypes={
        "float32": "float",
        "float64": "double",
        "float16": "unsigned short",
        "int32": "int",
        "int8": "signed char",
    },
    kernels=(
        Kernel("copy-row", "transpose_copy_row", (32, 8), over_input(), expected=copied),
        Kernel("naive-row", "transpose_naive_row", (32, 8), over_input()),
        Kernel("smem", "transpose_smem", (32, 8), over_input()),
        Kernel("smem-pad", "transpose_smem_pad", (32, 8), over_input(), defines=pad_define),
        Kernel("smem-unroll-pad", "transpose_smem_unroll_pad", (32, 8), over_input(2), defines=pad_define),
        Kernel("copy-col", "transpose_copy_col", (32, 8), over_output(), expected=copied),
        Kernel("naive-col", "transpose_naive_col", (32, 8), over_output()),
        Kernel("naive-col-unroll", "transpose_naive_col_unroll", (32, 8), over_output(4)),
        Kernel("diagonal-row", "transpose_diagonal_row", (32, 8), over_input()),
        Kernel("diagonal-col", "transpose_diagonal_col", (32, 8), over_output()),
        Kernel("tile-rows", "transpose_tile_rows", (32, 8), over_tiles),
        Kernel("swizzle", "transpose_swizzle", (32, 8), over_tiles),
        Kernel("vector", "transpose_vector", (32, 8), over_vector_tiles),
    ),
    buffers=buffers,
    arguments=lambda problem: ("in", "out", np.int32(problem.size["cols"]), np.int32(problem.size["rows"])),
    inputs=inputs,
    reference=reference,
    baseline=Baseline("numpy.copyto(out, in.T)", on_cpu),
    tolerance=lambda problem: EXACT,
    bytes=lambda problem: 2 * problem.size["rows"] * problem.size["cols"] * np.dtype(problem.dtype).itemsize,
    bytes_formula="2 * ROWS * COLS * sizeof(T)",
)
