"""Euclidean distance of two vectors: out = sqrt(sum of (a[i] - b[i])^2).

Every rung leaves a partial sum a block in device memory; the second pass, or the last block, adds them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from cudabench.errors import UsageError
from cudabench.occupancy import MAX_REGISTERS
from cudabench.operations.flat import in_strips, striding
from cudabench.operations.inputs import random_array
from cudabench.operations.rules import number
from cudabench.records.launch import Dim, Launch
from cudabench.records.planned import Baseline, Buffer, Geometry, Kernel, Operation, Peer, Problem, Rule, Tolerance

Arrays = dict[str, np.ndarray]

MAX_PARTIALS = 1 << 20  # the blocks that the scratch array has room for; one block adds their sums
# Partial sums that one thread adds one after another: by default, and at most. At a million, float32 drops so many of
# the small ones that the result is 3e-4 too small, more than the tolerance of the sum's rounding.
CHAIN, LONGEST_CHAIN = 1 << 12, 1 << 16
CHUNK = 1 << 22  # elements that the reference converts at a time
# Half of what 132 SMs hold: with 128 bytes a thread under way more threads win nothing, and leave more partial sums.
VECTOR_THREADS = 132 * 1024


def sum_type(problem: Problem) -> str:
    """Return the type that squares are summed in: exact for integers."""
    return "int64" if problem.dtype == "int32" else problem.dtype


def out_type(problem: Problem) -> str:
    """Return the type of the distance."""
    return "float64" if problem.dtype == "int32" else problem.dtype


# Launches ------------------------------------------------------------------------------------------------------------


def in_short_chains(grid: Callable[[Geometry], Dim]) -> Callable[[Geometry], Dim]:
    """Return the rule of a grid with no more blocks than leave CHAIN partial sums for each thread of one block."""
    return lambda g: (min(grid(g)[0], CHAIN * g.block[0]), 1, 1)


by_element = in_short_chains(striding())
# A grid whose threads take UNROLL 16-byte vectors of each array at a time, which wait in 8 registers.
over_vectors = in_short_chains(striding("UNROLL", "VEC", most_threads=VECTOR_THREADS))
# All that 132 SMs hold, for the rung whose threads have less under way.
over_more_vectors = in_short_chains(striding("UNROLL", "VEC", most_threads=2 * VECTOR_THREADS))
UNROLLED = {"UNROLL": number(1, MAX_REGISTERS // 8)}


def check_partials(grid: Dim, block: Dim) -> None:
    """Raise UsageError for a grid whose partial sums have no room, or are too many for one block to add in turn."""
    most = min(MAX_PARTIALS, LONGEST_CHAIN * block[0])
    if grid[0] > most:
        why = "there is room for" if most == MAX_PARTIALS else f"a block of {block[0]} adds without losing small ones"
        raise UsageError(f"--grid {grid[0]} leaves more partial sums than {why}: at most {most}.")


def two_passes(name: str, grid: Callable[[Geometry], Dim], constants: Mapping[str, Rule] | None = None) -> Kernel:
    """Return a rung of two launches: the partial sums, then one block that adds them."""
    function = "distance_" + name.replace("-", "_")

    def launches(g: Geometry, grid: Dim) -> Sequence[Launch]:
        check_partials(grid, g.block)
        return (
            Launch(function, grid, g.block, ("a", "b", "partial", np.int32(g.size["n"]))),
            Launch("distance_finish", (1, 1, 1), g.block, ("partial", "out", np.int32(grid[0]))),
        )

    return Kernel(name, function, (256,), grid, any_grid=True, constants=constants or {}, launches=launches)


def one_pass(
    name: str, block: int, grid: Callable[[Geometry], Dim], defines: Mapping[str, str] | None = None
) -> Kernel:
    """Return a rung of one launch, whose last block finishes."""
    function = "distance_" + name.replace("-", "_")

    def launches(g: Geometry, grid: Dim) -> Sequence[Launch]:
        check_partials(grid, g.block)
        arguments = ("a", "b", "partial", "arrived", "out", np.int32(g.size["n"]))
        return (Launch(function, grid, g.block, arguments),)

    return Kernel(
        name,
        function,
        (block,),
        grid,
        any_grid=True,
        constants=UNROLLED,
        defines=lambda g: dict(defines or {}),
        launches=launches,
    )


# The operation -------------------------------------------------------------------------------------------------------


def inputs(problem: Problem) -> Arrays:
    """Return both vectors: floats in [0, 1), integers of 16 bits, whose squared differences fit 64 bits 2^31 times."""
    rng = np.random.default_rng(problem.seed)
    shape = (problem.size["n"],)
    if problem.dtype == "int32":
        return {name: rng.integers(-(2**15), 2**15, shape, dtype=np.int32) for name in "ab"}
    return {name: random_array(rng, shape, problem.dtype) for name in "ab"}


def reference(problem: Problem, arrays: Arrays) -> Arrays:
    """Return the distance, summed exactly for integers and pairwise in double for floats."""
    a, b = arrays["a"], arrays["b"]
    wide = np.dtype(np.int64 if a.dtype.kind == "i" else np.float64)
    sums = []
    for start in range(0, len(a), CHUNK):
        d = np.subtract(a[start : start + CHUNK], b[start : start + CHUNK], dtype=wide)
        sums.append(np.square(d).sum().item())
    return {"out": np.sqrt(np.array([sum(sums)], dtype=np.float64))}


def on_cpu(arrays: Arrays, outputs: Arrays, threads: int) -> None:
    """Compute with NumPy, in pieces that stay in the cache, a strip of the vectors to a thread."""
    a, b = arrays["a"], arrays["b"]
    wide = np.dtype(np.int64 if a.dtype.kind == "i" else a.dtype)
    piece = 1 << 15
    sums = []

    def add(strip: slice) -> None:
        d = np.empty(piece, wide)
        total = 0.0
        for start in range(strip.start, min(strip.stop, len(a)), piece):
            stop = min(start + piece, strip.stop, len(a))
            part = d[: stop - start]
            np.subtract(a[start:stop], b[start:stop], out=part, dtype=wide)
            np.multiply(part, part, out=part)
            total += float(part.sum())
        sums.append(total)

    in_strips(len(a), threads, add)
    outputs["out"][0] = np.sqrt(sum(sums))


def tolerance(problem: Problem) -> Tolerance:
    """Return the bound of the sums' rounding, for any grid."""
    if problem.dtype == "int32":
        return Tolerance(2.0**-50, 0.0, "the sum is exact in 64 bits; its root rounds to double")
    unit = float(np.finfo(problem.dtype).eps) / 2
    n = problem.size["n"]
    return Tolerance(
        (8 + n**0.5) * unit,
        0.0,
        "a root halves the relative error of a sum of n positive terms, which one long chain of additions rounds by "
        "about sqrt(n) half units in the last place",
    )


