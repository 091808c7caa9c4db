"""The device's heap, from which malloc and new in kernels allocate, with checks of the accesses to it.

Its size is the default of cudaLimitMallocHeapSize, 8 MiB. It lasts as long as the program, from one launch to the next.
Unallocated bytes separate allocations, and freed memory is reused only if there is no other memory, so that accesses
past the end and after a free are found.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cudabench.simulator.check.hazards import VERBS
from cudabench.simulator.memory import Region
from cudabench.simulator.values import Array, broadcast

if TYPE_CHECKING:
    from cudabench.simulator.isa.access import MemoryOp
    from cudabench.simulator.machine import Machine

HEAP_BYTES = 8 << 20
GRAIN = 16  # malloc's alignment (CUDA C++ Programming Guide, "Dynamic Global Memory Allocation and Operations")
GAP = 16  # unallocated bytes behind each allocation
UNWRITTEN = 0xFF  # each byte of memory from malloc: NaN as a float
PLACED = "where on the heap malloc puts what it gives, the driver decides"
UNALLOCATED, LIVE, FREED = range(3)


class Allocation(NamedTuple):
    """An allocation: its bytes and the line of its malloc; freed: the line that freed it, or None."""

    size: int
    line: int
    freed: int | None = None


class Leak(NamedTuple):
    """The allocations of one line that were never freed: their number and total bytes."""

    line: int
    allocations: int
    bytes: int


class Heap:
    """The heap of a program, empty at first."""

    def __init__(self) -> None:
        self._data: Array = None
        self.clear()

    def clear(self) -> None:
        """Free all allocations."""
        if self._data is not None:
            self._data.fill(UNWRITTEN)
            self._state.fill(UNALLOCATED)
        self._end = 0  # of all memory that was ever allocated
        self._allocations: dict[int, Allocation] = {}

    def place(self, base: int) -> HeapRegion:
        """Return the heap as a region of an address space that begins at an address."""
        if self._data is None:
            self._data = np.full(HEAP_BYTES, UNWRITTEN, np.uint8)
            self._state = np.zeros(HEAP_BYTES, np.uint8)
        return HeapRegion(self, base, self._data)

    def leaks(self) -> tuple[Leak, ...]:
        """Return the allocations that are not freed, by the line of their malloc."""
        by_line: dict[int, list[int]] = {}
        for allocation in self._allocations.values():
            if allocation.freed is None:
                by_line.setdefault(allocation.line, []).append(allocation.size)
        return tuple(Leak(line, len(sizes), sum(sizes)) for line, sizes in sorted(by_line.items()))

    def allocate(self, sizes: list[int], line: int) -> list[int]:
        """Return the start of an allocation of each size, -1 if no room is left or the size is 0."""
        runs: list[list[int]] | None = None
        starts = []
        for size in sizes:
            need = -(-size // GRAIN) * GRAIN + GAP
            start = -1
            if size > 0 and self._end + need <= HEAP_BYTES:
                start = self._end
                self._end += need
            elif 0 < size < HEAP_BYTES:
                runs = self._free_runs() if runs is None else runs
                run = next((run for run in runs if run[1] - run[0] >= need), None)
                if run is not None:
                    start = run[0]
                    run[0] += need
                    for old in [place for place in self._allocations if start <= place < start + need]:
                        del self._allocations[old]  # freed allocations, whose memory is reused
            starts.append(start)
            if start >= 0:
                self._state[start : start + size] = LIVE
                self._state[start + size : start + need] = UNALLOCATED
                self._data[start : start + size] = UNWRITTEN
                self._allocations[start] = Allocation(size, line)
        return starts

    def free(self, start: int, line: int) -> str | None:
        """Free the allocation that begins at an offset; return the error, or None."""
        allocation = self._allocations.get(start)
        if allocation is None:
            return f"frees byte {start} of the device's heap, which malloc did not give"
        if allocation.freed is not None:
            return f"frees {_described(allocation)} once more"
        self._state[start : start + allocation.size] = FREED
        self._allocations[start] = allocation._replace(freed=line)
        return None

    def outside(self, offsets: Array, size: int) -> Array:
        """Return which accesses of `size` bytes at offsets in the heap leave the live allocations."""
        bad: Array = np.zeros(offsets.shape, bool)
        for step in sorted({*range(0, size, GRAIN), size - 1}):
            bad |= self._state[offsets + step] != LIVE
        return bad

    def describe(self, offset: int) -> tuple[str, str]:
        """Return (kind of hazard, the words after 'at ...') of an offset that no thread may access."""
        starts = sorted(self._allocations)
        place = bisect_right(starts, offset) - 1
        if place < 0:
            return "out-of-bounds", f"byte {offset} of the device's heap, which malloc did not give"
        allocation = self._allocations[starts[place]]
        offset -= starts[place]
        if offset < allocation.size and allocation.freed is not None:
            return "use-after-free", f"byte {offset} of {_described(allocation)}"
        return "out-of-bounds", f"byte {offset} of {_described(allocation)}"

    def _free_runs(self) -> list[list[int]]:
        """Return [start, end) of the runs of free memory, freed allocations included."""
        used = (self._state.reshape(-1, GRAIN) == LIVE).any(axis=1)
        used[1:] |= used[:-1]  # the gap behind each allocation
        edges = np.flatnonzero(np.diff(np.concatenate([[True], used, [True]])))
        return [[int(start) * GRAIN, int(end) * GRAIN] for start, end in edges.reshape(-1, 2)]


class HeapRegion(Region):
    """The heap in an address space. Its `end` is its base, so that every access is checked."""

    __slots__ = ("heap",)

    def __init__(self, heap: Heap, base: int, data: Array) -> None:
        super().__init__("the device's heap", base, data, True)
        self.heap = heap
        self.end = base

    def keep_inside(self, machine: Machine, access: MemoryOp, address: Array, mask: Array) -> Array:
        """Report the lanes of a mask that leave the live allocations; return the others."""
        far = (address < self.base) | (address + access.size > self.base + self.size)
        bad = self.heap.outside(np.where(far, 0, address - self.base), access.size)
        bad = (bad | far) & mask
        if bad.any():
            lanes = machine.chunk.lanes(bad) & machine.lanes()
            offset = int(broadcast(address, lanes.shape).flat[np.argmax(lanes)]) - self.base
            # An access that begins inside is described by its last byte.
            inside = 0 <= offset < self.size and not self.heap.outside(np.array([offset]), 1)[0]
            kind, where = self.heap.describe(offset + access.size - 1 if inside else offset)
            text = f"{VERBS[access.kind]} {access.size} bytes at {where}"
            machine.hazards.report(machine, kind, access.location, lanes, text)
        return mask & ~bad


def _described(allocation: Allocation) -> str:
    freed = "" if allocation.freed is None else f", freed on line {allocation.freed}"
    return f"the {allocation.size} bytes that line {allocation.line} asked for{freed}"
