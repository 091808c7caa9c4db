"""Colour to grey: 0.21 r + 0.72 g + 0.07 b of each pixel of a ROWS x COLS picture, rounded to the nearest integer."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cudabench.operations import images
from cudabench.operations.shared import Arrays, grid_over, in_strips, pieces, random_array, rungs
from cudabench.records.launch import Dim, cdiv
from cudabench.records.plan import Baseline, Buffer, Geometry, Operation, Peer, Problem, Tolerance

# The CPU processes this many pixels at a time, so that they stay in its cache.
PIECE = 1 << 15


def over_pixels(per_thread: str) -> Callable[[Geometry], Dim]:
    """Return a function that computes the grid for the picture, treated as one long row of pixels. `per_thread`: the
    name of the constant that sets how many pixels a thread has."""
    return lambda g: (cdiv(g.size["rows"] * g.size["cols"], g.threads * g[per_thread]), 1, 1)


def inputs(problem: Problem) -> Arrays:
    """Return the array `rgb`: the picture of --image, or random bytes."""
    picture = images.load(problem.options, "RGB")
    if picture is None:
        shape = (problem.size["rows"], problem.size["cols"], 3)
        picture = random_array(np.random.default_rng(problem.seed), shape, problem.dtype)
    return {"rgb": picture}


def weigh(rgb: np.ndarray, grey: np.ndarray) -> None:
    """Fill `grey` (pixels) from `rgb` (pixels x 3). The weights are whole hundredths, so that the sum fits 16 bits."""
    total = rgb[:, 0] * np.uint16(21)
    total += rgb[:, 1] * np.uint16(72)
    total += rgb[:, 2] * np.uint16(7)
    total += np.uint16(50)
    np.floor_divide(total, np.uint16(100), out=grey, casting="unsafe")


def on_cpu(arrays: Arrays, outputs: Arrays, threads: int) -> None:
    """Compute with NumPy, in pieces that stay in the cache; each thread has a strip of the pixels."""
    rgb, grey = arrays["rgb"].reshape(-1, 3), outputs["grey"].reshape(-1)

    def work(strip: slice) -> None:
        for piece in pieces(strip, PIECE):
            weigh(rgb[piece], grey[piece])

    in_strips(len(grey), threads, work)


def reference(problem: Problem, arrays: Arrays) -> Arrays:
    """Return the exact grey levels; halves are rounded up."""
    grey = np.empty((problem.size["rows"], problem.size["cols"]), np.uint8)
    on_cpu(arrays, {"grey": grey}, 1)
    return {"grey": grey}


rung = rungs("grayscale", 16, 16)
OPERATION = Operation(
    name="grayscale",
    summary="grey = 0.21 r + 0.72 g + 0.07 b of each pixel",
    source="grayscale.cu",
    dimensions=("rows", "cols"),
    default_size=(4320, 7680),
    block_dimensions=2,
    dtypes={"uint8": "unsigned char"},
    kernels=(
        rung("naive", grid_over("cols", "rows")),
        rung("words", over_pixels("FEW")),
        rung("dot", over_pixels("FEW")),
        rung("vector", over_pixels("MANY")),
    ),
    buffers=lambda problem: (
        Buffer("rgb", (problem.size["rows"], problem.size["cols"], 3), "uint8", "in"),
        Buffer("grey", (problem.size["rows"], problem.size["cols"]), "uint8", "out"),
    ),
    arguments=lambda problem: ("rgb", "grey", np.int32(problem.size["cols"]), np.int32(problem.size["rows"])),
    inputs=inputs,
    reference=reference,
    baseline=Baseline(f"numpy in 16-bit integers, {PIECE} pixels at a time", on_cpu),
    tolerance=lambda problem: Tolerance(
        0.0, 1.0, "a sum in float may fall on the other side of a half, and some kernels cut instead of rounding"
    ),
    bytes=lambda problem: 4 * problem.size["rows"] * problem.size["cols"],
    bytes_formula="4 * ROWS * COLS",
    flops=lambda problem: 5 * problem.size["rows"] * problem.size["cols"],
    flops_formula="5 * ROWS * COLS",
    peers=(Peer("torch-compiled", "torch", "torch.compile: (21 r + 72 g + 7 b + 50) // 100", ("uint8",)),),
    options=images.OPTIONS,
    size=lambda options: images.size(options, "RGB"),
    save=lambda problem, outputs: images.save(problem.options, outputs["grey"]),
)
