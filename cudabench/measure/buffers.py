"""Allocates the buffers of a problem in the memory of a device, several times: each allocation is called a place.

The address of a buffer changes the time of a short kernel. On an H200, repeated measurements of a transpose of 1024 x
1024 floats on the same buffers have the same median, to 32 ns (one tick of the clock), even after the code is loaded at
another address. On other buffers of the same process the median differs by up to 4%. The median also differs between
streams (benchmarks/results/verdicts_h200.md). So a small problem has several places, and the kernel is sampled at every
place, each time on another stream. A large problem touches so much memory that two places are enough. There are two
sets of inputs; every second place has the second set.

Guard zones with a known pattern surround every array, up to the end of its last page. A kernel that writes just outside
an array changes a guard zone. Writes farther away, to other places or to the copies from which arrays are restored, are
detected by digests. A kernel accesses a surface through a CUDA array, which all places share; the buffer is copied to
the CUDA array and back. Each read-only array is followed by a copy of its first bytes. A kernel that gets an address a
few bytes later then reads the same values, but rotated: so inputs can change between launches without using more cache.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cudabench.devices.protocol import Device, Work
from cudabench.errors import OutOfMemory
from cudabench.operations.shared import pieces
from cudabench.records.launch import LARGE, POISON
from cudabench.records.plan import Buffer, Operation, Problem
from cudabench.records.results import Hazard
from cudabench.system.children import on_threads

MOST = 8  # the arrays of a problem are allocated at this many places at most
# The arrays at all places together have at most this many bytes; if there are only two places, they may have more.
TOGETHER_BYTES = 128 << 20
# The arrays at two places together have at most this many bytes, because the host also holds the inputs and references
# of both.
LARGEST_PAIR_BYTES = 4 << 30

TOUCHED = 1 << 26  # bytes that one thread sets to zero

GUARD = 0xA5  # the byte that fills guard zones
# Bytes of the guard zone before an array; bytes of the zone after it.
SMALL_GUARD_BYTES, LARGE_GUARD_BYTES = 64 << 10, 1 << 20
# Arrays of at least this size have large guard zones, so that a write one row too far is still in the zone.
LARGE_ARRAY_BYTES = 16 << 20


# Rotated inputs begin this many bytes later. The number is a multiple of the alignment that vector types and linear
# textures need (CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT).
ROTATION_BYTES = 512


@dataclass(frozen=True)
class BufferSet:
    """All buffers of a problem at one place.

    `addresses`, `sizes`: the address and the size in bytes of each array by name; the size of an input includes the
    copy of its first bytes, which follows the input in memory. `copy_bytes`: the size of the copy that is timed for
    comparison: half of the bytes that the operation moves, because a copy both reads and writes each byte.
    """

    device: Device
    buffers: Sequence[Buffer]
    addresses: Mapping[str, int]
    sizes: Mapping[str, int]
    copy_bytes: int

    @property
    def read_only(self) -> list[str]:
        """The names of the arrays that a kernel must not change: inputs, the copies from which other arrays are
        restored, and the buffers of the copy that is timed for comparison."""
        withheld = [name for name in self.addresses if name.endswith(_BACKUP) or name in _COPY_BUFFERS.values()]
        return [*(buffer.name for buffer in self.buffers if buffer.role == "in"), *withheld]

    @property
    def writable(self) -> list[str]:
        """The names of the arrays that a kernel may write."""
        return [buffer.name for buffer in self.buffers if buffer.role != "in"]

    def fill(self, inputs: Mapping[str, np.ndarray]) -> None:
        """Write the inputs and the guard zones to the device; the other buffers are set by `reset`."""
        for pointer, nbytes, _ in self._zones():
            self.device.fill(pointer, nbytes, GUARD)()
        for buffer in self.buffers:
            if buffer.role == "in":
                self.device.upload(self.addresses[buffer.name], inputs[buffer.name])
                self.device.upload(self.addresses[buffer.name] + buffer.nbytes, _appended_content(inputs[buffer.name]))
            if buffer.role == "inout":
                for name in (buffer.name, _backup_name(buffer.name)):
                    self.device.upload(self.addresses[name], inputs[buffer.name])

    def rotated_addresses(self, names: Iterable[str]) -> dict[str, int]:
        """Return the address of each array by name, increased by `ROTATION_BYTES` for the arrays in `names`."""
        return {**self.addresses, **{name: self.addresses[name] + ROTATION_BYTES for name in names}}

    def reset(self, poison: int = POISON) -> list[Work]:
        """Return the works that reset the buffers that a kernel may write: in-out arrays get their inputs again, and
        outputs are filled with the byte `poison`. Scratch memory is filled with `poison` too if that is the default
        (all ones, which is NaN), else with the byte `LARGE`, which gives large numbers."""
        works = []
        for buffer in self.buffers:
            address = self.addresses[buffer.name]
            if buffer.role == "inout":
                works.append(self.device.copy(self.addresses[_backup_name(buffer.name)], address, buffer.nbytes))
            elif buffer.role != "in":
                byte = LARGE if buffer.role == "scratch" and poison != POISON else poison
                works.append(self.device.fill(address, buffer.nbytes, byte))
        return works

    def digests(self, names: Iterable[str]) -> tuple[int, ...]:
        """Wait for all queued work, and return for each named array a digest of the array and the bytes after it."""
        return tuple(self.device.digest(self.addresses[name], self.sizes[name]) for name in names)

    def release(self) -> None:
        """Overwrite the outputs, so that no later kernel can read them, and free the memory."""
        for work in self.reset():
            work()
        guards = {buffer.name: guard_bytes(buffer.nbytes) for buffer in self.buffers}
        for name, address in self.addresses.items():
            self.device.release(address - guards.get(name, 0))

    def guard_zone_hazard(self) -> Hazard | None:
        """Return a hazard that describes the first changed guard zone, or None if all are unchanged."""
        for pointer, nbytes, buffer in self._zones():
            zone = np.empty(nbytes, np.uint8)
            self.device.download(pointer, zone)
            changed = np.flatnonzero(zone != GUARD)
            if changed.size:
                start = self.addresses[buffer.name]
                # Offset of the changed byte that is nearest to the array.
                offset = pointer - start + int(changed[-1 if pointer < start else 0])
                beyond, count = offset - buffer.nbytes, int(changed.size)
                position = f"{-offset} bytes before its start" if beyond < 0 else f"{beyond} bytes after its end"
                message = f"the kernel wrote outside '{buffer.name}', first {position}, {count} bytes in all"
                return Hazard("out-of-bounds", 0, "", (0, 0, 0), (0, 0, 0), count, message)
        return None

    def _zones(self) -> list[tuple[int, int, Buffer]]:
        """Return (address, size in bytes, array) of every guard zone."""
        zones = []
        for buffer in self.buffers:
            nbytes, size = guard_bytes(buffer.nbytes), buffer.nbytes + _appended_bytes(buffer)
            start = self.addresses[buffer.name] - nbytes
            end = start + nbytes + size
            tail = _whole_pages(self.device, size + 2 * nbytes) - nbytes - size
            zones += [(start, nbytes, buffer), (end, tail, buffer)]
        return zones

    def copy(self) -> Work | None:
        """Return the work of a copy that moves as many bytes as the operation: half are read and half are written.

        Return None if there was no memory for the buffers of the copy.
        """
        source, target = (self._copy_address(role) for role in _COPY_BUFFERS)
        return None if source is None or target is None else self.device.copy(source, target, self.copy_bytes)

    def _copy_address(self, role: str) -> int | None:
        name = next(
            (b.name for b in self.buffers if b.role == role and b.nbytes >= self.copy_bytes > 0), _COPY_BUFFERS[role]
        )
        return self.addresses.get(name)

    def download(self, buffers: Iterable[Buffer]) -> dict[str, np.ndarray]:
        """Return the contents of some buffers as host arrays, by name."""
        arrays = {buffer.name: _touch_pages(np.empty(buffer.shape, buffer.dtype)) for buffer in buffers}
        for name, array in arrays.items():
            self.device.download(self.addresses[name], array)
        return arrays


def _touch_pages(array: np.ndarray) -> np.ndarray:
    """Write to all memory of a new array, and return the array. Without this, the driver, which copies to the array on
    one thread, would need four times as long."""
    flat = array.reshape(-1).view(np.uint8)
    on_threads(lambda piece: flat[piece].fill(0), [*pieces(slice(0, flat.size), TOUCHED)])
    return array


# The copy for comparison uses an input as source and an output as target, if they are long enough. An output is a good
# target, because the kernel must write the whole output again before it is verified. `_COPY_BUFFERS` has the names of
# additional arrays, used if no input or no output is long enough.
_COPY_BUFFERS = {"in": "copy source", "out": "copy target"}


def _appended_bytes(buffer: Buffer) -> int:
    """Return the size of the copy of an array's first bytes that follows the array; 0 if there is no such copy."""
    return ROTATION_BYTES if buffer.role == "in" else 0


