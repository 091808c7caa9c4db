"""The virtual addresses of a launch and the memory that they address.

Every array argument and every module variable is a region. Each region is alone in a slot of 2^40 bytes of address
space, so that even an address outside of an array shows which array was meant. The generic addresses of shared, local
and parameter memory are in separate ranges below 2^39.

A launch with NumPy arrays as arguments has its own address space. An address space can also be shared by many
launches, even of kernels from several modules:

    space = AddressSpace()
    program = load(ptx_text, space=space)                  # its variables are in the space; programs may share it
    x = space.allocate(4096, "x")                          # an address; a uint8 array may take the place of the size
    raw = struct.pack("<Qi", x, 1024).ljust(program.code("kernel").parameter_bytes, b"\\0")
    run(program, "kernel", 4, 256, Placed(space, raw))     # with checked=False if nothing is to be counted
    space.bytes_at(x)                                      # the memory as a uint8 array, to read and to write
    space.free(x)                                          # later accesses are reported as use after free
    program.unload()                                       # frees its variables
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np

from cudabench.simulator.values import INT64, Array

if TYPE_CHECKING:
    from cudabench.simulator.heap import Heap

SLOT_BITS = 40
SLOT = 1 << SLOT_BITS
HALF_SLOT = SLOT >> 1
FUNCTION_WINDOW = 1 << 35
PARAMETER_WINDOW = 1 << 36
SHARED_WINDOW = 1 << 37
LOCAL_WINDOW = 1 << 38
WINDOW = 1 << 32
MOST_FREED = 256  # a freed slot is used again only when there are more freed slots than this


class Region:
    """Bytes at consecutive virtual addresses: an array argument, a module variable or the kernel's parameters.

    `element`, `shape`: the bytes of an element and the number of elements in each dimension, for messages; 0 and () if
    unknown. `host`: the address of the bytes in the host's memory. `freed`: the size that a freed region had; 0 for a
    region that is not freed. `padded`: a region that also contains the padding after this region, where a GPU reports
    no fault; None if unknown. `end`: the address after the last byte. `constant`: whether the region is in the state
    space .const.
    """

    __slots__ = (
        "base", "bytes", "constant", "element", "end", "freed", "host", "name", "padded", "shape", "size", "writable",
    )  # fmt: skip

    def __init__(
        self, name: str, base: int, data: Array, writable: bool, constant: bool = False, host: int | None = None
    ) -> None:
        self.name, self.base, self.bytes, self.writable, self.constant = name, base, data, writable, constant
        self.host = data.__array_interface__["data"][0] if host is None else host
        self.size = data.size
        self.end = base + self.size
        self.element = self.freed = 0
        self.shape: tuple[int, ...] = ()
        self.padded: Region | None = None

    def pad(self, data: Array) -> None:
        """Set `padded`; `data`: the bytes of the region and of the padding after it."""
        self.padded = Region(self.name, self.base, data, self.writable, self.constant)

    def view(self, dtype: np.dtype[Any]) -> Array:
        """Return the region's memory as an array of the dtype; bytes at the end that do not fill an element are left
        out."""
        return elements_of(self.bytes, dtype)

    def place(self, offset: int) -> str:
        """Return the name of a byte for messages, '' to name it as an element of the region."""
        return ""


NOTHING = Region("nothing", 0, np.empty(0, np.uint8), False)


class AddressSpace:
    """The regions of one launch, or of several launches that share these regions; slot 0, where null pointers point, is
    empty.

    `slots`: the region in each slot. `version`: a number that grows when a region is added or replaced. `table`: the
    native engine's copy of the slots; `changed`: the slots that differ from this copy. `lasts`: whether several
    launches share the space; if so, data that is kept for the next launch may refer to the space.
    """

    def __init__(self, *, lasts: bool = False) -> None:
        self.lasts = lasts
        self.slots: list[Region] = [NOTHING]
        self.version = 0
        self.changed = {0}
        self.table: Any = None
        # The memory of the grid barrier; None until the first launch that has a grid barrier.
        self.barrier: Region | None = None
        self._freed: deque[int] = deque()  # the freed slots, in the order in which they were freed

    def place(self, name: str, data: Array, writable: bool, constant: bool = False, host: int | None = None) -> Region:
        """Return a new region in a new slot, with a flat uint8 array as its memory; other parameters: see `Region`."""
        return self.put(Region(name, len(self.slots) << SLOT_BITS, data, writable, constant, host))

    def put(self, region: Region) -> Region:
        """Put a region into its slot: the next new slot, or an existing one."""
        slot = region.base >> SLOT_BITS
        if slot == len(self.slots):
            self.slots.append(region)
        else:
            self.slots[slot] = region
        self.changed.add(slot)
        self.version += 1
        return region

    def skip_to(self, slot: int) -> None:
        """Add empty slots, so that the next new slot is number `slot`."""
        self.changed.update(range(len(self.slots), slot))
        self.slots += self.slots[:1] * (slot - len(self.slots))

    def place_heap(self, heap: Heap) -> None:
        """Place the device's heap in a new slot."""
        self.put(heap.place(len(self.slots) << SLOT_BITS))

    def allocate(self, memory: int | Array, name: str = "") -> int:
        """Return the address of a new allocation. `memory`: how many zero bytes it has, or the flat uint8 array that is
        its memory. `name`: its name in messages; by default such as "allocation 5"."""
        data = np.zeros(memory, np.uint8) if isinstance(memory, int) else memory
        slot = self._freed.popleft() if len(self._freed) > MOST_FREED else len(self.slots)
        return self.put(Region(name or f"allocation {slot}", slot << SLOT_BITS, data, True)).base

    def free(self, address: int) -> None:
        """Free the allocation that begins at an address; raises KeyError if no allocation begins there.

        The slot of a freed allocation is not used again until `MOST_FREED` further allocations have been freed, so that
        uses of freed memory are reported.
        """
        region = self._at(address)
        if region.base != address:
            raise KeyError(address)
        empty = Region(region.name, address, NOTHING.bytes, False)
        empty.element, empty.shape, empty.freed = region.element, region.shape, max(1, region.size)
        self.put(empty)
        self._freed.append(address >> SLOT_BITS)

    def bytes_at(self, address: int) -> Array:
        """Return a view (uint8) of the memory from an address to the end of its region.

        Raises KeyError if the address is in no region.
        """
        region = self._at(address)
        return region.bytes[address - region.base :]

    def _at(self, address: int) -> Region:
        slot = address >> SLOT_BITS
        region = self.slots[slot] if 0 < slot < len(self.slots) else NOTHING
        if not region.base or region.freed or not 0 <= address - region.base <= region.size:
            raise KeyError(address)
        return region

    def nearest(self, address: int) -> Region | None:
        """Return the region in the slot that begins nearest to an address, or None if that slot is empty."""
        slot = (address + HALF_SLOT) >> SLOT_BITS
        region = self.slots[slot] if 0 < slot < len(self.slots) else self.slots[0]
        return region if region.base else None


def elements_of(memory: Array, dtype: np.dtype[Any]) -> Array:
    """Return a flat uint8 array as an array of the dtype, without bytes at its end that do not fill an element."""
    return memory[: memory.size // dtype.itemsize * dtype.itemsize].view(dtype)


def flat(address: Array, offset: int) -> Array:
    """Return the addresses plus `offset` as an int64 array of the same shape."""
    # A shared address has 32 bits, and a base such as that of `s + 124 - 4 * t` may be below 0 before the offset is
    # added. So the base is read as a signed number.
    return (address.view(INT64) if address.dtype.itemsize == 8 else address.view(np.int32).astype(INT64)) + offset


def granules(start: Array, size: int, width: int) -> Array:
    """Return the numbers of the granules (pieces of `width` bytes) that accesses touch, in one flat array, the granules
    of the first access first. `start`: the byte address of each access. `size`: the bytes of each access."""
    first, count = start // width, size // width
    return first if count <= 1 else (first[:, None] + np.arange(count)).reshape(-1)
