"""Matrix product: C = A B, with A of M x K, B of K x N and C of M x N elements, row-major."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Any

import ml_dtypes  # noqa: F401  (NumPy then knows bfloat16 by name)
import numpy as np

from cudabench.floats import from_bfloat16, to_bfloat16
from cudabench.occupancy import MAX_GRID, MAX_STATIC_SHARED
from cudabench.operations import blas
from cudabench.operations.shared import (
    MAX_WARPS,
    Arrays,
    grid_of_tiles,
    grid_over,
    in_registers,
    needs_warps,
    number,
    random_array,
    rungs,
    unit,
)
from cudabench.records.launch import ByValue, Dim, TensorMap, cdiv
from cudabench.records.plan import Baseline, Buffer, Geometry, Kernel, Operation, Peer, Problem, Tolerance

WIDE, NARROW = ("float32", "float64"), ("float16", "bfloat16")
MULTIPROCESSORS = 132  # number of multiprocessors of an H200 or H100
# With this many blocks, almost every SM of these GPUs has a block.
FULL_BLOCKS = 128

rung = rungs("matmul", 32, 8)

# Geometry ------------------------------------------------------------------------------------------------------------


def over_result(down: str = "", across: str = "") -> Callable[[Geometry], Dim]:
    """Return a function that computes the grid over C. If C has more rows than a grid can have, threads loop.

    `down` and `across` name the constants that set how many rows and columns a thread has; '' means one.
    """
    tiles = grid_over("n", "m", across, down)
    return lambda g: (tiles(g)[0], min(tiles(g)[1], MAX_GRID[1]), 1)


def needs_tiles(g: Geometry) -> str | None:
    """Return the reason why two tiles of A and two tiles of B exceed the block's static shared memory, or None if they
    fit."""
    if g["FIT"]:
        return None
    return (
        f"its threads, {g['TM']} x {g['TN']} elements each, make tiles of {g['TILE_BYTES'] / 1024:.0f} KiB, but a "
        f"block has {MAX_STATIC_SHARED // 1024} KiB of shared memory; a block nearer to a square, such as 16 x 16, has "
        "smaller tiles"
    )


def register_tiles(name: str) -> Kernel:
    """Return a kernel whose threads keep TM x TN sums in registers."""
    rule = number(1, 32, in_registers("TM", "TN"), multiple="VEC")
    return rung(
        name,
        over_result("TM", "TN"),
        (16, 16),
        any_grid=True,
        constants={"TM": rule, "TN": rule, "TK": number(1, 128, multiple="VEC")},
        refuses=needs_tiles,
        dtypes=WIDE,
    )


def shares_columns(g: Geometry) -> str | None:
    """Return None if the threads of a block can divide a step's part of A (WTILE_M x WTK elements) evenly among
    them; else the rule for WTK."""
    threads, depth = g["BLOCK"], g["WTK"]
    if threads % depth == 0 and g["WTILE_M"] % (threads // depth) == 0:
        return None
    return f"a divisor of the {threads} threads whose quotient divides the {g['WTILE_M']} rows of a tile"


def divides_warps(name: str) -> Callable[[Geometry], str | None]:
    """Return a function that checks whether the constant `name` divides the number of warps of a block; that function
    returns None if so, else the rule."""
    return lambda g: None if g["WARPS"] % g[name] == 0 else f"a divisor of the block's {g['WARPS']} warps"


def slices(g: Geometry) -> dict[str, str]:
    """Return the compiler define SLICES, the number of parts into which the warps divide a step. It is 2, or 4 if with
    2 parts a large GPU would have SMs without a block; it is 1 if the number of warps is odd."""
    parts = 2
    while parts < 4 and g["WARPS"] % (2 * parts) == 0 and over_slices(g, parts)[0] < FULL_BLOCKS:
        parts *= 2
    return {"SLICES": str(parts if g["WARPS"] % parts == 0 else 1)}


def over_slices(g: Geometry, parts: int) -> Dim:
    """Return the grid of the kernel `sliced`, whose warps divide a step into `parts` parts."""
    high, wide = (g.call(name, parts) for name in ("SLICE_TILE_M", "SLICE_TILE_N"))
    return (cdiv(g.size["m"], high) * cdiv(g.size["n"], wide), 1, 1)


def sliced_shared(g: Geometry) -> int:
    """Return the bytes of shared memory of `sliced`: the space for the tiles of the steps, or for the sums of half of
    the parts, whichever is larger."""
    parts = g["SLICES"]
    stages = g["SLICE_STAGES"] * g.call("SLICE_STAGE", parts)
    sums = parts // 2 * g.call("SLICE_TILE_M", parts) * g.call("SLICE_TILE_N", parts)
    return max(stages, sums) * g.itemsize


# The tensor cores ----------------------------------------------------------------------------------------------------


def tf32(array: np.ndarray) -> np.ndarray:
    """Return float32 numbers as the tensor cores read them (TF32): the lower 13 bits of the mantissa are zero."""
    upper: np.ndarray = (array.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    return upper


def of_tensor(problem: Problem, arrays: Arrays) -> Arrays:
    """Return the expected product on tensor cores, which read float32 elements as TF32."""
    inputs_read = {name: tf32(array) for name, array in arrays.items()} if problem.dtype == "float32" else arrays
    return reference(problem, inputs_read)


def tensor_tolerance(problem: Problem) -> Tolerance:
    """Return the tolerance for sums on the tensor cores, which truncate float32 sums instead of rounding them."""
    if problem.dtype != "float32":
        return tolerance(problem)
    return Tolerance(
        2.0**-23 * (problem.size["k"] / 8 + 4),
        0.0,
        "of inputs cut to TF32; the tensor cores cut each of K / 8 sums off to 24 bits",
    )


def split_tolerance(problem: Problem) -> Tolerance:
    """Return the tolerance for kernels that compute a float32 product as three TF32 products."""
    return Tolerance(
        2.0**-19 + 4 * sqrt(problem.size["k"]) * 2.0**-24,
        0.0,
        "the product of the remainders, up to 2^-20, is left out; remainders are truncated; K roundings as sqrt(K)",
    )


def groups(*threads: int, why: str) -> Callable[[Geometry], str | None]:
    """Return a function that checks whether a block has one of the given numbers of threads; that function returns None
    if so, else the reason to refuse the block."""
    return lambda g: (
        None
        if g.threads in threads
        else f"{why}, so the block needs {' or '.join(map(str, threads))} threads, not {g.threads}"
    )


GROUPS = "it works by groups of 128 threads, one or two of them"
needs_fetchers = groups(256, 384, why="one group of 128 threads fetches for one or two that multiply")


def side(name: str, count: Callable[[Geometry], int]) -> Callable[[Geometry], dict[str, str]]:
    """Return a function that gives the compiler define `name`, the side of a tile: 256, or 128 if tiles with the side
    256 leave multiprocessors idle. `count`: returns the number of tiles with the side 256."""
    return lambda g: {name: "256" if count(g) >= FULL_BLOCKS // 2 else "128"}


# Kernels that load tiles with tensor maps ----------------------------------------------------------------------------


def tall(g: Geometry) -> dict[str, str]:
    """Return the compiler defines of the tile: TALL is its number of rows (256, or fewer if 256 rows leave
    multiprocessors idle)."""
    across = cdiv(g.size["n"], g["BESIDE"])
    rows = next((rows for rows in (256, 128) if cdiv(g.size["m"], rows) * across >= FULL_BLOCKS * 3 // 4), 64)
    return {"TALL": str(rows), "STRIP": "8"}


def over_stays(g: Geometry, high: str) -> Dim:
    """Return the grid for blocks that process several tiles of C one after another: the fewest blocks with which no
    block processes more tiles than with one block on each SM. `high`: the constant that sets the rows of a tile."""
    count = grid_of_tiles(m=high, n="BESIDE")(g)[0]
    return (cdiv(count, cdiv(count, MULTIPROCESSORS)), 1, 1)


def over_pairs(g: Geometry) -> Dim:
    """Return the grid of `over_stays` for pairs of blocks that process pairs of tiles of C. The two tiles are side by
    side; in the last column, if the number of columns is odd, one is below the other."""
    down, across = cdiv(g.size["m"], g["TALL"]), cdiv(g.size["n"], g["BESIDE"])
    pairs = down * (across // 2) + across % 2 * cdiv(down, 2)
    return (2 * cdiv(pairs, cdiv(pairs, MULTIPROCESSORS // 2)), 1, 1)


def map_over(problem: Problem, name: str, box: tuple[int, int]) -> TensorMap | ByValue:
    """Return the tensor map of a matrix for tiles of `box` (rows, columns) in the layout that the tensor cores read.

    If the rows of C (for `name` c), or the rows of A or B (for `name` a or b), are not a multiple of 16 bytes, the
    kernel works without this map, and the function returns 128 bytes of zeros.
    """
    rows, cols = next(buffer.shape for buffer in buffers(problem) if buffer.name == name)
    width = np.dtype(storage(problem)).itemsize
    if any(problem.size[size] * width % 16 for size in ("n" if name == "c" else "kn")):
        return ByValue(bytes(128), 64)
    return TensorMap(name, problem.dtype, (cols, rows), (cols * width,), box[::-1], (1, 1), 128)


def by_maps(high: str, boxes: int = 1) -> Callable[[Geometry], tuple[Any, ...]]:
    """Return a function that gives the arguments of a kernel: the tensor maps of A, B and C, then the operation's usual
    arguments.

    `high`: the constant that sets the rows of a tile of A. `boxes`: the number of boxes into which these rows are
    divided.
    """

    def passed(g: Geometry) -> tuple[Any, ...]:
        across = g["RSTEP"]
        a = map_over(g.problem, "a", (g[high] // boxes, across))
        return (a, *(map_over(g.problem, name, (across, across)) for name in "bc"), *arguments(g.problem))

    return passed


# The operation -------------------------------------------------------------------------------------------------------


def inputs(problem: Problem) -> Arrays:
    """Return A and B. Their elements are in [0, 1), so that sums do not cancel and the relative error is bounded."""
    m, n, k = (problem.size[name] for name in "mnk")
    rng = np.random.default_rng(problem.seed)
    drawn_type = "float32" if problem.dtype == "bfloat16" else problem.dtype
    arrays = {"a": random_array(rng, (m, k), drawn_type), "b": random_array(rng, (k, n), drawn_type)}
    return {name: to_bfloat16(array) for name, array in arrays.items()} if problem.dtype == "bfloat16" else arrays


def widen(problem: Problem, array: np.ndarray, wide: type = np.float64) -> np.ndarray:
    """Return the elements of an array as numbers of the type `wide`; bfloat16 arrays hold bit patterns (uint16)."""
    return (from_bfloat16(array) if problem.dtype == "bfloat16" else array).astype(wide, copy=False)


def reference(problem: Problem, arrays: Arrays) -> Arrays:
    """Return the product in float64; for bfloat16, round it to bfloat16 and return the bit patterns (uint16)."""
    c = np.matmul(*(widen(problem, arrays[name]) for name in "ab"))
    return {"c": to_bfloat16(c) if problem.dtype == "bfloat16" else c}


def on_cpu(arrays: Arrays, outputs: Arrays, threads: int) -> None:
    """Multiply with NumPy's BLAS. BLAS lacks 2-byte types, so arrays of these types are converted to float32, and the
    product back."""
    c = outputs["c"]
    with blas.limited(threads):
        if c.dtype.itemsize > 2:
            np.matmul(arrays["a"], arrays["b"], out=c)
        elif c.dtype == np.float16:
            c[...] = np.matmul(arrays["a"].astype(np.float32), arrays["b"].astype(np.float32))
        else:
            c[...] = to_bfloat16(np.matmul(from_bfloat16(arrays["a"]), from_bfloat16(arrays["b"])))


def tolerance(problem: Problem) -> Tolerance:
    """Return the tolerance: an upper bound of the error of K roundings; for float64 twice this bound, because the
    float64 reference has the same error."""
    k = problem.size["k"]
    if problem.dtype in NARROW:
        bfloat = problem.dtype == "bfloat16"
        # The reference is also rounded to bfloat16, which adds a second rounding error.
        lost = 1.01 * (2.0**-8 * 2 if bfloat else 2.0**-11) + 2.0**-23 * (k / 8 + 4)
        reason = "c rounds to its type; the tensor cores cut each of K / 16 sums off to 24 bits"
        return Tolerance(lost, 0.0, reason, bfloat16=bfloat)
    rtol = 4 * sqrt(k) * unit(problem) * (2 if problem.dtype == "float64" else 1)
    return Tolerance(rtol, 0.0, "K roundings of random sign add up to sqrt(K) units; the tolerance is 4 times that")


def storage(problem: Problem) -> str:
    """Return the name of NumPy's type for an element in memory: bfloat16 is stored as uint16."""
    return "uint16" if problem.dtype == "bfloat16" else problem.dtype


