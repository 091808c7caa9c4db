"""The instructions of each block of a launch, by basic block of the code: which blocks have more work than others."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from cudabench.simulator.count.requests import warp_bits
from cudabench.simulator.report import Imbalance, Index
from cudabench.simulator.values import Array, Chunk

if TYPE_CHECKING:
    from cudabench.simulator.program.code import Code

LEAST_BLOCKS = 8  # of a grid: fewer are not compared
MORE = 1.5  # times the mean: a block with more work than the others
LEAST_MORE = 50  # instructions of a warp above the mean: fewer do not matter
LATE = 0.75  # share of a grid's blocks: later ones are among the last to start
MOST = 8 << 20  # counts that are kept


class Shares:
    """Warp instructions of PTX, int64 (basic blocks of the code, blocks of the grid in the order in which they run).

    Blocks run in chunks; `number` has the place of each in the grid.
    """

    def __init__(self, code: Code, blocks: int) -> None:
        """`blocks`: of the grid, all of which run."""
        self.code = code
        self.table = np.zeros((len(code.blocks), blocks), np.int64)
        self.number = np.zeros(blocks, np.int64)
        touch = {access.location.ptx_line for access in code.accesses}
        self.touching = [block.number for block in code.blocks if not touch.isdisjoint(block.lines)]
        self.here = slice(0, 0)

    @staticmethod
    def fit(code: Code, blocks: int) -> bool:
        """Return whether there are enough blocks to compare, and their counts are few enough to keep."""
        return blocks >= LEAST_BLOCKS and len(code.blocks) * blocks <= MOST

    def start(self, numbers: Array) -> None:
        """Begin a chunk of blocks with these places in the grid."""
        self.here = slice(self.here.stop, self.here.stop + len(numbers))
        self.number[self.here] = numbers

    def add(self, block: int, weight: int, mask: Array | None, chunk: Chunk) -> None:
        """Count a basic block of `weight` instructions for the warps that have active lanes."""
        if mask is None:
            warps: int | Array = chunk.warps
        elif mask.shape[1] == 1:
            warps = mask[:, 0] * chunk.warps
        else:
            warps = warp_bits(mask)[0].reshape(len(mask), -1).sum(axis=1)
        self.table[block, self.here] += weight * warps

    def take(self, table: Array, number: Array) -> None:
        """Take counts of another engine, and the places of the blocks in the grid."""
        self.table, self.number = table, number

    def imbalance(self, grid: Index) -> Imbalance | None:
        """Return the imbalance of the launch, None if no block has much more work than the others."""
        per_block = self.table.sum(axis=0)
        blocks, busiest = len(per_block), int(per_block.argmax())
        most = int(per_block[busiest])
        working = self.table[self.touching].any(axis=0)  # others return at once: a grid may be larger than needed
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
        """Return the source line with most of a block's instructions beyond the mean, and its share of these."""
        beyond = self.table[:, busiest] - self.table[:, working].mean(axis=1)
        lines: Counter[tuple[str, int]] = Counter()
        for block in self.code.blocks:
            for op in block.every:
                lines[self.code.files.get(op.line.file, ""), op.line.line] += beyond[block.number] / block.weight
        place, instructions = lines.most_common(1)[0]
        return place, float(instructions) / float(beyond.sum())
