"""Device memory: one file in memory that the program and the simulator map, and the regions of it that are in use."""

from __future__ import annotations

import mmap
import os
from contextlib import suppress

import numpy as np

from cudabench.errors import DeviceUnusable
from cudabench.simulator.memory import SLOT_BITS, AddressSpace, Region

NBYTES = 1 << 40  # of the sparse file
OWN = NBYTES >> 1  # module variables have the offsets from here on
NO_RESERVE = 0x4000
PAGE = 4096
PADDED = 2 << 20  # cards and the program's runtime map multiples of this
DEVICE = 0  # an allocation of device memory: `Kind` of native/programs/core.hpp
BARRIER = 127  # the slot of a grid's barrier, which no allocation gets


class Memory:
    """The memory of one program; `fd` is its file. `space` holds all allocations and module variables, by slot."""

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
        self._next = OWN
        self._unwritten: dict[int, tuple[int, int, str]] = {}  # by slot: offset, bytes, place of the allocation
        self.space = AddressSpace(lasts=True)
        self.space.skip_to(BARRIER)
        self.space.barrier = self.space.place("the grid's barrier", self.new(64), True)

    def close(self) -> None:
        """Close the file; the mapping goes with the last array over it."""
        os.close(self.fd)

    def new(self, nbytes: int) -> np.ndarray:
        """Return zeros for a module variable."""
        start, self._next = self._next, self._next + max(PAGE, -(-nbytes // PAGE) * PAGE)
        return self.bytes[start : start + nbytes]

    def offset(self, array: np.ndarray) -> int:
        """Return an array's offset in the file."""
        return int(array.ctypes.data - self.bytes.ctypes.data)

    def allocate(self, slot: int, offset: int, nbytes: int, name: str, place: str | None) -> None:
        """Note an allocation, with the padding after it; place: of the call, None if the host can write it."""
        if place is not None:
            self._unwritten[slot] = offset, nbytes, place
        region = Region(name, slot << SLOT_BITS, self.bytes[offset : offset + nbytes], True)
        region.pad(self.bytes[offset : offset + -(-nbytes // PADDED) * PADDED])
        self.place(region)

    def place(self, region: Region) -> None:
        """Put a region into its slot, which the program's runtime chose."""
        self.space.skip_to(region.base >> SLOT_BITS)
        self.space.put(region)

    def unwritten(self, parameters: bytes) -> dict[int, str]:
        """Return the places of unwritten allocations that parameters point to, by slot.

        The file has no data for them yet; a first access makes it, also a read.
        """
        if not self._unwritten:
            return {}
        words = np.frombuffer(parameters, np.uint64, len(parameters) // 8)
        slots = {int(word) >> SLOT_BITS for word in words} & self._unwritten.keys()
        for slot in slots:
            offset, nbytes, _ = self._unwritten[slot]
            with suppress(OSError):  # there is no data from here on
                if os.lseek(self.fd, offset, os.SEEK_DATA) < offset + nbytes:
                    del self._unwritten[slot]
        return {slot: self._unwritten[slot][2] for slot in sorted(slots & self._unwritten.keys())}

    def free(self, slot: int) -> None:
        """Free a slot's region; a later access to it is reported as a use after free."""
        self._unwritten.pop(slot, None)
        with suppress(KeyError):
            self.space.free(slot << SLOT_BITS)
