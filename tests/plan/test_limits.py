"""The limits of a launch: a value equal to a limit is allowed, a larger one is refused with the repair."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from cudabench import operations
from cudabench.errors import OutOfMemory, UsageError
from cudabench.occupancy import MAX_CLUSTER, MAX_GRID, MAX_SHARED
from cudabench.plan import cases, limits
from cudabench.records.launch import Dim
from cudabench.records.plan import Buffer
from tests.ladders import asked


@pytest.mark.parametrize(
    ("block", "fits"),
    [
        ((33, 33, 1), "32 x 32"),  # a square with sides of a warp
        ((40, 32, 1), "32 x 32"),
        ((63, 17, 1), "32 x 17"),
        ((64, 17, 1), "64 x 9"),
        ((2048, 1, 1), "1024"),
        ((32, 32, 4), "32 x 32"),
        ((16, 16, 5), "16 x 16 x 3"),
    ],
)
def test_a_block_with_too_many_threads(block: Dim, fits: str) -> None:
    """The error suggests the nearest block that fits."""
    with pytest.raises(UsageError, match=f"such as {re.escape(fits)}\\."):
        limits.check_block(block)


def test_grids_and_clusters_on_the_limit() -> None:
    """The largest grid and cluster are allowed; one block more is not."""
    limits.check_grid(MAX_GRID)
    for axis in range(3):
        grid = tuple(side + (at == axis) for at, side in enumerate(MAX_GRID))
        with pytest.raises(UsageError, match=f"{'xyz'[axis]} = {MAX_GRID[axis] + 1}; CUDA allows at most"):
            limits.check_grid(grid)  # type: ignore[arg-type]
    limits.check_cluster((MAX_CLUSTER, 1, 1), (2 * MAX_CLUSTER, 1, 1))
    with pytest.raises(UsageError, match=f"has {2 * MAX_CLUSTER} blocks"):
        limits.check_cluster((MAX_CLUSTER, 2, 1), (2 * MAX_CLUSTER, 2, 1))


def test_shared_memory_on_the_limit() -> None:
    """A block may use the largest shared memory of any GPU, and not one byte more."""
    limits.check_shared(MAX_SHARED, "it needs", "use less")
    with pytest.raises(
        UsageError, match=rf"it needs 227 KiB of shared memory \({MAX_SHARED + 1} bytes\).*: use less\."
    ):
        limits.check_shared(MAX_SHARED + 1, "it needs", "use less")


@pytest.mark.parametrize("free", [99, 100])
def test_memory_of_the_host(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    """A problem needs memory for its arrays and for the reference of its outputs; exactly that much is enough."""
    unit = limits.SURELY_FREE
    buffers = [Buffer("a", (20 * unit,), "uint8", "in"), Buffer("b", (40 * unit,), "uint8", "out")]
    operation: Any = SimpleNamespace(name="scale", smaller="a smaller --size", buffers=lambda problem: buffers)
    monkeypatch.setattr(limits, "host_memory", lambda: free * unit)
    if free == 100:
        limits.check_memory(operation, None)  # type: ignore[arg-type]
    else:
        with pytest.raises(
            OutOfMemory, match=r"scale of this size needs 7 GB .* 6\.6 GB of memory free: use a smaller"
        ):
            limits.check_memory(operation, None)  # type: ignore[arg-type]


def test_a_size_on_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels receive sizes as int, so 2^31 - 1 is allowed and 2^31 is not."""
    monkeypatch.setattr(limits, "host_memory", lambda: 1 << 62)
    operation = operations.get("vecadd")
    assert cases.problem_of(operation, asked(operation, size=(2**31 - 1,))).size == {"n": 2**31 - 1}
    for size in (0, 2**31):
        with pytest.raises(UsageError, match=f"--size {size} is out of range: each number is 1 to {2**31 - 1}"):
            cases.problem_of(operation, asked(operation, size=(size,)))


def test_a_constant_that_follows_from_the_block() -> None:
    """A rung's rule for a constant also applies if the user did not set it, and the error names its value."""
    operation = operations.get("transpose")
    ruled = next(kernel for kernel in operation.kernels if kernel.constants)
    name = next(iter(ruled.constants))
    kernel = replace(ruled, constants={name: lambda value, g: f"under {value}"})
    with pytest.raises(UsageError, match=rf"its {name} is (\d+), but must be under \1\."):
        cases.build(replace(operation, kernels=(kernel,)), asked(operation, kernels=(kernel.name,)))
