"""Counts of memory requests: sectors for global and local memory, wavefronts for shared and constant memory.

A request is one execution of a memory instruction by a warp with at least one active lane. The sectors of a request are
the distinct 32-byte sectors of memory that the active lanes access. Its ideal sectors are the number of sectors that
the same bytes would need if they were contiguous. Constant memory serves one address at a time, to all lanes that read
it (CUDA C++ Programming Guide, "Constant Memory"). Here "pieces" means sectors or wavefronts.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from cudabench.simulator.count import atomics, banks
from cudabench.simulator.count.footprint import Footprints
from cudabench.simulator.count.patterns import (
    BROADCAST,
    LINE_SHIFT,
    ONE_PLACE,
    SECTOR_SHIFT,
    UNKNOWN,
    PatternExample,
    most_common_pattern,
)
from cudabench.simulator.count.requests import (
    LANES,
    active,
    distinct,
    rows_of,
    sectors,
    spread,
    thread_steps,
)
from cudabench.simulator.values import Array, Chunk, different

if TYPE_CHECKING:
    from cudabench.simulator.plan import Plan

ArrayKey = int | tuple[int, ...]  # identifies an array, see `Counters`
NO_ARRAY = -1  # the array of accesses that belong to no array
MOST_STEPS = 64  # how many executions are examined to find the step of a row
ALWAYS_SEEN = 8  # the pattern is computed in each of the first executions of an instruction, up to this number
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
    first: int | None = None  # the address of the first lane in the first execution
    last: int = 0  # the address of the first lane in the last execution
    # The distance in bytes between the first lane's addresses in consecutive executions; the smallest one that
    # occurred.
    step: int = 0
    # For data-dependent addresses: how many executions had each step.
    steps: Counter[int] = field(default_factory=Counter)
    # For data-dependent addresses: each lane's last address.
    last_addresses: dict[int, int] = field(default_factory=dict)

    @property
    def totals(self) -> list[int]:
        """The sums [requests, pieces, ideal pieces] over all patterns."""
        return [*map(sum, zip(*self.patterns.values(), strict=True))]

    def record_address(self, place: int) -> None:
        """Record the first lane's address in one execution, and update the step."""
        if self.first is None:
            self.first = place
        elif place != self.last:
            self.step = min(self.step or place - self.last, place - self.last, key=abs)
        self.last = place

    def record_addresses(self, row: Array, mask: Array | None) -> None:
        """Record the data-dependent addresses of the first warp in one execution, and update the step.

        row, mask: addresses and active lanes of at least the first block. The step of an execution is the step of most
        of its lanes. The step of the row is the step of most executions, or 0 if no step occurs in at least half of the
        executions.
        """
        if self.steps.total() >= MOST_STEPS:
            return
        lanes = np.arange(LANES) if mask is None else np.flatnonzero(mask[:LANES])
        places = dict(zip(lanes.tolist(), row[lanes].tolist(), strict=True))
        moved = Counter(
            place - self.last_addresses[lane] for lane, place in places.items() if lane in self.last_addresses
        )
        if moved:
            self.steps[moved.most_common(1)[0][0]] += 1
            step, times = self.steps.most_common(1)[0]
            self.step = step if 2 * times >= self.steps.total() else 0
        self.last_addresses = places or self.last_addresses


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
        # For each memory instruction and array: how often its pattern was asked for, and its last pattern.
        self.seen: dict[tuple[int, ArrayKey], tuple[int, PatternExample]] = {}
        self.rows: dict[tuple[int, ArrayKey], Row] = {}
        self.remote: set[int] = set()  # numbers of accesses to other blocks' shared memory, see `cluster`
        self.shared_starts = [offset for _, offset, _ in plan.code.shared_names]
        self.footprints: Footprints | None = None  # set if the footprint of the launch is requested

    def add(
        self,
        number: int,
        requests: int,
        pieces: int,
        ideal: int,
        array: ArrayKey = NO_ARRAY,
        pattern: PatternExample = UNKNOWN,
    ) -> Row:
        """Add to the counts of a memory instruction on an array; return its row."""
        row = self.rows.get((number, array))
        if row is None:
            row = self.rows[number, array] = Row(number, array)
        counts = row.patterns.setdefault(pattern, [0, 0, 0])
        counts[0] += requests
        counts[1] += pieces
        counts[2] += ideal
        return row

    def recent_pattern(
        self, number: int, array: ArrayKey, find: Callable[[], PatternExample], always: bool = False
    ) -> PatternExample:
        """Return the pattern of an execution of an instruction on an array.

        `find` computes the pattern in the first executions, then only in the executions with number 2^k (or, with
        `always`, in all); other executions get the pattern that was computed last.
        """
        times, pattern = self.seen.get((number, array), (0, UNKNOWN))
        times += 1
        if always or times <= ALWAYS_SEEN or not times & (times - 1):
            pattern = find()
        self.seen[number, array] = times, pattern
        return pattern

    def as_issued(self, number: int, address: Array, size: int, warps: int) -> tuple[Array, int]:
        """Return the addresses and the bytes per lane that an access has in the machine code.

        The bytes are 0 if the machine code makes the access as a part of another access.
        """
        if number not in self.issued:
            return address, size
        shift, size = self.issued[number]
        if not size:
            self.merged[number] += warps
        return address + shift, size

    def global_(
        self, number: int, address: Array, size: int, mask: Array | None, warps: int, chunk: Chunk, array: ArrayKey
    ) -> None:
        """Count one execution of a load or store of global memory.

        size: bytes per lane; mask: the active lanes, broadcasts to (blocks, threads); warps: the number of requests.
        """
        address, size = self.as_issued(number, address, size, warps)
        if not size:
            return
        if self.footprints is not None:
            self.footprints.note(number, address, size, mask, chunk, array)
        if address.shape[1] == 1 and (len(address) == 1 or self.by_data(number)):
            self.count_single_address(number, array, mask, warps, chunk)
            return
        rows, on, times = spread(address, mask, chunk)
        pieces, ideal = sectors(rows, size, on)
        seen = self.pattern_of(number, array, rows, on, size, chunk)
        row = self.add(number, warps, pieces * times, ideal * times, array, seen)
        if seen.pattern.axes is None:
            row.record_addresses(rows[0], None if on is None else on[0])
        elif on is None or on[0].any():
            lane = 0 if on is None else int(on[0].argmax())
            row.record_address(int(rows[0, lane]) - int(np.dot(seen.pattern.axes, chunk.thread_index(lane))))

    def single_address_pattern(
        self, number: int, array: ArrayKey, mask: Array | None, warps: int, chunk: Chunk
    ) -> PatternExample:
        """Return the pattern of lanes that all access one address; it depends on the number of active lanes."""
        if mask is None or mask is chunk.root:
            return BROADCAST

        def find() -> PatternExample:
            return ONE_PLACE[min(32, max(1, round(active(mask, chunk)[1] / max(warps, 1))))]

        return self.recent_pattern(number, array, find)

    def count_single_address(
        self, number: int, array: ArrayKey, mask: Array | None, warps: int, chunk: Chunk, pieces: int | None = None
    ) -> None:
        """Count one execution whose lanes all access one address; pieces: by default one per warp."""
        seen = self.single_address_pattern(number, array, mask, warps, chunk)
        self.add(number, warps, warps if pieces is None else pieces, warps, array, seen)

    def by_data(self, number: int) -> bool:
        """Return whether the addresses of a memory instruction depend on data."""
        return self.plan.code.accesses[number].location.ptx_line in self.plan.flow.data_dependent_addresses

    def pattern_of(
        self, number: int, array: ArrayKey, rows: Array, mask: Array | None, size: int, chunk: Chunk | None = None,
        always: bool = False,
    ) -> PatternExample:  # fmt: skip
        """Return the pattern of addresses of shape (blocks, threads); see `recent_pattern`.

        chunk: if given, the pattern tells whether the addresses are linear in threadIdx.
        """

        def find() -> PatternExample:
            axes = None
            if chunk is not None and not self.by_data(number):
                block = 0 if mask is None else int(mask.any(axis=1).argmax())
                lanes = np.arange(chunk.threads) if mask is None else np.flatnonzero(mask[block])
                index = np.stack([axis[0, lanes] for axis in chunk.axes[:3]], axis=1)
                axes = thread_steps(index, rows[block, lanes]) if len(lanes) else None
            return most_common_pattern(
                rows.reshape(-1, LANES), None if mask is None else mask.reshape(-1, LANES), size, axes
            )

        return self.recent_pattern(number, array, find, always)

    def variable(self, address: Array, mask: Array | None) -> int:
        """Return the number of the shared variable that the first active lane accesses."""
        if len(self.shared_starts) < 2:
            return 0
        block, thread = divmod(0 if mask is None else int(mask.argmax()), 1 if mask is None else mask.shape[1])
        place = int(address[block if address.shape[0] > 1 else 0, thread if address.shape[1] > 1 else 0])
        return max(0, bisect_right(self.shared_starts, place) - 1)

    def shared(
        self, number: int, address: Array, size: int, mask: Array | None, warps: int, chunk: Chunk, load: bool
    ) -> None:
        """Count one execution of an access to shared memory; arguments as for `global_`; load: whether it is a load."""
        address, size = self.as_issued(number, address, size, warps)
        if not size:
            return
        array = self.variable(address, mask)
        # If all lanes access one word, the access takes one wavefront. If the access is wider than a word, it takes one
        # wavefront for each group of lanes (see `banks`) that has an active lane.
        if address.shape[1] == 1 and size <= banks.WORD:
            self.count_single_address(number, array, mask, warps, chunk)
            return
        rows, on, times = spread(address, mask, chunk)
        wavefronts, ideal = banks.both(
            rows.reshape(-1, LANES), size, None if on is None else on.reshape(-1, LANES), load=load
        )
        seen = self.pattern_of(number, array, rows, on, size, chunk, always=len(rows) == 1)
        self.add(number, warps, int(wavefronts.sum()) * times, int(ideal.sum()) * times, array, seen)

    def shared_atomic(
        self, number: int, address: Array, size: int, mask: Array | None, warps: int, chunk: Chunk, how: atomics.Served
    ) -> None:
        """Count one execution of an atomic on shared memory.

        Arguments as for `global_`; how: the result of `atomics.served`.
        """
        array = self.variable(address, mask)
        if number in self.issued:
            self.count_single_address(number, array, mask, warps, chunk)
            return
        rows, on, times = spread(address, mask, chunk)
        cost = atomics.shared(rows.reshape(-1, LANES), size, None if on is None else on.reshape(-1, LANES), how)
        if address.shape[1] == 1:
            seen = self.single_address_pattern(number, array, mask, warps, chunk)
        else:
            seen = self.pattern_of(number, array, rows, on, size)
        row = self.add(number, warps, (cost.wavefronts + cost.reloads) * times, cost.ideal * times, array, seen)
        row.reloads += cost.reloads * times

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
        distance = rows - np.arange(chunk.blocks).reshape(-1, 1)
        pieces = ideal = 0
        for block in different(distance[on]):
            lanes = (on & (distance == block)).reshape(-1, 32)
            occupied = lanes.any(axis=1)
            places = offset.reshape(-1, 32)[occupied]
            if how is None:
                taken, best = banks.both(places, size, lanes[occupied], load=load)
                pieces, ideal = pieces + int(taken.sum()), ideal + int(best.sum())
            else:
                cost = atomics.shared(places, size, lanes[occupied], how)
                pieces, ideal = pieces + cost.wavefronts + cost.reloads, ideal + cost.ideal
        array = self.variable(offset, on)
        requests = int(np.count_nonzero(on.reshape(-1, 32).any(axis=1)))
        self.add(number, requests, pieces, ideal, array, self.pattern_of(number, array, offset, on, size))

    def global_atomic(
        self, number: int, address: Array, size: int, mask: Array | None, warps: int, chunk: Chunk, array: ArrayKey
    ) -> None:
        """Count one execution of an atomic on global memory; arguments as for `global_`."""
        if self.footprints is not None:
            self.footprints.note(number, address, size, mask, chunk, array)
        if number in self.issued:
            self.count_single_address(number, array, mask, warps, chunk)
            return
        if address.shape[1] == 1:
            self.count_single_address(number, array, mask, warps, chunk, active(mask, chunk)[1])
            return
        rows, mask, times = spread(address, mask, chunk)
        pieces, ideal = atomics.sectors(rows.reshape(-1, 32), size, None if mask is None else mask.reshape(-1, 32))
        self.add(number, warps, pieces * times, ideal * times, array, self.pattern_of(number, array, rows, mask, size))

    def wide_copy(self, number: int, source: Array, target: Array, mask: Array | None, chunk: Chunk) -> None:
        """Add the sectors that an asynchronous copy of 16 bytes per lane requests twice.

        source, target: the addresses of the lanes; other arguments as for `global_`.

        For each 128-byte line of global memory, such a copy requests as many sectors as there are sectors of shared
        memory that receive the line's bytes. These may be more sectors than the copy reads: for example, if rows of
        shared memory are padded by 16 bytes or begin in the middle of a sector. The counts were checked on an H200
        (benchmarks/results/counts_h200.md).
        """
        sources, on, times = spread(np.broadcast_to(source, chunk.shape), mask, chunk)
        lanes = rows_of(sources, on)
        if not len(lanes):
            return
        into = rows_of(np.broadcast_to(target, chunk.shape), on) >> SECTOR_SHIFT
        # The sector of shared memory fits in the lower 20 bits.
        copied = int(distinct((lanes >> LINE_SHIFT) << 20 | into).sum())
        extra = copied - int(distinct(lanes >> SECTOR_SHIFT).sum())
        row = next((row for (access, _), row in self.rows.items() if access == number), None)
        if extra and row is not None:
            next(iter(row.patterns.values()))[1] += extra * times

    def constant(
        self, number: int, address: Array, size: int, mask: Array | None, warps: int, chunk: Chunk, array: ArrayKey
    ) -> None:
        """Count one execution of a load from constant memory: each distinct address of a warp takes a wavefront.

        Arguments as for `global_`.
        """
        if address.shape[1] == 1:
            self.count_single_address(number, array, mask, warps, chunk)
            return
        rows, mask, times = spread(address, mask, chunk)
        if self.footprints is not None:
            self.footprints.constants.note(rows, mask, warps)
        lanes = rows_of(rows, mask)
        pieces = int(distinct(lanes).sum()) * times if len(lanes) else 0
        self.add(number, warps, pieces, warps, array, self.pattern_of(number, array, rows, mask, size))
