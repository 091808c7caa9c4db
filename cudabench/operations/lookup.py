"""Look-up in a table with a small filter: out[i] = sum over k of filter[k] * table[neighbour k of index[i]]."""

from __future__ import annotations

import numpy as np

from cudabench.operations.shared import (
    Arrays,
    grid_over,
    in_strips,
    itemsize,
    pieces,
    random_array,
    rungs,
    striding_grid,
    unit,
)
from cudabench.records.launch import Texture
from cudabench.records.plan import Baseline, Buffer, Kernel, Operation, Option, Problem, Tolerance

WIDTH = 64  # rows of the table, and elements of each row; lookup.cu has the same number
TAPS = 3  # rows of the filter, and weights of each row
# With --index same, this many neighbouring results (the results of one warp) look up the same element of the table.
GROUP = 32
# NumPy computes this many results at a time, so that their nine look-ups stay in the cache.
PIECE = 1 << 16

rung = rungs("lookup", 256)


def fetching(name: str, shape: tuple[int, ...], linear: bool) -> Kernel:
    """Return a kernel that reads the table as a texture with the shape `shape`; textures cannot have float64
    elements."""
    return rung(
        name,
        grid_over("n"),
        passed=lambda g: (
            Texture("table", g.problem.dtype, shape, linear=linear), "filter", "index", "out", np.int32(g.size["n"])
        ),
        dtypes=("float32", "int32"),
    )  # fmt: skip


def inputs(problem: Problem) -> Arrays:
    """Return the table, the filter and the indices. Integer elements are so small that the sums do not overflow."""
    rng = np.random.default_rng(problem.seed)
    cells, n = (WIDTH, WIDTH), problem.size["n"]
    if problem.dtype == "int32":
        table = rng.integers(-(2**20), 2**20, cells, dtype=np.int32)
        weights = rng.integers(-16, 17, TAPS * TAPS, dtype=np.int32)
    else:
        table = random_array(rng, cells, problem.dtype)
        weights = random_array(rng, (TAPS * TAPS,), problem.dtype)
    repeats = GROUP if problem.options["index"] == "same" else 1
    index = np.repeat(rng.integers(0, WIDTH * WIDTH, -(-n // repeats), dtype=np.int32), repeats)[:n]
    return {"table": table, "filter": weights, "index": index}


def look_up(arrays: Arrays, out: np.ndarray, strip: slice) -> None:
    """Compute the results of a strip of `out`, in the type of `out`."""
    padded = np.pad(arrays["table"], TAPS // 2, mode="edge")
    weights = arrays["filter"].reshape(TAPS, TAPS)
    filtered_from = padded.astype(out.dtype, copy=False)
    for piece in pieces(strip, PIECE):
        y, x = np.divmod(arrays["index"][piece], WIDTH)
        total = out[piece]
        total[...] = 0
        for dy in range(TAPS):
            for dx in range(TAPS):
                total += filtered_from[y + dy, x + dx] * out.dtype.type(weights[dy, dx])


def reference(problem: Problem, arrays: Arrays) -> Arrays:
    """Return the expected results: exact for integers; for floats computed in higher precision than the elements
    have."""
    out = np.empty(problem.size["n"], {"float32": np.float64, "float64": np.longdouble}.get(problem.dtype, np.int32))
    look_up(arrays, out, slice(0, len(out)))
    return {"out": out}


def on_cpu(arrays: Arrays, outputs: Arrays, threads: int) -> None:
    """Compute with NumPy; each thread has a strip of the results."""
    out = outputs["out"]
    in_strips(len(out), threads, lambda strip: look_up(arrays, out, strip))


def tolerance(problem: Problem) -> Tolerance:
    """Return the tolerance: an upper bound of the sum's rounding error."""
    if problem.dtype == "int32":
        return Tolerance(0.0, 0.0, "sums of these integers do not overflow")
    reason = "a sum of nine products, none negative, rounds each term ten times at most"
    return Tolerance((TAPS * TAPS + 1) * unit(problem), 0.0, reason)


OPERATION = Operation(
    name="lookup",
    summary="out[i] = table[index[i]] and its neighbours, under a filter of 3 x 3 weights",
    source="lookup.cu",
    dimensions=("n",),
    default_size=(2**25,),
    simulated_size=(2**20,),
    block_dimensions=1,
    dtypes={"float32": "float", "float64": "double", "int32": "int"},
    kernels=(
        rung("global", grid_over("n")),
        rung("ldg", grid_over("n")),
        rung("constant-uniform", grid_over("n")),
        rung("constant-lane", grid_over("n"), detour=True),
        rung("shared", striding_grid(), any_grid=True),
        fetching("texture-1d", (WIDTH * WIDTH,), linear=True),
        fetching("texture-2d", (WIDTH, WIDTH), linear=False),
    ),
    buffers=lambda problem: (
        Buffer("table", (WIDTH, WIDTH), problem.dtype, "in"),
        Buffer("filter", (TAPS * TAPS,), problem.dtype, "in"),
        Buffer("index", (problem.size["n"],), "int32", "in"),
        Buffer("out", (problem.size["n"],), problem.dtype, "out"),
    ),
    arguments=lambda problem: ("table", "filter", "index", "out", np.int32(problem.size["n"])),
    inputs=inputs,
    reference=reference,
    baseline=Baseline("numpy, nine times table[y, x] * weight", on_cpu),
    tolerance=tolerance,
    # Bytes moved: every index and every result, plus one read of the table and of the filter.
    bytes=lambda problem: problem.size["n"] * (4 + itemsize(problem)) + (WIDTH**2 + TAPS**2) * itemsize(problem),
    bytes_formula=f"N * (4 + sizeof(T)) + ({WIDTH}^2 + {TAPS * TAPS}) * sizeof(T)",
    flops=lambda problem: 2 * TAPS * TAPS * problem.size["n"],
    flops_formula=f"{2 * TAPS * TAPS} * N",
    options=(
        Option(
            "index",
            str,
            "random",
            "KIND",
            "random: each result has its own index; same: the 32 results of a warp share one.",
            choices=("random", "same"),
        ),
    ),
    constant_memory={"constant_filter": "filter", "constant_table": "table"},
)
