"""The device's heap, from which kernels allocate memory by `malloc` and `new`, and the checks of accesses to this heap.

The heap has the default size of cudaLimitMallocHeapSize, 8 MiB. The next launch of the program finds the heap as the
previous launch left it. Unallocated bytes separate the allocations, so that accesses past the end of an allocation are
found. Freed memory is reused only if the heap has no other free memory, so that most uses of freed memory are found.
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
GAP = 16  # how many bytes stay unallocated after each allocation, to detect accesses out of bounds
UNWRITTEN = 0xFF  # the initial value of each byte from malloc; a float of such bytes is NaN
PLACED = "the driver decides where on the heap malloc places memory"
UNALLOCATED, LIVE, FREED = range(3)  # the state of a byte


class Allocation(NamedTuple):
    """An allocation. `size`: its bytes. `line`: the source line of its malloc. `freed`: the line that freed it, or
    None."""

    size: int
    line: int
    freed: int | None = None


class Leak(NamedTuple):
    """The allocations that the malloc on one source line made and that were never freed.

    `allocations`: the number of these allocations. `bytes`: their total size.
    """

    line: int
    allocations: int
    bytes: int


class Heap:
    """The heap of a program; it is empty at first, and its memory is created by the first `place`."""

    def __init__(self) -> None:
        self._data: Array = None
        self.clear()

    def clear(self) -> None:
        """Make the heap empty."""
        if self._data is not None:
            self._data.fill(UNWRITTEN)
            self._state.fill(UNALLOCATED)
        self._end = 0  # from this offset on, nothing was ever allocated
        self._allocations: dict[int, Allocation] = {}

    def place(self, base: int) -> HeapRegion:
        """Return a region that puts this heap into an address space, from address `base` on."""
        if self._data is None:
            self._data = np.full(HEAP_BYTES, UNWRITTEN, np.uint8)
            self._state = np.zeros(HEAP_BYTES, np.uint8)
        return HeapRegion(self, base, self._data)

    def leaks(self) -> tuple[Leak, ...]:
        """Return one `Leak` for each line whose malloc made allocations that are not freed, in line order."""
        by_line: dict[int, list[int]] = {}
        for allocation in self._allocations.values():
            if allocation.freed is None:
                by_line.setdefault(allocation.line, []).append(allocation.size)
        return tuple(Leak(line, len(sizes), sum(sizes)) for line, sizes in sorted(by_line.items()))

    def allocate(self, sizes: list[int], line: int) -> list[int]:
        """Allocate memory of each size; return each offset, -1 if the heap is full or the size is 0."""
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
                        del self._allocations[old]  # the new allocation reuses the memory of these freed allocations
            starts.append(start)
            if start >= 0:
                self._state[start : start + size] = LIVE
                self._state[start + size : start + need] = UNALLOCATED
                self._data[start : start + size] = UNWRITTEN
                self._allocations[start] = Allocation(size, line)
        return starts

    def free(self, start: int, line: int) -> tuple[str, str] | None:
        """Free the allocation that begins at offset `start`; return (kind, text) of the hazard, or None."""
        allocation = self._allocations.get(start)
        if allocation is None:
            return "out-of-bounds", f"frees byte {start} of the device's heap, which malloc did not return"
        if allocation.freed is not None:
            return "use-after-free", f"frees {_described(allocation)} a second time"
        self._state[start : start + allocation.size] = FREED
        self._allocations[start] = allocation._replace(freed=line)
        return None

    def live_bytes(self, start: int) -> int:
        """Return the bytes of the live allocation that begins at offset `start`, with the rest of its last 16; else
        0."""
        allocation = self._allocations.get(start)
        if allocation is None or allocation.freed is not None:
            return 0
        return -(-allocation.size // GRAIN) * GRAIN

    def outside(self, offsets: Array, size: int) -> Array:
        """Return a bool array: for each offset in the heap, whether an access of `size` bytes there touches a byte that
        is not allocated."""
        bad: Array = np.zeros(offsets.shape, bool)
        for step in sorted({*range(0, size, GRAIN), size - 1}):
            bad |= self._state[offsets + step] != LIVE
        return bad

    def describe(self, offset: int) -> tuple[str, str]:
        """Return two texts for an offset that no thread may access: the kind of the hazard, and the location.

        The location is a text such as "byte 4 of the 4 bytes that line 7 allocated".
        """
        start, allocation = self._around(offset)
        if allocation is None:
            return "out-of-bounds", f"byte {offset} of the device's heap, which malloc did not return"
        offset -= start
        kind = "use-after-free" if offset < allocation.size and allocation.freed is not None else "out-of-bounds"
        return kind, f"byte {offset} of {_described(allocation)}"

    def _around(self, offset: int) -> tuple[int, Allocation | None]:
        """Return (start, allocation) of the last allocation that begins at or before an offset."""
        starts = sorted(self._allocations)
        place = bisect_right(starts, offset) - 1
        return (starts[place], self._allocations[starts[place]]) if place >= 0 else (0, None)

    def _free_runs(self) -> list[list[int]]:
        """Return the runs of free memory, freed allocations included, as [start, end] lists of offsets."""
        used = (self._state.reshape(-1, GRAIN) == LIVE).any(axis=1)
        used[1:] |= used[:-1]  # the gap after each allocation is not free either
        edges = np.flatnonzero(np.diff(np.concatenate([[True], used, [True]])))
        return [[int(start) * GRAIN, int(end) * GRAIN] for start, end in edges.reshape(-1, 2)]


class HeapRegion(Region):
    """The heap in an address space. `end` equals the base, so that every access appears to be out of bounds and is
    passed to `keep_inside`."""

    __slots__ = ("heap",)

    def __init__(self, heap: Heap, base: int, data: Array) -> None:
        super().__init__("the device's heap", base, data, True)
        self.heap = heap
        self.end = base

    def place(self, offset: int) -> str:
        """Return the name of a byte of the heap: its number in its allocation."""
        start, allocation = self.heap._around(offset)
        return "" if allocation is None else f"byte {offset - start} of {_described(allocation._replace(freed=None))}"

    def keep_inside(self, machine: Machine, access: MemoryOp, address: Array, mask: Array) -> Array:
        """Report the lanes in `mask` that access memory outside of live allocations; return the mask without them."""
        far = (address < self.base) | (address + access.size > self.base + self.size)
        bad = self.heap.outside(np.where(far, 0, address - self.base), access.size)
        bad = (bad | far) & mask
        if bad.any():
            lanes = machine.chunk.lanes(bad) & machine.lanes()
            offset = int(broadcast(address, lanes.shape).flat[np.argmax(lanes)]) - self.base
            # If the first byte of the access is inside an allocation, the last byte is outside, and the message names
            # the last byte.
            inside = 0 <= offset < self.size and not self.heap.outside(np.array([offset]), 1)[0]
            kind, where = self.heap.describe(offset + access.size - 1 if inside else offset)
            text = f"{VERBS[access.kind]} {access.size} bytes at {where}"
            machine.hazards.report(machine, kind, access.location, lanes, text)
        return mask & ~bad


def _described(allocation: Allocation) -> str:
    freed = "" if allocation.freed is None else f", freed on line {allocation.freed}"
    return f"the {allocation.size} bytes that line {allocation.line} allocated{freed}"