def buffers(problem: Problem) -> tuple[Buffer, ...]:
    """Return the buffers of A, B and C."""
    m, n, k = (problem.size[name] for name in "mnk")
    dtype = storage(problem)
    return (Buffer("a", (m, k), dtype, "in"), Buffer("b", (k, n), dtype, "in"), Buffer("c", (m, n), dtype, "out"))


def arguments(problem: Problem) -> tuple[Any, ...]:
    """Return the arguments of every kernel: the matrices, M, K and N."""
    return ("a", "b", "c", *(np.int32(problem.size[name]) for name in "mkn"))


STRIP = {"STRIP": number(1, 1024)}
AS_TF32 = {"expected": of_tensor, "tolerance": tensor_tolerance}
SPLIT = {"tolerance": split_tolerance, "dtypes": ("float32",)}
TENSOR = {
    "constants": {"XSTAGES": number(2, 16), **STRIP},
    "refuses": needs_warps,
    "shared_bytes": lambda g: g["XSTAGES"] * g["XSTAGE"] * g.itemsize,
    "architecture": "sm_80",
    "chapter": "matmul_tensor.cu",
}
BY_MAPS: dict[str, Any] = {
    "block": (32, 12),
    "refuses": needs_fetchers,
    "architecture": "sm_90a",
    "chapter": "matmul_tma.cu",
}
IN_A_RING: dict[str, Any] = BY_MAPS | {
    "constants": {"TALL": number(64, 256, power=True), "RSTAGES": number(2, 16), **STRIP},
    "defines": tall,
    "shared_bytes": lambda g: g["RSHARED"],
    "dtypes": ("float32", *NARROW),
    **AS_TF32,
}