def buffers(problem: Problem) -> tuple[Buffer, ...]:
    """Return the vectors, the distance, and scratch: a partial sum a block and the count of finished blocks."""
    shape = (problem.size["n"],)
    return (
        Buffer("a", shape, problem.dtype, "in"),
        Buffer("b", shape, problem.dtype, "in"),
        Buffer("out", (1,), out_type(problem), "out"),
        Buffer("partial", (MAX_PARTIALS,), sum_type(problem), "scratch"),
        Buffer("arrived", (1,), "uint32", "scratch"),
    )


OPERATION = Operation(
    name="distance",
    summary="out = sqrt(sum of (a[i] - b[i])^2)",
    source="distance.cu",
    dimensions=("n",),
    default_size=(2**25,),
    block_dimensions=1,
    dtypes={"float32": "float", "int32": "int", "float64": "double"},
    kernels=(
        two_passes("two-pass", by_element),
        two_passes("shuffle", by_element),
        two_passes("vector", over_vectors, UNROLLED),
        one_pass("single-pass", 256, over_vectors),
        one_pass("streamed", 512, over_more_vectors, {"UNROLL": "2"}),
        one_pass("released", 512, over_more_vectors, {"UNROLL": "2"}),
    ),
    buffers=buffers,
    arguments=lambda problem: ("a", "b", "partial", np.int32(problem.size["n"])),
    inputs=inputs,
    reference=reference,
    baseline=Baseline("numpy.subtract, multiply and sum, 32768 elements at a time", on_cpu),
    tolerance=tolerance,
    bytes=lambda problem: 2 * problem.size["n"] * np.dtype(problem.dtype).itemsize,
    bytes_formula="2 * N * sizeof(T)",
    flops=lambda problem: 3 * problem.size["n"],
    flops_formula="3 * N",
    peers=(
        Peer("cub", "cub", "cub::DeviceReduce::Reduce", ("float32", "float64", "int32")),
        Peer("torch", "torch", "torch.linalg.vector_norm(a - b)", ("float32", "float64", "int32")),
        Peer("torch-compiled", "torch", "torch.compile: vector_norm(a - b)", ("float32", "float64", "int32")),
    ),
)