def _appended_content(array: np.ndarray) -> np.ndarray:
    """Return the content of the bytes that follow an array: its first bytes, repeated if the array is shorter."""
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return np.resize(flat[:ROTATION_BYTES], ROTATION_BYTES)


def rotated_input(array: np.ndarray) -> np.ndarray:
    """Return the values that a kernel reads if an input's address is increased by `ROTATION_BYTES`."""
    joined = np.concatenate([np.ascontiguousarray(array).reshape(-1).view(np.uint8), _appended_content(array)])
    return joined[ROTATION_BYTES:][: array.nbytes].view(array.dtype).reshape(array.shape)


_BACKUP = " before"


def _backup_name(name: str) -> str:
    """Return the name of the copy from which a buffer is restored."""
    return name + _BACKUP


def _whole_pages(device: Device, nbytes: int) -> int:
    """Return a size in bytes, rounded up to whole pages of the device."""
    return -(-nbytes // device.page_bytes) * device.page_bytes


def allocate_places(device: Device, operation: Operation, problem: Problem) -> tuple[BufferSet, ...]:
    """Allocate a problem's buffers at one or more places, and return a `BufferSet` for each place. Buffers for the copy
    are left out if they do not fit into the free memory. Raises OutOfMemory if the other buffers do not fit."""
    buffers = operation.buffers(problem)
    sizes = {b.name: b.nbytes + _appended_bytes(b) for b in buffers}
    sizes |= {_backup_name(b.name): b.nbytes for b in buffers if b.role == "inout"}
    guards = {b.name: guard_bytes(b.nbytes) for b in buffers}
    # No two arrays share a page: the addresses of two arrays in one page would depend on each other.
    allocated = {name: _whole_pages(device, nbytes + 2 * guards.get(name, 0)) for name, nbytes in sizes.items()}
    needed, free = sum(allocated.values()), device.free_bytes()
    if needed > free:
        raise OutOfMemory(
            f"{operation.name} of this size needs {needed / 1e9:.2f} GB, {device.info.name} has {free / 1e9:.2f} GB "
            f"free: use {operation.smaller}."
        )
    half = operation.bytes(problem) // 2
    for role, name in _COPY_BUFFERS.items():
        pages = _whole_pages(device, half)
        if half and needed + pages <= free and not any(b.role == role and b.nbytes >= half for b in buffers):
            allocated[name] = pages
            needed += pages
    count = place_count(
        sum(sizes.values()) + 2 * sum(guards.values()) + half * len(_COPY_BUFFERS.values() & allocated.keys()), free
    )
    count = min(count, free // max(needed, 1))
    layout = []
    for _ in range(count):
        addresses = {name: device.allocate(nbytes) + guards.get(name, 0) for name, nbytes in allocated.items()}
        for name in _COPY_BUFFERS.values():
            if name in addresses:
                device.fill(addresses[name], half, POISON)()
        layout.append(
            BufferSet(device, buffers, addresses, {**sizes, **dict.fromkeys(_COPY_BUFFERS.values(), half)}, half)
        )
    return tuple(layout)


def guard_bytes(nbytes: int) -> int:
    """Return the bytes of each of the two guard zones of an array with `nbytes` bytes."""
    return LARGE_GUARD_BYTES if nbytes >= LARGE_ARRAY_BYTES else SMALL_GUARD_BYTES


def place_count(nbytes: int, free: int) -> int:
    """Return the number of places if a place needs `nbytes`: at least two, if two fit into the `free` bytes."""
    least = 2 if 2 * nbytes <= min(free, LARGEST_PAIR_BYTES) else 1
    return max(least, min(MOST, min(TOGETHER_BYTES, free) // max(nbytes, 1)))
