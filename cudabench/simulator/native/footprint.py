"""The footprint of a launch as the native engine records it; `count.footprint` explains what is counted."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cudabench.simulator.count.footprint import CONSTANT_SHIFT, MOST_EXAMINED, ConstantLines, footprint_of
from cudabench.simulator.native.layout import CONSTANT_REQUEST, SUMS
from cudabench.simulator.report import Footprint
from cudabench.simulator.values import Array, changes

if TYPE_CHECKING:
    from cudabench.simulator.memory import AddressSpace
    from cudabench.simulator.plan import Plan


class Traces(NamedTuple):
    """The native engine's records about the memory that a launch accesses."""

    # How many sectors of each region are read and written, of shape (regions, 2); negative if the region was not
    # accessed.
    sectors: Array
    sums: Array  # records of `layout.SUMS` for the followed blocks, of shape (memory instructions, arrays)
    instructions: Array  # how many warp instructions each block executes
    constants: Array  # the requests for constants that were kept, as records of `layout.CONSTANT_REQUEST`
    requests: int  # how many requests for constants there were in all

    def footprint(
        self, plan: Plan, space: AddressSpace, counts: Array, counted: Mapping[tuple[int, Any], Sequence[int]],
        followed: Array, chunks: Array,
    ) -> Footprint:  # fmt: skip
        """Return the footprint of the launch.

        counts: records of `layout.COUNTS`, of shape (memory instructions, arrays). counted: as for
        `Footprints.footprint`. followed: for each block, whether it was followed. chunks: the first block of each
        chunk.
        """
        blocks, names = len(followed), SUMS.names or ()
        sums = {}
        went = counts["requests"] + counts["beside"]
        every = self.sums.view(np.int64).reshape(*self.sums.shape, len(names)).sum(axis=1)
        for number in np.flatnonzero(self.sums["requests"].any(axis=1)).tolist():
            places = tuple(np.flatnonzero(went[number]).tolist())
            of = dict(zip(names, map(float, every[number].tolist()), strict=True))
            of["cycles"] /= 4
            sums[number, places if len(places) > 1 else places[0]] = of
        read, written = (
            {slot: sectors for slot, sectors in enumerate(of) if sectors >= 0} for of in self.sectors.T.tolist()
        )
        sizes = np.diff(chunks, append=blocks).tolist()
        parts = tuple(zip(sizes, np.add.reduceat(self.instructions, chunks).tolist(), strict=True))
        warps = -(-math.prod(plan.block) // 32)
        lines = _fetched(self.constants, self.requests, chunks, warps, blocks) if len(self.constants) else 0.0
        return footprint_of(
            space, plan.code.accesses, counted, sums, read, written, math.prod(plan.grid), blocks,
            int(np.count_nonzero(followed)), parts, lines,
        )  # fmt: skip


def traces(library: Any, handle: Any, counts: Array, blocks: int, regions: int) -> Traces:
    """Return the engine's records about a launch that has ended; counts: as for `Traces.footprint`."""
    sectors, sums = np.zeros((regions, 2), np.int64), np.zeros(counts.shape, SUMS)
    instructions, requests = np.zeros(blocks, np.int64), ctypes.c_int64()
    library.cudabench_footprint.restype = ctypes.c_int64
    logged = library.cudabench_footprint(
        handle, *(ctypes.c_void_p(array.ctypes.data) for array in (sectors, sums, instructions)), ctypes.byref(requests)
    )
    log = np.zeros(logged, CONSTANT_REQUEST)
    library.cudabench_constant_requests(handle, ctypes.c_void_p(log.ctypes.data))
    return Traces(sectors, sums, instructions, log, requests.value)


def _fetched(log: Array, requests: int, chunks: Array, warps: int, blocks: int) -> float:
    """Return the least number of constant lines that were fetched, estimated from the recorded requests.

    log: the recorded requests; requests: how many requests there were in all; warps: warps per block. See
    `ConstantLines`.
    """
    chunk = np.searchsorted(chunks, log["place"], "right") - 1
    order = np.lexsort((log["warp"], log["place"], log["step"], chunk))
    log, chunk = log[order], chunk[order]
    lines = ConstantLines()
    starts = np.flatnonzero(changes(chunk, log["step"]))[:MOST_EXAMINED] if len(log) else ()
    for start in starts:
        step = log[(chunk == chunk[start]) & (log["step"] == log["step"][start])]
        first, end = [*chunks.tolist(), blocks][chunk[start] : chunk[start] + 2]
        rows = _of_one_block(step, first)
        if rows is None:
            stride = max(1, (end - first) * warps // MOST_EXAMINED)
            rows = step[((step["place"] - first) * warps + step["warp"]) % stride == 0]
        on = (rows["mask"][:, None] >> np.arange(32, dtype=np.uint32) & 1).astype(np.bool_)
        lines.note((rows["lines"].astype(np.int64) << CONSTANT_SHIFT).reshape(1, -1), on.reshape(1, -1), 0)
    lines.requests = requests
    return lines.fetched()


def _of_one_block(step: Array, first: int) -> Array | None:
    """Return the requests of the chunk's first block if all other blocks have the same requests, otherwise None.

    The NumPy engine examines only one block in this case, too. first: the number of the first block.
    """
    here = step["place"] == first
    own = {int(row["warp"]): (row["mask"], row["lines"].tobytes()) for row in step[here]}
    others = step[~here]
    same = all(own.get(int(row["warp"])) == (row["mask"], row["lines"].tobytes()) for row in others)
    return step[here] if same else None
