"""Device memory: one file in memory that the program and the simulator map, and the regions of it that are in use."""

from __future__ import annotations

import mmap
import os

import numpy as np

from cudabench.errors import DeviceUnusable
from cudabench.simulator.memory import SLOT_BITS, AddressSpace, Region

NBYTES = 1 << 40  # of the file, which takes only what is written
OWN = NBYTES >> 1  # offsets from here on are module variables'
NO_RESERVE = 0x4000
PAGE = 4096


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
        self.space = AddressSpace()
        self._seen: AddressSpace | None = None
        self._next = OWN

    def close(self) -> None:
        """Close the file; the mapping goes with the last array over it."""
        os.close(self.fd)

    def new(self, nbytes: int) -> np.ndarray:
        """Return zeros for a module variable."""
        start, self._next = self._next, self._next + max(PAGE, -(-nbytes // PAGE) * PAGE)
        return self.bytes[start : start + nbytes]

    def offset(self, array: np.ndarray) -> int:
        """Return where in the file an array lies."""
        return int(array.ctypes.data - self.bytes.ctypes.data)

    def allocate(self, slot: int, offset: int, nbytes: int, name: str) -> None:
        """Note an allocation."""
        self.place(Region(name, slot << SLOT_BITS, self.bytes[offset : offset + nbytes], True))

    def place(self, region: Region) -> None:
        """Put a region into its slot."""
        slot = region.base >> SLOT_BITS
        self.space.skip_to(slot + 1)
        self.space.slots[slot] = region
        self._seen = None

    def free(self, slot: int) -> None:
        """Empty a slot."""
        if slot < len(self.space.slots):
            self.space.slots[slot] = self.space.slots[0]
            self._seen = None

    def seen(self) -> AddressSpace:
        """Return the space as it is now, for launches: a report may be read when memory is long freed."""
        if self._seen is None:
            self._seen = AddressSpace()
            self._seen.slots = [*self.space.slots]
        return self._seen