OPERATION = Operation(
    name="matmul",
    summary="C = A B",
    source="matmul.cu",
    dimensions=("m", "k", "n"),
    default_size=(2048, 2048, 2048),
    simulated_size=(512, 512, 512),
    block_dimensions=2,
    # The 2-byte elements are used only on the tensor cores, so `unsigned short` is enough and the chapter needs no
    # header.
    dtypes={"float32": "float", "float64": "double", "float16": "unsigned short", "bfloat16": "unsigned short"},
    defines=lambda problem: {"BFLOAT16": "1"} if problem.dtype == "bfloat16" else {},
    kernels=(
        rung("naive", over_result(), block=(16, 16), any_grid=True, dtypes=WIDE),
        rung("tiled", over_result(), block=(16, 16), any_grid=True, dtypes=WIDE),
        register_tiles("registers"),
        register_tiles("vector"),
        register_tiles("double-buffer"),
        rung(
            "warp-tile",
            grid_of_tiles(m="WTILE_M", n="WTILE_N"),
            constants={
                "WTM": number(1, 32, in_registers("WTM", "WTN"), shares_columns, multiple="VEC"),
                "WTN": number(1, 32, in_registers("WTM", "WTN"), multiple="VEC"),
                "WTK": number(1, 128, shares_columns),
                "STAGES": number(2, 16),
                "WARPS_N": number(1, MAX_WARPS, divides_warps("WARPS_N")),
            },
            refuses=needs_warps,
            shared_bytes=lambda g: g["STAGES"] * g["WSTAGE"] * g.itemsize,
            dtypes=WIDE,
            chapter="matmul_warps.cu",
        ),
        rung("tensor", grid_of_tiles(m="XTILE_M", n="XTILE_N"), dtypes=WIDE, **TENSOR, **AS_TF32),
        rung(
            "sliced",
            lambda g: over_slices(g, g["SLICES"]),
            constants={
                "SLICES": number(1, MAX_WARPS, divides_warps("SLICES"), power=True),
                "SLICE_STAGES": number(2, 16),
                **STRIP,
            },
            refuses=needs_warps,
            shared_bytes=sliced_shared,
            defines=slices,
            dtypes=WIDE,
            detour=True,
            chapter="matmul_warps.cu",
        ),
        rung("tensor-split", grid_of_tiles(m="XTILE_M", n="XTILE_N"), **TENSOR, **SPLIT),
        rung(
            "wgmma",
            grid_of_tiles(m="HIGH", n="GWIDE"),
            constants={"HIGH": number(128, 256, power=True), "GSTAGES": number(4, 16), **STRIP},
            refuses=groups(128, 256, why=GROUPS),
            defines=side("HIGH", lambda g: cdiv(g.size["m"], 256) * cdiv(g.size["n"], g["GWIDE"])),
            shared_bytes=lambda g: g["GSHARED"],
            **AS_TF32,
            dtypes=("float32",),
            architecture="sm_90a",
            chapter="matmul_hopper.cu",
        ),
        rung(
            "half",
            grid_of_tiles(m="HTILE_M", n="BROAD"),
            constants={"BROAD": number(128, 256, power=True), "GSTAGES": number(4, 16), **STRIP},
            refuses=groups(128, 256, 384, why=GROUPS),
            defines=side("BROAD", lambda g: cdiv(g.size["m"], g["HTILE_M"]) * cdiv(g.size["n"], 256)),
            shared_bytes=lambda g: g["HSHARED"],
            dtypes=NARROW,
            architecture="sm_90a",
            chapter="matmul_hopper.cu",
        ),
        rung(
            "wgmma-split",
            grid_of_tiles(m="SHIGH", n="GWIDE"),
            constants={"SSTAGES": number(3, 16), **STRIP},
            refuses=groups(128, 256, why=GROUPS),
            shared_bytes=lambda g: g["SSHARED"],
            **SPLIT,
            architecture="sm_90a",
            detour=True,
            chapter="matmul_hopper.cu",
        ),
        rung("tma", lambda g: over_stays(g, "TALL"), any_grid=True, passed=by_maps("TALL"), **IN_A_RING),
        rung(
            "tma-split",
            lambda g: over_stays(g, "SPLIT_ROWS"),
            any_grid=True,
            constants={"ESTAGES": number(2, 16), **STRIP},
            passed=by_maps("SPLIT_ROWS"),
            shared_bytes=lambda g: g["ESHARED"],
            **BY_MAPS,
            **SPLIT,
            detour=True,
        ),
        rung("tma-pair", over_pairs, passed=by_maps("TALL", boxes=2), detour=True, **IN_A_RING),
    ),
    buffers=buffers,
    arguments=arguments,
    inputs=inputs,
    reference=reference,
    baseline=Baseline(blas.named("numpy.matmul(a, b, out=c)"), on_cpu),
    tolerance=tolerance,
    bytes=lambda problem: sum(buffer.nbytes for buffer in buffers(problem)),
    bytes_formula="(M * K + K * N + M * N) * sizeof(T)",
    flops=lambda problem: 2 * problem.size["m"] * problem.size["n"] * problem.size["k"],
    flops_formula="2 * M * N * K",
    peers=(
        Peer("cublas", "cublas", "cublasGemmEx", (*WIDE, *NARROW)),
        Peer(
            "cublas-tf32",
            "cublas",
            "cublasGemmEx, TF32",
            ("float32",),
            arithmetic=("tf32",),
            tolerance=lambda problem: Tolerance(
                2.0**-9, 0.0, "truncation to TF32 changes each of two factors by up to 2^-10"
            ),
        ),
        Peer("torch", "torch", "torch.mm(a, b, out=c)", (*WIDE, *NARROW)),
    ),
)
