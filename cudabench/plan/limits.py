"""Raises errors, before anything is compiled, for launches that no card can run and problems that do not fit memory."""

from __future__ import annotations

from math import prod

from cudabench.errors import OutOfMemory, UsageError, refuse
from cudabench.occupancy import MAX_BLOCK, MAX_CLUSTER, MAX_GRID, MAX_SHARED, MAX_THREADS_PER_BLOCK
from cudabench.records.launch import Dim, dim_text
from cudabench.records.plan import Operation, Problem
from cudabench.system.limited_process import host_memory

SURELY_FREE = 64 << 20  # at least this many bytes of memory are assumed to be free
# The largest number in the size of a problem, because kernels get the size as int.
MAX_DIMENSION = 2**31 - 1


def check_block(block: Dim) -> None:
    """Raise UsageError for a block that no CUDA device launches."""
    threads = prod(block)
    for value, limit, axis in zip(block, MAX_BLOCK, "xyz", strict=True):
        refuse(
            (value < 1, f"--block {dim_text(block)}: each dimension must be at least 1."),
            (
                value > limit and threads <= MAX_THREADS_PER_BLOCK,
                f"--block {dim_text(block)} has {axis} = {value}; CUDA allows at most {limit}.",
            ),
        )
    if threads > MAX_THREADS_PER_BLOCK:
        raise UsageError(
            f"--block {dim_text(block)} has {threads} threads; CUDA allows {MAX_THREADS_PER_BLOCK} a block, "
            f"such as {_fitting_block(block)}."
        )


def _fitting_block(block: Dim) -> str:
    """Return a block with at most 1024 threads, as text: the given block with z reduced, then y, then x."""
    x, y, z = block
    if z == 1 and 32 < x < 64 and y > 16:  # for a block of 33 x 33, suggest 32 x 32
        return dim_text((32, min(y, 32), 1))
    while x * y * z > MAX_THREADS_PER_BLOCK and z > 1:
        z = (z + 1) // 2
    while x * y * z > MAX_THREADS_PER_BLOCK and y > 1:
        y = (y + 1) // 2
    return dim_text((min(x, MAX_THREADS_PER_BLOCK), y, z))


def check_grid(grid: Dim, why: str = "") -> None:
    """Raise UsageError for a grid that no CUDA device launches; `why` is added to the message about a large grid."""
    for value, limit, axis in zip(grid, MAX_GRID, "xyz", strict=True):
        refuse(
            (value < 1, f"--grid {dim_text(grid)}: each dimension must be at least 1."),
            (value > limit, f"The grid {dim_text(grid)} has {axis} = {value}; CUDA allows at most {limit}.{why}"),
        )


def check_cluster(cluster: Dim, grid: Dim) -> None:
    """Raise UsageError for a cluster that no CUDA device launches, or that does not divide the grid."""
    if prod(cluster) > MAX_CLUSTER:
        raise UsageError(
            f"--cluster {dim_text(cluster)} has {prod(cluster)} blocks; CUDA allows {MAX_CLUSTER} a cluster, 8 on "
            "every GPU."
        )
    for axis, side, extent in zip("xyz", cluster, grid, strict=True):
        if extent % side:
            raise UsageError(
                f"--cluster {dim_text(cluster)} does not divide the grid {dim_text(grid)}: {axis} = {extent} is not a "
                f"multiple of {side}; use --grid with {axis} = {-(-extent // side) * side}, and let the blocks beyond "
                "the data do nothing."
            )


def check_memory(operation: Operation, problem: Problem) -> None:
    """Raise OutOfMemory if a problem's arrays and reference outputs together do not fit the free host memory."""
    needed = sum(buffer.nbytes * (2 if buffer.role == "out" else 1) for buffer in operation.buffers(problem))
    if needed > SURELY_FREE and needed > (free := host_memory()):
        raise OutOfMemory(
            f"{operation.name} of this size needs {needed / 1e9:.0f} GB for its arrays and reference outputs, but "
            f"this machine has {free / 1e9:.1f} GB of memory free: use {operation.smaller}."
        )


def check_shared(nbytes: int, who: str, repair: str) -> None:
    """Raise UsageError if a block would have more shared memory (`nbytes`) than any card allows.

    `who`: the start of the message, such as 'smem needs'; `repair`: its end, which says what to do.
    """
    if nbytes > MAX_SHARED:
        raise UsageError(
            f"{who} {nbytes / 1024:.0f} KiB of shared memory ({nbytes} bytes); a block has {MAX_SHARED // 1024} KiB "
            f"({MAX_SHARED} bytes) at most: {repair}."
        )
