"""Pi by the midpoint rule: out = h * sum of 4 / (1 + x_i^2), x_i = (i + 1/2) * h, h = 1 / N."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from cudabench.errors import UsageError
from cudabench.operations.shared import Arrays, in_strips, number, pieces, striding_grid, unit
from cudabench.records.launch import Dim, Launch
from cudabench.records.plan import Baseline, Buffer, Geometry, Kernel, Operation, Peer, Problem, Rule, Tolerance

# The scratch array has space for the partial sums of this many blocks. With so few blocks, the numbers of steps fit 32
# bits.
MAX_PARTIALS = 1 << 20
# A thread adds at most this many consecutive steps in the type T. With more steps the error exceeds the tolerance.
MOST_STEPS = 64
# For at most this many steps the reference adds all terms; for more steps the reference uses a formula.
DIRECT = 1 << 20
# The CPU processes this many steps at a time, so that the intermediate arrays stay in its cache.
PIECE = 1 << 14


def kernel(name: str, steps: Rule | None = None) -> Kernel:
    """Return a kernel of the ladder, with two launches: the kernel, and then a launch of one block that adds the
    partial sums.

    `steps`: the rule that checks the constant STEPS, for a kernel whose threads process several consecutive steps each.
    """
    function = "pi_" + name

    def launches(g: Geometry, grid: Dim) -> Sequence[Launch]:
        if grid[0] > MAX_PARTIALS:
            raise UsageError(
                f"--grid {grid[0]} leaves more than {MAX_PARTIALS} partial sums, which do not fit: use fewer blocks."
            )
        n = np.int32(g.size["n"])
        return (
            Launch(function, grid, g.block, ("partial", n)),
            Launch("pi_finish", (1, 1, 1), g.block, ("partial", "out", np.int32(grid[0]), n)),
        )

    grid, constants = (striding_grid("STEPS"), {"STEPS": steps}) if steps else (striding_grid(), {})
    return Kernel(name, function, (256,), grid, any_grid=True, constants=constants, launches=launches)


def midpoint_sum(n: int) -> float:
    """Return the exact result of the midpoint rule with n steps: for small n by addition, else as pi + h^2 / 12.

    The Euler-Maclaurin formula gives pi + h^2 / 12, and no term in h^4, because the third derivative is zero at both
    ends. For large n the remaining terms are smaller than the rounding error.
    """
    if n > DIRECT:
        return math.pi + 1 / (12 * n * n)
    x = (np.arange(n) + 0.5) / n
    return math.fsum(4 / (1 + x * x)) / n


def on_cpu(arrays: Arrays, outputs: Arrays, threads: int) -> None:
    """Compute with NumPy, in pieces that stay in the cache; each thread has a strip of the steps."""
    dtype, n = outputs["out"].dtype, int(arrays["n"])
    h = dtype.type(1 / n)
    sums: list[float] = []

    def add(strip: slice) -> None:
        for piece in pieces(strip, PIECE):
            x = np.arange(piece.start, piece.stop, dtype=dtype)
            x += dtype.type(0.5)
            x *= h
            x *= x
            x += dtype.type(1)
            np.divide(dtype.type(4), x, out=x)
            sums.append(float(x.sum()))

    in_strips(n, threads, add)
    outputs["out"][0] = math.fsum(sums) / n


def tolerance(problem: Problem) -> Tolerance:
    """Return the tolerance: an upper bound of the rounding error of the terms and, for float64, of the sum."""
    if problem.dtype == "float64":
        return Tolerance(
            (8 + problem.size["n"] ** 0.5) * unit(problem),
            0.0,
            "a term and the result round a few times; a chain of n additions rounds by about sqrt(n) half units",
        )
    return Tolerance(
        8 * unit(problem), 0.0, "step, x, quotient and result round to half a unit in the last place; the sum is double"
    )


def figures(problem: Problem, arrays: Arrays, outputs: Arrays) -> dict[str, float]:
    """Return two numbers, keyed by name: the output's difference from pi, and the part of this difference that the
    midpoint rule causes."""
    return {
        "error_against_pi": float(outputs["out"][0]) - math.pi,
        "error_of_the_rule": midpoint_sum(problem.size["n"]) - math.pi,
    }


OPERATION = Operation(
    name="pi",
    summary="out = integral of 4 / (1 + x^2) from 0 to 1, N steps",
    source="pi.cu",
    dimensions=("n",),
    default_size=(2**24,),
    block_dimensions=1,
    dtypes={"float32": "float", "float64": "double"},
    kernels=(
        kernel("block"),
        kernel("shuffle"),
        kernel("steps", number(1, MOST_STEPS)),
        kernel("fused", number(4, MOST_STEPS, multiple=4)),
    ),
    buffers=lambda problem: (
        Buffer("out", (1,), problem.dtype, "out"),
        Buffer("partial", (MAX_PARTIALS,), "float64", "scratch"),  # a partial sum for each block
    ),
    arguments=lambda problem: ("partial", np.int32(problem.size["n"])),
    inputs=lambda problem: {"n": np.array(problem.size["n"])},
    reference=lambda problem, arrays: {"out": np.array([midpoint_sum(problem.size["n"])])},
    baseline=Baseline(f"numpy, {PIECE} steps at a time", on_cpu),
    tolerance=tolerance,
    bytes=lambda problem: 0,
    bytes_formula="0",
    flops=lambda problem: 6 * problem.size["n"],
    flops_formula="6 * N",
    least_flops=lambda problem: 2 * problem.size["n"],  # one product and one sum for each step
    peers=(Peer("cub", "cub", "cub::DeviceReduce::Reduce", ("float32", "float64")),),
    figures=figures,
)
