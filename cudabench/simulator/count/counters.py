"""Counts of memory requests: sectors for global and local memory, wavefronts for shared and constant memory.

A request is one execution of a memory instruction by a warp with at least one active lane. The sectors of a request are
the distinct 32-byte sectors of memory that the active lanes access. Its ideal sectors are the number of sectors that
the same bytes would need if they were contiguous. Constant memory serves one address at a time, to all lanes that read
it (CUDA C++ Programming Guide, "Constant Memory"). Here "pieces" means sectors or wavefronts.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from cudabench.simulator.count import atomics, banks
from cudabench.simulator.count.footprint import Footprints
from cudabench.simulator.count.patterns import (
    LINE_SHIFT,
    ONE_PLACE,
    SECTOR_SHIFT,
    UNKNOWN,
    PatternExample,
    most_common_pattern,
)
from cudabench.simulator.count.requests import Cost, Steps, distinct, sorted_rows, spread, thread_steps
from cudabench.simulator.values import Array, Chunk, Key, active_warps, broadcast, different

if TYPE_CHECKING:
    from cudabench.simulator.machine import Machine
    from cudabench.simulator.plan import Plan

ArrayKey = int | tuple[int, ...]  # identifies an array, see `Counters`
NO_ARRAY = -1  # the array of accesses that belong to no array
# The costs of this many accesses are remembered, if their addresses have at most this many bytes.
MOST_KNOWN, MOST_BYTES = 256, 1 << 14
MOST_STEPS = 64  # how many executions are examined to find the step of a row
REMOTE_COUNTED = (
    "counted one request for each block of the cluster that lanes access; how hardware splits a request is unknown"
)


@dataclass(slots=True)
class Row:
    """The counts of one memory instruction on one array, split by access pattern."""

    number: int
    array: ArrayKey
    # [requests, pieces, ideal pieces] of each pattern.
    patterns: dict[PatternExample, list[int]] = field(default_factory=dict)
    reloads: int = 0  # see `report.Access`
    # The distance in bytes between a lane's addresses in consecutive executions, if it is the same in at least half of
    # the executions, otherwise 0.
    step: int = 0
    steps: Counter[int] = field(default_factory=Counter)  # how many executions had each step
    last_addresses: dict[int, int] = field(default_factory=dict)  # each lane's last address

    @property
    def totals(self) -> list[int]:
        """The sums [requests, pieces, ideal pieces] over all patterns."""
        return [*map(sum, zip(*self.patterns.values(), strict=True))]

    def record_addresses(self, row: Array, mask: Array) -> None:
        """Record the addresses of the first warp in one execution, and update the step.

        row, mask: addresses and active lanes of the warp. The step of an execution is the step of most of its lanes.
        """
        if self.steps.total() >= MOST_STEPS:
            return
        lanes = np.flatnonzero(mask)
        places = dict(zip(lanes.tolist(), row[lanes].tolist(), strict=True))
        moved = Counter(
            place - self.last_addresses[lane] for lane, place in places.items() if lane in self.last_addresses
        )
        if moved:
            self.steps[moved.most_common(1)[0][0]] += 1
            step, times = self.steps.most_common(1)[0]
            self.step = step if 2 * times >= self.steps.total() else 0
        self.last_addresses = places or self.last_addresses


def shared_cost(load: bool, how: atomics.Served | None = None) -> Cost:
    """Return the cost of a load or a store of shared memory; how: for an atomic, the result of `atomics.served`."""
    return partial(banks.cost, load=load) if how is None else partial(atomics.shared, how=how)


class Counters:
    """Counts the requests and pieces of each memory instruction, by array and pattern.

    An array is given by its slot in the address space, or by a tuple of slots if an instruction accesses several
    arrays; a shared variable is given by its number.
    """

    def __init__(self, plan: Plan, merged: Mapping[int, tuple[int, int]]) -> None:
        """merged: the memory instructions that the compiler has merged in the machine code (see `launch.run`)."""
        self.plan = plan
        self.issued = merged
        self.merged = [0] * len(plan.code.accesses)
        self.rows: dict[tuple[int, ArrayKey], Row] = {}
        self.remote: set[int] = set()  # numbers of accesses to other blocks' shared memory, see `cluster`
        self.shared_starts = [offset for _, offset, _ in plan.code.shared_names]
        # The pattern and the cost of accesses, by instruction, bytes per lane, addresses and mask.
        self.known: dict[Key | None, tuple[PatternExample, tuple[int, int, int]]] = {}
        self.footprints: Footprints | None = None  # set if the footprint of the launch is requested

    def add(
        self, number: int, requests: int, pieces: int, ideal: int, array: ArrayKey = NO_ARRAY,
        pattern: PatternExample = UNKNOWN,
    ) -> Row:  # fmt: skip
        """Add to the counts of a memory instruction on an array; return its row."""
        row = self.rows.get((number, array))
        if row is None:
            row = self.rows[number, array] = Row(number, array)
        counts = row.patterns.setdefault(pattern, [0, 0, 0])
        counts[0] += requests
        counts[1] += pieces
        counts[2] += ideal
        return row

    def count(
        self, machine: Machine, number: int, address: Array, size: int, mask: Array | None, array: ArrayKey | None,
        cost: Cost, direct: bool = False,
    ) -> None:  # fmt: skip
        """Count one execution of an instruction by the warps with active lanes.

        size: bytes per lane; mask: the active lanes, broadcasts to (blocks, threads); array: None for the shared
        variable that the first active lane accesses; direct: whether this is a load or store of each lane's own data.
        """
        chunk, warps = machine.chunk, machine.warps
        space = self.plan.code.accesses[number].space
        shift, issued = self.issued.get(number, (0, size))
        if not issued:  # the machine code makes this access as a part of another access
            self.merged[number] += warps
            return
        one_lane = issued == atomics.ONE_LANE
        address, size = address + shift, size if one_lane else issued
        lanes, on, times = spread(address, mask, chunk)
        if array is None:
            array = self.variable(lanes, on)
        if self.footprints is not None and space == "global":
            self.footprints.note(number, address, size, mask, chunk, array)
        elif self.footprints is not None and space == "constant" and address.shape[1] > 1:
            self.footprints.constants.note(lanes.reshape(-1, chunk.threads), on.reshape(-1, chunk.threads), warps)
        linear = direct and not self.by_data(number)
        moves = address.shape[1] > 1 or (linear and space == "global" and len(address) > 1)
        # In a loop, an instruction often accesses the same places again.
        key = None
        if address.nbytes <= MOST_BYTES:
            key = number, size, address.shape, address.tobytes(), mask is not None and (mask.shape, mask.tobytes())
        if (known := self.known.get(key)) is None:
            steps = _thread_steps(lanes, on, chunk) if linear and moves else None
            some = active_warps(on)
            rows, active = (lanes, on) if some.all() else (lanes[some], on[some])
            requests = len(rows)
            if one_lane or not moves:
                pattern = ONE_PLACE[round(int(np.count_nonzero(on)) / requests)]
            else:
                pattern = most_common_pattern(rows, active, size, steps)
            known = pattern, (requests, requests, 0) if one_lane else cost(rows, active, size)
            if key is not None:
                if len(self.known) == MOST_KNOWN:
                    self.known.clear()
                self.known[key] = known
        pattern, (pieces, ideal, reloads) = known
        row = self.add(number, warps, pieces * times, ideal * times, array, pattern)
        row.reloads += reloads * times
        if moves and direct and space == "global":
            row.record_addresses(lanes[0], on[0])

    def by_data(self, number: int) -> bool:
        """Return whether the addresses of a memory instruction depend on data."""
        return self.plan.code.accesses[number].location.ptx_line in self.plan.flow.data_dependent_addresses

    def variable(self, addresses: Array, on: Array) -> int:
        """Return the number of the shared variable that the first active lane accesses."""
        return max(0, bisect_right(self.shared_starts, int(addresses[on][0])) - 1)

    def cluster(
        self, number: int, rows: Array, offset: Array, size: int, on: Array, chunk: Chunk, load: bool,
        how: atomics.Served | None = None,
    ) -> None:  # fmt: skip
        """Count one execution of an access to the shared memory of a cluster's blocks.

        If the lanes of a warp access several blocks, the pieces are counted as for one request to each block. rows: the
        block of the chunk that each lane accesses; offset: the byte offset in its shared memory; on: the active lanes;
        all of shape (blocks, threads). how: for an atomic, the result of `atomics.served`.
        """
        if not on.any():
            return
        self.remote.add(number)
        cost = shared_cost(load, how)
        distance, lanes = rows - np.arange(chunk.blocks).reshape(-1, 1), offset.reshape(-1, 32)
        parts = [cost(lanes, (on & (distance == block)).reshape(-1, 32), size) for block in different(distance[on])]
        pieces, ideal, _ = map(sum, zip(*parts, strict=True))
        some = active_warps(on)
        lanes, on = lanes[some], on.reshape(-1, 32)[some]
        self.add(number, len(on), pieces, ideal, self.variable(lanes, on), most_common_pattern(lanes, on, size))

    def wide_copy(self, number: int, source: Array, target: Array, mask: Array | None, chunk: Chunk) -> None:
        """Add the sectors that an asynchronous copy of 16 bytes per lane requests twice.

        source, target: the addresses of the lanes; other arguments as for `count`.

        For each 128-byte line of global memory, such a copy requests as many sectors as there are sectors of shared
        memory that receive the line's bytes. These may be more sectors than the copy reads: for example, if rows of
        shared memory are padded by 16 bytes or begin in the middle of a sector. The counts were checked on an H200
        (benchmarks/results/counts_h200.md).
        """
        # The sector of shared memory fits in the lower 20 bits.
        filled = (source >> LINE_SHIFT) << 20 | target >> SECTOR_SHIFT
        copied, read = (
            int(distinct(sorted_rows(*spread(broadcast(place, chunk.shape), mask, chunk)[:2])).sum())
            for place in (filled, source >> SECTOR_SHIFT)
        )
        extra = copied - read
        row = next((row for (access, _), row in self.rows.items() if access == number), None)
        if extra and row is not None:
            next(iter(row.patterns.values()))[1] += extra


def _thread_steps(lanes: Array, on: Array, chunk: Chunk) -> Steps | None:
    """Return `thread_steps` of the first block with an active lane; lanes, on: see `spread`."""
    lanes, on = lanes.reshape(-1, chunk.threads), on.reshape(-1, chunk.threads)
    block = int(on.any(axis=1).argmax())
    active = np.flatnonzero(on[block])
    index = np.stack([axis[0, active] for axis in chunk.axes[:3]], axis=1)
    return thread_steps(index, lanes[block, active])
