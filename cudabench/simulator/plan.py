"""Plans: data that all launches of one kernel with the same grid and block share, so that many small launches are fast.

A plan contains the division of the grid into chunks. It does not depend on the contents of the launch's arrays.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from cudabench.simulator.count.order import control_flow_of
from cudabench.simulator.program.code import Code
from cudabench.simulator.schedule import Schedule
from cudabench.simulator.values import Chunk, Index3

CHUNK_LANES = 131072  # the largest number of lanes in a chunk
CHUNK_BYTES = 1 << 25  # the largest shared memory of a chunk, in bytes; its local memory may be twice as large
SPLIT_LANES = 16384  # in a grid with more lanes, the blocks at the edges have separate chunks, see `boxes`
RECURSIVE_LANES = 16384  # the largest number of lanes in a chunk of a recursive kernel, where each call saves registers
TRACED_BLOCKS = 256  # the largest number of blocks in a chunk if each single access is recorded
MOST_PLANS = 128
SAMPLE_RUN = 4  # a sample consists of runs of neighbouring blocks, and each run has at least this many blocks
SAMPLE_RUNS = 16  # the largest number of runs in a sample
GOLDEN = 0.6180339887498949  # the golden ratio - 1: any number of its multiples, modulo 1, is spread evenly


class Plan:
    """The plan for one kernel, grid, block and amount of dynamic shared memory.

    `chunks`: (origin, chunk) of each box of the grid, in the order in which they run; boxes of the same extent share a
    chunk.
    """

    def __init__(
        self, code: Code, grid: Index3, block: Index3, dynamic_shared: int, traced: bool, sample: int | None = None,
        cluster: Index3 | None = None, schedule: Schedule | None = None, resident: tuple[str, int] | None = None,
    ) -> None:  # fmt: skip
        """traced: whether single accesses are recorded. sample: about how many blocks run, None for all. cluster: the
        shape of a cluster, whose blocks run together. schedule: the order of the blocks, None for the default.
        resident: (a card, how many of the blocks it holds at once), None if this is not known."""
        self.code, self.grid, self.block, self.dynamic_shared = code, grid, block, dynamic_shared
        self.cluster = cluster
        # Only blocks that wait for others notice how many blocks run at once.
        self.resident = resident if code.polling else None
        self.prepared: Any = None  # data that the native engine keeps, see `native.launch.PreparedLaunch`
        self.accesses_padding = False  # whether a launch accessed the padding after an allocation
        self.flow = control_flow_of(code)
        static = code.static_shared
        padded = -(-static // 16) * 16 + dynamic_shared
        self.shared_size = padded if code.dynamic or dynamic_shared else static
        self.chunks = self._chunks(traced, sample)
        self.schedule = schedule
        if schedule is not None:
            self.chunks = schedule.arrange(self.chunks, bool(code.polling), cluster is None)
        self.blocks = sum(chunk.blocks for _, chunk in self.chunks)

    def _chunks(self, traced: bool, sample: int | None) -> list[tuple[Index3, Chunk]]:
        lanes = -(-math.prod(self.block) // 32) * 32
        total = math.prod(self.grid)
        if self.code.cooperative:
            return [((0, 0, 0), Chunk(self.grid, self.block, (0, 0, 0), self.grid))]
        most = (RECURSIVE_LANES if self.code.recursive else CHUNK_LANES) // lanes
        limit = min(
            most if self.resident is None else self.resident[1],
            CHUNK_BYTES // max(1, self.shared_size),
            2 * CHUNK_BYTES // max(1, self.code.local_bytes * lanes),
            TRACED_BLOCKS if traced else total,
        )
        chunks: dict[Index3, Chunk] = {}
        placed = []
        # A cluster is never divided between chunks: from here on, the unit of the grid is a cluster, not a block.
        sides = self.cluster or (1, 1, 1)
        cluster_size = math.prod(sides)
        grid = (self.grid[0] // sides[0], self.grid[1] // sides[1], self.grid[2] // sides[2])
        limit = max(1, limit // cluster_size)
        if sample is not None and sample < total:
            pieces = sampled(grid, limit, max(1, sample // cluster_size))
        else:
            pieces = boxes(grid, limit, total * lanes > SPLIT_LANES and not self.code.polling)
        for place, count in pieces:
            origin = (place[0] * sides[0], place[1] * sides[1], place[2] * sides[2])
            extent = (count[0] * sides[0], count[1] * sides[1], count[2] * sides[2])
            if extent not in chunks:
                chunks[extent] = Chunk(self.grid, self.block, origin, extent)
            placed.append((origin, chunks[extent]))
        return placed


def boxes(grid: Index3, limit: int, edges: bool) -> Iterator[tuple[Index3, Index3]]:
    """Yield (origin, extent) of boxes of at most `limit` blocks that tile the grid.

    With `edges` the last column and the last row of blocks are in separate boxes. If the problem size is not a multiple
    of the block, only blocks in these boxes have threads out of range, and these are the same threads in all blocks of
    a box.
    """

    def ranges(count: int) -> list[tuple[int, int]]:
        return [(0, count - 1), (count - 1, count)] if edges and count > 1 else [(0, count)]

    for bottom, top in ranges(grid[1]):
        for left, right in ranges(grid[0]):
            x = min(right - left, limit)
            y = min(top - bottom, max(1, limit // x)) if x == right - left else 1
            z = min(grid[2], max(1, limit // (x * y))) if x == right - left and y == top - bottom else 1
            for bz in range(0, grid[2], z):
                for by in range(bottom, top, y):
                    for bx in range(left, right, x):
                        yield (bx, by, bz), (min(x, right - bx), min(y, top - by), min(z, grid[2] - bz))


def sampled(grid: Index3, limit: int, count: int) -> Iterator[tuple[Index3, Index3]]:
    """Yield (origin, extent) of runs of neighbouring blocks, spread evenly over a grid.

    A run has at most `limit` blocks. The runs have about `count` blocks in total, and no block is in two of them.
    """
    total = math.prod(grid)
    runs = max(1, min(SAMPLE_RUNS, count // SAMPLE_RUN))
    length = max(1, min(count // runs, limit))
    end = 0
    for start in sorted(int((run + 0.5) * GOLDEN % 1 * (total - length)) for run in range(runs)):
        start, end = max(start, end), min(max(start, end) + length, total)
        while start < end:
            x, rest = start % grid[0], start // grid[0]
            width = min(end - start, grid[0] - x)
            yield (x, rest % grid[1], rest // grid[1]), (width, 1, 1)
            start += width
