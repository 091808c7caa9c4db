"""Euclidean distance of two vectors: out = sqrt(sum of (a[i] - b[i])^2).

In every kernel each block writes a partial sum to device memory. A second launch, or the block that finishes last, adds
the partial sums.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from cudabench.errors import UsageError
from cudabench.occupancy import MAX_REGISTERS
from cudabench.operations.shared import Arrays, in_strips, itemsize, number, pieces, random_array, striding_grid, unit
from cudabench.records.launch import Dim, Launch
from cudabench.records.plan import Baseline, Buffer, Geometry, Kernel, Operation, Peer, Problem, Tolerance

# The scratch array has space for the partial sums of this many blocks. In the end, one block adds the partial sums.
MAX_PARTIALS = 1 << 20
# How many partial sums one thread adds in sequence: the default number, and the largest allowed number. If a thread
# adds a million sums in float32, it loses many small ones: the result is 3e-4 too small, which is more than the
# tolerance.
CHAIN, LONGEST_CHAIN = 1 << 12, 1 << 16
CHUNK = 1 << 22  # the reference converts this many elements at a time
# The CPU processes this many elements at a time, so that the elements stay in its cache.
PIECE = 1 << 15
# Half of the threads that 132 SMs hold. Each thread has 128 bytes in flight. More threads would not be faster, but
# would leave more partial sums to add.
VECTOR_THREADS = 132 * 1024


# Launches ------------------------------------------------------------------------------------------------------------


def in_short_chains(grid: Callable[[Geometry], Dim]) -> Callable[[Geometry], Dim]:
    """Return a function that computes the grid of `grid`, with fewer blocks if otherwise a thread of the block that
    adds the partial sums had to add more than CHAIN of them."""
    return lambda g: (min(grid(g)[0], CHAIN * g.block[0]), 1, 1)


by_element = in_short_chains(striding_grid())
# A thread loads UNROLL vectors of 16 bytes from each array at a time. A vector of both arrays needs 8 registers.
over_vectors = in_short_chains(striding_grid("UNROLL", "VEC", most_threads=VECTOR_THREADS))
# The rule of `over_vectors`, but with all threads that 132 SMs hold, for kernels whose threads have fewer bytes in
# flight.
over_more_vectors = in_short_chains(striding_grid("UNROLL", "VEC", most_threads=2 * VECTOR_THREADS))


def rung(name: str, block: int, grid: Callable[[Geometry], Dim], passes: int = 1, unroll: str = "") -> Kernel:
    """Return a kernel of the ladder. With `passes` 2, a second launch of one block adds the partial sums; with 1, the
    block of the kernel that finishes last adds them.

    `unroll`: the value of UNROLL; '' for the value in the source file.
    """
    function = "distance_" + name.replace("-", "_")

    def launches(g: Geometry, grid: Dim) -> Sequence[Launch]:
        # The scratch array must have space for each block's sum, and there must be so few sums that one block can add
        # them in sequence.
        most = min(MAX_PARTIALS, LONGEST_CHAIN * g.block[0])
        if grid[0] > most:
            adds = f"a block of {g.block[0]} adds without losing small ones"
            reason = "there is room for" if most == MAX_PARTIALS else adds
            raise UsageError(f"--grid {grid[0]} leaves more partial sums than {reason}: at most {most}.")
        n = np.int32(g.size["n"])
        if passes == 1:
            return (Launch(function, grid, g.block, ("a", "b", "partial", "arrived", "out", n)),)
        finish = Launch("distance_finish", (1, 1, 1), g.block, ("partial", "out", np.int32(grid[0])))
        return (Launch(function, grid, g.block, ("a", "b", "partial", n)), finish)

    constants = {} if grid is by_element else {"UNROLL": number(1, MAX_REGISTERS // 8)}
    defines = {"UNROLL": unroll} if unroll else {}
    return Kernel(
        name, function, (block,), grid, any_grid=True, constants=constants, defines=lambda _: defines, launches=launches
    )


# The operation -------------------------------------------------------------------------------------------------------


def inputs(problem: Problem) -> Arrays:
    """Return both vectors: floats in [0, 1), or integers of 16 bits, with which a sum of 2^31 squared differences fits
    64 bits."""
    rng = np.random.default_rng(problem.seed)
    shape = (problem.size["n"],)
    if problem.dtype == "int32":
        return {name: rng.integers(-(2**15), 2**15, shape, dtype=np.int32) for name in "ab"}
    return {name: random_array(rng, shape, problem.dtype) for name in "ab"}


def reference(problem: Problem, arrays: Arrays) -> Arrays:
    """Return the distance. The sum is exact for integers; for floats it is a pairwise sum in float64."""
    a, b = arrays["a"], arrays["b"]
    wide = np.dtype(np.int64 if a.dtype.kind == "i" else np.float64)
    chunks = pieces(slice(0, len(a)), CHUNK)
    total = sum(np.square(np.subtract(a[chunk], b[chunk], dtype=wide)).sum().item() for chunk in chunks)
    return {"out": np.sqrt(np.array([total], dtype=np.float64))}


def on_cpu(arrays: Arrays, outputs: Arrays, threads: int) -> None:
    """Compute with NumPy, in pieces that stay in the cache; each thread has a strip of the vectors."""
    a, b = arrays["a"], arrays["b"]
    wide = np.dtype(np.int64 if a.dtype.kind == "i" else a.dtype)
    sums = []

    def add(strip: slice) -> None:
        buffer = np.empty(PIECE, wide)
        for piece in pieces(strip, PIECE):
            d = np.subtract(a[piece], b[piece], out=buffer[: piece.stop - piece.start], dtype=wide)
            np.multiply(d, d, out=d)
            sums.append(float(d.sum()))

    in_strips(len(a), threads, add)
    outputs["out"][0] = np.sqrt(sum(sums))


def tolerance(problem: Problem) -> Tolerance:
    """Return the tolerance: an upper bound of the sum's rounding error, for any grid."""
    if problem.dtype == "int32":
        return Tolerance(2.0**-50, 0.0, "the sum is exact in 64 bits; its root rounds to double")
    return Tolerance(
        (8 + problem.size["n"] ** 0.5) * unit(problem),
        0.0,
        "a root halves the relative error of a sum of n positive terms, which one long chain of additions rounds by "
        "about sqrt(n) half units in the last place",
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
        rung("two-pass", 256, by_element, passes=2),
        rung("shuffle", 256, by_element, passes=2),
        rung("vector", 256, over_vectors, passes=2),
        rung("single-pass", 256, over_vectors),
        rung("streamed", 512, over_more_vectors, unroll="2"),
        rung("released", 512, over_more_vectors, unroll="2"),
    ),
    buffers=lambda problem: (
        Buffer("a", (problem.size["n"],), problem.dtype, "in"),
        Buffer("b", (problem.size["n"],), problem.dtype, "in"),
        Buffer("out", (1,), "float64" if problem.dtype == "int32" else problem.dtype, "out"),
        # A partial sum for each block (exact for integers), and the number of blocks that have finished.
        Buffer("partial", (MAX_PARTIALS,), "int64" if problem.dtype == "int32" else problem.dtype, "scratch"),
        Buffer("arrived", (1,), "uint32", "scratch"),
    ),
    arguments=lambda problem: ("a", "b", "partial", np.int32(problem.size["n"])),
    inputs=inputs,
    reference=reference,
    baseline=Baseline(f"numpy.subtract, multiply and sum, {PIECE} elements at a time", on_cpu),
    tolerance=tolerance,
    bytes=lambda problem: 2 * problem.size["n"] * itemsize(problem),
    bytes_formula="2 * N * sizeof(T)",
    flops=lambda problem: 3 * problem.size["n"],
    flops_formula="3 * N",
    peers=(
        Peer("cub", "cub", "cub::DeviceReduce::Reduce", ("float32", "float64", "int32")),
        Peer("torch", "torch", "torch.linalg.vector_norm(a - b)", ("float32", "float64", "int32")),
        Peer("torch-compiled", "torch", "torch.compile: vector_norm(a - b)", ("float32", "float64", "int32")),
    ),
)
