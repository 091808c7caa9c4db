"""Counts the instructions of each block of a launch, to find blocks that have much more work than the other blocks."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from cudabench.simulator.report import Imbalance, Index
from cudabench.simulator.values import Array, Chunk, active_warps

if TYPE_CHECKING:
    from cudabench.simulator.program.code import Code

LEAST_BLOCKS = 8  # grids with fewer blocks are not examined
MORE = 1.5  # a block has much more work if it executes at least this multiple of the mean
LEAST_MORE = 50  # smaller differences to the mean, in instructions per warp, do not matter
LATE = 0.75  # blocks after this share of the grid's blocks are among the last to start
MOST = 8 << 20  # the largest number of counts in the table


class Shares:
    """The PTX warp instructions that each block of the grid executes, split by basic block of the code.

    `table`: the counts, int64, of shape (basic blocks, blocks of the grid in the order in which they run).
    `number`: for each column of `table`, the number of the block in the grid.
    """

    def __init__(self, code: Code, table: Array, number: Array) -> None:
        self.code, self.table, self.number = code, table, number
        self.here = slice(0, 0)

    @classmethod
    def empty(cls, code: Code, blocks: int) -> Shares:
        """Return a record without counts; blocks: how many blocks the grid has."""
        return cls(code, np.zeros((len(code.blocks), blocks), np.int64), np.zeros(blocks, np.int64))

    @staticmethod
    def fit(code: Code, blocks: int) -> bool:
        """Return whether a grid has enough blocks to compare, but not so many that the table gets too large."""
        return blocks >= LEAST_BLOCKS and len(code.blocks) * blocks <= MOST

    def start(self, numbers: Array) -> None:
        """Begin a chunk; numbers: the numbers of its blocks in the grid."""
        self.here = slice(self.here.stop, self.here.stop + len(numbers))
        self.number[self.here] = numbers

    def add(self, block: int, weight: int, mask: Array | None, chunk: Chunk) -> None:
        """Count one execution of a basic block, which has `weight` instructions, by each warp with an active lane."""
        if mask is None:
            warps: int | Array = chunk.warps
        elif mask.shape[1] == 1:
            warps = mask[:, 0] * chunk.warps
        else:
            warps = active_warps(mask).reshape(len(mask), -1).sum(axis=1)
        self.table[block, self.here] += weight * warps

    def alike(self) -> bool:
        """Return whether each block executes each basic block of the code equally often."""
        return bool((self.table == self.table[:, :1]).all())

    def imbalance(self, grid: Index) -> Imbalance | None:
        """Return the imbalance of the launch, or None if no block has much more work than the others."""
        per_block = self.table.sum(axis=0)
        blocks, busiest = len(per_block), int(per_block.argmax())
        most = int(per_block[busiest])
        if most < MORE * per_block.mean():
            return None
        # Leave out blocks that access no memory: in a grid that is larger than the data, they return at once.
        touch = {access.location.ptx_line for access in self.code.accesses}
        touching = [block.number for block in self.code.blocks if not touch.isdisjoint(block.lines)]
        working = self.table[touching].any(axis=0)
        if np.count_nonzero(working) < LEAST_BLOCKS:
            return None
        mean = float(per_block[working].mean())
        warps = max(1, int(self.table[0, busiest]) // max(1, self.code.blocks[0].weight))
        if most < MORE * mean or most - mean < LEAST_MORE * warps:
            return None
        over = self.number[per_block >= MORE * mean]
        number = int(self.number[busiest])
        (file, line), share = self._heaviest_line(busiest, working)
        return Imbalance(
            file, line, blocks, (number % grid[0], number // grid[0] % grid[1], number // grid[0] // grid[1]),
            most, mean, len(over), bool(over.min() >= LATE * blocks), share,
        )  # fmt: skip

    def _heaviest_line(self, busiest: int, working: Array) -> tuple[tuple[str, int], float]:
        """Return the source line that contributes most to the busiest block's instructions above the mean.

        Also return the share of this line in these instructions.
        """
        beyond = self.table[:, busiest] - self.table[:, working].mean(axis=1)
        lines: Counter[tuple[str, int]] = Counter()
        for block in self.code.blocks:
            for op in block.every:
                lines[self.code.files.get(op.line.file, ""), op.line.line] += beyond[block.number] / block.weight
        place, instructions = lines.most_common(1)[0]
        return place, float(instructions) / float(beyond.sum())
