"""The virtual address map of a launch and the memories behind it.

Every array argument and every module variable is a region with its own 2^40 bytes of address space, so that an address
outside of its array still identifies the array. Generic addresses of the other spaces are in windows below 2^39.

A launch of arrays has its own address space. A lasting one is shared by all launches of a program, also of several
modules:

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

from cudabench.simulator.values import INT64, Affine, Array, Chunk

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
MOST_FREED = 256  # slots that stay empty after their free


class Region:
    """Bytes at consecutive virtual addresses: an array argument, a module variable or the kernel's parameters.

    element, shape: bytes of an element and elements by dimension, for messages; 0 and () if unknown. host: the address
    of the bytes in the host's memory. freed: the size of a freed region before its free, else 0. padded: the region
    with the padding after it, where a card does not fault; None if unknown.
    """

    __slots__ = (
        "base", "bytes", "constant", "element", "end", "freed", "host", "name", "padded", "shape", "size", "views",
        "writable",
    )  # fmt: skip

    def __init__(
        self, name: str, base: int, data: Array, writable: bool, constant: bool = False, host: int | None = None
    ) -> None:
        self.name, self.base, self.bytes, self.writable, self.constant = name, base, data, writable, constant
        self.host = data.__array_interface__["data"][0] if host is None else host
        self.size = data.size
        self.end = base + self.size
        self.views: dict[np.dtype[Any], Array] = {}
        self.element = self.freed = 0
        self.shape: tuple[int, ...] = ()
        self.padded: Region | None = None

    def pad(self, data: Array) -> None:
        """Set the bytes of the region with the padding after it."""
        self.padded = Region(self.name, self.base, data, self.writable, self.constant)

    def view(self, dtype: np.dtype[Any]) -> Array:
        """Return the region's whole elements of a dtype."""
        view = self.views.get(dtype)
        if view is None:
            width = dtype.itemsize
            view = self.views[dtype] = self.bytes[: self.size // width * width].view(dtype)
        return view

    def strided(self, address: Affine, offset: int, dtype: np.dtype[Any], chunk: Chunk) -> Array:
        """Return a view of the elements that all lanes address, shaped as a box of blocks and threads."""
        coefficients = address.coefficients
        start = address.base + offset - self.base
        if coefficients is None:
            return np.ndarray((1, 1), dtype, self.bytes, start)
        box = chunk.box
        if not any(coefficients[3:]):
            box = (1, 1, 1, *box[3:])
        elif not any(coefficients[:3]):
            box = (*box[:3], 1, 1, 1)
        return np.ndarray(box, dtype, self.bytes, start, coefficients[::-1])


NOTHING = Region("nothing", 0, np.empty(0, np.uint8), False)


class AddressSpace:
    """The regions of a launch, or of all launches of a program, by slot; slot 0, where null pointers point, is empty.

    version: changes with the regions. changed: the slots that differ from `table`, which belongs to the native engine.
    lasts: launches share it, and data kept of a launch keeps nothing else alive.
    """

    def __init__(self, *, lasts: bool = False) -> None:
        self.lasts = lasts
        self.slots: list[Region] = [NOTHING]
        self.version = 0
        self.changed = {0}
        self.table: Any = None
        self.barrier: Region | None = None  # of launches that synchronise their grid
        self._freed: deque[int] = deque()  # slots, in the order of their frees

    def place(self, name: str, data: Array, writable: bool, constant: bool = False, host: int | None = None) -> Region:
        """Place a flat uint8 array in a new slot; constant: in the state space .const. host: see `Region`."""
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
        """Leave the slots before a slot empty."""
        self.changed.update(range(len(self.slots), slot))
        self.slots += self.slots[:1] * (slot - len(self.slots))

    def place_heap(self, heap: Heap) -> None:
        """Place the device's heap in a new slot."""
        self.put(heap.place(len(self.slots) << SLOT_BITS))

    def allocate(self, memory: int | Array, name: str = "") -> int:
        """Return the address of a new allocation: a number of zero bytes, or a flat uint8 array as its memory.
        name: in messages, else "allocation 5"."""
        data = np.zeros(memory, np.uint8) if isinstance(memory, int) else memory
        slot = self._freed.popleft() if len(self._freed) > MOST_FREED else len(self.slots)
        return self.put(Region(name or f"allocation {slot}", slot << SLOT_BITS, data, True)).base

    def free(self, address: int) -> None:
        """Free the allocation that begins at an address; KeyError if there is none. Its slot stays empty until
        `MOST_FREED` others were freed, so that a use after free is reported."""
        region = self._at(address)
        if region.base != address:
            raise KeyError(address)
        empty = Region(region.name, address, NOTHING.bytes, False)
        empty.element, empty.shape, empty.freed = region.element, region.shape, max(1, region.size)
        self.put(empty)
        self._freed.append(address >> SLOT_BITS)

    def bytes_at(self, address: int) -> Array:
        """Return the bytes from an address to the end of its region; KeyError if it is in no region."""
        region = self._at(address)
        return region.bytes[address - region.base :]

    def _at(self, address: int) -> Region:
        slot = address >> SLOT_BITS
        region = self.slots[slot] if 0 < slot < len(self.slots) else NOTHING
        if not region.base or region.freed or not 0 <= address - region.base <= region.size:
            raise KeyError(address)
        return region

    def nearest(self, address: int) -> Region | None:
        """Return the region of the slot that contains or is nearest to an address, or None."""
        slot = (address + HALF_SLOT) >> SLOT_BITS
        region = self.slots[slot] if 0 < slot < len(self.slots) else self.slots[0]
        return region if region.base else None


def flat(address: Affine | Array, offset: int, chunk: Chunk) -> Array:
    """Return byte addresses as int64, in the smallest shape."""
    if type(address) is Affine:
        array = address.array(chunk, INT64)
    else:
        assert not isinstance(address, Affine)
        # A shared address has 32 bits: base and offset may wrap around on the way (`s + 124 - 4 * t`).
        array = address.view(INT64) if address.dtype.itemsize == 8 else address.view(np.int32).astype(INT64)
    return array + offset if offset else array


def granules(start: Array, size: int, width: int) -> Array:
    """Return the granules of `width` bytes in accesses of `size` bytes at `start`, access by access."""
    first, count = start // width, size // width
    return first if count <= 1 else (first[:, None] + np.arange(count)).reshape(-1)


def narrow(mask: Array, shape: tuple[int, ...]) -> Array:
    """Return a mask reduced to a broadcast shape: whether any lane of each entry is active."""
    if shape[0] == 1 and mask.shape[0] > 1:
        mask = mask.any(axis=0, keepdims=True)
    if shape[1] == 1 and mask.shape[1] > 1:
        mask = mask.any(axis=1, keepdims=True)
    return mask
