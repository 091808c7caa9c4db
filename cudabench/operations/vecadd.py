"""Vector addition: c[i] = a[i] + b[i] for N elements."""

from __future__ import annotations

import numpy as np

from cudabench.operations.shared import Arrays, grid_over, in_strips, itemsize, random_array, rungs, striding_grid
from cudabench.records.plan import Baseline, Buffer, Operation, Peer, Problem, Tolerance


def inputs(problem: Problem) -> Arrays:
    """Return both vectors. Integers are random in half of their type's range, so that sums do not overflow."""
    rng = np.random.default_rng(problem.seed)
    a, b = (random_array(rng, (problem.size["n"],), problem.dtype) for _ in "ab")
    if a.dtype.kind == "i":
        a >>= 1
        b >>= 1
    return {"a": a, "b": b}


def on_cpu(arrays: Arrays, outputs: Arrays, threads: int) -> None:
    """Add with NumPy; each thread has a strip of the vectors."""
    a, b, c = arrays["a"], arrays["b"], outputs["c"]
    in_strips(len(c), threads, lambda strip: np.add(a[strip], b[strip], out=c[strip]))


rung = rungs("vecadd", 256)
OPERATION = Operation(
    name="vecadd",
    summary="c[i] = a[i] + b[i]",
    source="vecadd.cu",
    dimensions=("n",),
    default_size=(2**25,),
    block_dimensions=1,
    dtypes={"float32": "float", "float64": "double", "int32": "int"},
    kernels=(
        rung("naive", grid_over("n")),
        rung("grid-stride", striding_grid(), any_grid=True),
        rung("vector", grid_over("n", across="VEC")),
    ),
    buffers=lambda problem: (
        Buffer("a", (problem.size["n"],), problem.dtype, "in"),
        Buffer("b", (problem.size["n"],), problem.dtype, "in"),
        Buffer("c", (problem.size["n"],), problem.dtype, "out"),
    ),
    arguments=lambda problem: ("a", "b", "c", np.int32(problem.size["n"])),
    inputs=inputs,
    # A single IEEE addition is correctly rounded, so the reference needs no higher precision than the elements.
    reference=lambda problem, arrays: {"c": arrays["a"] + arrays["b"]},
    baseline=Baseline("numpy.add(a, b, out=c)", on_cpu),
    tolerance=lambda problem: Tolerance(0.0, 0.0, "one addition, correctly rounded on both sides"),
    bytes=lambda problem: 3 * problem.size["n"] * itemsize(problem),
    bytes_formula="3 * N * sizeof(T)",
    flops=lambda problem: problem.size["n"],
    flops_formula="N",
    peers=(
        Peer("cub", "cub", "cub::DeviceTransform::Transform", ("float32", "float64", "int32")),
        Peer("torch", "torch", "torch.add(a, b, out=c)", ("float32", "float64", "int32")),
    ),
)
