"""Device memory: a file in memory (memfd), which the program and the simulator map, and its allocated regions."""

from __future__ import annotations

import mmap
import os
from contextlib import suppress

import numpy as np

from cudabench.errors import DeviceUnusable
from cudabench.simulator.memory import SLOT_BITS, AddressSpace, Region

NBYTES = 1 << 40  # size of the sparse file that holds all device memory
VARIABLES_OFFSET = NBYTES >> 1  # the memory of module variables starts at this offset in the file
NO_RESERVE = 0x4000  # the value of MAP_NORESERVE, which Python's mmap lacks
PAGE = 4096
# Allocations are rounded up to multiples of this size, both on cards and in the CUDA runtime that programs are linked
# with.
ALLOCATION_UNIT = 2 << 20
DEVICE = 0  # the kind of allocation that is in device memory; see `Kind` in native/programs/core.hpp
BARRIER = 127  # the slot of the memory of the barrier at which the blocks of a grid wait for each other


class Memory:
    """The device memory of one program; `fd`: the file; `space`: all allocations and module variables, by slot."""

    def __init__(self) -> None:
        self.fd = os.memfd_create("cudabench")
        try:
            os.ftruncate(self.fd, NBYTES)
            self._map = mmap.mmap(self.fd, NBYTES, flags=mmap.MAP_SHARED | NO_RESERVE)
        except (OSError, ValueError) as error:
            os.close(self.fd)
            raise DeviceUnusable(
                f"Device memory cannot be mapped ({error}): raise the limit that 'ulimit -v' shows."
            ) from None
        self.bytes = np.frombuffer(self._map, np.uint8)
        self._next = VARIABLES_OFFSET
        # for each slot: (offset, bytes, code location of the allocating call)
        self._unwritten: dict[int, tuple[int, int, str]] = {}
        self.space = AddressSpace(lasts=True)
        self.space.skip_to(BARRIER)
        self.space.barrier = self.space.place("the grid's barrier", self.allocate_variable(64), True)

    def close(self) -> None:
        """Close the file; its mapping stays until the last array that uses it is deleted."""
        os.close(self.fd)

    def allocate_variable(self, nbytes: int) -> np.ndarray:
        """Allocate `nbytes` bytes of the file for a module variable; return the memory as an array of zeros."""
        start, self._next = self._next, self._next + max(PAGE, -(-nbytes // PAGE) * PAGE)
        return self.bytes[start : start + nbytes]

    def offset(self, array: np.ndarray) -> int:
        """Return the offset in the file at which an array begins."""
        return int(array.ctypes.data - self.bytes.ctypes.data)

    def allocate(self, slot: int, offset: int, nbytes: int, name: str, place: str | None) -> None:
        """Add an allocation of the program, with the padding after it.

        `place`: the code location of the call that allocates; None if the host can write to the memory.
        """
        if place is not None:
            self._unwritten[slot] = offset, nbytes, place
        region = Region(name, slot << SLOT_BITS, self.bytes[offset : offset + nbytes], True)
        region.pad(self.bytes[offset : offset + -(-nbytes // ALLOCATION_UNIT) * ALLOCATION_UNIT])
        self.place(region)

    def place(self, region: Region) -> None:
        """Add a region to the address space, in the slot of its address, which the program's CUDA runtime chose."""
        self.space.skip_to(region.base >> SLOT_BITS)
        self.space.put(region)

    def unwritten(self, parameters: bytes) -> dict[int, str]:
        """Return the allocations that a launch's parameters point to and that nothing has written yet.

        The key of the dict is the slot, the value the source location of the call that allocated the memory. The
        allocations are found as holes in the sparse file. Even reading a hole would fill it, so this method must be
        called before the launch.
        """
        if not self._unwritten:
            return {}
        words = np.frombuffer(parameters, np.uint64, len(parameters) // 8)
        slots = {int(word) >> SLOT_BITS for word in words} & self._unwritten.keys()
        for slot in slots:
            offset, nbytes, _ = self._unwritten[slot]
            with suppress(OSError):  # lseek fails if the file has no data from the offset to its end
                if os.lseek(self.fd, offset, os.SEEK_DATA) < offset + nbytes:
                    del self._unwritten[slot]
        return {slot: self._unwritten[slot][2] for slot in sorted(slots & self._unwritten.keys())}

    def free(self, slot: int) -> None:
        """Mark the region in a slot as freed; a later access to it is reported as a use after free."""
        self._unwritten.pop(slot, None)
        with suppress(KeyError):
            self.space.free(slot << SLOT_BITS)
